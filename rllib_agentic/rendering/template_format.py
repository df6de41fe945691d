"""The marks a chat template itself writes: turn markers, end of turn, reasoning; found by trying it."""

from __future__ import annotations

from dataclasses import dataclass

from rllib_agentic.errors import InputError
from rllib_agentic.rendering.append_rule import ANSWER, PLAIN, THOUGHT, THOUGHT_FIELD, USER, Entry
from rllib_agentic.rendering.chat_template import ChatTemplate
from rllib_agentic.rendering.inert import InertEncoder
from rllib_agentic.rendering.markup import Markup, Slots

_THINK = ("<think>", "</think>")
_TOOL: Entry = {"role": "tool", "content": "qztoolresult"}


@dataclass(frozen=True, slots=True)
class TemplateFormat:
    """What was found.

    Attributes:
        turn_end: the ids after an agent's turn up to its end-of-turn token; empty where the template writes none.
        stop_ids: end-of-turn token, or where there is none the markers that may follow a turn, the user's first.
        reasoning_field: whether the template shows a message's reasoning field (else reasoning is part of the text).
        reasoning_start: what opens reasoning.
        reasoning_end: what closes it.
    """

    turn_end: tuple[int, ...]
    stop_ids: tuple[int, ...]
    reasoning_field: bool
    reasoning_start: str
    reasoning_end: str


def turn_markers(template: ChatTemplate, encoder: InertEncoder) -> set[str]:
    """Added tokens that the template writes around messages, though the tokenizer does not call them special."""
    text = "".join(_following(template, [USER, PLAIN, message]) or "" for message in (USER, _TOOL))
    written = set(encoder.matcher.findall(text)) if encoder.matcher else set()
    return {token.strip() for token in written} & encoder.marks - set(_THINK)


def find_format(template: ChatTemplate, markup: Markup, bos_id: int | None) -> TemplateFormat:
    """Try the template.

    Raises:
        InputError: it doubles BOS, or does not show what the agent said.
    """

    def encode(text: str, at_start: bool = False) -> list[int]:
        return Slots(markup).encode(text, at_start=at_start)

    if bos_id is not None and encode(template([USER]), at_start=True)[:2] == [bos_id, bos_id]:
        raise InputError(f"the chat template begins with two BOS tokens (id {bos_id}): remove one from the template")
    said = template([USER, PLAIN], prompt=False)
    if ANSWER not in said:
        raise InputError("the chat template does not show the text of assistant messages: it cannot be trained with")
    controls = {markup.encoder.ids[c] for c in markup.encoder.controls if c in markup.encoder.ids}
    after = encode(said.rpartition(ANSWER)[2])
    end = next((number + 1 for number, token in enumerate(after) if token in controls), 0)
    stop_ids = after[:end][-1:]
    if not end:
        for message in (USER, _TOOL):
            following = _following(template, [USER, PLAIN, message]) or ""
            stop_ids += [token for token in encode(following.partition(ANSWER)[2])[:1] if token in controls]
    start, stop = _THINK
    thought = template([USER, THOUGHT_FIELD], prompt=False)
    shown = THOUGHT in thought and ANSWER in thought.partition(THOUGHT)[2]
    if shown:
        head = template([USER])
        before, _, rest = thought.partition(THOUGHT)
        stop = rest.partition(ANSWER)[0].strip() or stop
        start = before.removeprefix(head).strip() if before.startswith(head) else start
    return TemplateFormat(tuple(after[:end]), tuple(stop_ids), shown, start, stop)


def _following(template: ChatTemplate, entries: list[Entry]) -> str | None:
    try:
        return template(entries, prompt=False)
    except InputError:
        return None
