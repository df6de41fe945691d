"""The RLlib learner around :class:`~rllib_agentic.learner.row_trainer.RowTrainer`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from ray.actor import ActorHandle
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO
from torch import nn
from torch.utils._pytree import tree_map_only

from rllib_agentic.diagnostics import CrossSample
from rllib_agentic.learner.gradients import broadcast_from_first
from rllib_agentic.learner.micro_batches import Floats
from rllib_agentic.learner.reference import reference_of
from rllib_agentic.learner.report import LearnerReport
from rllib_agentic.learner.row_trainer import RowTrainer, make_optimizer
from rllib_agentic.learner.scoring import Scorer, find_head
from rllib_agentic.learner.settings import LearnerSetup
from rllib_agentic.learner.train_batch import TrainBatch
from rllib_agentic.learner.weight_lender import LentWeights, WeightLender
from rllib_agentic.rl_module.weight_group import place_of
from rllib_agentic.trajectory.row import Row

_STEPS = "optimizer_steps"
_HALF = (torch.bfloat16, torch.float16)


class AgenticLearner(TorchLearner):
    """Trains rows: ``learner_group.foreach_learner(lambda learner: learner.train_rows(batch))``.

    RLlib's own ``update`` is not used: it would cut, pad and repeat rows. Every learner gets the whole plan, takes its
    share, and meets the others once an optimizer step, where gradients are summed. There is no DDP wrapper, so
    learners may run different numbers of micro-batches.

    All that it reads from the config is ``config.sections().learner_setup()``, a
    :class:`~rllib_agentic.learner.settings.LearnerSetup`. Parameters, gradients and optimizer state are float32
    whatever the dtype that the model was loaded in.
    """

    def build(self) -> None:
        """Make module, optimizer and, where the loss needs one, the frozen reference policy."""
        self._setup: LearnerSetup = self.config.sections().learner_setup()
        super().build()
        module = self.module[DEFAULT_MODULE_ID]
        if self.distributed:
            broadcast_from_first([*module.parameters(), *module.buffers()])
        self._lender = WeightLender(module.policy_weights, next(module.model.parameters()).device)
        self._first_weights = module.get_state() if self._setup.restarts else None
        (optimizer,) = self._named_optimizers.values()
        self._trainer = RowTrainer(
            self._scorer(module, critic=self._setup.critic is not None),
            self._scorer(reference_of(module), critic=False) if self._setup.needs_reference else None,
            optimizer,
            self._setup,
            distributed=self.distributed,
        )

    def train_rows(self, batch: TrainBatch) -> LearnerReport:
        """Run the optimizer steps of a plan on this learner's share of it.

        Args:
            batch: the whole plan, the same for every learner.

        Returns:
            This learner's report; join them with :func:`~rllib_agentic.learner.report.merge_reports`.
        """
        self._lender.take_back()
        report = self._trainer.train(batch)
        self._weights_seq_no += 1
        return report

    def restart(self) -> None:
        """Back to the weights that this learner was built with, with a new optimizer and its schedule at step 0."""
        if self._first_weights is None:
            raise RuntimeError("AgenticLearner: its first weights were not kept, because nothing restarts it")
        self._lender.take_back()
        self.module[DEFAULT_MODULE_ID].set_state(self._first_weights)
        for optimizer in self._named_optimizers.values():
            optimizer.state.clear()
        self._trainer.optimizer_steps = 0

    def reference_logprobs(self, rows: Sequence[Row]) -> dict[int, Floats]:
        """Score this learner's share of rows under the frozen reference policy.

        Args:
            rows: the same on every learner, which scores every n-th of them.

        Returns:
            Row number to the logprobs of its action tokens, ``[A_row]``.
        """
        rank, learners = (dist.get_rank(), dist.get_world_size()) if self.distributed else (0, 1)
        return self._trainer.reference_logprobs(rows, range(rank, len(rows), learners))

    def cross_scores(self, sample: CrossSample) -> dict[int, Floats]:
        """Score all responses of a sample under this learner's share of its prompts (every n-th of them).

        Args:
            sample: the same on every learner.

        Returns:
            Prompt number to log-probabilities, float64 ``[N]``.
        """
        rank, learners = (dist.get_rank(), dist.get_world_size()) if self.distributed else (0, 1)
        return self._trainer.cross_scores(sample, range(rank, len(sample.prompts), learners))

    def weight_place(self) -> tuple[str, str] | None:
        """Kind and identity of the device that the weights are lent from; None on learners that lend none."""
        return place_of(next(self.module[DEFAULT_MODULE_ID].model.parameters()).device) if self._lends else None

    def lend_weights(
        self, token: str, rounds: ActorHandle, *, dtype: torch.dtype | None, timeout_s: float
    ) -> LentWeights | None:
        """Send the present weights to all engines that come for them, until they change; the first learner does.

        See :meth:`~rllib_agentic.learner.weight_lender.WeightLender.lend`.
        """
        if not self._lends:
            return None
        return self._lender.lend(token, self._weights_seq_no, rounds, dtype=dtype, timeout_s=timeout_s)

    def stop_lending(self) -> None:
        """Send nothing any more."""
        self._lender.close()

    def change_setup(self, setup: LearnerSetup) -> None:
        """Train under other settings from now on. Optimizer, critic and reference policy stay as they were built."""
        self._setup = setup
        self._trainer.change_setup(setup)

    def set_version(self, version: int) -> None:
        """Number the present weights anew, so that no older number ever means two sets of weights."""
        self._weights_seq_no = version

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """AdamW; its learning rate follows our own schedule, not RLlib's."""
        module = self.module[module_id]
        optimizer = make_optimizer(module, self._setup.settings)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=parameters)

    def compute_loss_for_module(self, **_: Any) -> NoReturn:
        """Refuse RLlib's update path.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("AgenticLearner trains by train_rows(batch), not by RLlib's Learner.update()")

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore, also to an older state than the present one (which RLlib would silently pass over)."""
        self._lender.take_back()
        version = state.get(WEIGHTS_SEQ_NO)
        if version is not None:
            self._weights_seq_no = version - 1
        super().set_state(state)
        if version is not None:
            self._weights_seq_no = version

    def _get_optimizer_state(self) -> dict[str, Any]:
        """Optimizer and step count, as copies on the CPU in their own dtypes."""
        return {
            name: {
                "module_id": self._optimizer_name_to_module[name],
                "state": tree_map_only(torch.Tensor, lambda t: t.to("cpu", copy=True), optimizer.state_dict()),
                _STEPS: self._trainer.optimizer_steps,
            }
            for name, optimizer in self._named_optimizers.items()
        }

    def _set_optimizer_state(self, state: dict[str, Any]) -> None:
        for name, entry in state.items():
            self._named_optimizers[name].load_state_dict(copy.deepcopy(entry["state"]))
            self._trainer.optimizer_steps = entry[_STEPS]

    def _make_module(self) -> MultiRLModule:
        multi = super()._make_module()
        module = multi[DEFAULT_MODULE_ID]
        loaded = next(module.model.parameters()).dtype
        wanted = {"auto": loaded, "float32": torch.float32, "bfloat16": torch.bfloat16}[self._setup.settings.dtype]
        self._autocast_dtype = wanted if wanted in _HALF else None
        if loaded in _HALF and module.settings.lora is None:  # a frozen base may stay as it is: adapters are float32
            module.float()
        _switch_off_dropout(module, adapters=self._setup.dropout_seed is None)
        module.train(module.settings.gradient_checkpointing)
        return multi

    def _make_modules_ddp_if_necessary(self) -> None:
        """Nothing: gradients are summed by hand."""

    @property
    def _lends(self) -> bool:
        return not self.distributed or dist.get_rank() == 0

    def _scorer(self, module: Any, *, critic: bool) -> Scorer:
        return Scorer(
            module,
            temperature=self._setup.temperature,
            max_logits=self._setup.settings.max_logits,
            dtype=self._autocast_dtype,
            head=find_head(module),
            critic=module.value_head if critic else None,
            critic_hidden=module.critic_hidden if critic and module.critic_model is not None else None,
        )


def _switch_off_dropout(module: nn.Module, *, adapters: bool) -> None:
    """A ratio of logprobs means nothing under dropout, and checkpointed activations need the training mode."""
    for path, part in module.named_modules():
        if isinstance(part, nn.Dropout) and (adapters or "lora_dropout" not in path):
            part.p = 0.0
        for name in ("attention_dropout", "dropout_p"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
