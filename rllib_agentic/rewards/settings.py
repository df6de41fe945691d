"""The YAML section ``rewards``: from what an environment reports to the reward that is trained."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

from pydantic import Field

from rllib_agentic.components import Settings
from rllib_agentic.rewards.overlong import OverlongPunishment
from rllib_agentic.trajectory import Trajectory, Turn


class OutcomeReward(Settings):
    """A reward for the whole trajectory, given on its last turn; ToRL's is +1 and -1 (arXiv:2503.23383).

    Attributes:
        success: where the task was solved.
        failure: where it was not, for whatever reason.
    """

    success: float = 1.0
    failure: float = 0.0


class RewardSettings(Settings):
    """A weighted sum of named parts, a turn at a time; with the defaults, the environment's reward as it is.

    A turn that reports the components ``format`` 0.2 and ``answer`` 1 in a reward of 1.5 has 0.3 left over, which
    counts as ``environment``. With ``weights: {format: 0.5}`` it earns ``0.5 * 0.2 + 1 + 0.3 = 1.4``.

    Every part is logged as ``reward/NAME``, weighted, so that the parts of a turn add up to its reward. Filters and
    advantages see what this makes; evaluation reports the environment's own rewards.

    Attributes:
        environment: weight of the environment's reward, and of each of its components that ``weights`` does not name;
            0 to train on the parts below alone.
        weights: weight of the environment's components, by name.
        per_turn: added to every turn that reports a metric of this name above 0, such as ``{invalid_action: -0.1}``.
        per_episode: added once, on the last turn, to a trajectory of which any turn reports a metric of this name above
            0; ToRL's penalty for code that does not run is ``{code_failed: -0.5}``.
        outcome: a reward for the whole trajectory, on its last turn: beside the environment's, or alone.
        overlong: punish trajectories that come near their limit.
    """

    environment: float = 1.0
    weights: Mapping[str, float] = Field(default_factory=dict)
    per_turn: Mapping[str, float] = Field(default_factory=dict)
    per_episode: Mapping[str, float] = Field(default_factory=dict)
    outcome: OutcomeReward | None = None
    overlong: OverlongPunishment | None = None

    def __call__(self, trajectory: Trajectory, *, most_tokens: int) -> Trajectory:
        """The trajectory with the rewards that it is trained on; an invalid one as it is.

        Args:
            trajectory: as it was sampled.
            most_tokens: the most tokens that it could have sampled.
        """
        if trajectory.invalid is not None or self == RewardSettings():
            return trajectory
        last = len(trajectory.turns) - 1
        turns = []
        for number, turn in enumerate(trajectory.turns):
            parts = self._of_turn(turn) + (self._of_trajectory(trajectory, most_tokens) if number == last else [])
            named: dict[str, float] = {}
            for name, value in parts:
                named[name] = named.get(name, 0.0) + value
            turns.append(dataclasses.replace(turn, reward=math.fsum(named.values()), rewards=named))
        return dataclasses.replace(trajectory, turns=tuple(turns))

    def unseen(self, trajectories: Iterable[Trajectory]) -> list[str]:
        """The names given here that no turn of these trajectories reports: rare, or misspelt."""
        turns = [turn for t in trajectories for turn in t.turns]
        missing = [f"weights.{name}" for name in self.weights if not any(name in turn.rewards for turn in turns)]
        reported = {name for turn in turns for name in turn.metrics}
        missing += [f"per_turn.{name}" for name in self.per_turn if name not in reported]
        return missing + [f"per_episode.{name}" for name in self.per_episode if name not in reported]

    def _of_turn(self, turn: Turn) -> list[tuple[str, float]]:
        rest = turn.reward - math.fsum(turn.rewards.values())
        components = [(name, self.weights.get(name, self.environment) * value) for name, value in turn.rewards.items()]
        added = [(f"per_turn/{name}", value * (turn.metrics.get(name, 0) > 0)) for name, value in self.per_turn.items()]
        return [("environment", self.environment * rest), *components, *added]

    def _of_trajectory(self, trajectory: Trajectory, most_tokens: int) -> list[tuple[str, float]]:
        parts = [
            (f"per_episode/{name}", value * any(turn.metrics.get(name, 0) > 0 for turn in trajectory.turns))
            for name, value in self.per_episode.items()
        ]
        if self.outcome is not None:
            parts.append(("outcome", self.outcome.success if trajectory.success else self.outcome.failure))
        if self.overlong is not None:
            parts.append(("overlong", self.overlong(trajectory.num_action_tokens, most_tokens=most_tokens)))
        return parts
