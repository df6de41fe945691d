"""How messages become tokens: the YAML section ``renderer``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from rllib_agentic.components import Settings
from rllib_agentic.errors import InputError
from rllib_agentic.rendering.choose import renderer_for
from rllib_agentic.rendering.renderer import Renderer

_TAKEN = ("messages", "conversation", "tools", "add_generation_prompt", "chat_template", "tokenize")


class RendererSettings(Settings):
    """The model's own chat format, unless something else is said.

    Attributes:
        chat_template: a file with a jinja template, instead of the tokenizer's own.
        template_kwargs: further variables for the template, such as ``{enable_thinking: false}``.
        earlier_reasoning: for templates that drop the reasoning of earlier turns. ``as_template``: such a turn opens a
            new segment, rendered as the template would. ``kept``: the context keeps the reasoning, and one segment
            goes on: fewer tokens to read and train, in a context that the template itself would not make.
    """

    chat_template: str | None = Field(default=None, min_length=1)
    template_kwargs: dict[str, Any] = Field(default_factory=dict)
    earlier_reasoning: Literal["as_template", "kept"] = "as_template"

    @field_validator("template_kwargs")
    @classmethod
    def _not_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := [key for key in _TAKEN if key in value]:
            raise ValueError(f"{', '.join(taken)}: set for every rendering already")
        return value

    def build(self, tokenizer: Any, stop_ids: Iterable[int] = ()) -> Renderer:
        """The renderer for a tokenizer, see :func:`~rllib_agentic.rendering.renderer_for`.

        Raises:
            InputError: there is no such file, or the template cannot be used.
        """
        return renderer_for(
            tokenizer,
            chat_template=self._template(),
            stop_ids=stop_ids,
            template_kwargs=self.template_kwargs,
            earlier_reasoning=self.earlier_reasoning,
        )

    def _template(self) -> str | None:
        if self.chat_template is None:
            return None
        file = Path(self.chat_template).expanduser()
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"config.renderer.chat_template: {str(file)!r} cannot be read: {error}") from error
