"""RAGEN's bi-arm bandit, with any number of arms of each kind."""

from __future__ import annotations

import hashlib
import random

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.bandit.tasks import RISKY_NAMES, SAFE_NAMES, Arms, make_splits, splits_hash

_SYSTEM = (
    "You play a bandit. Each arm pays by its nature, and its name hints at it. Pull the arm that pays best on "
    "average. Answer with the name of one arm."
)


class Bandit:
    """Pull one arm, once a turn; pulling a risky arm is the success, because it pays best on average.

    Args:
        safe_arms: arms that always pay ``low_reward``.
        risky_arms: arms that pay 1 with ``high_probability``, else 0.
        low_reward: what a safe arm pays.
        high_probability: chance that a risky arm pays 1; it must be better than ``low_reward``.
        pulls: pulls in an episode.

    Raises:
        InputError: an argument is out of range.
    """

    quick = True

    def __init__(
        self,
        safe_arms: int = 1,
        risky_arms: int = 1,
        low_reward: float = 0.15,
        high_probability: float = 0.25,
        pulls: int = 1,
    ) -> None:
        for name, count, names in (("safe_arms", safe_arms, SAFE_NAMES), ("risky_arms", risky_arms, RISKY_NAMES)):
            if not 1 <= count <= len(names) - 1:
                raise InputError(f"bandit: {name} must be from 1 to {len(names) - 1}, got {count}")
        if not 0.0 <= low_reward < high_probability <= 1.0:
            raise InputError(
                f"bandit: 0 <= low_reward < high_probability <= 1 must hold, got {low_reward} and {high_probability}"
            )
        if pulls < 1:
            raise InputError(f"bandit: pulls must be at least 1, got {pulls}")
        self._splits = make_splits(safe_arms, risky_arms)
        self._low_reward = low_reward
        self._high_probability = high_probability
        self._pulls = pulls
        self._arms: Arms | None = None
        self._pulled: list[str] = []
        self._turns = 0
        self._random = random.Random()

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        return EnvSchema(
            name="bandit",
            version="1",
            splits={split: len(tasks) for split, tasks in self._splits.items()},
            splits_hash=splits_hash(self._splits),
            action_format="The name of one arm; bare, or after 'Action:'. Example: Pirate",
            lists_actions=True,
            reward_range=(0.0, float(self._pulls)),
            max_turns=self._pulls,
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Show the arms; ``seed`` decides what the risky ones pay."""
        self._arms = self._splits[split][index]
        self._pulled = []
        self._turns = 0
        self._random = random.Random(f"bandit {split} {index} {seed}")
        return Observation(
            messages=(Message("system", _SYSTEM), Message("user", f"Arms: {', '.join(self._arms.names)}.")),
            actions=self._arms.names,
            state_key=self._state_key(self._arms),
            info={"category": f"{len(self._arms.names)} arms"},
        )

    def step(self, action: str) -> StepResult:
        """Pull an arm, or say that there is none of that name; either uses up a pull.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
        """
        arms = self._running()
        self._turns += 1
        by_name = {name.lower(): name for name in arms.names}
        name = by_name.get(extract_action(action).lower())
        reward = 0.0
        if name is None:
            text = f"There is no such arm. Arms: {', '.join(arms.names)}."
        else:
            reward = float(self._random.random() < self._high_probability) if name in arms.risky else self._low_reward
            self._pulled.append(name)
            text = f"{name} pays {reward:g}."
        ended = self._turns >= self._pulls
        success = ended and len(self._pulled) == self._pulls and all(name in arms.risky for name in self._pulled)
        observation = Observation(
            messages=(Message("user", text),), actions=() if ended else arms.names, state_key=self._state_key(arms)
        )
        if ended:
            self._arms = None
        return StepResult(
            observation,
            reward=reward,
            terminated=ended,
            success=success,
            metrics={"invalid_action": float(name is None), "risky_arm": float(name in arms.risky)},
        )

    def close(self) -> None:
        """End the episode; nothing else is held."""
        self._arms = None

    def expert_action(self) -> str:
        """The first risky arm: it pays best on average."""
        arms = self._running()
        return next(name for name in arms.names if name in arms.risky)

    def _running(self) -> Arms:
        if self._arms is None:
            raise RuntimeError("bandit: no episode is running; call reset")
        return self._arms

    def _state_key(self, arms: Arms) -> str:
        state = repr((arms.names, self._turns, self._pulled))
        return hashlib.sha256(state.encode()).hexdigest()[:16]
