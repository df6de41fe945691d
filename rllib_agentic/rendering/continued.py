"""Text of the environment that goes on within the agent's own turn, where generation paused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rllib_agentic.rendering.renderer import Exchange
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import FinishReason, Ids

EncodeText = Callable[[str], Sequence[int]]


class Answer(NamedTuple):
    """An environment's answer: text within the agent's turn (None: the turn is over), and messages after it."""

    within: str | None
    messages: tuple[Message, ...]


def split_answer(
    ids: Ids, finish_reason: FinishReason, stop_ids: Collection[int], messages: Sequence[Message]
) -> Answer:
    """Part an answer into what continues the agent's turn and what follows it.

    Only messages at the head that say ``continues`` do, and only where the agent has not ended its turn itself. All
    other ``continues`` messages come as a user's.

    Args:
        ids: the segment so far; ends with the sampled ids of the turn.
        finish_reason: why the turn ended.
        stop_ids: what ends a turn.
        messages: of the environment.
    """
    closed = finish_reason is FinishReason.STOP or (len(ids) > 0 and int(ids[-1]) in stop_ids)
    heads = 0
    while not closed and heads < len(messages) and messages[heads].continues:
        heads += 1
    within = "".join(message.content for message in messages[:heads]) if heads else None
    rest = (replace(m, role="user", name=None, continues=False) if m.continues else m for m in messages[heads:])
    return Answer(within, tuple(rest))


def join_continued(
    exchanges: Sequence[Exchange], stop_ids: Collection[int], encode: EncodeText
) -> tuple[list[Exchange], Ids]:
    """Make one exchange of all that belong to one turn of the agent.

    Args:
        exchanges: as they were played.
        stop_ids: what ends a turn.
        encode: inert text to ids.

    Returns:
        The exchanges whose turn is over, each with all ids of its turn; and the ids of a turn that still goes on.
    """
    joined: list[Exchange] = []
    ids = np.zeros(0, np.int32)
    for exchange in exchanges:
        ids = np.concatenate([ids, exchange.action_ids])
        answer = split_answer(ids, exchange.finish_reason, stop_ids, exchange.observation)
        if answer.within is not None:
            ids = np.concatenate([ids, np.asarray(encode(answer.within), np.int32)])
        if answer.within is None or answer.messages:
            joined.append(replace(exchange, action_ids=ids, observation=answer.messages))
            ids = np.zeros(0, np.int32)
    return joined, ids
