"""From token losses to one number: a weight a row, computed once for a whole optimizer batch.

``loss = sum over rows b and action tokens t of weight[b] * loss[b, t]``

Because the weights are known before the batch is split, micro-batches, padding, row order and the number of learners
cannot change the gradient. With ``N`` sequences, ``n_i`` action tokens in sequence ``i``:

========================  =====================  ==========================================
mode                      weight                 used by
========================  =====================  ==========================================
token_mean                ``1 / sum_i n_i``      DAPO (arXiv 2503.14476, eq. 8)
sequence_mean_token_sum   ``1 / N``              REINFORCE, RLOO
sequence_mean_token_mean  ``1 / (N n_i)``        GRPO (arXiv 2402.03300, eq. 3), GSPO
sum_over_constant         ``1 / (N constant)``   Dr. GRPO (arXiv 2503.20783, section 3.2)
========================  =====================  ==========================================
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Aggregation = Literal["token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean", "sum_over_constant"]


def row_weights(
    tokens_per_row: npt.ArrayLike, trajectory_of_row: npt.ArrayLike, mode: Aggregation, constant: float | None = None
) -> npt.NDArray[np.float64]:
    """The weight that multiplies every token loss of a row.

    A sequence is a trajectory: all of its rows count as one. Rows without action tokens get weight 0 and their
    trajectory is not counted, so the same tokens stand above and below the fraction bar.

    Args:
        tokens_per_row: int ``[B]``, action tokens of each row.
        trajectory_of_row: int ``[B]``, equal numbers belong to one trajectory.
        mode: one of the four modes of this module.
        constant: the divisor of ``sum_over_constant``, for example the most tokens a trajectory may sample.

    Returns:
        float64 ``[B]``.

    Raises:
        ValueError: an unknown mode, or ``constant`` missing or not positive where the mode needs it.

    Example:
        Token losses [1, 2, 3, 4] and [10], constant 8: 4.0, 10.0, 6.25 and 1.25.

        >>> sums = np.array([1 + 2 + 3 + 4, 10])
        >>> [float(row_weights([4, 1], [0, 1], mode, 8) @ sums) for mode in
        ...  ("token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean", "sum_over_constant")]
        [4.0, 10.0, 6.25, 1.25]
    """
    tokens = np.asarray(tokens_per_row, np.int64)
    trajectories, sequence = np.unique(np.asarray(trajectory_of_row), return_inverse=True)
    if tokens.shape != sequence.shape:
        raise ValueError(f"row_weights: {tokens.shape} token counts, but {sequence.shape} trajectory numbers")
    sequence_tokens = np.bincount(sequence, weights=tokens, minlength=len(trajectories))
    sequences = max(int((sequence_tokens > 0).sum()), 1)
    trained = tokens > 0
    if mode == "token_mean":
        divisor = np.full(tokens.shape, float(max(tokens.sum(), 1)))
    elif mode == "sequence_mean_token_sum":
        divisor = np.full(tokens.shape, float(sequences))
    elif mode == "sequence_mean_token_mean":
        divisor = sequences * np.maximum(sequence_tokens, 1)[sequence]
    elif mode == "sum_over_constant":
        if constant is None or not constant > 0:
            raise ValueError(f"row_weights: sum_over_constant needs a positive constant, got {constant!r}")
        divisor = np.full(tokens.shape, sequences * float(constant))
    else:
        raise ValueError(f"row_weights: unknown mode {mode!r}")
    return np.where(trained, 1.0 / divisor, 0.0)
