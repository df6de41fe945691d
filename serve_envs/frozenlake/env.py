"""FrozenLake as a text environment."""

from __future__ import annotations

import hashlib
import random
from typing import Literal

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.frozenlake.tasks import MOVES, Cell, Corners, Lake, Start, make_splits, splits_hash

_SYSTEM = (
    "You walk on a frozen lake. Reach the goal. A hole ends the walk.\n"
    "Map: A you, F ice, H hole, G goal.\n"
    "Answer with one action: Up, Down, Left or Right."
)


class FrozenLake:
    """Walk to the goal square; a hole ends the episode.

    Args:
        size: side of the square map, from 2.
        frozen_probability: chance that a square is ice and not a hole.
        slip: chance of sliding to each of the two sides instead of going ahead; 1/3 is Gymnasium's slippery lake.
        start: ``corner`` (the map's S) or ``random`` (any square from which the goal can be reached).
        corners: ``fixed`` (S top left, G bottom right) or ``random`` (maps are turned by quarters).
        show_map: in ``every`` observation, only in the ``first``, or ``never``.
        max_steps: steps after which the episode is truncated.
        train: tasks in the split ``train``.
        validation: tasks in the split ``validation``.
        test: tasks in the split ``test``.

    Raises:
        InputError: an argument is out of range, or there are not as many different maps as tasks.
    """

    quick = True

    def __init__(
        self,
        size: int = 4,
        frozen_probability: float = 0.8,
        slip: float = 0.0,
        start: Start = "corner",
        corners: Corners = "fixed",
        show_map: Literal["every", "first", "never"] = "every",
        max_steps: int = 100,
        train: int = 800,
        validation: int = 100,
        test: int = 100,
    ) -> None:
        if size < 2:
            raise InputError(f"frozenlake: size must be at least 2, got {size}")
        if not 0.0 < frozen_probability <= 1.0:
            raise InputError(f"frozenlake: frozen_probability must be in (0, 1], got {frozen_probability}")
        if not 0.0 <= slip <= 0.5:
            raise InputError(f"frozenlake: slip must be in [0, 0.5], got {slip}")
        if start not in ("corner", "random"):
            raise InputError(f"frozenlake: start must be 'corner' or 'random', got {start!r}")
        if corners not in ("fixed", "random"):
            raise InputError(f"frozenlake: corners must be 'fixed' or 'random', got {corners!r}")
        if show_map not in ("every", "first", "never"):
            raise InputError(f"frozenlake: show_map must be 'every', 'first' or 'never', got {show_map!r}")
        if max_steps < 1:
            raise InputError(f"frozenlake: max_steps must be at least 1, got {max_steps}")
        if min(train, validation, test) < 0 or train + validation + test == 0:
            raise InputError("frozenlake: train, validation and test must not be negative, nor all 0")
        counts = (("train", train), ("validation", validation), ("test", test))
        self._splits = make_splits(size, frozen_probability, start, corners, counts)
        self._size = size
        self._show_map = show_map
        self._slip = slip
        self._max_steps = max_steps
        self._lake: Lake | None = None
        self._cell: Cell = (0, 0)
        self._walked: set[Cell] = set()
        self._steps = 0
        self._random = random.Random()

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        return EnvSchema(
            name="frozenlake",
            version="1",
            splits={split: len(lakes) for split, lakes in self._splits.items()},
            splits_hash=splits_hash(self._splits),
            action_format="One of Up, Down, Left, Right; bare, or after 'Action:'. Example: Down",
            lists_actions=True,
            reward_range=(0.0, 1.0),
            max_turns=min(self._max_steps, 5 * self._size),
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Begin a walk; ``seed`` decides the slips."""
        self._lake = self._splits[split][index]
        self._cell = self._lake.start
        self._walked = {self._cell}
        self._steps = 0
        self._random = random.Random(f"frozenlake {split} {index} {seed}")
        return self._observation(self._view(), system=True, info={"category": f"{self._to_goal()} steps"})

    def step(self, action: str) -> StepResult:
        """Go one square, or say that the text was no action.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
        """
        if self._lake is None:
            raise RuntimeError("frozenlake: no episode is running; call reset")
        self._steps += 1
        word = extract_action(action).capitalize()
        valid = word in MOVES
        if valid:
            self._move(word)
        square = self._lake.square(self._cell)
        ended = square in ("G", "H")
        truncated = not ended and self._steps >= self._max_steps
        text = {"G": "You reached the goal.", "H": "You fell into a hole."}.get(square or "") or self._view()
        if not valid:
            text = f"That is no action. Answer with {_one_of()}.\n{text}"
        observation = self._observation(text, final=ended)
        if ended or truncated:
            self._lake = None
        return StepResult(
            observation,
            reward=float(square == "G"),
            terminated=ended,
            truncated=truncated,
            success=square == "G",
            metrics={"invalid_action": float(not valid)},
        )

    def close(self) -> None:
        """End the episode; nothing else is held."""
        self._lake = None

    def expert_action(self) -> str:
        """First action of a shortest way to the goal (breadth-first search; it takes the ice as not slippery)."""
        if self._lake is None:
            raise RuntimeError("frozenlake: no episode is running; call reset")
        distances = self._lake.distances()
        row, column = self._cell
        ways = {word: (row + d_row, column + d_column) for word, (d_row, d_column) in MOVES.items()}
        return min((word for word in ways if ways[word] in distances), key=lambda word: distances[ways[word]])

    def _move(self, word: str) -> None:
        if self._slip:
            draw = self._random.random()
            sides = ("Left", "Right") if word in ("Up", "Down") else ("Up", "Down")
            word = sides[0] if draw < self._slip else sides[1] if draw < 2 * self._slip else word
        target = self._towards(word)
        assert self._lake is not None
        if self._lake.square(target) is not None:
            self._cell = target
            self._walked.add(target)

    def _towards(self, word: str) -> Cell:
        return (self._cell[0] + MOVES[word][0], self._cell[1] + MOVES[word][1])

    def _to_goal(self) -> int:
        assert self._lake is not None
        return self._lake.distances()[self._cell]

    def _view(self) -> str:
        assert self._lake is not None
        lines = []
        if self._show_map == "every" or (self._show_map == "first" and self._steps == 0):
            rows = [list(row.replace("S", "F")) for row in self._lake.rows]
            rows[self._cell[0]][self._cell[1]] = "A"
            lines += [" ".join(row) for row in rows]
        ways = [word for word in MOVES if self._lake.square(self._towards(word)) in ("S", "F", "G")]
        fresh = [word for word in ways if self._towards(word) not in self._walked]
        walked = [word for word in ways if self._towards(word) in self._walked]
        lines.append(f"Fresh ice: {', '.join(fresh) or 'none'}. Footprints: {', '.join(walked) or 'none'}.")
        goal = self._lake.find("G")
        down, right = goal[0] - self._cell[0], goal[1] - self._cell[1]
        legs = [f"{abs(down)} {'down' if down > 0 else 'up'}"] if down else []
        legs += [f"{abs(right)} {'right' if right > 0 else 'left'}"] if right else []
        lines.append(f"Goal: {', '.join(legs)}.")
        return "\n".join(lines)

    def _observation(
        self, text: str, *, system: bool = False, final: bool = False, info: dict[str, str] | None = None
    ) -> Observation:
        assert self._lake is not None
        messages = (Message("system", _SYSTEM),) if system else ()
        key = hashlib.sha256(repr((self._lake.rows, self._cell, sorted(self._walked))).encode()).hexdigest()[:16]
        return Observation(
            messages=(*messages, Message("user", text)),
            actions=() if final else tuple(MOVES),
            state_key=key,
            info=info or {},
        )


def _one_of() -> str:
    *first, last = MOVES
    return f"{', '.join(first)} or {last}"
