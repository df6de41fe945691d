"""Sokoban as a text environment."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.grid import MOVES, towards
from serve_envs.sokoban.room import Position, Room
from serve_envs.sokoban.solver import push_distances, solve
from serve_envs.sokoban.tasks import load, make_splits, splits_hash
from serve_envs.splits import checked_counts

_SYSTEM = "Push every box onto a goal. Boxes can be pushed, not pulled. Answer Up, Down, Left or Right."
_LEGEND = " Map: # wall, _ floor, O goal, X box, V box on goal, P you, S you on goal."
_BOX, _DONE, _MOVE = 1.0, 10.0, -0.1


class Sokoban:
    """Push every box onto a goal.

    Args:
        size: side of the square map, outer walls included, 5 to 10.
        boxes: boxes, and goals, 1 to 3.
        pushes: fewest and most pulls by which the boxes were moved off their goals; that many pushes solve it.
        show: the ``map``, the ``places`` of boxes and goals as seen by the player, or ``both``.
        max_steps: steps after which the episode is truncated.
        train: tasks in the split ``train``.
        validation: tasks in the split ``validation``.
        test: tasks in the split ``test``.

    Raises:
        InputError: an argument is out of range, or there are not as many different maps as tasks.
    """

    def __init__(
        self,
        size: int = 6,
        boxes: int = 1,
        pushes: tuple[int, int] = (1, 20),
        show: Literal["map", "places", "both"] = "map",
        max_steps: int = 100,
        train: int = 800,
        validation: int = 100,
        test: int = 100,
    ) -> None:
        if not 5 <= size <= 10:
            raise InputError(f"sokoban: size must be from 5 to 10, got {size}")
        if not 1 <= boxes <= 3:
            raise InputError(f"sokoban: boxes must be from 1 to 3, got {boxes}")
        if not 1 <= pushes[0] <= pushes[1]:
            raise InputError(f"sokoban: pushes must be (fewest, most) with 1 <= fewest <= most, got {list(pushes)}")
        if show not in ("map", "places", "both"):
            raise InputError(f"sokoban: show must be 'map', 'places' or 'both', got {show!r}")
        if max_steps < 1:
            raise InputError(f"sokoban: max_steps must be at least 1, got {max_steps}")
        counts = checked_counts("sokoban", train, validation, test)
        self._generator = (size, boxes, pushes, counts)
        self._splits = make_splits(*self._generator)
        self.quick = boxes == 1 and size <= 7  # elsewhere the search for a solution, made at reset, may take a while
        self._boxes = boxes
        self._show = show
        self._max_steps = max_steps
        self._room: Room | None = None
        self._position = Position((0, 0), frozenset())
        self._steps = 0
        self._planned: Mapping[Position, str] = {}

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        return EnvSchema(
            name="sokoban",
            version="1",
            splits={split: len(maps) for split, maps in self._splits.items()},
            splits_hash=splits_hash(*self._generator),
            action_format="One of Up, Down, Left, Right; bare, or after 'Action:'. Example: Down",
            lists_actions=True,
            reward_range=(_MOVE * self._max_steps - _BOX * self._boxes, _DONE + _BOX * self._boxes + _MOVE),
            max_turns=min(self._max_steps, 30),
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Enter the room. Nothing is left to chance, so ``seed`` changes nothing."""
        room, self._position = load(self._splits[split][index])
        self._room = room
        self._steps = 0
        self._planned = {}
        return Observation(
            messages=(
                Message("system", _SYSTEM if self._show == "places" else _SYSTEM + _LEGEND),
                Message("user", self._view(room)),
            ),
            actions=self._actions(room),
            state_key=self._state_key(room),
            info={"category": _category(room, self._position)},
        )

    def step(self, action: str) -> StepResult:
        """Go or push one square, or say that the text was no action.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
        """
        room = self._running()
        self._steps += 1
        word = extract_action(action).capitalize()
        valid = word in MOVES
        before = self._position
        if valid:
            self._position = room.move(before, word)
        on_goals = len(self._position.boxes & room.goals) - len(before.boxes & room.goals)
        success = room.solved(self._position)
        truncated = not success and self._steps >= self._max_steps
        text = "Every box is on a goal." if success else self._view(room)
        if not valid:
            text = f"That is no action. Answer with Up, Down, Left or Right.\n{text}"
        observation = Observation(
            messages=(Message("user", text),),
            actions=() if success else self._actions(room),
            state_key=self._state_key(room),
        )
        rewards = {"move": _MOVE, "boxes": _BOX * on_goals, "done": _DONE * success}
        stuck = float(any(box not in push_distances(room) for box in self._position.boxes))
        if success or truncated:
            self._room = None
        return StepResult(
            observation,
            reward=sum(rewards.values()),
            terminated=success,
            truncated=truncated,
            success=success,
            rewards=rewards,
            metrics={
                "invalid_action": float(not valid),
                "idle_action": float(valid and self._position == before),
                "box_stuck": stuck,
            },
        )

    def close(self) -> None:
        """End the episode; nothing else is held."""
        self._room = None

    def expert_action(self) -> str:
        """The first move of a shortest solution; some move where a wrong push has left none."""
        room = self._running()
        if self._position not in self._planned:
            self._planned = _steps_of(room, self._position, _plan(room, self._position) or ())
        return self._planned.get(self._position) or self._actions(room)[0]

    def _running(self) -> Room:
        if self._room is None:
            raise RuntimeError("sokoban: no episode is running; call reset")
        return self._room

    def _actions(self, room: Room) -> tuple[str, ...]:
        return tuple(word for word in MOVES if room.move(self._position, word) != self._position)

    def _view(self, room: Room) -> str:
        drawing = "\n".join(" ".join(row) for row in room.draw(self._position))
        if self._show == "map":
            return drawing
        places = "\n".join(
            f"{name}: {'; '.join(towards(self._position.player, cell) for cell in sorted(cells))}."
            for name, cells in (
                ("Box", self._position.boxes - room.goals),
                ("Goal", room.goals - self._position.boxes),
                ("Box on goal", self._position.boxes & room.goals),
            )
            if cells
        )
        ways = f"Ways: {', '.join(self._actions(room))}."
        return f"{places}\n{ways}" if self._show == "places" else f"{drawing}\n{places}\n{ways}"

    def _state_key(self, room: Room) -> str:
        return hashlib.sha256("\n".join(room.draw(self._position)).encode()).hexdigest()[:16]


@lru_cache(maxsize=4096)
def _plan(room: Room, position: Position) -> tuple[str, ...] | None:
    return solve(room, position)


def _steps_of(room: Room, position: Position, plan: tuple[str, ...]) -> dict[Position, str]:
    steps = {}
    for word in plan:
        steps[position] = word
        position = room.move(position, word)
    return steps


@lru_cache(maxsize=4096)
def _category(room: Room, start: Position) -> str:
    plan = _plan(room, start)
    if plan is None:
        return "not solved by the expert"
    steps = _steps_of(room, start, plan)
    pushes = sum(room.move(position, word).boxes != position.boxes for position, word in steps.items())
    low = next(low for low in (13, 9, 6, 3, 1) if pushes >= low)
    return {1: "1 to 2 pushes", 3: "3 to 5 pushes", 6: "6 to 8 pushes", 9: "9 to 12 pushes"}.get(low, "13 and more")
