"""DAPO's soft punishment of trajectories that come near their limit."""

from __future__ import annotations

from pydantic import Field

from rllib_agentic.components import Settings


class OverlongPunishment(Settings):
    """A length reward that falls from 0 to -1 over the last tokens before the limit.

    DAPO, arXiv:2503.14476, equation 13, with ``L`` the limit, ``B`` the buffer and ``n`` the *sampled* tokens of the
    trajectory (what the environment wrote makes nobody longer)::

        0                    n <= L - B
        (L - B - n) / B      L - B < n <= L
        -1                   n > L

    The paper has L = 20480 and B = 4096, a buffer of 0.2.

    Example:
        >>> [OverlongPunishment(max_tokens=100)(n, most_tokens=500) for n in (80, 90, 100, 101)]
        [0.0, -0.5, -1.0, -1.0]

    Attributes:
        max_tokens: the limit; None for the most tokens that the rollout's limits let an episode sample.
        buffer: B as a part of the limit.
        weight: factor of the whole.
    """

    max_tokens: int | None = Field(default=None, ge=1)
    buffer: float = Field(default=0.2, gt=0, le=1)
    weight: float = Field(default=1.0, ge=0)

    def __call__(self, sampled_tokens: int, *, most_tokens: int) -> float:
        """The punishment, 0 or negative.

        Args:
            sampled_tokens: of the trajectory.
            most_tokens: the limit where none is set here.
        """
        limit = self.max_tokens or most_tokens
        buffer = self.buffer * limit
        room = (limit - buffer - sampled_tokens) / buffer
        return self.weight * max(min(room, 0.0), -1.0)
