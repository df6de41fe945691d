"""One session: an environment object, its step counter, and the last answer for whoever asks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rllib_agentic.envs.env import Observation
from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.hosting import HostedEnv
from rllib_agentic.envs.wire import ActRequest, CreateAnswer, CreateRequest, StateAnswer, StepAnswer, StepRequest


class Session:
    """One episode on this worker. Requests of one session run one after the other.

    Args:
        request: the task, and the id that the client made.
        env: where its environment object lives.
        clock: seconds, never going back.
        nonce: of the restart that made it, if one did.
    """

    def __init__(self, request: CreateRequest, env: HostedEnv, clock: Callable[[], float], nonce: str = "") -> None:
        self.request = request
        self.nonce = nonce
        self._env = env
        self._clock = clock
        self._turn = asyncio.Lock()
        self._last_use = clock()
        self._created: CreateAnswer | None = None
        self._last: tuple[StepRequest, StepAnswer] | None = None
        self._last_act: ActRequest | None = None

    @property
    def idle_s(self) -> float:
        """Seconds since the last request ended; 0 while one is running."""
        return 0.0 if self._turn.locked() else self._clock() - self._last_use

    async def create(self, request: CreateRequest) -> CreateAnswer:
        """Reset, once; a repeated request gets the same answer.

        Raises:
            EnvFault: ``session_exists`` (for another task), or what :meth:`HostedEnv.reset` raises.
        """
        if request != self.request:
            held = f"{self.request.split}[{self.request.index}] with seed {self.request.seed}"
            raise EnvFault(FaultCode.SESSION_EXISTS, f"session {request.session_id!r} exists, for the task {held}")
        async with self._turn:
            if self._created is None:
                observation = await self._env.reset(request.split, request.index, request.seed)
                self._created = CreateAnswer(
                    session_id=request.session_id,
                    split=request.split,
                    index=request.index,
                    seed=request.seed,
                    observation=observation,
                )
            self._last_use = self._clock()
            return self._created

    async def step(self, request: StepRequest) -> StepAnswer:
        """Apply the next action; a repeat of the last step gets its answer again.

        Raises:
            EnvFault: ``wrong_step``, ``episode_over``, or what :meth:`HostedEnv.step` raises.
        """
        async with self._turn:
            self._last_use = self._clock()
            if self._last is not None and request == self._last[0]:
                return self._last[1]
            if request.step != self._steps + 1:
                raise EnvFault(
                    FaultCode.WRONG_STEP,
                    f"session {request.session_id!r}: got step {request.step}, expected {self._steps + 1}, "
                    f"or {self._steps} again with the same action",
                )
            return await self._apply(request)

    async def act(self, request: ActRequest) -> StepAnswer:
        """Apply an action as the next step; a repeat of the last request gets its answer again.

        Raises:
            EnvFault: ``episode_over``, or what :meth:`HostedEnv.step` raises.
        """
        async with self._turn:
            self._last_use = self._clock()
            if self._created is None:
                raise EnvFault(FaultCode.WRONG_STEP, f"session {request.session_id!r}: no episode has begun")
            if self._last is not None and request == self._last_act:
                return self._last[1]
            step = StepRequest(session_id=request.session_id, step=self._steps + 1, action=request.action)
            answer = await self._apply(step)
            self._last_act = request
            return answer

    def state(self) -> StateAnswer:
        """Where the session stands.

        Raises:
            EnvFault: ``wrong_step`` while the reset is still running.
        """
        if self._created is None:
            raise EnvFault(FaultCode.WRONG_STEP, f"session {self.request.session_id!r}: its reset is still running")
        observation: Observation = self._last[1].result.observation if self._last else self._created.observation
        return StateAnswer(
            session_id=self.request.session_id,
            split=self.request.split,
            index=self.request.index,
            seed=self.request.seed,
            steps=self._steps,
            total_reward=self._total_reward,
            over=self._over,
            first=self._created.observation,
            observation=observation,
        )

    async def close(self) -> None:
        """Close the environment, at once or when the running call comes back."""
        await self._env.close()

    async def _apply(self, request: StepRequest) -> StepAnswer:
        if self._over:
            raise EnvFault(
                FaultCode.EPISODE_OVER,
                f"session {request.session_id!r}: the episode ended at step {self._steps}; create a new session",
            )
        result = await self._env.step(request.action)
        answer = StepAnswer(
            session_id=request.session_id,
            step=request.step,
            result=result,
            total_reward=self._total_reward + result.reward,
        )
        self._last = (request, answer)
        self._last_use = self._clock()
        return answer

    @property
    def _total_reward(self) -> float:
        return self._last[1].total_reward if self._last else 0.0

    @property
    def _steps(self) -> int:
        return self._last[0].step if self._last else 0

    @property
    def _over(self) -> bool:
        return self._last is not None and (self._last[1].result.terminated or self._last[1].result.truncated)
