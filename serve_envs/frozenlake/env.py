"""FrozenLake as a text environment."""

from __future__ import annotations

import hashlib
import random
from typing import Literal

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.frozenlake.expert import best_moves
from serve_envs.frozenlake.tasks import MOVES, SIDES, Cell, Corners, Lake, Start, make_splits, splits_hash
from serve_envs.frozenlake.view import describe, draw_map

_ACTIONS = tuple(MOVES)
_SYSTEM = "Walk over the ice to the goal. A hole ends the walk. Answer Up, Down, Left or Right."
_LEGEND = " Map: A you, F ice, H hole, G goal."


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
        rewards: for reaching the goal, for a hole, and for a step on ice, as Gymnasium's ``reward_schedule``.
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
        rewards: tuple[float, float, float] = (1.0, 0.0, 0.0),
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
        self._rewards = dict(zip(("G", "H", "F"), rewards, strict=True))
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
            reward_range=self._reward_range(),
            max_turns=min(self._max_steps, 5 * self._size),
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Begin a walk; ``seed`` decides the slips."""
        lake = self._splits[split][index]
        self._lake = lake
        self._cell = lake.start
        self._walked = {lake.start}
        self._steps = 0
        self._random = random.Random(f"frozenlake {split} {index} {seed}")
        return Observation(
            messages=(
                Message("system", _SYSTEM if self._show_map == "never" else _SYSTEM + _LEGEND),
                Message("user", self._view(lake)),
            ),
            actions=_ACTIONS,
            state_key=self._state_key(lake),
            info={"category": f"{lake.distances()[lake.start]} steps"},
        )

    def step(self, action: str) -> StepResult:
        """Go one square, or say that the text was no action.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
        """
        lake = self._running()
        self._steps += 1
        word = extract_action(action).capitalize()
        valid = word in MOVES
        if valid:
            self._move(lake, word)
        square = lake.square(self._cell)
        ended = square in ("G", "H")
        truncated = not ended and self._steps >= self._max_steps
        text = {"G": "You reached the goal.", "H": "You fell into a hole."}.get(square or "") or self._view(lake)
        if not valid:
            text = f"That is no action. Answer with Up, Down, Left or Right.\n{text}"
        if ended or truncated:
            self._lake = None
        return StepResult(
            Observation(
                messages=(Message("user", text),),
                actions=() if ended else _ACTIONS,
                state_key=self._state_key(lake),
            ),
            reward=float(self._rewards.get(square or "F", self._rewards["F"])),
            terminated=ended,
            truncated=truncated,
            success=square == "G",
            metrics={"invalid_action": float(not valid)},
        )

    def _reward_range(self) -> tuple[float, float]:
        goal, hole, ice = (self._rewards[square] for square in "GHF")
        walks = [min(0.0, (self._max_steps - 1) * ice), max(0.0, (self._max_steps - 1) * ice)]
        return min(walks[0] + min(goal, hole), self._max_steps * ice), max(
            walks[1] + max(goal, hole), self._max_steps * ice
        )

    def close(self) -> None:
        """End the episode; nothing else is held."""
        self._lake = None

    def expert_action(self) -> str:
        """The best action here, slips taken into account."""
        return best_moves(self._running(), self._slip)[self._cell]

    def _running(self) -> Lake:
        if self._lake is None:
            raise RuntimeError("frozenlake: no episode is running; call reset")
        return self._lake

    def _move(self, lake: Lake, word: str) -> None:
        if self._slip:
            draw = self._random.random()
            word = SIDES[word][0] if draw < self._slip else SIDES[word][1] if draw < 2 * self._slip else word
        self._cell = lake.target(self._cell, word)
        self._walked.add(self._cell)

    def _view(self, lake: Lake) -> str:
        around = describe(lake, self._cell, self._walked)
        if self._show_map == "every" or (self._show_map == "first" and self._steps == 0):
            return f"{draw_map(lake, self._cell)}\n{around}"
        return around

    def _state_key(self, lake: Lake) -> str:
        state = repr((lake.rows, self._cell, sorted(self._walked)))
        return hashlib.sha256(state.encode()).hexdigest()[:16]
