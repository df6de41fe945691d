"""Any Hugging Face chat template as a renderer that knows what its template does to earlier turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

import numpy as np

from rllib_agentic.errors import InputError, PrefixError
from rllib_agentic.rendering.append_rule import THOUGHT_FIELD, THOUGHT_INLINE, AppendRule, Entry, find_append_rule
from rllib_agentic.rendering.call_markup import CallMarkup, find_call_markup
from rllib_agentic.rendering.chain import as_ids, chain_exchanges, without_stop
from rllib_agentic.rendering.chat_template import ChatTemplate, entry_of
from rllib_agentic.rendering.continued import join_continued, split_answer
from rllib_agentic.rendering.inert import InertEncoder
from rllib_agentic.rendering.markup import Markup, Slots
from rllib_agentic.rendering.past_turn import split_turn
from rllib_agentic.rendering.renderer import Exchange
from rllib_agentic.rendering.template_format import find_format, turn_markers
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import FinishReason, Ids

_TRUSTED = frozenset({"system", "assistant"})


class HFTemplateRenderer:
    """Renders by a chat template, keeps content inert, and bridges only where the template appends.

    At construction the template is tried out (:func:`~rllib_agentic.rendering.append_rule.find_append_rule`): does the
    context of an earlier turn stay a prefix when a user or tool message follows, with and without system message,
    tools and reasoning? Every bridge checks again that the template continues the known text. Limits: a template is a
    program, and may treat some content in a way that no trial showed; the check at the bridge then refuses it. The
    agent's own turn always stays as sampled, also where the template would trim or reformat its text.

    Rules for templates that take less than a conversation may hold: where a system message is refused, its text goes
    before the first user message; whatever else is refused (two user messages in a row, a tool message) is an
    :class:`~rllib_agentic.errors.InputError` with the template's own words.

    Args:
        tokenizer: a Hugging Face tokenizer with a ``tokenizers`` backend.
        chat_template: jinja source; the tokenizer's own where None.
        stop_ids: further ids that end a turn: the generation config's ``eos_token_id``. The tokenizer's EOS and the
            template's end of turn always do; where it has none, so do the role markers that may follow a turn.
        template_kwargs: further variables for the template, for example ``{"enable_thinking": False}``.
        earlier_reasoning: for templates that drop reasoning from earlier turns. ``"as_template"``: such a turn cannot
            be bridged, a new segment follows the template. ``"kept"``: it is, and the context keeps the reasoning.

    Attributes:
        end_of_turn_id: the template's end-of-turn token, else the marker of a user turn, else EOS.

    Raises:
        InputError: no chat template, or one that refuses or hides the simplest conversation, or that doubles BOS;
            or nothing that ends a turn.
    """

    def __init__(
        self,
        tokenizer: Any,
        chat_template: str | None = None,
        *,
        stop_ids: Iterable[int] = (),
        template_kwargs: Mapping[str, Any] | None = None,
        earlier_reasoning: Literal["as_template", "kept"] = "as_template",
    ) -> None:
        self._template = ChatTemplate(tokenizer, chat_template, template_kwargs)
        plain = InertEncoder(tokenizer)
        self._markup = Markup(InertEncoder(tokenizer, controls=turn_markers(self._template, plain)))
        self._format = find_format(self._template, self._markup, tokenizer.bos_token_id)
        self._backend = tokenizer.backend_tokenizer
        self._keeps_reasoning = earlier_reasoning == "kept"
        # A bridge is not told of tools: once a context showed some, bridges hold for contexts that do.
        self._tools_seen = False
        self._rules: dict[tuple[str, ...], AppendRule | InputError] = {}
        eos = tokenizer.eos_token_id
        ends = [*self._format.stop_ids, *([] if eos is None else [eos]), *stop_ids]
        if not ends:
            raise InputError(
                "the chat template writes no token that ends a turn, and the tokenizer has no EOS: give `stop_ids`"
            )
        self.end_of_turn_id = ends[0]
        self._stop_ids = frozenset(ends)
        for role in ("user", "tool"):
            self._try_rule((role,))

    @property
    def stop_ids(self) -> frozenset[int]:
        """See :class:`~rllib_agentic.rendering.renderer.Renderer`."""
        return self._stop_ids

    @cached_property
    def call_markup(self) -> CallMarkup | None:
        """See :class:`~rllib_agentic.rendering.renderer.Renderer`."""
        return find_call_markup(self._template) if self._template.shows_tools else None

    def render(self, messages: Sequence[Message], *, tools: Sequence[dict[str, Any]] = ()) -> Ids:
        """See :class:`~rllib_agentic.rendering.renderer.Renderer`.

        Raises:
            InputError: the template refuses these messages, or has no place for tools.
        """
        slots = Slots(self._markup)
        return self._render(slots, [_entry(slots, message) for message in messages], tools)

    def bridge(self, prefix_ids: Ids, finish_reason: FinishReason, new_messages: Sequence[Message]) -> Ids:
        """See :class:`~rllib_agentic.rendering.renderer.Renderer`."""
        answer = split_answer(prefix_ids, finish_reason, self._stop_ids, new_messages)
        if answer.within is None:
            return self._bridge(prefix_ids, finish_reason, answer.messages)
        within = as_ids(self._markup.encoder.encode(answer.within))
        if not answer.messages:
            return within
        after = self._bridge(np.concatenate([prefix_ids, within]), finish_reason, answer.messages)
        return np.concatenate([within, after])

    def _bridge(self, prefix_ids: Ids, finish_reason: FinishReason, new_messages: Sequence[Message]) -> Ids:
        rule = self._rule(new_messages)
        broken = rule.broken_with_tools if self._tools_seen else rule.broken
        if broken:
            raise PrefixError(f"the chat template rewrites earlier turns: {broken}")
        if not (rule.keeps_reasoning or self._keeps_reasoning) and self._holds_reasoning(prefix_ids):
            raise PrefixError("the chat template drops the reasoning of earlier turns once these messages follow")
        slots = Slots(self._markup)
        text = self._template([*rule.history, *(_entry(slots, message) for message in new_messages)])
        if not text.startswith(rule.prefix):
            raise PrefixError("the chat template rewrites the turn before these messages because of what they say")
        tail = slots.encode(text[len(rule.prefix) :])
        return as_ids(tail[self._already_there(prefix_ids, finish_reason, tail) :])

    def render_exchanges(
        self, prompt: Sequence[Message], exchanges: Sequence[Exchange], *, tools: Sequence[dict[str, Any]] = ()
    ) -> Ids:
        """See :class:`~rllib_agentic.rendering.renderer.Renderer`.

        Where the template appends, this is prompt, sampled ids and bridges. Where it does not, the template renders
        the whole conversation with a stand-in for each earlier turn, which then becomes the sampled ids: its answer,
        and its reasoning as far as the template keeps it.
        """
        try:
            return chain_exchanges(self, self.render(prompt, tools=tools), exchanges)
        except PrefixError:
            slots = Slots(self._markup)
            entries = [_entry(slots, message) for message in prompt]
            turns, open_ids = join_continued(exchanges, self._stop_ids, self._markup.encoder.encode)
            for turn in turns:
                entries.append(self._past_entry(slots, turn.action_ids))
                entries += [_entry(slots, message) for message in turn.observation]
            return np.concatenate([self._render(slots, entries, tools), open_ids])

    def text(self, action_ids: Ids) -> str:
        """See :class:`~rllib_agentic.rendering.renderer.Renderer`."""
        return self._decode(without_stop(action_ids, self._stop_ids))

    def _render(self, slots: Slots, entries: Sequence[Entry], tools: Sequence[dict[str, Any]]) -> Ids:
        if tools and not self._template.shows_tools:
            raise InputError(
                f"the chat template has no place for tool definitions, got {len(tools)}: "
                "describe the tools in the system message"
            )
        self._tools_seen = self._tools_seen or bool(tools)
        text = self._template(entries, tools=slots.escape_all(tools, trusted=True))
        return as_ids(slots.encode(text, at_start=True))

    def _past_entry(self, slots: Slots, action_ids: Ids) -> Entry:
        found = self._format
        turn = split_turn(
            without_stop(action_ids, self._stop_ids), self._decode, found.reasoning_start, found.reasoning_end
        )
        answer = _part(slots, turn.answer)
        if turn.reasoning is None:
            return {"role": "assistant", "content": answer}
        reasoning = _part(slots, turn.reasoning)
        if found.reasoning_field:
            return {"role": "assistant", "content": answer, "reasoning": reasoning, "reasoning_content": reasoning}
        content = f"{found.reasoning_start}\n{reasoning}\n{found.reasoning_end}\n\n{answer}"
        return {"role": "assistant", "content": content}

    def _rule(self, new_messages: Sequence[Message]) -> AppendRule:
        roles = tuple(role for role, _ in groupby(message.role for message in new_messages))
        rule = self._try_rule(roles)
        if isinstance(rule, InputError):
            raise rule
        return rule

    def _try_rule(self, roles: tuple[str, ...]) -> AppendRule | InputError:
        if roles not in self._rules:
            template = self._template
            try:
                self._rules[roles] = find_append_rule(
                    template,
                    roles,
                    thoughtful=THOUGHT_FIELD if self._format.reasoning_field else THOUGHT_INLINE,
                    with_system=template.takes_system,
                    with_tools=template.shows_tools,
                )
            except InputError as refusal:
                self._rules[roles] = refusal
        return self._rules[roles]

    def _holds_reasoning(self, ids: Ids) -> bool:
        end = self._format.reasoning_end
        end_id = self._markup.encoder.ids.get(end)
        return bool((ids == end_id).any()) if end_id is not None else end in self._decode(ids)

    def _already_there(self, prefix_ids: Ids, finish_reason: FinishReason, tail: Sequence[int]) -> int:
        """How many ids at the head of the tail the sampled turn has already brought."""
        last = int(prefix_ids[-1]) if len(prefix_ids) else None
        end = self._format.turn_end
        if end and tuple(tail[: len(end)]) == end:
            return len(end) if finish_reason is FinishReason.STOP or last == end[-1] else 0
        return int(bool(tail) and tail[0] == last and last in self._stop_ids)

    def _decode(self, ids: Ids | Sequence[int]) -> str:
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=False)


def _entry(slots: Slots, message: Message) -> Entry:
    trusted = message.role in _TRUSTED
    return entry_of(message, lambda value: slots.escape_all(value, trusted=trusted))


def _part(slots: Slots, part: Sequence[int] | str) -> str:
    return slots.escape(part, trusted=True) if isinstance(part, str) else slots.exact(part)
