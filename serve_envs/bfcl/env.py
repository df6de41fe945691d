"""BFCL's multi-turn tasks as an environment."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rllib_agentic.envs.env import EnvSchema, Observation
from rllib_agentic.errors import InputError
from rllib_agentic.tools import Grade, Tool, ToolEnv, ToolUse
from rllib_agentic.trajectory.message import Message
from serve_envs.bfcl.judge import Judge
from serve_envs.bfcl.scenarios import CATEGORIES, Scenario, make_splits, splits_hash
from serve_envs.bfcl.services import Services, ServiceTool, documents, service_names, with_names
from serve_envs.call_text import random_call, write_call

_SYSTEM = (
    "You act for a user by calling functions. The user asks several things, one after the other. When you have done "
    "what was asked, or cannot do it with what you know and have, say so in words, without a call: then the user goes "
    "on."
)
_NEW = "There are new functions that you can call now:\n{}\nDo with them what I asked for before."


class Bfcl(ToolEnv):
    """Do what a user asks for, turn by turn, in services whose state is judged after each turn.

    Args:
        categories: some of ``base``, ``miss_func`` (a function comes late), ``miss_param`` (a value comes late) and
            ``long_context`` (the services hold much that does not matter).
        progress_reward: the part of the reward, 0 to 1, that is paid turn by turn; the rest is for success.
        use: how functions are called.

    Raises:
        InputError: an argument is out of range, or the data are not installed.
    """

    def __init__(
        self, categories: Sequence[str] = CATEGORIES, progress_reward: float = 0.0, use: ToolUse | None = None
    ) -> None:
        if not categories or not set(categories) <= set(CATEGORIES):
            raise InputError(f"bfcl: categories must be some of {', '.join(CATEGORIES)}, got {list(categories)}")
        if not 0.0 <= progress_reward <= 1.0:
            raise InputError(f"bfcl: progress_reward must be in [0, 1], got {progress_reward}")
        self._categories = tuple(category for category in CATEGORIES if category in categories)
        self._splits = make_splits(self._categories)
        self._progress_reward = progress_reward
        self._scenario: Scenario | None = None
        self._services: Services | None = None
        self._judge: Judge | None = None
        self._user_turn = 0
        self._seen: list[str] = []
        self._history: list[Any] = []
        super().__init__(tools=_schema_tools(), use=use)

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments, with the functions of all services; a task has those of its own."""
        return self.describe(
            "bfcl",
            splits={split: len(tasks) for split, tasks in self._splits.items()},
            splits_hash=splits_hash(self._categories),
            max_turns=40,
        )

    def begin(self, split: str, index: int, seed: int) -> Observation:
        """Set up the services. Nothing is left to chance, so ``seed`` changes nothing."""
        scenario = self._splits[split][index]
        self._scenario = scenario
        self._services = Services(scenario)
        self._judge = Judge(scenario)
        self._user_turn = 0
        self._seen, self._history = [], []
        late = {name for names in scenario.added.values() for name in names}
        self.use_tools([tool for tool in self._all_functions(scenario) if tool.name not in late])
        return Observation(
            messages=(Message("system", _SYSTEM), Message("user", scenario.requests[0])),
            info={"category": scenario.category, "scenario": scenario.name},
        )

    def grade(self, answer: str) -> Grade:
        """The agent's turn is over: judge it, and let the user go on."""
        scenario, services = self._running()
        assert self._judge is not None
        right = self._judge.turn_is_right(self._user_turn, services, self._seen)
        self._seen = []
        if not right:
            return Grade(text="That is not what was asked for.", metrics={"user_turns": 0.0})
        self._user_turn += 1
        share = 1 / len(scenario.requests)
        done = self._user_turn == len(scenario.requests)
        rewards = {"turns": self._progress_reward * share, "success": (1 - self._progress_reward) * done}
        return Grade(
            reward=sum(rewards.values()),
            success=done,
            ended=done,
            text="Thank you, that is all." if done else self._next_request(scenario),
            rewards=rewards,
            metrics={"user_turns": share},
        )

    def state_key(self) -> str | None:
        """Hash of the scenario and of all calls so far: the services' states have no text of their own."""
        if self._scenario is None:
            return None
        state = json.dumps([self._scenario.name, self._user_turn, self._history])
        return hashlib.sha256(state.encode()).hexdigest()[:16]

    def end(self) -> None:
        """Forget the services."""
        self._scenario = self._services = self._judge = None

    def expert_action(self) -> str:
        """The right calls of this turn, then a word; where a turn may take one call only, one by one."""
        scenario, _ = self._running()
        gold = scenario.gold[self._user_turn][len(self._seen) :]
        if not gold:
            return "Done." if scenario.gold[self._user_turn] else "I cannot do that yet."
        calls = gold[:1] if self.use.calls_per_turn == 1 or self.use.observation == "continue" else gold
        return "\n".join(write_call(self.use, call.name, with_names(call, scenario.services)) for call in calls)

    def random_action(self, draw: random.Random) -> str:
        """A call of some function with values that the user named, now and then the end of the turn."""
        scenario, _ = self._running()
        if draw.random() < 0.3:
            return "Done."
        words = [word.strip(".,'\"") for word in " ".join(scenario.requests).split()]
        return random_call(self.use, self.tools, [*words, *range(5)], draw)

    def _next_request(self, scenario: Scenario) -> str:
        added = scenario.added.get(self._user_turn, ())
        if not added:
            return scenario.requests[self._user_turn]
        new = [tool for tool in self._all_functions(scenario) if tool.name in added]
        self.use_tools([*self.tools, *new])
        self._reader = self._new_reader()
        told = "\n".join(
            json.dumps({"name": tool.name, "description": tool.description, "parameters": tool.parameters})
            for tool in new
        )
        return "\n".join(filter(None, (_NEW.format(told), scenario.requests[self._user_turn])))

    def _all_functions(self, scenario: Scenario) -> list[ServiceTool]:
        return [ServiceTool(one, self._call) for service in scenario.services for one in documents(service)]

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        _, services = self._running()
        result = services.call(name, (), arguments)
        self._seen.append(result)
        self._history.append([name, dict(arguments)])
        return result

    def _running(self) -> tuple[Scenario, Services]:
        if self._scenario is None or self._services is None:
            raise RuntimeError("bfcl: no episode is running; call reset")
        return self._scenario, self._services


@cache
def _schema_tools() -> tuple[Tool, ...]:
    """The functions of all services, for the schema only."""
    return tuple(ServiceTool(one, _not_running) for service in service_names() for one in documents(service))


def _not_running(name: str, arguments: Mapping[str, Any]) -> str:
    raise RuntimeError(f"bfcl: {name} was called outside of an episode")
