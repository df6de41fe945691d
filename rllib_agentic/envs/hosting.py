"""Environment objects in this process: made, reset, stepped and closed, whoever asks for it."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from pydantic_core import PydanticSerializationError, to_json

from rllib_agentic.envs.env import Env, EnvSchema, Observation, StepResult
from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.threads import BlockingCalls
from rllib_agentic.errors import InfrastructureError, InputError

T = TypeVar("T")
_log = logging.getLogger(__name__)


class EnvHost:
    """Makes sessions of one environment, and knows what it is.

    An environment class may say ``quick = True``: its calls never block and take microseconds. They are then made
    on the event loop itself, which saves two thread switches each. All others run in threads.

    Args:
        make: makes a new environment object at each call.
        call_timeout_s: longest time for one ``reset`` or ``step``; quick environments are not timed.

    Raises:
        InputError: the environment refused its arguments.
        TypeError: ``make`` is an environment and not a factory: sessions would share its state.
    """

    def __init__(self, make: Callable[[], Env], call_timeout_s: float = 60.0) -> None:
        if isinstance(make, Env) and not isinstance(make, type):
            raise TypeError(f"expected a factory of environments, got the environment {make!r}")
        self._make = make
        self.call_timeout_s = call_timeout_s
        probe = make()
        try:
            self.schema: EnvSchema = probe.schema()
            quick = bool(getattr(probe, "quick", False))
            self._release: Callable[[], None] = getattr(probe, "release", _nothing)
        finally:
            probe.close()
        self._threads = None if quick else BlockingCalls(self.schema.name)

    @property
    def quick(self) -> bool:
        """Whether calls are made on the event loop itself, so that awaiting them never waits."""
        return self._threads is None

    @property
    def stuck_calls(self) -> int:
        """Calls that passed their time limit and still run."""
        return self._threads.stuck if self._threads else 0

    def check_task(self, split: str, index: int) -> None:
        """Refuse what is no task.

        Raises:
            EnvFault: ``bad_input``, with the known splits or the valid range.
        """
        if split not in self.schema.splits:
            known = ", ".join(self.schema.splits)
            raise EnvFault(FaultCode.BAD_INPUT, f"{self.schema.name}: no split {split!r}; known: {known}")
        size = self.schema.splits[split]
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < size:
            raise EnvFault(
                FaultCode.BAD_INPUT,
                f"{self.schema.name}: split {split!r} has the task indices 0 to {size - 1}, got {index!r}",
            )

    def release(self) -> None:
        """Free what the sessions of this process share. Blocks; call it when no session is open."""
        try:
            self._release()
        except Exception:
            _log.warning("release of %s raised, though release must never raise", self.schema.name, exc_info=True)

    def open(self) -> HostedEnv:
        """A place for one session; nothing is made yet."""
        return HostedEnv(self._make, self._threads, self.call_timeout_s)


class HostedEnv:
    """One environment object. No two threads are ever in it, and it is closed exactly once if it was made.

    Made by :meth:`EnvHost.open`.
    """

    def __init__(self, make: Callable[[], Env], threads: BlockingCalls | None, timeout_s: float) -> None:
        self._make = make
        self._threads = threads
        self._timeout_s = timeout_s
        self._env: Env | None = None
        self._lock = threading.Lock()
        self._busy = False
        self._closing = False

    async def reset(self, split: str, index: int, seed: int) -> Observation:
        """Make the object and begin the task.

        Raises:
            EnvFault: ``bad_input``, ``env_failed`` or ``env_timeout``.
        """

        def begin() -> Observation:
            self._env = self._make()
            return self._env.reset(split, index, seed)

        observation = await self._call(begin, f"reset of {split}[{index}]")
        _check(observation, Observation, "reset")
        return observation

    async def step(self, action: str) -> StepResult:
        """Apply an action.

        Raises:
            EnvFault: ``env_failed`` or ``env_timeout``; the object must then be closed.
        """

        def apply() -> StepResult:
            assert self._env is not None, "step before reset"
            return self._env.step(action)

        result = await self._call(apply, "step")
        _check(result, StepResult, "step")
        if not math.isfinite(result.reward):
            raise EnvFault(FaultCode.ENV_FAILED, f"step gave the reward {result.reward}; expected a finite number")
        return result

    async def close(self) -> None:
        """Close the object; where a call is still inside, the call's own thread does it when it comes back."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            if self._busy:
                return
        if self._threads is None:
            self._close_env()
            return
        try:
            await self._threads.run(self._close_env, self._timeout_s)
        except TimeoutError:
            _log.warning("close of %r takes more than %g s; no longer waited for", self._env, self._timeout_s)

    async def _call(self, work: Callable[[], T], what: str) -> T:
        if self._threads is None:
            return self._enter(work, what)
        try:
            return await self._threads.run(partial(self._enter, work, what), self._timeout_s)
        except TimeoutError:
            raise EnvFault(FaultCode.ENV_TIMEOUT, f"{what} took more than {self._timeout_s:g} s") from None

    def _enter(self, work: Callable[[], T], what: str) -> T:
        with self._lock:
            if self._closing:
                raise EnvFault(FaultCode.SESSION_CLOSED, f"{what}: the session was closed")
            if self._busy:
                raise EnvFault(FaultCode.WRONG_STEP, f"{what}: another call of this session is still running")
            self._busy = True
        try:
            return work()
        except InputError as error:
            raise EnvFault(FaultCode.BAD_INPUT, str(error)) from error
        except InfrastructureError as error:
            code = FaultCode.ENV_LOST if error.kind == "session_lost" else FaultCode.ENV_FAILED
            raise EnvFault(code, f"{what}: {error}") from error
        except (Exception, SystemExit) as error:
            _log.warning("%s failed", what, exc_info=True)
            raise EnvFault(FaultCode.ENV_FAILED, f"{what} raised {type(error).__name__}: {error}") from error
        finally:
            with self._lock:
                self._busy = False
                abandoned = self._closing
            if abandoned:
                self._close_env()

    def _close_env(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            try:
                env.close()
            except Exception:
                _log.warning("close of %r raised, though close must never raise", env, exc_info=True)


def _nothing() -> None:
    """What most environments share."""


def _check(value: object, expected: type[Observation | StepResult], what: str) -> None:
    if not isinstance(value, expected):
        message = f"{what} gave {value!r:.200}; expected {expected.__name__}"
        raise EnvFault(FaultCode.ENV_FAILED, message)
    try:
        to_json(value, inf_nan_mode="constants")
    except PydanticSerializationError as error:
        raise EnvFault(FaultCode.ENV_FAILED, f"what {what} gave is not JSON-able: {error}") from error
