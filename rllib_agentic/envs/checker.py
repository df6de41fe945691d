"""Tell the author of an environment what to mend, before a training run finds out."""

from __future__ import annotations

import json
import math
import os
import random
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rllib_agentic.envs.baselines import HasExpert, expert_policy, play
from rllib_agentic.envs.env import Env, EnvSchema, Observation, StepResult
from rllib_agentic.envs.trace import Script, first_difference, record_reset, record_step, trace, trace_elsewhere
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.message import Message

_MALFORMED = ("", " \n", "no such action", "Action:", "Thought: hm", "\x00", "é" * 5000, "get 9" * 500, "-1", "((((")
_ROLES = ("system", "user", "tool")
_STEPS = 40


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to mend.

    Attributes:
        check: which check found it, one word.
        message: what was seen, what was expected, what to do.
    """

    check: str
    message: str


def check_env(
    make: Callable[[], Env],
    *,
    tasks_per_split: int = 5,
    expert_success: float = 1.0,
    expert_turns: int = 200,
    processes: bool = True,
    tasks_compared: int = 200,
    actions_tried: int | None = None,
) -> list[Finding]:
    """Try an environment on everything that training relies on.

    Args:
        make: makes a new session object at each call: the class, or ``functools.partial(make_env, "name", ...)``.
        tasks_per_split: how many tasks of each split are played.
        expert_success: share of the tasks that the environment's own expert must solve, where it has one.
        expert_turns: the most actions that the expert may take.
        processes: also compare with a new Python process under another hash seed.
        tasks_compared: how many tasks of each split are looked at for one that is in two splits.
        actions_tried: how many of the actions that are admissible first are tried, spread over the list; None for all.

    Returns:
        What is to be mended; empty for an environment that is fit for training.

    Raises:
        InputError: ``make`` is no factory, or cannot be sent to another process.
    """
    if not callable(make):
        raise InputError(f"check_env: make must be callable and return a new environment, got {make!r}")
    findings: list[Finding] = []

    def run(check: str, messages: Callable[[], Iterator[str]]) -> bool:
        before = len(findings)
        try:
            findings.extend(Finding(check, message) for message in messages())
        except InputError:
            raise
        except Exception as error:
            findings.append(Finding(check, f"raised {_place(error)}"))
        return len(findings) == before

    if not run("protocol", lambda: _check_protocol(make)):
        return findings
    schema = _schema(make)
    tasks = [
        (split, index)
        for split, size in schema.splits.items()
        for index in sorted({*range(min(size, tasks_per_split - 1)), size - 1})
    ]
    if not run("types", lambda: _check_types(make, schema, tasks)):
        return findings
    scripts = [_random_script(make, split, index) for split, index in tasks]
    run("determinism", lambda: _check_determinism(make, scripts))
    if processes:
        run("processes", lambda: _check_processes(make, scripts))
    run("isolation", lambda: _check_isolation(make, scripts))
    run("lifecycle", lambda: _check_lifecycle(make, scripts))
    run("actions", lambda: _check_actions(make, schema, tasks, actions_tried))
    run("rewards", lambda: _check_rewards(make, schema, scripts))
    run("splits", lambda: _check_splits(make, schema, tasks_compared))
    run("expert", lambda: _check_expert(make, tasks, expert_success, expert_turns))
    return findings


def _check_protocol(make: Callable[[], Env]) -> Iterator[str]:
    env, other = make(), make()
    if env is other:
        yield "make() returned one object twice: sessions would share their state; return a new object at each call"
    missing = [name for name in ("schema", "reset", "step", "close") if not callable(getattr(env, name, None))]
    if missing:
        yield f"{type(env).__name__} lacks the methods {', '.join(missing)} of rllib_agentic.envs.Env"
        return
    schema = env.schema()
    if not isinstance(schema, EnvSchema):
        yield f"schema() must return an EnvSchema, got {type(schema).__name__}"
        return
    if not schema.splits or any(not _is_int(size) or size < 1 for size in schema.splits.values()):
        yield f"schema().splits must give each split a number of tasks from 1, got {dict(schema.splits)}"
    for field in ("name", "version", "splits_hash", "action_format"):
        if not isinstance(getattr(schema, field), str) or not getattr(schema, field):
            yield f"schema().{field} must be a text that is not empty, got {getattr(schema, field)!r}"
    low, high = schema.reward_range
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        yield f"schema().reward_range must be (smallest, largest), both finite, got {schema.reward_range}"
    if not _is_int(schema.max_turns) or schema.max_turns < 1:
        yield f"schema().max_turns must be a number of turns from 1, got {schema.max_turns!r}"
    if make().schema() != schema:
        yield "schema() differs between two environments made alike; it must depend on the arguments only"
    for one in (env, other):
        one.close()


def _check_types(make: Callable[[], Env], schema: EnvSchema, tasks: list[tuple[str, int]]) -> Iterator[str]:
    env = make()
    faults: dict[str, None] = {}
    for split, index in tasks:
        observation = env.reset(split, index, 0)
        faults |= dict.fromkeys(_observation_faults("reset", observation, schema, ended=False))
        if faults:
            break
        draw = random.Random(index)
        for _ in range(_STEPS):
            result = env.step(_choose(draw, observation))
            faults |= dict.fromkeys(_step_faults(result, schema))
            if faults or result.terminated or result.truncated:
                break
            observation = result.observation
    env.close()
    yield from faults


def _observation_faults(where: str, observation: Any, schema: EnvSchema, *, ended: bool) -> Iterator[str]:
    if not isinstance(observation, Observation):
        yield f"{where} must give an Observation, got {type(observation).__name__}"
        return
    messages = observation.messages
    if not isinstance(messages, tuple) or not messages or not all(isinstance(one, Message) for one in messages):
        yield f"{where}: Observation.messages must be a tuple of one or more Message, got {messages!r:.120}"
        return
    for message in messages:
        if message.role not in _ROLES:
            yield f"{where}: an environment speaks as {', '.join(_ROLES)}, not as {message.role!r}"
        if not isinstance(message.content, str):
            yield f"{where}: Message.content must be a text, got {message.content!r:.120}"
    actions = observation.actions
    if actions is not None and not (isinstance(actions, tuple) and all(isinstance(one, str) for one in actions)):
        yield f"{where}: Observation.actions must be None or a tuple of texts, got {actions!r:.120}"
    elif actions is not None and len(set(actions)) < len(actions):
        yield f"{where}: Observation.actions lists an action twice: {actions!r:.120}"
    elif schema.lists_actions and not ended and not actions:
        yield f"{where}: schema().lists_actions is true, but Observation.actions is {actions!r} before the end"
    if observation.state_key is not None and not isinstance(observation.state_key, str):
        yield f"{where}: Observation.state_key must be None or a text, got {observation.state_key!r}"
    try:
        json.dumps(dict(observation.info))
    except (TypeError, ValueError) as error:
        yield f"{where}: Observation.info must be plain JSON: {error}"


def _step_faults(result: Any, schema: EnvSchema) -> Iterator[str]:
    if not isinstance(result, StepResult):
        yield f"step must return a StepResult, got {type(result).__name__}"
        return
    for flag in ("terminated", "truncated", "success"):
        if not isinstance(getattr(result, flag), bool):
            yield f"step: {flag} must be True or False, got {getattr(result, flag)!r}"
    numbers = {"reward": result.reward, **{f"metrics[{k!r}]": v for k, v in result.metrics.items()}}
    numbers |= {f"rewards[{k!r}]": v for k, v in result.rewards.items()}
    for name, value in numbers.items():
        if not isinstance(value, int | float) or not math.isfinite(value):
            yield f"step: {name} must be a finite number of Python's own, got {value!r}"
    yield from _observation_faults(
        "step", result.observation, schema, ended=bool(result.terminated or result.truncated)
    )


def _check_determinism(make: Callable[[], Env], scripts: list[Script]) -> Iterator[str]:
    env = make()
    first = [trace(env, script) for script in scripts]
    for script, records in zip(scripts, first, strict=True):
        if difference := first_difference(records, trace(env, script)):
            yield f"{_name(script)} played again in one object differs {difference}; keep no state over reset"
            return
    fresh = make()
    for script, records in zip(reversed(scripts), reversed(first), strict=True):
        random.seed(0)
        if difference := first_difference(records, trace(fresh, script)):
            yield f"{_name(script)} in a new object differs {difference}; draw from a generator seeded by the task only"
            return
    env.close()
    fresh.close()


def _check_processes(make: Callable[[], Env], scripts: list[Script]) -> Iterator[str]:
    env = make()
    here = [trace(env, script) for script in scripts]
    env.close()
    here = json.loads(json.dumps(here))
    hash_seed = 2 if os.environ.get("PYTHONHASHSEED") == "1" else 1
    try:
        there = trace_elsewhere(make, scripts, hash_seed)
    except RuntimeError as error:
        yield f"a new process could not play it: {error}"
        return
    for script, one, other in zip(scripts, here, there, strict=True):
        if difference := first_difference(one, other):
            yield (
                f"{_name(script)} in a new process (PYTHONHASHSEED={hash_seed}) differs {difference}; sort sets and "
                f"folders, and seed no generator by hash()"
            )
            return


def _check_isolation(make: Callable[[], Env], scripts: list[Script]) -> Iterator[str]:
    alone = make()
    expected = [trace(alone, script) for script in scripts]
    alone.close()
    for at in range(len(scripts) - 1):
        pair = (make(), make())
        plans = scripts[at : at + 2]
        seen = [[record_reset(env.reset(s.split, s.index, s.seed))] for env, s in zip(pair, plans, strict=True)]
        for turn in range(max(len(script.actions) for script in plans)):
            for env, script, records in zip(pair, plans, seen, strict=True):
                if turn < len(script.actions):
                    records.append(record_step(env.step(script.actions[turn])))
        for script, records, wanted in zip(plans, seen, expected[at:], strict=False):
            if difference := first_difference(wanted, records):
                yield f"{_name(script)} beside another session differs {difference}; share nothing that changes"
                return
        for env in pair:
            env.close()


def _check_lifecycle(make: Callable[[], Env], scripts: list[Script]) -> Iterator[str]:
    script = max(scripts, key=lambda one: len(one.actions))
    unused = make()
    unused.close()
    unused.close()
    env = make()
    expected = trace(env, script)
    kept = env.reset(script.split, script.index, script.seed)
    shown = record_reset(kept)
    for action in script.actions:
        last = env.step(action)
    if record_reset(kept) != shown:
        yield "an Observation changed after it was returned; return new objects"
    if last.terminated or last.truncated:
        try:
            late = env.step(script.actions[-1])
        except Exception:
            late = None
        if late is not None and (late.reward or not (late.terminated or late.truncated)):
            yield "a step after the end paid a reward or went on; raise RuntimeError until reset is called"
    if difference := first_difference(expected, trace(env, script)):
        yield f"reset after an end, or after a step too many, differs {difference}"
    env.close()
    env.close()
    if difference := first_difference(expected, trace(env, script)):
        yield f"reset after close differs {difference}"
    env.close()


def _check_actions(
    make: Callable[[], Env], schema: EnvSchema, tasks: list[tuple[str, int]], at_most: int | None
) -> Iterator[str]:
    env = make()
    for split, index in tasks:
        actions = env.reset(split, index, 0).actions or ()
        for action in actions[:: 1 if at_most is None else max(1, -(-len(actions) // at_most))]:
            env.reset(split, index, 0)
            if env.step(action).metrics.get("invalid_action"):
                yield f"the admissible action {action!r} of task {split} {index} counts as invalid"
                return
    split, index = tasks[0]
    for text in _MALFORMED:
        env.reset(split, index, 0)
        try:
            result = env.step(text)
        except Exception as error:
            yield f"the malformed action {text!r:.40} raised {_place(error)}; answer with an observation instead"
            return
        if schema.lists_actions and not result.metrics.get("invalid_action"):
            yield f"the malformed action {text!r:.40} was not counted; report metrics={{'invalid_action': 1.0}}"
            return
    env.close()


def _check_rewards(make: Callable[[], Env], schema: EnvSchema, scripts: list[Script]) -> Iterator[str]:
    env = make()
    low, high = schema.reward_range
    for script in scripts:
        total = sum(record["reward"] for record in trace(env, script)[1:])
        ended_early = len(script.actions) < _STEPS
        if total > high + 1e-9 or (ended_early and total < low - 1e-9):
            yield f"{_name(script)} returned {total:g}, outside of schema().reward_range {schema.reward_range}"
            return
    env.close()


def _check_splits(make: Callable[[], Env], schema: EnvSchema, at_most: int) -> Iterator[str]:
    env = make()
    owners: dict[str, tuple[str, int]] = {}
    for split, size in schema.splits.items():
        keys = [_task_key(env.reset(split, index, 0)) for index in range(min(size, at_most))]
        if len(set(keys)) <= len(keys) // 2:
            continue  # tasks that look alike at first, such as those with a hidden goal: nothing can be seen
        for index, key in enumerate(keys):
            owner = owners.setdefault(key, (split, index))
            if owner[0] != split:
                yield f"task {index} of {split} is task {owner[1]} of {owner[0]} as well; no task may be in two splits"
                return
    env.close()


def _check_expert(
    make: Callable[[], Env], tasks: list[tuple[str, int]], expert_success: float, max_turns: int
) -> Iterator[str]:
    env = make()
    if not isinstance(env, HasExpert):
        return
    failed = [task for task in tasks if not play(env, expert_policy, *task, 0, max_turns)[-1].success]
    reached = 1 - len(failed) / len(tasks)
    if reached < expert_success:
        yield (
            f"the expert solved {reached:.0%} of {len(tasks)} tasks, {expert_success:.0%} expected; "
            f"it failed in {failed[:5]}"
        )
    env.close()


def _schema(make: Callable[[], Env]) -> EnvSchema:
    env = make()
    schema = env.schema()
    env.close()
    return schema


def _random_script(make: Callable[[], Env], split: str, index: int) -> Script:
    env = make()
    observation = env.reset(split, index, 7)
    draw = random.Random(f"{split} {index}")
    actions: list[str] = []
    while len(actions) < _STEPS:
        actions.append(_choose(draw, observation))
        result = env.step(actions[-1])
        if result.terminated or result.truncated:
            break
        observation = result.observation
    env.close()
    return Script(split, index, 7, tuple(actions))


def _choose(draw: random.Random, observation: Observation) -> str:
    return draw.choice(observation.actions) if observation.actions else "no such action"


def _task_key(observation: Observation) -> str:
    """What tells tasks apart at their first observation: their id, the state, or what is seen."""
    given = observation.info.get("task_id") or observation.state_key
    return str(given or json.dumps([message.content for message in observation.messages]))


def _name(script: Script) -> str:
    return f"task {script.split} {script.index}"


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _place(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
