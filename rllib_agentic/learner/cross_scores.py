"""Scoring every response of a sample under every prompt, without gradient: what mutual information is made from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rllib_agentic.diagnostics import CrossSample
from rllib_agentic.learner.micro_batches import Floats
from rllib_agentic.learner.scoring import Scorer, score_rows
from rllib_agentic.trajectory.row import NO_TURN, Row
from rllib_agentic.trajectory.turn import Ids, LegalTokens


def cross_scores(scorer: Scorer, sample: CrossSample, prompts: Sequence[int], *, max_tokens: int) -> dict[int, Floats]:
    """Log-probabilities of all N responses under some of the prompts.

    One prompt's rows are made, scored and forgotten before the next one's, so memory does not grow with K.

    Args:
        scorer: the policy.
        sample: prompts and responses.
        prompts: the numbers of the prompts to score under.
        max_tokens: budget of one forward pass.

    Returns:
        Prompt number to float64 ``[N]``, each the sum over a response's tokens, in nats.
    """
    found = {}
    for k in prompts:
        rows = [
            _row(sample.prompts[k], response, legal)
            for response, legal in zip(sample.responses, sample.legal, strict=True)
        ]
        scores = score_rows(scorer, rows, range(len(rows)), max_tokens=max_tokens)
        found[k] = np.array([scores[i].sum(dtype=np.float64) for i in range(len(rows))])
    return found


def _row(prompt: Ids, response: Ids, legal: LegalTokens | None) -> Row:
    tokens = len(prompt) + len(response)
    mask = np.arange(tokens) >= len(prompt)
    zeros = np.zeros(tokens, np.float32)
    turn = np.where(mask, 0, NO_TURN).astype(np.int32)
    return Row(np.concatenate([prompt, response]), mask, zeros, turn, turn, zeros, zeros, legal_tokens=legal)
