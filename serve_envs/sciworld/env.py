"""ScienceWorld as a text environment; the worlds run in virtual machines that many sessions share."""

from __future__ import annotations

import json
from typing import Any

from scienceworld.constants import BASEPATH, JAR_PATH

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError, did_you_mean
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.jvm import JvmSettings
from serve_envs.jvm_env import JvmEnv
from serve_envs.sciworld.tasks import VARIATIONS, Experiment, make_splits
from serve_envs.splits import hash_of

SIMPLIFICATIONS = (
    "teleportAction",
    "selfWateringFlowerPots",
    "openContainers",
    "openDoors",
    "noElectricalAction",
)
_SYSTEM = (
    "You do an experiment in a text world. Answer with one action. Actions: open OBJ, close OBJ, activate OBJ, "
    "deactivate OBJ, connect OBJ to OBJ, disconnect OBJ, use OBJ on OBJ, look around, look at OBJ, look in OBJ, "
    "read OBJ, move OBJ to OBJ, pick up OBJ, put down OBJ, pour OBJ into OBJ, dunk OBJ into OBJ, mix OBJ, go to LOC, "
    "eat OBJ, flush OBJ, focus on OBJ (the object of the task; a wrong one ends it), wait (10 times), wait1, inventory."
)
_UNKNOWN = "No known action matches that input."


class SciWorld(JvmEnv[Experiment]):
    """Do an experiment; the reward is the progress that ScienceWorld counts.

    Args:
        tasks: the kinds of experiments, by ScienceWorld's names; all thirty by default.
        simplifications: of :data:`SIMPLIFICATIONS`, or ``("easy",)`` for all of them.
        list_actions: list the admissible actions; ScienceWorld needs about as long for it as for eight steps.
        max_steps: steps after which the episode is truncated.
        jvms: virtual machines a worker: calls of one go one after the other.
        sessions_per_jvm: the most sessions on one virtual machine.
        jvm_memory_mb: heap of a virtual machine.

    Raises:
        InputError: an argument is out of range.
    """

    name = "sciworld"
    main = "scienceworld.runtime.pythonapi.PythonInterface"
    idle_action = "wait1"

    def __init__(
        self,
        tasks: tuple[str, ...] = tuple(VARIATIONS),
        simplifications: tuple[str, ...] = (),
        list_actions: bool = False,
        max_steps: int = 100,
        jvms: int = 2,
        sessions_per_jvm: int = 32,
        jvm_memory_mb: int = 512,
    ) -> None:
        for task in tasks:
            if task not in VARIATIONS:
                raise InputError(f"sciworld: there is no task {task!r}. {did_you_mean(task, VARIATIONS)}")
        if not tasks or len(set(tasks)) < len(tasks):
            raise InputError(f"sciworld: tasks must be one or more different names, got {tasks!r}")
        for simplification in simplifications:
            if simplification not in (*SIMPLIFICATIONS, "easy"):
                known = did_you_mean(simplification, (*SIMPLIFICATIONS, "easy"))
                raise InputError(f"sciworld: there is no simplification {simplification!r}. {known}")
        if min(max_steps, jvms, sessions_per_jvm) < 1 or jvm_memory_mb < 128:
            raise InputError("sciworld: max_steps, jvms and sessions_per_jvm start at 1, jvm_memory_mb at 128")
        self._splits = make_splits(tuple(tasks))
        self._simplifications = tuple(simplifications)
        self._lists_actions = list_actions
        self._max_steps = max_steps
        settings = JvmSettings(
            jar=JAR_PATH,
            folder=BASEPATH,
            main=self.main,
            # Texts list objects in the order of hash tables, which is that of the objects' own hashes: equal only
            # where those do not depend on what the machine did before.
            options=(
                f"-Xmx{jvm_memory_mb}m",
                "-XX:+UseSerialGC",
                "-XX:+UnlockExperimentalVMOptions",
                "-XX:hashCode=2",
            ),
            serial=True,  # two threads in it disturb one another without a word
        )
        super().__init__(settings, machines=jvms, sessions=sessions_per_jvm)

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        return EnvSchema(
            name="sciworld",
            version="1",
            splits={split: len(tasks) for split, tasks in self._splits.items()},
            splits_hash=hash_of(self._splits, list),
            action_format="One action of ScienceWorld, bare or after 'Action:'. Example: open door to kitchen",
            lists_actions=self._lists_actions,
            reward_range=(-1.0, 1.0),
            max_turns=min(self._max_steps, 30),
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Set up the experiment. The index decides everything, so ``seed`` changes nothing."""
        experiment = self._splits[split][index]
        task, shown, actions = self._begin(experiment, lambda world: self._set_up(world, experiment))
        return Observation(
            messages=(Message("system", _SYSTEM), Message("user", f"{task}\n\n{shown}")),
            actions=actions,
            info={
                "category": experiment.task,
                "task_id": f"{experiment.task} {experiment.variation}",
                "task_description": task,
            },
        )

    def step(self, action: str) -> StepResult:
        """Say something to the world.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
            InfrastructureError: ``session_lost``: the virtual machine died.
        """
        words = "".join(c for c in " ".join(extract_action(action).split()) if c.isprintable())[:500]
        shown, score, complete, actions = self._advance(lambda world: self._apply(world, words))
        terminated = complete or score < 0
        truncated = not terminated and self._steps >= self._max_steps
        result = StepResult(
            Observation(messages=(Message("user", shown),), actions=() if terminated else actions),
            # A wrong focus counts as -100 there, which is the end; else the score rises from 0 to 100.
            reward=self._gain(max(score, -1.0)),
            terminated=terminated,
            truncated=truncated,
            success=score >= 1.0,
            metrics={"invalid_action": float(shown.startswith(_UNKNOWN))},
        )
        if terminated or truncated:
            self._task = None
        return result

    def _set_up(self, world: Any, experiment: Experiment) -> tuple[str, str, tuple[str, ...] | None]:
        world.load(experiment.task, experiment.variation, ",".join(self._simplifications), False)
        return _tidy(world.getTaskDescription()), _tidy(world.freeActionLook()), self._actions(world)

    def _apply(self, world: Any, words: str) -> tuple[str, float, bool, tuple[str, ...] | None]:
        shown = _tidy(world.step(words or "?"))
        score, complete = float(world.getScore()), bool(world.getCompleted())
        return shown, score, complete, None if complete or score < 0 else self._actions(world)

    def _actions(self, world: Any) -> tuple[str, ...] | None:
        if not self._lists_actions:
            return None
        valid = json.loads(world.getValidActionObjectCombinationsJSON())["validActions"]
        return tuple(sorted({entry["action"] for entry in valid} - {"reset task"}))

    def _solution(self, engine: Any, task: Experiment) -> list[str]:
        engine.load(task.task, task.variation, ",".join(self._simplifications), True)
        return list(engine.getGoldActionSequence())  # takes it seconds


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
