"""The sample that is cross-scored: responses of one iteration, and the distinct prompts that they came from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from rllib_agentic.trajectory import LegalTokens, Trajectory
from rllib_agentic.trajectory.turn import Ids


@dataclass(frozen=True, slots=True)
class CrossSample:
    """N responses and K distinct prompts.

    Attributes:
        prompts: K arrays, int32 ``[T]``: the whole context that a response was sampled in.
        responses: N arrays, int32 ``[A]``.
        own: int64 ``[N]``, the number of each response's own prompt.
        legal: one a response, the legal-token mask it was sampled under. It belongs to the response: under another
            prompt the same tokens are legal, so what is compared is the policy's own preference.
    """

    prompts: tuple[Ids, ...]
    responses: tuple[Ids, ...]
    own: npt.NDArray[np.int64]
    legal: tuple[LegalTokens | None, ...]

    @property
    def tokens(self) -> int:
        """Tokens that scoring every response under every prompt takes."""
        in_prompts, in_responses = sum(map(len, self.prompts)), sum(map(len, self.responses))
        return len(self.responses) * in_prompts + len(self.prompts) * in_responses


def cross_sample(
    groups: Sequence[Sequence[Trajectory]],
    *,
    samples: int,
    max_tokens: int,
    turn: Literal["first", "random"] = "first",
    seed: int = 0,
) -> CrossSample | None:
    """Choose responses: every group's first valid member, then every group's second, and so on.

    Args:
        groups: of one iteration, sampled from the policy that is to score.
        samples: responses at most.
        max_tokens: of all scoring; the sample is cut until it fits.
        turn: which turn is the response.
        seed: of the choice of random turns.

    Returns:
        The sample; None where fewer than two distinct prompts fit.
    """
    valid = [[t for t in group if t.invalid is None] for group in groups]
    members = [t for row in itertools.zip_longest(*valid) for t in row if t is not None]
    rng = np.random.default_rng(seed)
    chosen: list[tuple[Ids, Ids, LegalTokens | None]] = []
    numbers: dict[bytes, int] = {}
    own: list[int] = []
    in_prompts = in_responses = 0
    for trajectory in members[:samples]:
        at = 0 if turn == "first" else int(rng.integers(len(trajectory.turns)))
        prompt, spoken = _context(trajectory, at), trajectory.turns[at]
        key = prompt.tobytes()
        more_prompt = 0 if key in numbers else len(prompt)
        prompts = len(numbers) + (key not in numbers)
        in_prompts, in_responses = in_prompts + more_prompt, in_responses + len(spoken.action_ids)
        if (len(chosen) + 1) * in_prompts + prompts * in_responses > max_tokens:
            break
        own.append(numbers.setdefault(key, len(numbers)))
        chosen.append((prompt, spoken.action_ids, spoken.legal_tokens))
    if len(numbers) < 2:
        return None
    return CrossSample(
        prompts=tuple(np.frombuffer(key, np.int32) for key in numbers),
        responses=tuple(response for _, response, _ in chosen),
        own=np.array(own, np.int64),
        legal=tuple(legal for _, _, legal in chosen),
    )


def _context(trajectory: Trajectory, turn: int) -> Ids:
    """Everything that stood before a turn's first sampled token, int32 ``[T]``."""
    spoken = trajectory.turns[turn]
    before = [t for t in trajectory.turns[:turn] if t.segment == spoken.segment]
    parts = [part for t in before for part in (t.context_ids, t.action_ids)]
    return np.concatenate([*parts, spoken.context_ids]).astype(np.int32)
