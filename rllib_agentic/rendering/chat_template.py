"""A tokenizer's chat template as a plain function from messages to text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jinja2

from rllib_agentic.errors import InputError
from rllib_agentic.rendering.append_rule import SYSTEM, TOOLS, USER, Entry
from rllib_agentic.trajectory.message import Message, ToolCall, as_arguments


class ChatTemplate:
    """Runs one Hugging Face chat template.

    Where the template refuses a system message, the text of a leading one is put before the first user message.

    Args:
        tokenizer: whose template and special tokens are used.
        source: jinja source; the tokenizer's own where None.
        variables: further variables for the template.

    Raises:
        InputError: there is no template, or it refuses a single user message.
    """

    def __init__(self, tokenizer: Any, source: str | None = None, variables: Mapping[str, Any] | None = None) -> None:
        self._name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
        if not source and not getattr(tokenizer, "chat_template", None):
            raise InputError(
                f"{self._name}: the tokenizer has no chat template; set tokenizer.chat_template or give `chat_template`"
            )
        self._apply = tokenizer.apply_chat_template
        self._options = {"chat_template": source or None, "tokenize": False, **(variables or {})}
        self._takes_system = True
        head = self([USER])
        self.takes_system = self._takes_system = not self._refuses([SYSTEM, USER])
        self.shows_tools = not self._refuses([USER], TOOLS) and self([USER], tools=TOOLS) != head

    def __call__(self, entries: Sequence[Entry], *, tools: Sequence[Entry] = (), prompt: bool = True) -> str:
        """The rendered text.

        Args:
            entries: messages as the template takes them.
            tools: tool definitions.
            prompt: whether the generation prompt follows.

        Raises:
            InputError: the template refuses the messages; the message carries its own words.
        """
        if not self._takes_system:
            entries = _fold_system(entries)
        try:
            return self._apply(list(entries), tools=list(tools) or None, add_generation_prompt=prompt, **self._options)
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            roles = ", ".join(str(entry["role"]) for entry in entries) or "no messages"
            raise InputError(
                f"{self._name}: the chat template refuses the conversation ({roles}): {type(error).__name__}: {error}"
            ) from error

    def _refuses(self, entries: Sequence[Entry], tools: Sequence[Entry] = ()) -> bool:
        try:
            self(entries, tools=tools)
        except InputError:
            return True
        return False


def entry_of(message: Message, escape: Callable[[Any], Any]) -> Entry:
    """A message as templates take it: arguments are mappings, every string but the role went through ``escape``."""
    calls = tuple(ToolCall(call.name, as_arguments(call.arguments)) for call in message.tool_calls)
    entry = replace(message, tool_calls=calls).to_template()
    return {key: value if key == "role" else escape(value) for key, value in entry.items()}


def _fold_system(entries: Sequence[Entry]) -> list[Entry]:
    if not entries or entries[0]["role"] != "system":
        return list(entries)
    system, *rest = entries
    if rest and rest[0]["role"] == "user":
        return [{**rest[0], "content": f"{system['content']}\n\n{rest[0]['content']}"}, *rest[1:]]
    return [{**system, "role": "user"}, *rest]
