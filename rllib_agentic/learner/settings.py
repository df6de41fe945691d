"""How rows are trained: the YAML section ``learner``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from rllib_agentic.advantages import CriticEstimator
from rllib_agentic.components import Settings
from rllib_agentic.losses import Aggregation, Importance, KLEstimator, PolicyLoss


class KLSettings(Settings):
    """The pull towards the policy that the run started from.

    Attributes:
        coefficient: weight of the divergence; 0 for none, and then no reference policy is kept.
        place: ``loss`` adds ``coefficient * kl_t`` to the loss of every sampled token (GRPO); ``reward`` takes it from
            the reward of every sampled token before advantages are estimated (PPO for language models, REINFORCE++).
        estimator: ``k1``, ``k2`` or ``k3``; see :mod:`rllib_agentic.losses.kl`. None is ``k3`` in the loss and ``k1``
            in the reward, which are sound there.
    """

    coefficient: float = Field(default=0.0, ge=0)
    place: Literal["loss", "reward"] = "loss"
    estimator: KLEstimator | None = None

    @model_validator(mode="after")
    def _has_an_effect(self) -> KLSettings:
        if self.place == "loss" and self.estimator == "k1":
            raise ValueError("k1 in the loss has no gradient on average: choose k2 or k3, or place 'reward'")
        return self

    @property
    def chosen_estimator(self) -> KLEstimator:
        """The estimator, resolved."""
        return self.estimator or ("k3" if self.place == "loss" else "k1")


class ValueSettings(Settings):
    """The critic's loss; read only where the advantages need a critic.

    Attributes:
        coefficient: weight of the value loss beside the policy loss.
        clip: largest change of a value that still lowers the loss; None for no clip.
        warmup_steps: optimizer steps at the start whose loss is the critic's alone. A critic that is a head on the
            policy sends its gradient through the layers that both share, so these change too.
        lr: peak learning rate of the critic's own parameters (its head, or its whole model), which then also have a
            gradient norm of their own to clip; None trains and clips them with the policy.
    """

    coefficient: float = Field(default=0.5, ge=0)
    clip: float | None = Field(default=0.2, gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    lr: float | None = Field(default=None, gt=0)


class LearnerSettings(Settings):
    """Optimizer, epochs, normalisation, precision and memory.

    Attributes:
        lr: peak learning rate.
        weight_decay: AdamW's, on matrices only (not on norms and biases).
        betas: AdamW's.
        eps: AdamW's.
        warmup_steps: optimizer steps over which the learning rate rises from 0.
        schedule: what follows the warm-up: ``constant``, or ``linear`` or ``cosine`` down to ``min_lr_ratio``.
        decay_steps: optimizer steps, warm-up included, after which the decay is done.
        min_lr_ratio: where the decay ends, as a part of ``lr``.
        grad_clip: largest global gradient norm; None for no limit.
        num_epochs: passes over the rows of an iteration.
        minibatches: optimizer steps an epoch.
        minibatch_size: trajectories an optimizer step, instead of ``minibatches``.
        aggregation: how token losses become one number; see :mod:`rllib_agentic.losses.aggregation`.
        constant: divisor of ``sum_over_constant``; None for the most tokens that an episode may sample.
        entropy_coefficient: weight of the entropy bonus.
        kl: pull towards the initial policy.
        value: the critic's loss.
        recompute_old_logprobs: take ratios against the learner's own logprobs before the first step, not the engine's.
        importance: correction for the engine's logprobs; needs ``recompute_old_logprobs``.
        max_tokens_per_micro_batch: padded tokens in one forward and backward pass. A longer row is a pass of its own.
        max_logits: most logits alive at a time; bounds the memory of large vocabularies.
        dtype: of the computation; ``auto`` follows the model's weights. Parameters, gradients and optimizer state are
            float32 always; ``bfloat16`` computes under autocast.
    """

    lr: float = Field(default=1e-6, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = Field(default=1e-8, gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    decay_steps: int | None = Field(default=None, ge=1)
    min_lr_ratio: float = Field(default=0.0, ge=0, le=1)
    grad_clip: float | None = Field(default=1.0, gt=0)
    num_epochs: int = Field(default=1, ge=1)
    minibatches: int = Field(default=1, ge=1)
    minibatch_size: int | None = Field(default=None, ge=1)
    aggregation: Aggregation = "token_mean"
    constant: float | None = Field(default=None, gt=0)
    entropy_coefficient: float = 0.0
    kl: KLSettings = KLSettings()
    value: ValueSettings = ValueSettings()
    recompute_old_logprobs: bool = False
    importance: Importance = Importance()
    max_tokens_per_micro_batch: int = Field(default=4096, ge=1)
    max_logits: int = Field(default=2**24, ge=1)
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"

    @model_validator(mode="after")
    def _consistent(self) -> LearnerSettings:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must lie in [0, 1), got {self.betas}")
        if self.minibatch_size is not None and self.minibatches != 1:
            raise ValueError("give 'minibatches' or 'minibatch_size', not both")
        if self.schedule != "constant" and (self.decay_steps is None or self.decay_steps <= self.warmup_steps):
            raise ValueError(
                f"schedule {self.schedule!r} needs decay_steps above warmup_steps ({self.warmup_steps}), "
                f"got {self.decay_steps}"
            )
        if self.schedule == "constant" and self.decay_steps is not None:
            raise ValueError("decay_steps has no effect with schedule 'constant'; choose 'linear' or 'cosine'")
        if self.constant is not None and self.aggregation != "sum_over_constant":
            raise ValueError(f"'constant' has no effect with aggregation {self.aggregation!r}")
        if self.importance.mode != "off" and not self.recompute_old_logprobs:
            raise ValueError(f"importance mode {self.importance.mode!r} has no effect without recompute_old_logprobs")
        return self


@dataclass(frozen=True, slots=True)
class LearnerSetup:
    """All that a learner reads from the config, as ``config.sections().learner_setup()``.

    Attributes:
        settings: the section ``learner``.
        loss: the section ``loss``.
        temperature: of sampling; scoring divides the logits by the same.
        critic: the estimator of section ``advantages`` where it needs a critic, else None.
        dropout_seed: of the dropout before the adapters; None where there is none.
        restarts: whether the learner is asked to begin anew, and so remembers its first weights.
    """

    settings: LearnerSettings
    loss: PolicyLoss
    temperature: float = 1.0
    critic: CriticEstimator | None = None
    dropout_seed: int | None = None
    restarts: bool = False

    @property
    def needs_reference(self) -> bool:
        """Whether a frozen reference policy is asked anything."""
        return self.settings.kl.coefficient > 0 or self.loss.needs_reference
