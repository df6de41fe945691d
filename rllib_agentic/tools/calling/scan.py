"""Reading a turn from its beginning to its end: reasoning, calls, and what is said beside them."""

from __future__ import annotations

from collections.abc import Callable

from rllib_agentic.tools.calling.format import Found
from rllib_agentic.tools.calling.reading import BadCall, Call, Reading


def read_turn(
    text: str,
    find: Callable[[str, int], Found | None],
    *,
    think_start: str = "<think>",
    think_end: str = "</think>",
    reasoning_open: bool = False,
) -> Reading:
    """Read a turn.

    Calls within the reasoning are drafts: they are counted and never run. A reasoning that nothing closes goes to the
    end of the text. One that is closed and was never opened (the prompt opened it) goes back to the beginning. Marks
    inside a call's text are part of the call.

    Args:
        text: of the turn, or of the piece that follows a pause.
        find: a format's :meth:`~rllib_agentic.tools.calling.format.CallFormat.find`, told of the tools.
        think_start: what opens reasoning.
        think_end: what closes it.
        reasoning_open: whether the piece before this one ended within the reasoning.
    """
    calls: list[Call | BadCall] = []
    said: list[str] = []
    drafts, at = 0, 0
    inside = reasoning_open
    while True:
        if inside:
            end = text.find(think_end, at)
            stop = len(text) if end < 0 else end
            drafts += _count(text[at:stop], find)
            if end < 0:
                return Reading(tuple(calls), "".join(said).strip(), drafts, reasoning_open=True)
            inside, at = False, end + len(think_end)
            continue
        found = find(text, at)
        opens, closes = (
            place if place >= 0 else len(text) for place in (text.find(m, at) for m in (think_start, think_end))
        )
        first = min(opens, closes, found.start if found else len(text))
        said.append(text[at:first])
        if first == len(text):
            return Reading(tuple(calls), "".join(said).strip(), drafts)
        if found is not None and found.start == first:
            if not found.calls:
                return Reading(tuple(calls), "".join(said).strip(), drafts, cut=True)
            calls += found.calls
            at = found.end
        elif opens == first:
            inside, at = True, opens + len(think_start)
        else:
            drafts += len(calls)
            calls, said, at = [], [], closes + len(think_end)


def _count(text: str, find: Callable[[str, int], Found | None]) -> int:
    count, found = 0, find(text, 0)
    while found is not None:
        count += max(1, len(found.calls))
        found = find(text, found.end) if found.end > found.start else None
    return count
