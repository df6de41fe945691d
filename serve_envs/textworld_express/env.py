"""TextWorldExpress's games as a text environment; the games run in a virtual machine that many sessions share."""

from __future__ import annotations

import hashlib
import json
from functools import cache, partial
from typing import Any, Literal

from textworld_express.constants import BASEPATH, JAR_PATH

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.jvm import Jvm, JvmSession, JvmSettings
from serve_envs.textworld_express.games import (
    FOLDS,
    GAMES,
    SEEDS_PER_FOLD,
    Difficulty,
    Game,
    check_games,
    game_of,
    splits_hash,
)
from serve_envs.warm_pool import WarmPool

_SYSTEM = "You play a text game. Answer with one action, in the words that the game understands."
_NOT_UNDERSTOOD = "That is no action here."


class TextWorldExpress:
    """Play a game to its success, its failure, or the limit.

    Args:
        games: which games; tasks go through them in turn.
        difficulty: ``easy``, ``medium``, or ``hard`` (the package's own settings).
        show_actions: list the admissible actions in the text too.
        max_steps: steps after which the episode is truncated.
        sessions_per_jvm: the most sessions on one virtual machine.
        jvm_memory_mb: heap of a virtual machine.

    Raises:
        InputError: an argument is out of range.
    """

    def __init__(
        self,
        games: tuple[str, ...] = tuple(GAMES),
        difficulty: Difficulty = "medium",
        show_actions: bool = False,
        max_steps: int = 100,
        sessions_per_jvm: int = 64,
        jvm_memory_mb: int = 256,
    ) -> None:
        check_games(tuple(games))
        if difficulty not in ("easy", "medium", "hard"):
            raise InputError(f"textworld_express: difficulty must be 'easy', 'medium' or 'hard', got {difficulty!r}")
        if max_steps < 1 or sessions_per_jvm < 1 or jvm_memory_mb < 64:
            raise InputError("textworld_express: max_steps and sessions_per_jvm start at 1, jvm_memory_mb at 64")
        self._games = tuple(games)
        self._difficulty: Difficulty = difficulty
        self._show_actions = show_actions
        self._max_steps = max_steps
        self._pool_key = (sessions_per_jvm, jvm_memory_mb)
        self._session: JvmSession | None = None
        self._game: Game | None = None
        self._actions: tuple[str, ...] = ()
        self._spelled: dict[str, str] = {}
        self._score = 0.0
        self._steps = 0
        self._plan: list[str] | None = None

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        return EnvSchema(
            name="textworld_express",
            version="1",
            splits={split: SEEDS_PER_FOLD * len(self._games) for split in FOLDS},
            splits_hash=splits_hash(self._games, self._difficulty),
            action_format="One action of the game, bare or after 'Action:'. Example: open fridge",
            lists_actions=True,
            reward_range=(-1.0, 1.0),
            max_turns=min(self._max_steps, 50),
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Make the game. The index decides everything, so ``seed`` changes nothing."""
        game = game_of(self._games, self._difficulty, split, index)
        if self._session is None or self._session.lost:
            self.close()
            self._session = JvmSession(_pool(*self._pool_key))
        shown, task = self._session.call(lambda engine: _begin(engine, game))
        self._game = game
        self._score, self._steps, self._plan = 0.0, 0, None
        return Observation(
            messages=(Message("system", _SYSTEM), Message("user", f"{task}\n\n{self._read(shown)}")),
            actions=self._actions,
            state_key=self._state_key(shown),
            info={"category": game.name},
        )

    def step(self, action: str) -> StepResult:
        """Say something to the game.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
            InfrastructureError: ``session_lost``: the virtual machine died.
        """
        self._running()
        assert self._session is not None
        words = " ".join(extract_action(action).split())
        valid = words.lower() in self._spelled
        words = self._spelled.get(words.lower(), words)  # the game tells "2mL" from "2ml"
        shown: dict[str, Any] = self._session.call(lambda engine: json.loads(engine.stepJSON(_sendable(words))))
        self._steps += 1
        gained, self._score = float(shown["score"]) - self._score, float(shown["score"])
        success = bool(shown["tasksuccess"]) or self._score >= 1.0
        terminated = success or bool(shown["taskfailure"])
        truncated = not terminated and self._steps >= self._max_steps
        text = self._read(shown)
        result = StepResult(
            Observation(
                messages=(Message("user", text if valid else f"{_NOT_UNDERSTOOD}\n{text}"),),
                actions=() if terminated else self._actions,
                state_key=self._state_key(shown),
            ),
            reward=gained,
            terminated=terminated,
            truncated=truncated,
            success=success,
            metrics={"invalid_action": float(not valid)},
        )
        if terminated or truncated:
            self._game = None
        return result

    def close(self) -> None:
        """Give the session back to its virtual machine, which stays warm."""
        self._game = None
        if self._session is not None:
            self._session.close()
            self._session = None

    @classmethod
    def release(cls) -> None:
        """Stop the virtual machines."""
        for pool in _POOLS:
            pool.close()

    def expert_action(self) -> str:
        """The next action of the program's own solution. Follows its own steps only."""
        game = self._running()
        if self._plan is None:
            solver = JvmSession(_pool(*self._pool_key))
            try:
                self._plan = solver.call(lambda engine: _solution(engine, game))
            finally:
                solver.close()
        return self._plan[self._steps] if self._steps < len(self._plan) else "look around"

    def _running(self) -> Game:
        if self._game is None:
            raise RuntimeError("textworld_express: no episode is running; call reset")
        return self._game

    def _read(self, shown: dict[str, Any]) -> str:
        self._spelled = {action.lower(): action for action in sorted(shown["validActions"])}
        self._actions = tuple(self._spelled.values())
        text = "\n".join(line.rstrip() for line in shown["observation"].strip().splitlines())
        return f"{text}\nActions: {', '.join(self._actions)}." if self._show_actions else text

    def _state_key(self, shown: dict[str, Any]) -> str:
        state = [self._game, shown["look"], shown["inventory"], shown["scoreRaw"], self._actions]
        return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]


_POOLS: list[WarmPool[Jvm]] = []


@cache
def _pool(sessions: int, memory_mb: int) -> WarmPool[Jvm]:
    settings = JvmSettings(
        jar=JAR_PATH,
        folder=BASEPATH,
        main="textworldexpress.runtime.PythonInterface",
        # Short games on a few cores: the quick compiler and the plain collector start soonest and hold the least.
        options=(f"-Xmx{memory_mb}m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    )
    _POOLS.append(WarmPool(partial(Jvm, settings), spread=1, sessions=sessions))
    return _POOLS[-1]


def _begin(engine: Any, game: Game, solution: Literal[True, False] = False) -> tuple[dict[str, Any], str]:
    if complaint := engine.load(game.name, game.params):
        raise InputError(f"textworld_express: {game.name} with {game.params!r}: {complaint}")
    shown = json.loads(engine.generateNewGameJSON(game.seed, game.fold, solution))
    return shown, engine.getTaskDescription().strip()


def _solution(engine: Any, game: Game) -> list[str]:
    _begin(engine, game, solution=True)
    return list(engine.getGoldActionSequence())


def _sendable(words: str) -> str:
    """Without line ends and control characters, which would break the line to the virtual machine."""
    return "".join(c for c in words if c.isprintable())[:500]
