"""Maze as a text environment."""

from __future__ import annotations

import hashlib
from typing import Literal

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.grid import MOVES, Cell, towards
from serve_envs.maze.tasks import Maze, make_splits, splits_hash, steps_to_goal
from serve_envs.splits import checked_counts

_SYSTEM = "Find the way to the goal between the walls. Answer Up, Down, Left or Right."
_LEGEND = " Map: # wall, _ way, G goal, P you."


class MazeEnv:
    """Walk through a maze to its goal.

    Args:
        size: cells a side, 2 to 20.
        loops: share of the inner walls that are taken out of a maze without loops, 0 to 1.
        show: the whole ``map``, the ``place`` (own cell, and the goal as the crow flies), or the open ``ways`` only.
        trail: whether the open ways are told apart by whether the agent has been there.
        step_reward: added for every step that does not reach the goal; negative for a cost.
        max_steps: steps after which the episode is truncated.
        train: tasks in the split ``train``.
        validation: tasks in the split ``validation``.
        test: tasks in the split ``test``.

    Raises:
        InputError: an argument is out of range, or there are not as many different mazes as tasks.
    """

    quick = True

    def __init__(
        self,
        size: int = 5,
        loops: float = 0.1,
        show: Literal["map", "place", "ways"] = "place",
        trail: bool = True,
        step_reward: float = 0.0,
        max_steps: int = 100,
        train: int = 800,
        validation: int = 100,
        test: int = 100,
    ) -> None:
        if not 2 <= size <= 20:
            raise InputError(f"maze: size must be from 2 to 20, got {size}")
        if not 0.0 <= loops <= 1.0:
            raise InputError(f"maze: loops must be in [0, 1], got {loops}")
        if show not in ("map", "place", "ways"):
            raise InputError(f"maze: show must be 'map', 'place' or 'ways', got {show!r}")
        if max_steps < 1:
            raise InputError(f"maze: max_steps must be at least 1, got {max_steps}")
        self._generator = (size, loops, checked_counts("maze", train, validation, test))
        self._splits = make_splits(*self._generator)
        self._show = show
        self._trail = trail
        self._step_reward = step_reward
        self._max_steps = max_steps
        self._maze: Maze | None = None
        self._cell: Cell = (0, 0)
        self._walked: set[Cell] = set()
        self._steps = 0

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        paid = self._step_reward * self._max_steps
        return EnvSchema(
            name="maze",
            version="1",
            splits={split: len(mazes) for split, mazes in self._splits.items()},
            splits_hash=splits_hash(*self._generator),
            action_format="One of Up, Down, Left, Right; bare, or after 'Action:'. Example: Down",
            lists_actions=True,
            reward_range=(min(0.0, paid), 1.0 + max(0.0, paid)),
            max_turns=min(self._max_steps, 6 * self._generator[0]),
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Enter the maze. Nothing is left to chance, so ``seed`` changes nothing."""
        maze = self._splits[split][index]
        self._maze = maze
        self._cell = maze.start
        self._walked = {maze.start}
        self._steps = 0
        return Observation(
            messages=(
                Message("system", _SYSTEM + (_LEGEND if self._show == "map" else "")),
                Message("user", self._view(maze)),
            ),
            actions=self._actions(maze),
            state_key=self._state_key(maze),
            info={"category": _category(steps_to_goal(maze)[maze.start])},
        )

    def step(self, action: str) -> StepResult:
        """Go one cell, or say what was in the way.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
        """
        maze = self._running()
        self._steps += 1
        word = extract_action(action).capitalize()
        valid = word in MOVES
        ahead = maze.target(self._cell, word) if valid else None
        if ahead is not None:
            self._cell = ahead
            self._walked.add(ahead)
        success = self._cell == maze.goal
        truncated = not success and self._steps >= self._max_steps
        text = "You reached the goal." if success else self._view(maze)
        if not valid:
            text = f"That is no action. Answer with Up, Down, Left or Right.\n{text}"
        elif ahead is None:
            text = f"There is a wall.\n{text}"
        observation = Observation(
            messages=(Message("user", text),),
            actions=() if success else self._actions(maze),
            state_key=self._state_key(maze),
        )
        if success or truncated:
            self._maze = None
        return StepResult(
            observation,
            reward=1.0 if success else self._step_reward,
            terminated=success,
            truncated=truncated,
            success=success,
            metrics={"invalid_action": float(not valid), "idle_action": float(valid and ahead is None)},
        )

    def close(self) -> None:
        """End the episode; nothing else is held."""
        self._maze = None

    def expert_action(self) -> str:
        """The first step of a shortest way."""
        maze = self._running()
        steps = steps_to_goal(maze)
        ways = {word: ahead for word in MOVES if (ahead := maze.target(self._cell, word)) is not None}
        return min(ways, key=lambda word: steps[ways[word]])

    def _running(self) -> Maze:
        if self._maze is None:
            raise RuntimeError("maze: no episode is running; call reset")
        return self._maze

    def _actions(self, maze: Maze) -> tuple[str, ...]:
        return tuple(word for word in MOVES if maze.target(self._cell, word) is not None)

    def _view(self, maze: Maze) -> str:
        lines = []
        if self._show == "map":
            lines.append("\n".join(" ".join(row) for row in maze.draw(self._cell)))
        if self._show == "place":
            row, column = self._cell
            lines.append(f"Row {row + 1}, column {column + 1}. Goal: {towards(self._cell, maze.goal)}.")
        ways = self._actions(maze)
        if not self._trail:
            return "\n".join([*lines, f"Ways: {', '.join(ways)}."])
        old = [word for word in ways if maze.target(self._cell, word) in self._walked]
        new = [word for word in ways if word not in old]
        told = [f"{name}: {', '.join(words)}." for name, words in (("New", new), ("Walked", old)) if words]
        return "\n".join([*lines, " ".join(told)])

    def _state_key(self, maze: Maze) -> str:
        walked = sorted(self._walked) if self._trail else []
        state = repr((maze.draw(self._cell), walked))
        return hashlib.sha256(state.encode()).hexdigest()[:16]


def _category(steps: int) -> str:
    low = next(low for low in (21, 13, 8, 4, 1) if steps >= low)
    return {1: "1 to 3 steps", 4: "4 to 7 steps", 8: "8 to 12 steps", 13: "13 to 20 steps"}.get(low, "21 and more")
