"""Errands in five services, done by calling tools."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from rllib_agentic.envs.env import EnvSchema, Observation
from rllib_agentic.errors import InputError
from rllib_agentic.tools import CallResult, Grade, Outcome, Tool, ToolEnv, ToolUse, result_text
from rllib_agentic.tools.calling import Call
from rllib_agentic.tools.tool_env import own_tools
from rllib_agentic.trajectory.message import Message
from serve_envs.call_text import random_call, write_call
from serve_envs.toolbox.assignment import PlannedCall, is_right, written
from serve_envs.toolbox.progress import SeenProgress, StateProgress
from serve_envs.toolbox.tasks import DOMAINS, Errand, build_world, make_splits, splits_hash

_ASK = "Find out what is asked with the tools, then give the answer alone between <answer> and </answer>."
_ORDER = "Do what is asked with the tools. Change nothing else. The task ends when it is done."


class Toolbox(ToolEnv):
    """Answer questions from a service's data, or change them as asked.

    Args:
        domains: which services: some of ``weather``, ``movies``, ``todo``, ``sheet``, ``academia``.
        progress_reward: the part of the reward, 0 to 1, that is paid for sub-goals when they are first reached; the
            rest is for success.
        use: how tools are called.

    Raises:
        InputError: an argument is out of range.
    """

    def __init__(
        self, domains: Sequence[str] = tuple(DOMAINS), progress_reward: float = 0.0, use: ToolUse | None = None
    ) -> None:
        if not domains or not set(domains) <= set(DOMAINS):
            raise InputError(f"toolbox: domains must be some of {', '.join(DOMAINS)}, got {list(domains)}")
        if not 0.0 <= progress_reward <= 1.0:
            raise InputError(f"toolbox: progress_reward must be in [0, 1], got {progress_reward}")
        self._domains = tuple(domain for domain in DOMAINS if domain in domains)
        self._splits = make_splits(self._domains)
        self._progress_reward = progress_reward
        self._errand: Errand | None = None
        self._world: Any = None
        self._progress: SeenProgress | StateProgress = SeenProgress([])
        self._paid = 0.0
        self._planned = 0
        super().__init__(tools=_all_tools(self._domains), use=use)

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments, with the tools of all services; a task has those of its own."""
        return self.describe(
            "toolbox",
            splits={split: len(errands) for split, errands in self._splits.items()},
            splits_hash=splits_hash(self._domains),
            max_turns=25,
        )

    def begin(self, split: str, index: int, seed: int) -> Observation:
        """Open the task's service. Nothing is left to chance, so ``seed`` changes nothing."""
        errand = self._splits[split][index]
        assignment = errand.assignment
        self._errand = errand
        self._world = build_world(errand.domain, errand.world)
        self.use_tools(own_tools(self._world))
        self._paid, self._planned = 0.0, 0
        if assignment.goal is None:
            outputs = [
                (one.tool, result_text(getattr(self._world, one.tool)(**one.arguments))) for one in assignment.calls
            ]
            self._progress = SeenProgress(outputs)
        else:
            self._progress = StateProgress(self._world.snapshot(), assignment.goal)
        return Observation(
            messages=(
                Message("system", _ASK if assignment.goal is None else _ORDER),
                Message("user", assignment.prompt),
            ),
            info={"category": errand.domain, "kind": assignment.kind},
        )

    def after_calls(self, results: Sequence[CallResult]) -> Grade:
        """Count progress; an order is done when the state is as asked."""
        goal = self._running().assignment.goal
        solved = False
        for done in results:
            if done.outcome is not Outcome.OK:
                continue
            if isinstance(self._progress, SeenProgress):
                self._progress.seen(done.call.name, done.result.text)
            plan = self._running().assignment.calls[self._planned :]
            self._planned += bool(plan and isinstance(done.call, Call) and _follows(done.call, plan[0]))
        if goal is not None and isinstance(self._progress, StateProgress):
            solved = self._progress.look(self._world.snapshot())
        return self._grade(solved, ended=solved, text="Done." if solved else "")

    def grade(self, answer: str) -> Grade:
        """Hold an answer against the right one; an order is not done by an answer."""
        right = self._running().assignment.answer
        solved = right is not None and is_right(answer, right)
        return self._grade(solved, ended=True, text="That is right." if solved else "That is not right.")

    def state_key(self) -> str | None:
        """Hash of the task, what has been reached of it, and the world's state."""
        if self._errand is None:
            return None
        state = (self._errand[:2], self._errand.assignment.prompt, self._progress.share(), self._world.snapshot())
        return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:16]

    def end(self) -> None:
        """Forget the world."""
        self._errand = self._world = None

    def expert_action(self) -> str:
        """The first call of the plan that has not been made yet, or the answer."""
        errand = self._running()
        calls, answer = errand.assignment.calls, errand.assignment.answer
        if self._planned < len(calls):
            call = calls[self._planned]
            return write_call(self.use, call.tool, call.arguments)
        return f"<answer>{written(answer)}</answer>" if answer is not None else "<answer>done</answer>"

    def random_action(self, draw: random.Random) -> str:
        """A call of some tool with values of this world, now and then an answer made of one of them."""
        self._running()
        words = self._world.words()
        if draw.random() < 0.1:
            return f"<answer>{draw.choice(words)}</answer>"
        return random_call(self.use, self.tools, words, draw)

    def _grade(self, solved: bool, *, ended: bool, text: str) -> Grade:
        gained = max(0.0, self._progress.share() - self._paid)
        self._paid += gained
        rewards = {"progress": self._progress_reward * gained, "success": (1 - self._progress_reward) * solved}
        return Grade(
            reward=sum(rewards.values()),
            success=solved,
            ended=ended,
            text=text,
            rewards=rewards,
            metrics={"progress": gained},
        )

    def _running(self) -> Errand:
        if self._errand is None:
            raise RuntimeError("toolbox: no episode is running; call reset")
        return self._errand


def _follows(call: Call, planned: PlannedCall) -> bool:
    if call.name != planned.tool or call.as_text or call.positional:
        return call.name == planned.tool  # in formats of plain text the values look otherwise
    return dict(call.arguments) == dict(planned.arguments)


@cache
def _all_tools(domains: tuple[str, ...]) -> tuple[Tool, ...]:
    """The tools of all services, bound to worlds that no episode uses."""
    return tuple(one for domain in domains for one in own_tools(build_world(domain, "schema")))
