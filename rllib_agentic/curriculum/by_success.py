"""Tasks by difficulty: what is solved sometimes comes up more often than what is solved always or never."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rllib_agentic.curriculum.task_sampler import Groups, check_tasks
from rllib_agentic.rollout.seeds import seed_of
from rllib_agentic.trajectory import Task

_UNIFORM_PRIOR = 1.0


class SuccessSampler:
    """Draws tasks with a probability that follows from how often they were solved lately.

    The success rate p of a task is known as a Beta distribution: one success and one failure to begin with, and what
    its episodes showed, each observation losing half of its weight every ``half_life`` iterations. A task's weight is
    the expected variance of its outcome, ``E[p (1 - p)] = a b / ((a + b) (a + b + 1))``, plus ``floor`` times that of a
    task that nobody has played. So a task solved half the time weighs most (up to 1/4), one never seen 1/6, one solved
    always or never nearly nothing, until it was so long ago that it is worth another look.

    The tasks of one draw are all different (as far as the split has so many). The n-th draw follows from the seed, n,
    and what was observed before it; all of that is in the state.

    Args:
        env: the environment's name.
        split: one of its splits.
        num_tasks: how many tasks the split has.
        seed: the run's seed.
        half_life: iterations after which an observation counts half.
        floor: least weight of a task, as a part of an unseen one's.

    Raises:
        InputError: the split is empty.
    """

    def __init__(
        self, *, env: str, split: str, num_tasks: int, seed: int, half_life: float = 20.0, floor: float = 0.1
    ) -> None:
        check_tasks(env, split, num_tasks)
        self._env = env
        self._split = split
        self._num_tasks = num_tasks
        self._seed = seed
        self._half_life = half_life
        self._floor = floor
        self._drawn = 0
        self._iterations = 0
        self._seen: dict[int, tuple[float, float, int]] = {}  # successes, failures, and when they were counted

    def draw(self, count: int) -> list[Task]:
        """The next ``count`` tasks, likeliest by weight, without replacement while there are others."""
        log_weights = np.log(self.weights())
        tasks: list[Task] = []
        while len(tasks) < count:
            number = self._drawn
            rng = np.random.Generator(
                np.random.Philox(seed_of(self._seed, "by_success", self._env, self._split, number))
            )
            # The largest of log weight plus Gumbel noise, and the next ones, are a draw without replacement.
            keys = log_weights + rng.gumbel(size=self._num_tasks)
            chosen = np.argsort(-keys, kind="stable")[: count - len(tasks)]
            tasks += [self._task(int(index)) for index in chosen]
        return tasks

    def observe(self, groups: Groups) -> None:
        """Count one iteration's outcomes; invalid trajectories are no evidence."""
        self._iterations += 1
        for group in groups:
            valid = [t for t in group if t.invalid is None]
            if not valid or valid[0].task.env != self._env or valid[0].task.split != self._split:
                continue
            index, solved = valid[0].task.index, sum(t.success for t in valid)
            a, b = self._counts(index)
            self._seen[index] = (a + solved, b + len(valid) - solved, self._iterations)

    def weights(self) -> npt.NDArray[np.float64]:
        """The present weight of every task, ``[num_tasks]``."""
        weights = np.full(self._num_tasks, _variance(_UNIFORM_PRIOR, _UNIFORM_PRIOR))
        for index in self._seen:
            a, b = self._counts(index)
            weights[index] = _variance(a + _UNIFORM_PRIOR, b + _UNIFORM_PRIOR)
        return weights + self._floor * _variance(_UNIFORM_PRIOR, _UNIFORM_PRIOR)

    def metrics(self) -> dict[str, float]:
        """What is known of the tasks.

        ``seen_share`` of the split; and of the seen ones the mean ``difficulty`` (1 - p), and the shares that are
        ``mastered`` (p above 0.9) and ``hopeless`` (p below 0.1).
        """
        if not self._seen:
            return {"seen_share": 0.0}
        counts = np.array([self._counts(index) for index in self._seen]) + _UNIFORM_PRIOR
        rates = counts[:, 0] / counts.sum(axis=1)
        return {
            "seen_share": len(self._seen) / self._num_tasks,
            "difficulty": float(1 - rates.mean()),
            "mastered": float((rates > 0.9).mean()),
            "hopeless": float((rates < 0.1).mean()),
        }

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        seen = {str(index): list(counts) for index, counts in self._seen.items()}
        return {"drawn": self._drawn, "iterations": self._iterations, "seen": seen}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was taken; a run that chose its tasks otherwise knows nothing of them."""
        self._drawn, self._iterations = int(state["drawn"]), int(state.get("iterations", 0))
        seen = state.get("seen", {})
        self._seen = {int(index): (float(a), float(b), int(at)) for index, (a, b, at) in seen.items()}

    def _counts(self, index: int) -> tuple[float, float]:
        a, b, at = self._seen.get(index, (0.0, 0.0, 0))
        faded = 0.5 ** ((self._iterations - at) / self._half_life)
        return a * faded, b * faded

    def _task(self, index: int) -> Task:
        number, self._drawn = self._drawn, self._drawn + 1
        return Task(self._env, self._split, index, seed_of(self._seed, "env", self._env, self._split, "draw", number))


def _variance(a: float, b: float) -> float:
    """``E[p (1 - p)]`` where p is Beta distributed."""
    return a * b / ((a + b) * (a + b + 1))
