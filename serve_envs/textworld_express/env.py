"""TextWorldExpress's games as a text environment; the games run in a virtual machine that many sessions share."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any

from textworld_express.constants import BASEPATH, JAR_PATH

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.jvm import JvmSettings
from serve_envs.jvm_env import JvmEnv
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

_SYSTEM = "You play a text game. Answer with one action, in the words that the game understands."
_NOT_UNDERSTOOD = "That is no action here."


class TextWorldExpress(JvmEnv[Game]):
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

    name = "textworld_express"
    main = "textworldexpress.runtime.PythonInterface"
    idle_action = "look around"

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
        self._actions: tuple[str, ...] = ()
        self._spelled: dict[str, str] = {}
        settings = JvmSettings(
            jar=JAR_PATH,
            folder=BASEPATH,
            main=self.main,
            # Short games on a few cores: the quick compiler and the plain collector start soonest and hold the least.
            options=(f"-Xmx{jvm_memory_mb}m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        )
        super().__init__(settings, machines=1, sessions=sessions_per_jvm)

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
        shown, task = self._begin(game, lambda engine: _set_up(engine, game, solution=False))
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
        words = " ".join(extract_action(action).split())
        valid = words.lower() in self._spelled
        words = self._spelled.get(words.lower(), words)  # the game tells "2mL" from "2ml"
        shown: dict[str, Any] = self._advance(lambda engine: json.loads(engine.stepJSON(_sendable(words))))
        gained = self._gain(float(shown["score"]))
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
            self._task = None
        return result

    def _solution(self, engine: Any, task: Game) -> list[str]:
        _set_up(engine, task, solution=True)
        return list(engine.getGoldActionSequence())

    def _read(self, shown: dict[str, Any]) -> str:
        self._spelled = {action.lower(): action for action in sorted(shown["validActions"])}
        self._actions = tuple(self._spelled.values())
        text = "\n".join(line.rstrip() for line in shown["observation"].strip().splitlines())
        return f"{text}\nActions: {', '.join(self._actions)}." if self._show_actions else text

    def _state_key(self, shown: dict[str, Any]) -> str:
        state = [self._task, shown["look"], shown["inventory"], shown["scoreRaw"], self._actions]
        return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]


_GOODS = threading.Lock()


def _set_up(engine: Any, game: Game, *, solution: bool) -> tuple[dict[str, Any], str]:
    if complaint := engine.load(game.name, game.params):
        raise InputError(f"textworld_express: {game.name} with {game.params!r}: {complaint}")
    if game.name == "sorting":
        with _GOODS:
            _renew_goods(engine, game)
            made = engine.generateNewGameJSON(game.seed, game.fold, solution)
    else:
        made = engine.generateNewGameJSON(game.seed, game.fold, solution)
    return json.loads(made), engine.getTaskDescription().strip()


def _renew_goods(engine: Any, game: Game) -> None:
    """Give the game's problem goods of its own.

    The program makes the goods of each of its problems of sorting once a machine, so that a game takes them away from
    every other game with the same problem.
    """
    loader = engine.getClass().getClassLoader()
    data = loader.loadClass("textworldexpress.data.SortingProblemGenerator$").getField("MODULE$").get(None)
    problems = {"train": data.trainSet, "dev": data.devSet, "test": data.testSet}[game.fold]()
    problem = problems[game.seed % len(problems)]
    kind = problem.getClass()
    make = next(method for method in kind.getDeclaredMethods() if method.getName() == "getOrderedItems")
    goods = kind.getDeclaredField("orderedItems")
    for private in (make, goods):
        private.setAccessible(True)
    goods.set(problem, make.invoke(problem, None))


def _sendable(words: str) -> str:
    """Without line ends and control characters, which would break the line to the virtual machine."""
    return "".join(c for c in words if c.isprintable())[:500]
