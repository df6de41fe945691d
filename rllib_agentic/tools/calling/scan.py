"""Reading a turn from its beginning to its end: reasoning, calls, and what is said beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from rllib_agentic.tools.calling.format import Found
from rllib_agentic.tools.calling.reading import BadCall, Call, Reading

Find = Callable[[str, int], Found | None]


def read_turn(
    text: str,
    find: Find,
    *,
    think_start: str = "<think>",
    think_end: str = "</think>",
    starts_in_reasoning: bool = False,
    in_reasoning: Literal["draft", "run"] = "draft",
) -> Reading:
    """Read a turn.

    Calls within the reasoning are drafts: they are counted and do not run. A reasoning that nothing closes goes to the
    end of the text. One that is closed and was never opened goes back to the beginning. Marks inside a call's text are
    part of the call.

    Args:
        text: of the turn.
        find: a format's :meth:`~rllib_agentic.tools.calling.format.CallFormat.find`, told of the tools.
        think_start: what opens reasoning.
        think_end: what closes it.
        starts_in_reasoning: whether something before the text opened it.
        in_reasoning: ``run`` counts calls within the reasoning like any others.
    """
    calls: list[Call | BadCall] = []
    said: list[str] = []
    drafts, at, inside = 0, 0, starts_in_reasoning
    length = len(text)

    def reading(cut: bool = False) -> Reading:
        return Reading(tuple(calls), "".join(said).strip(), drafts, cut, reasoning_open=inside)

    while True:
        opens, closes = _place(text, think_start, at), _place(text, think_end, at)
        if inside and in_reasoning == "draft":
            drafts += _count(text[at:closes], find)
            if closes == length:
                return reading()
            inside, at = False, closes + len(think_end)
            continue
        found = find(text, at)
        start = found.start if found else length
        first = min(start, closes) if inside else min(start, closes, opens)
        if not inside:
            said.append(text[at:first])
        if first == length:
            return reading()
        if found is not None and first == start:
            if not found.calls:
                return reading(cut=True)
            calls += found.calls
            at = found.end
        elif first == closes:
            if not inside:  # it was open from the beginning
                said = []
                if in_reasoning == "draft":
                    drafts, calls = drafts + len(calls), []
            inside, at = False, closes + len(think_end)
        else:
            inside, at = True, opens + len(think_start)


def _place(text: str, mark: str, at: int) -> int:
    place = text.find(mark, at)
    return len(text) if place < 0 else place


def _count(text: str, find: Find) -> int:
    count, found = 0, find(text, 0)
    while found is not None:
        count += max(1, len(found.calls))
        found = find(text, found.end) if found.end > found.start else None
    return count
