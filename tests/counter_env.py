"""A small environment with adjustable faults: what the tests of the service drive."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InfrastructureError
from rllib_agentic.trajectory.message import Message

UNLUCKY_SEED = 666_666


class Ledger:
    """What happened to the environments of one test, whichever thread they ran in."""

    def __init__(self) -> None:
        self.made = 0
        self.closed = 0
        self.released = 0
        self.failing_resets = 0  # that many of the next resets raise
        self.gate = threading.Event()  # "wait" steps last until it is set
        self.waiting = threading.Semaphore(0)  # released by each step that has begun to wait


class CounterEnv:
    """Counts.

    Actions: ``inc``, ``get``, ``set x=V``, ``get x``, ``echo TEXT``, ``pid``, ``end``, ``cut``, ``raise``, ``exit``,
    ``nan``, ``object``, ``tuple``, ``lose`` (what it runs on dies), and ``wait`` (until the ledger's gate opens).
    """

    quick = False

    def __init__(
        self,
        ledger: Ledger | None = None,
        noise: Callable[[], int] | None = None,
        start: int = 0,
        name: str = "counter",
    ) -> None:
        self.ledger = ledger or Ledger()
        self.ledger.made += 1
        self.noise = noise
        self.start = start
        self.name = name
        self.values: dict[str, str] = {}
        self.is_closed = False
        self.inside = threading.Lock()

    def schema(self) -> EnvSchema:
        return EnvSchema(
            name=self.name,
            version="1",
            splits={"train": 10, "test": 5},
            splits_hash="0123",
            action_format="inc",
            lists_actions=True,
            reward_range=(0.0, 10.0),
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        if self.ledger.failing_resets > 0:
            self.ledger.failing_resets -= 1
            raise RuntimeError("no luck at reset")
        if seed == UNLUCKY_SEED:
            raise RuntimeError("never any luck with this seed")
        self.count = self.start
        return self._observe(f"TASK {split} {index} {seed}")

    def step(self, action: str) -> StepResult:
        assert self.inside.acquire(blocking=False), "two threads in one environment"
        try:
            return self._step(action)
        finally:
            self.inside.release()

    def _step(self, action: str) -> StepResult:
        assert not self.is_closed, "step after close"
        verb, _, rest = action.partition(" ")
        text, reward, ends = action, 0.0, False
        if verb == "inc":
            self.count += 1
            text, reward = str(self.count), 0.1
        elif verb == "get":
            text = self.values.get(rest, "unset") if rest else str(self.count)
        elif verb == "set":
            key, _, value = rest.partition("=")
            self.values[key] = value
        elif verb == "echo":
            text = rest
        elif verb == "pid":
            text = str(os.getpid())
        elif verb == "end":
            ends, reward = True, 1.0
        elif verb == "cut":
            return StepResult(self._observe("cut"), truncated=True)
        elif verb == "raise":
            raise ValueError("the environment broke")
        elif verb == "exit":
            raise SystemExit(3)
        elif verb == "nan":
            reward = float("nan")
        elif verb == "tuple":
            return (self._observe(text), 0.0)  # type: ignore[return-value]
        elif verb == "object":
            return StepResult(Observation((), info={"what": object()}))
        elif verb == "lose":
            raise InfrastructureError("session_lost", "the machine below is gone")
        elif verb == "wait":
            self.ledger.waiting.release()
            self.ledger.gate.wait()
        return StepResult(
            self._observe(text),
            reward=reward,
            terminated=ends,
            success=ends,
            rewards={"work": reward},
            metrics={"count": self.count},
        )

    def close(self) -> None:
        assert not self.is_closed, "closed twice"
        self.is_closed = True
        self.ledger.closed += 1

    def release(self) -> None:
        self.ledger.released += 1

    def _observe(self, text: str) -> Observation:
        noise = f" noise {self.noise()}" if self.noise else ""
        return Observation(
            (Message("user", text + noise),),
            actions=("inc", "end"),
            state_key=str(self.count),
            info={"n": [self.count]},
        )


class QuickCounterEnv(CounterEnv):
    """The same, called on the event loop."""

    quick = True
