"""Inside vLLM's worker: new weights from a file or a broadcast, every tensor accounted for and a sample compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.utils.nccl import unpinned_nccl_env

from rllib_agentic.rl_module.weight_checks import tensor_checksum
from rllib_agentic.rl_module.weight_group import WeightGroup, WeightsInterruptedError, place_of
from rllib_agentic.rl_module.weight_manifest import WeightManifest

WORKER_EXTENSION = f"{__name__}.WeightReceiver"
_GROUP = "_weight_group"


class WeightReceiver:
    """Methods that vLLM adds to its worker (``worker_extension_cls``); called by ``collective_rpc``."""

    model_runner: Any
    model_config: Any
    rank: int

    def receive_weights(self, path: str, expected: Mapping[str, int]) -> int:
        """Load a safetensors file that holds a whole checkpoint under Hugging Face names.

        Args:
            path: readable from this worker.
            expected: checksums of a sample of tensors, as they were sent.

        Returns:
            How many tensors of the sample were compared with what the model holds now; the others are kept in another
            form (fused, packed, or in parts).

        Raises:
            ValueError: a tensor came damaged, has no place in the model, was not loaded, or one of the model's was not
                sent. The weights are then not to be used.
        """
        with safe_open(path, framework="pt") as file:
            sample = {name: file.get_tensor(name) for name in expected}
            damaged = [name for name, tensor in sample.items() if tensor_checksum(tensor) != expected[name]]
            if damaged:
                raise ValueError(f"weights that came are not those that were sent: {', '.join(damaged)}")
            return self._load(((name, file.get_tensor(name)) for name in file.keys()), sample)  # noqa: SIM118

    def weight_place(self) -> list[str]:
        """Kind and identity of this worker's device, and the dtypes of its parameters."""
        model = self.model_runner.get_model()
        dtypes = {str(p.dtype).removeprefix("torch.") for p in model.parameters() if p.is_floating_point()}
        return [*place_of(next(model.parameters()).device), *sorted(dtypes)]

    def receive_broadcast(self, plain: Mapping[str, Any], call: Mapping[str, Any]) -> str | int:
        """Load what a learner broadcasts, tensor by tensor as it comes.

        Args:
            plain: a manifest, see :meth:`~rllib_agentic.rl_module.weight_manifest.WeightManifest.plain`.
            call: of this round: ``host`` and ``port`` of the store, ``group`` (its name) and its ``size``,
                ``first_rank`` of this replica, the ``number`` of the round, ``timeout_s``.

        Returns:
            As :meth:`receive_weights`; or, where the broadcast was interrupted, why. The weights are then not to be
            used, but the next ones can be received.

        Raises:
            ValueError: as above.
        """
        manifest = WeightManifest.from_plain(plain)
        device = next(self.model_runner.get_model().parameters()).device
        sample: dict[str, torch.Tensor] = {}

        def arriving() -> Iterator[tuple[str, torch.Tensor]]:
            for name, tensor in manifest.receive(group, device):
                if name in manifest.checksums:
                    sample[name] = tensor.to("cpu", copy=True)
                yield name, tensor

        try:
            group = self._weights_from(call, device)
            with unpinned_nccl_env():  # the sender has none of the settings that vLLM's own groups may have
                group.meet(call["number"])
                return self._load(arriving(), sample)
        except (WeightsInterruptedError, dist.DistError) as error:
            return f"{type(error).__name__}: {error}"
        except BaseException:
            group.give_up()
            raise

    def _weights_from(self, call: Mapping[str, Any], device: torch.device) -> WeightGroup:
        """The group of a call: the one that is there, or a new one in its place."""
        held, wanted = getattr(self, _GROUP, None), (call["host"], call["port"], call["group"])
        if held is not None:
            if held[0] == wanted and not held[1].closed:
                return held[1]
            held[1].close()
        timeout = timedelta(seconds=call["timeout_s"])
        store = dist.TCPStore(call["host"], call["port"], timeout=timeout)
        rank = call["first_rank"] + self.rank
        group = WeightGroup(store, call["group"], rank, call["size"], device, call["timeout_s"])
        setattr(self, _GROUP, (wanted, group))
        return group

    def _load(self, tensors: Iterable[tuple[str, torch.Tensor]], sample: Mapping[str, torch.Tensor]) -> int:
        model = self.model_runner.get_model()
        names = {name.replace(".base_layer.", ".") for name, _ in model.named_parameters()}
        initialize_layerwise_reload(model)
        try:
            loaded = model.load_weights(tensors)
        finally:  # what was cut off is garbage now, but can be loaded again
            finalize_layerwise_reload(model, self.model_config)
        missing = sorted(names - set(loaded))
        if missing:
            raise ValueError(f"the engine's parameters were not sent: {', '.join(missing[:5])} ({len(missing)} in all)")
        _repack_tied_head(model)
        self.model_runner.reset_lora_state()
        self.model_runner.reset_encoder_cache()
        return _compare(model, sample)


def _compare(model: torch.nn.Module, sample: Mapping[str, torch.Tensor]) -> int:
    held = dict(model.named_parameters())
    same_form = {n: t for n, t in sample.items() if n in held and held[n].shape == t.shape}
    wrong = [n for n, t in same_form.items() if not torch.equal(held[n].detach().cpu(), t.to(held[n].dtype))]
    if wrong:
        raise ValueError(f"the model does not hold what was sent: {', '.join(wrong)}")
    return len(same_form)


def _repack_tied_head(model: torch.nn.Module) -> None:
    """Where the output layer shares the embedding, its packed copy is made anew (vLLM's reload leaves it stale)."""
    head = getattr(model, "lm_head", None)
    inner = getattr(model, "model", None)
    embedding = getattr(inner, "embed_tokens", None)
    if head is None or embedding is None or not hasattr(head, "weight"):
        return
    if head is embedding or head.weight.data_ptr() == embedding.weight.data_ptr():
        head.quant_method.process_weights_after_loading(head)
