"""What an environment showed along fixed actions, as plain data: equal traces mean equal behaviour."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rllib_agentic.envs.env import Env, Observation, StepResult
from rllib_agentic.errors import InputError

Record = dict[str, Any]

_CHILD = "from rllib_agentic.envs.trace import answer_parent; answer_parent()"
_CHILD_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Script:
    """A task and the actions to take in it."""

    split: str
    index: int
    seed: int
    actions: tuple[str, ...]


def record_reset(observation: Observation) -> Record:
    """Everything that a first observation says."""
    return {
        "messages": [m.to_template() | {"continues": m.continues} for m in observation.messages],
        "actions": None if observation.actions is None else list(observation.actions),
        "state_key": observation.state_key,
        "info": dict(observation.info),
    }


def record_step(result: StepResult) -> Record:
    """Everything that a step says."""
    return record_reset(result.observation) | {
        "reward": float(result.reward),
        "terminated": bool(result.terminated),
        "truncated": bool(result.truncated),
        "success": bool(result.success),
        "rewards": dict(result.rewards),
        "metrics": dict(result.metrics),
    }


def trace(env: Env, script: Script) -> list[Record]:
    """Play a script, to its last action or to the end of the episode, and record it."""
    records = [record_reset(env.reset(script.split, script.index, script.seed))]
    for action in script.actions:
        records.append(record_step(env.step(action)))
        if records[-1]["terminated"] or records[-1]["truncated"]:
            break
    return records


def trace_elsewhere(make: Callable[[], Env], scripts: list[Script], hash_seed: int) -> list[list[Record]]:
    """Play scripts in a new Python process with its own PYTHONHASHSEED.

    Raises:
        InputError: ``make`` cannot be sent to another process.
        RuntimeError: the other process failed; the message is the last line that it wrote.
    """
    try:
        job = pickle.dumps((make, scripts))
    except (pickle.PicklingError, AttributeError, TypeError) as cause:
        raise InputError(
            f"check_env: make cannot be pickled ({cause}), so it cannot be tried in another process. Pass a class, a "
            f"module's function or a functools.partial of one; or processes=False to leave this check out"
        ) from cause
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = subprocess.run(
        [sys.executable, "-c", _CHILD], input=job, capture_output=True, env=environment, timeout=_CHILD_TIMEOUT_S
    )
    if child.returncode:
        last = child.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(last[0] if last else f"exit code {child.returncode}")
    return json.loads(child.stdout.splitlines()[-1])


def answer_parent() -> None:
    """The other end of :func:`trace_elsewhere`: read the job from standard input, print the traces as one line."""
    make, scripts = pickle.load(sys.stdin.buffer)
    env = make()
    try:
        print("\n" + json.dumps([trace(env, script) for script in scripts]))
    finally:
        env.close()


def first_difference(one: list[Record], other: list[Record]) -> str | None:
    """Where two traces part, in words; None where they are equal.

    Example:
        >>> first_difference([{"reward": 0.0}], [{"reward": 1.0}])
        'at reset, reward: 0.0 against 1.0'
    """
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        for key in left:
            if left[key] != right[key]:
                place = f"at step {number}" if number else "at reset"
                return f"{place}, {key}: {_short(left[key])} against {_short(right[key])}"
    return None if len(one) == len(other) else f"in length: {len(one) - 1} steps against {len(other) - 1}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
