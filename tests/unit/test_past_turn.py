"""An earlier turn is split at token borders only; where none lies there, the part is text."""

import numpy as np
import pytest

from rllib_agentic.rendering.past_turn import PastTurn, split_turn


def split(*pieces):
    ids = np.arange(len(pieces), dtype=np.int32)
    return split_turn(ids, lambda tokens: "".join(pieces[token] for token in tokens), "<think>", "</think>")


@pytest.mark.parametrize(
    ("pieces", "turn"),
    [
        (["an", "swer"], PastTurn(None, [0, 1])),
        (["<think>", "\n", "rea", "son", "\n", "</think>", "\n\n", "an", "swer"], PastTurn([2, 3], [7, 8])),
        (["<th", "ink>\n", "why", "\n</", "think>\n\n", " go", "!\n"], PastTurn([2], [5, 6])),  # white space goes along
        (["why", "</think>", "go"], PastTurn([0], [2])),  # the prompt opened the reasoning
        (["<think>", "</think>", "go"], PastTurn([], [2])),
        (["<think>", "a", "</think>", "b", "</think>", "go"], PastTurn([1, 2, 3], [5])),
        (["<think>", "a", "</think>go", "od"], PastTurn([1], "good")),  # one token spells both
        (["<think>a", "b", "</think>", "go"], PastTurn("ab", [3])),
        (["<think>", "a", "</think>"], PastTurn([1], [])),
    ],
)
def test_parts_are_the_sampled_ids_wherever_tokens_allow(pieces, turn):
    assert split(*pieces) == turn
