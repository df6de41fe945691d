"""Causal attention over rows of different lengths in one forward, without a padded token.

New tokens of all rows lie one after another in a single packed sequence, so that every linear layer sees exactly the
tokens there are. Only attention knows rows: it appends each row's keys and values to that row's own cache and
attends there through a view. The model reaches it through transformers' attention interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from rllib_agentic.errors import InputError

_NAME = "rllib_agentic_ragged"
_BLOCK = 64
_SERVED_LAYERS = frozenset({"full_attention", "sliding_attention"})


class KVCache:
    """Keys and values of one sequence: a buffer ``[2, Hkv, 1, capacity, d]`` a layer, filled up to a known length."""

    __slots__ = ("layers",)

    def __init__(self) -> None:
        self.layers: list[Tensor] = []

    def fork(self, length: int) -> KVCache:
        """A cache of its own with the first ``length`` tokens copied."""
        twin = KVCache()
        for buffer in self.layers:
            copy = _allocate(buffer, length)
            copy[..., :length, :] = buffer[..., :length, :]
            twin.layers.append(copy)
        return twin

    def append(self, layer: int, kv: Tensor, past: int) -> Tensor:
        """Write ``kv`` ``[2, Hkv, 1, n, d]`` after ``past`` tokens; returns the view of all ``past + n``."""
        end = past + kv.shape[3]
        if layer == len(self.layers):
            self.layers.append(_allocate(kv, end))
        buffer = self.layers[layer]
        if buffer.shape[3] < end:
            grown = _allocate(buffer, end)
            grown[..., :past, :] = buffer[..., :past, :]
            self.layers[layer] = buffer = grown
        view = buffer[..., :end, :]
        view[..., past:, :] = kv
        return view


def _allocate(like: Tensor, length: int) -> Tensor:
    wanted = length + max(_BLOCK, length // 4)
    capacity = -(-wanted // _BLOCK) * _BLOCK
    return like.new_empty((*like.shape[:3], capacity, like.shape[4]))


class Span(NamedTuple):
    """One row of a packed forward: its new tokens lie at ``start:end`` and follow ``past`` cached ones."""

    cache: KVCache
    start: int
    end: int
    past: int


class _Batch:
    """The rows of one forward, and the masks they share as views of one band a window size."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = spans
        self._rows = max(span.end - span.start for span in spans)
        self._past = max(span.past for span in spans)
        self._bands: dict[int | None, Tensor] = {}

    def mask(self, n: int, past: int, window: int | None, like: Tensor) -> Tensor:
        """Additive mask ``[n, past + n]``: a token sees itself, what came before, and of that the last ``window``."""
        band = self._bands.get(window)
        if band is None:
            shape = (self._rows, self._past + self._rows)
            band = like.new_full(shape, -torch.inf).triu_(self._past + 1)
            if window is not None:
                band += like.new_full(shape, -torch.inf).tril_(self._past - window)
            self._bands[window] = band
        return band[:n, self._past - past : self._past + n]


def _attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    ragged_batch: _Batch | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    for name in ("softcap", "s_aux", "position_bias"):
        if others.get(name) is not None:
            raise NotImplementedError(f"attention with {name}")
    if ragged_batch is None:
        raise NotImplementedError("a model that keeps keyword arguments from its attention layers")
    _, heads, total, dim = query.shape
    kv_heads = key.shape[1]
    shared = heads // kv_heads
    layer: int = module.layer_idx  # type: ignore[assignment]
    query = query.view(kv_heads, shared, total, dim)
    kv = torch.stack((key[0], value[0])).unsqueeze(2)
    outputs = []
    for cache, start, end, past in ragged_batch.spans:
        n = end - start
        keys, values = cache.append(layer, kv[:, :, :, start:end], past).unbind(0)
        windowed = sliding_window is not None and end - start + past > sliding_window
        if n == 1 and not windowed:
            # One token: the query heads that share a key head are its rows, so nothing is expanded.
            row = F.scaled_dot_product_attention(
                query[:, :, start].unsqueeze(1), keys, values, scale=scaling
            )  # [Hkv, 1, shared, d]
            outputs.append(row.reshape(1, heads, dim))
            continue
        row = F.scaled_dot_product_attention(
            query[:, :, start:end],
            keys.expand(-1, shared, -1, -1),
            values.expand(-1, shared, -1, -1),
            attn_mask=ragged_batch.mask(n, past, sliding_window if windowed else None, query)
            if past or windowed
            else None,
            is_causal=not (past or windowed),
            scale=scaling,
        )  # [Hkv, shared, n, d]
        outputs.append(row.reshape(heads, n, dim).transpose(0, 1))
    return torch.cat(outputs).unsqueeze(0), None


AttentionInterface.register(_NAME, _attend)


def ragged_logits(model: Any, input_ids: Tensor, position_ids: Tensor, spans: Sequence[Span], keep: Tensor) -> Tensor:
    """One forward over packed rows; their caches hold the new tokens' keys and values afterwards.

    Args:
        model: a Hugging Face causal LM whose attention goes through transformers' attention interface.
        input_ids: int64 ``[N]``, the rows' new tokens one after another.
        position_ids: int64 ``[N]``, each token's position in its own sequence.
        spans: the rows, in order, covering all N.
        keep: int64 ``[R]``, at which of the N tokens to compute logits.

    Returns:
        Logits ``[R, V]``.
    """
    with _ragged(model):
        output = model(
            input_ids=input_ids[None],
            position_ids=position_ids[None],
            use_cache=False,
            logits_to_keep=keep,
            ragged_batch=_Batch(spans),
        )
    return output.logits[0]


def check_servable(model: Any) -> None:
    """Compare one small forward in two pieces with the model's own attention.

    Raises:
        InputError: this attention cannot serve the model exactly.
    """
    name = type(model).__name__
    advice = "Use the vllm engine for this model."
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ()) - _SERVED_LAYERS
    if kinds:
        raise InputError(
            f"HFEngine: {name} has layers of the kinds {sorted(kinds)}; served are {sorted(_SERVED_LAYERS)}. {advice}"
        )
    device = model.get_input_embeddings().weight.device
    ids = torch.arange(12, device=device) % model.get_input_embeddings().weight.shape[0]
    positions = torch.arange(12, device=device)
    cache = KVCache()
    keep = torch.tensor([0], device=device)
    with torch.inference_mode():
        own = model(input_ids=ids[None], use_cache=False).logits[0, -1].float()
        try:
            for start, end in ((0, 7), (7, 11), (11, 12)):
                span = Span(cache, 0, end - start, start)
                ours = ragged_logits(model, ids[start:end], positions[start:end], [span], keep + end - start - 1)[0]
        except (NotImplementedError, TypeError) as error:
            raise InputError(f"HFEngine: cannot serve {name}: {error}. {advice}") from error
    tolerance = (1e-3 if own.dtype == model.dtype else 0.1) * float(own.abs().max())
    if not torch.allclose(ours.float(), own, rtol=0, atol=tolerance, equal_nan=True):
        difference = float((ours.float() - own).abs().max())
        raise InputError(f"HFEngine: logits of {name} differ by {difference:.2g} from the model's own. {advice}")


@contextmanager
def _ragged(model: Any) -> Iterator[None]:
    """Route the model's attention to this module, for the length of one forward."""
    before = model.config._attn_implementation
    model.config._attn_implementation = _NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before
