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

    def receive_weights(self, path: str, expected: Mapping[str, int]) -> dict[str, int]:
        """Load a safetensors file that holds a whole checkpoint under Hugging Face names.

        Args:
            path: readable from this worker.
            expected: checksums of some tensors as they were sent.

        Returns:
            Checksums of those parameters that the engine keeps under their checkpoint name and in their own shape.

        Raises:
            ValueError: a tensor came damaged, has no place in the model, or one of the model's was not sent. The
                weights are then not to be used.
        """
        model = self.model_runner.get_model()
        names = {name.replace(".base_layer.", ".") for name, _ in model.named_parameters()}
        with safe_open(path, framework="pt") as file:
            damaged = [
                name for name, checksum in expected.items() if tensor_checksum(file.get_tensor(name)) != checksum
            ]
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
        return self.weight_checksums(list(expected))

    def weight_checksums(self, names: list[str]) -> dict[str, int]:
        """Checksums of those of the named parameters that are kept as they are in a checkpoint."""
        parameters = dict(self.model_runner.get_model().named_parameters())
        return {name: tensor_checksum(parameters[name].detach()) for name in names if name in parameters}


def _repack_tied_head(model: torch.nn.Module) -> None:
    """Where the output layer shares the embedding, its packed copy is made anew (vLLM's reload leaves it stale)."""
    head = getattr(model, "lm_head", None)
    inner = getattr(model, "model", None)
    embedding = getattr(inner, "embed_tokens", None)
    if head is None or embedding is None or not hasattr(head, "weight"):
        return
    if head is embedding or head.weight.data_ptr() == embedding.weight.data_ptr():
        head.quant_method.process_weights_after_loading(head)
