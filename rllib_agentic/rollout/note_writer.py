"""Another model than the policy, for the notes that a context strategy asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rllib_agentic.components import parse_settings
from rllib_agentic.engines.engine import GenerationRequest, TurnSampler
from rllib_agentic.engines.settings import HFEngineSettings
from rllib_agentic.errors import InfrastructureError
from rllib_agentic.rendering import renderer_for
from rllib_agentic.rendering.renderer import Renderer
from rllib_agentic.rl_module.model_settings import ModelSettings
from rllib_agentic.trajectory.message import Message

_MOST_TOKENS = 8192


class NoteWriter(Protocol):
    """Writes a text from a conversation. What it writes is context to the policy, and never trained."""

    async def write(self, messages: Sequence[Message], max_tokens: int, seed: int) -> str:
        """The text; equal conversations and seeds give equal texts.

        Raises:
            InfrastructureError: nothing could be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class EngineWriter:
    """Writes with a language model of its own.

    Attributes:
        engine: over the other model.
        renderer: its chat format.
        temperature: of its sampling.
        max_context_tokens: the longest conversation and note together; a longer conversation loses its middle, which
            is cut out of the rendered tokens.
    """

    engine: TurnSampler
    renderer: Renderer
    temperature: float = 0.0
    max_context_tokens: int = _MOST_TOKENS

    async def write(self, messages: Sequence[Message], max_tokens: int, seed: int) -> str:
        """See :class:`NoteWriter`."""
        ids = self.renderer.render(messages)
        room = self.max_context_tokens - max_tokens
        if len(ids) > room:
            half = max(room // 2, 1)
            ids = np.concatenate([ids[:half], ids[-half:]])
        completion = await self.engine.generate(
            GenerationRequest(
                context_ids=ids,
                max_tokens=max_tokens,
                temperature=self.temperature,
                seed=seed,
                stop_ids=self.renderer.stop_ids,
            )
        )
        if not len(completion.ids):
            raise InfrastructureError("note_failed", "the model that writes notes was aborted before its first token")
        return self.renderer.text(completion.ids)


def load_writer(model: Mapping[str, Any], device: Any) -> EngineWriter:
    """A writer with a model of its own, loaded now.

    Args:
        model: as the section ``model``.
        device: where it goes.

    Raises:
        InputError: the model is not there, or the settings are wrong.
    """
    from rllib_agentic.rl_module.model_loading import load_model, load_stop_ids, load_tokenizer

    settings = parse_settings(ModelSettings, model, "context.model")
    tokenizer, loaded = load_tokenizer(settings), load_model(settings, seed=0).to(device)
    positions = getattr(loaded.config.get_text_config(), "max_position_embeddings", None) or _MOST_TOKENS
    return EngineWriter(
        HFEngineSettings().build(loaded, tokenizer),
        renderer_for(tokenizer, stop_ids=load_stop_ids(settings)),
        max_context_tokens=min(positions, _MOST_TOKENS),
    )
