"""Inside vLLM's worker: new weights from a file, every tensor accounted for, and checksums of what was loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from safetensors import safe_open
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from rllib_agentic.engines.weight_checks import tensor_checksum

WORKER_EXTENSION = f"{__name__}.WeightReceiver"


class WeightReceiver:
    """Methods that vLLM adds to its worker (``worker_extension_cls``); called by ``collective_rpc``."""

    model_runner: Any
    model_config: Any

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
        model = self.model_runner.get_model()
        names = {name.replace(".base_layer.", ".") for name, _ in model.named_parameters()}
        with safe_open(path, framework="pt") as file:
            sample = {name: file.get_tensor(name) for name in expected}
            damaged = [name for name, tensor in sample.items() if tensor_checksum(tensor) != expected[name]]
            if damaged:
                raise ValueError(f"weights that came are not those that were sent: {', '.join(damaged)}")
            initialize_layerwise_reload(model)
            loaded = model.load_weights((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118
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
