"""ALFWorld as a text environment: its engine, in households that are generated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, get_args

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError, did_you_mean
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.alfworld.household import KINDS, Household, Size
from serve_envs.alfworld.tasks import make_splits, splits_hash
from serve_envs.child_env import ChildEnv
from serve_envs.splits import checked_counts

if TYPE_CHECKING:  # the engine itself is loaded in processes of its own
    from serve_envs.alfworld.houses import Shown

_SYSTEM = (
    "You are in a household and do a task there. Answer with one command: go to PLACE, open PLACE, close PLACE, take "
    "THING from PLACE, move THING to PLACE, use THING, heat THING with PLACE, clean THING with PLACE, cool THING with "
    "PLACE, slice THING with THING, examine PLACE, examine THING, look, inventory, help. Things and places are called "
    "as you see them, for example mug 1."
)

# ALFWorld's versions before 0.4, and the prompts and trajectories that were written for them.
_OLDER_PUT = re.compile(r"^put (.+) in/on (.+)$")


class AlfWorld(ChildEnv[Household]):
    """Find things in a room, clean, heat or cool them, and put them where they belong.

    Args:
        kinds: kinds of tasks, by ALFWorld's names; they take turns.
        size: of the households: ``small`` has 6 places and few things, ``medium`` 12, ``full`` all of the room's.
        show_actions: list the admissible commands in the text too.
        max_steps: commands after which the episode is truncated.
        train: number of households to train on.
        validation: number of households for validation.
        test: number of households for testing.
        processes: processes of the engine a worker; each serves its sessions one call after the other.
        sessions_per_process: the most sessions on one process.

    Raises:
        InputError: an argument is out of range.
    """

    name = "alfworld"
    target = "serve_envs.alfworld.houses:Houses"

    def __init__(
        self,
        kinds: tuple[str, ...] = KINDS,
        size: Size = "full",
        show_actions: bool = False,
        max_steps: int = 50,
        train: int = 1200,
        validation: int = 120,
        test: int = 240,
        processes: int = 2,
        sessions_per_process: int = 64,
    ) -> None:
        for kind in kinds:
            if kind not in KINDS:
                raise InputError(f"alfworld: there is no kind of task {kind!r}. {did_you_mean(kind, KINDS)}")
        if not kinds or len(set(kinds)) < len(kinds):
            raise InputError(f"alfworld: kinds must be one or more different names, got {kinds!r}")
        if size not in get_args(Size):
            raise InputError(f"alfworld: size must be one of {', '.join(get_args(Size))}, got {size!r}")
        if min(max_steps, processes, sessions_per_process) < 1:
            raise InputError("alfworld: max_steps, processes and sessions_per_process start at 1")
        self._drawn_from = (tuple(kinds), size, checked_counts("alfworld", train, validation, test))
        self._show_actions = show_actions
        self._max_steps = max_steps
        super().__init__(processes, sessions_per_process)

    def tasks(self) -> Mapping[str, Sequence[Household]]:
        """The households, by split."""
        return make_splits(*self._drawn_from)

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        return EnvSchema(
            name="alfworld",
            version="1",
            splits={split: len(tasks) for split, tasks in self.tasks().items()},
            splits_hash=splits_hash(*self._drawn_from),
            action_format="One command of ALFWorld, bare or after 'Action:'. Example: take mug 1 from cabinet 3",
            lists_actions=True,
            reward_range=(0.0, 1.0),
            max_turns=self._max_steps,
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Enter the household. The task decides everything, so ``seed`` changes nothing."""
        task = self.tasks()[split][index]
        shown: Shown = self._begin(task, task)
        return Observation(
            messages=(Message("system", _SYSTEM), Message("user", self._read(shown))),
            actions=shown.commands,
            state_key=shown.key,
            info={"category": task.kind, "goal": task.sentence, "room": task.room},
        )

    def step(self, action: str) -> StepResult:
        """Say a command.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
            InfrastructureError: ``session_lost``: the engine's process died.
        """
        self._running()
        command = _OLDER_PUT.sub(r"move \1 to \2", " ".join(extract_action(action).lower().split()))
        shown: Shown = self._call("act", command)
        self._steps += 1
        truncated = not shown.won and self._steps >= self._max_steps
        result = StepResult(
            Observation(
                messages=(Message("user", self._read(shown)),),
                actions=() if shown.won else shown.commands,
                state_key=shown.key,
            ),
            reward=float(shown.won),
            terminated=shown.won,
            truncated=truncated,
            success=shown.won,
            metrics={"invalid_action": float(not shown.done)},
        )
        if shown.won or truncated:
            self._task = None
        return result

    def expert_action(self) -> str:
        """The next command of a shortest plan, from knowing where everything is."""
        self._running()
        return self._call("advise")

    def _read(self, shown: Shown) -> str:
        return f"{shown.text}\nCommands: {', '.join(shown.commands)}." if self._show_actions else shown.text
