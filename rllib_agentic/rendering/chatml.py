"""ChatML, exactly: control tokens by id, content inert, no template engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rllib_agentic.errors import InputError
from rllib_agentic.rendering.call_markup import CallMarkup
from rllib_agentic.rendering.chain import as_ids, chain_exchanges, without_stop
from rllib_agentic.rendering.continued import split_answer
from rllib_agentic.rendering.inert import InertEncoder
from rllib_agentic.rendering.renderer import Exchange
from rllib_agentic.trajectory.message import Message, as_arguments, dump_json
from rllib_agentic.trajectory.turn import FinishReason, Ids

_TRUSTED = frozenset({"system", "assistant"})


class ChatMLRenderer:
    r"""Renders ``<|im_start|>role\ncontent<|im_end|>\n`` from token pieces. Every bridge is a strict extension.

    ::

        [start]system\n..[end]\n [start]user\n..[end]\n [start]assistant\n  ..[end]  \n[start]tool\n..[end]\n [start]..
        ─────────────────────── render ──────────────────────────────────  action  ──────────── bridge ────────────

    An assistant message's reasoning and tool calls go into its text, as ``<think>`` and ``<tool_call>`` blocks.

    Args:
        tokenizer: a Hugging Face tokenizer that has both control tokens.
        default_system: system text where the conversation does not begin with one; None for no such block.
        start_of_turn: the control token that opens a turn.
        end_of_turn: the control token that ends a turn.
        stop_ids: further ids that end a turn, such as a generation config's ``eos_token_id``; the tokenizer's EOS and
            ``end_of_turn`` always do.

    Attributes:
        end_of_turn_id: the id of ``end_of_turn``.

    Raises:
        InputError: the vocabulary lacks a control token, or the tokenizer has no ``tokenizers`` backend.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        default_system: str | None,
        start_of_turn: str = "<|im_start|>",
        end_of_turn: str = "<|im_end|>",
        stop_ids: Iterable[int] = (),
    ) -> None:
        self._encoder = InertEncoder(tokenizer, controls=(start_of_turn, end_of_turn))
        self._start_id = self._control_id(start_of_turn)
        self.end_of_turn_id = self._control_id(end_of_turn)
        eos = tokenizer.eos_token_id
        self._stop_ids = frozenset({self.end_of_turn_id, *stop_ids} | ({eos} if eos is not None else set()))
        self._decode = tokenizer.backend_tokenizer.decode
        self._join = self._encoder.encode_run("\n")
        self._prompt = [self._start_id, *self._encoder.encode_run("assistant\n")]
        self._default_system = default_system

    @property
    def stop_ids(self) -> frozenset[int]:
        """See :class:`~rllib_agentic.rendering.renderer.Renderer`."""
        return self._stop_ids

    @property
    def call_markup(self) -> CallMarkup | None:
        """None: ChatML itself has no place for tools."""
        return None

    def render(self, messages: Sequence[Message], *, tools: Sequence[dict[str, Any]] = ()) -> Ids:
        """See :class:`~rllib_agentic.rendering.renderer.Renderer`.

        Raises:
            InputError: no message, or tools, for which ChatML has no place.
        """
        if not messages:
            raise InputError("ChatML: a conversation needs at least one message, got none")
        if tools:
            raise InputError(
                f"ChatML has no place for tool definitions, got {len(tools)}: describe the tools in the system message"
            )
        ids: list[int] = []
        if messages[0].role != "system" and self._default_system is not None:
            ids += self._turn(Message("system", self._default_system))
        for message in messages:
            ids += self._turn(message)
        return as_ids(ids + self._prompt)

    def bridge(self, prefix_ids: Ids, finish_reason: FinishReason, new_messages: Sequence[Message]) -> Ids:
        """See :class:`~rllib_agentic.rendering.renderer.Renderer`. Never raises ``PrefixError``."""
        answer = split_answer(prefix_ids, finish_reason, self._stop_ids, new_messages)
        ids = [] if answer.within is None else self._encoder.encode(answer.within)
        if answer.within is not None and not answer.messages:
            return as_ids(ids)
        closed = finish_reason is FinishReason.STOP or (len(prefix_ids) and prefix_ids[-1] == self.end_of_turn_id)
        ids += [*self._join] if closed else [self.end_of_turn_id, *self._join]
        for message in answer.messages:
            ids += self._turn(message)
        return as_ids(ids + self._prompt)

    def render_exchanges(
        self, prompt: Sequence[Message], exchanges: Sequence[Exchange], *, tools: Sequence[dict[str, Any]] = ()
    ) -> Ids:
        """See :class:`~rllib_agentic.rendering.renderer.Renderer`. Earlier turns are always the sampled ids."""
        return chain_exchanges(self, self.render(prompt, tools=tools), exchanges)

    def text(self, action_ids: Ids) -> str:
        """See :class:`~rllib_agentic.rendering.renderer.Renderer`."""
        return self._decode(np.asarray(without_stop(action_ids, self._stop_ids)).tolist(), skip_special_tokens=False)

    def _turn(self, message: Message) -> list[int]:
        body = self._encoder.encode(f"{message.role}\n{_body(message)}", trusted=message.role in _TRUSTED)
        return [self._start_id, *body, self.end_of_turn_id, *self._join]

    def _control_id(self, token: str) -> int:
        if token not in self._encoder.ids:
            raise InputError(f"ChatML: the tokenizer has no control token {token!r}; add it as a special token")
        return self._encoder.ids[token]


def _body(message: Message) -> str:
    thoughts = f"<think>\n{message.reasoning}\n</think>\n\n" if message.reasoning else ""
    calls = "".join(
        f'\n<tool_call>\n{{"name": {dump_json(call.name)}, "arguments": {dump_json(as_arguments(call.arguments))}}}'
        "\n</tool_call>"
        for call in message.tool_calls
    )
    return thoughts + (message.content + calls if message.content else calls.removeprefix("\n"))
