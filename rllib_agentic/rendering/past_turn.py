"""An earlier agent turn, taken apart at token borders: reasoning and answer as sampled ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rllib_agentic.trajectory.turn import Ids


class PastTurn(NamedTuple):
    """Reasoning and answer, each as sampled ids, or as text where no token border lies between them."""

    reasoning: list[int] | str | None
    answer: list[int] | str


def split_turn(ids: Ids, decode: Callable[[Sequence[int]], str], think_start: str, think_end: str) -> PastTurn:
    """Split a sampled turn at the last ``think_end``; white space around both parts is dropped, as templates do.

    Without ``think_end`` the whole turn is the answer, untouched.

    Args:
        ids: the sampled ids without the stop id.
        decode: ids to text, special tokens kept.
        think_start: what opens the reasoning; dropped where the turn begins with it.
        think_end: what closes it.
    """
    tokens = [int(i) for i in ids]
    whole = decode(tokens)
    if think_end not in whole:
        return PastTurn(None, tokens)
    pieces = [decode([token]) for token in tokens]
    joined = "".join(pieces)
    if joined == whole:
        close = joined.rindex(think_end)
        opened = len(joined) - len(joined.lstrip().removeprefix(think_start))
        reasoning = _tokens_of(pieces, opened, close)
        answer = _tokens_of(pieces, close + len(think_end), len(joined))
    else:
        reasoning = answer = None
    before, _, after = whole.rpartition(think_end)
    return PastTurn(
        before.strip().removeprefix(think_start).strip() if reasoning is None else [tokens[i] for i in reasoning],
        after.strip() if answer is None else [tokens[i] for i in answer],
    )


def _tokens_of(pieces: Sequence[str], start: int, end: int) -> range | None:
    """Numbers of the tokens that spell characters ``start`` to ``end``, white space around them left out.

    None where a token at the border also spells something else.
    """
    text = "".join(pieces)[start:end]
    start, end = start + len(text) - len(text.lstrip()), end - (len(text) - len(text.rstrip()))
    first, last, position = len(pieces), 0, 0
    for number, piece in enumerate(pieces):
        begin, position = position, position + len(piece)
        if begin < end and position > start and piece:
            if piece[: max(0, start - begin)].strip() or piece[len(piece) - max(0, position - end) :].strip():
                return None
            first, last = min(first, number), number + 1
    return range(first, last) if first < last else range(0)
