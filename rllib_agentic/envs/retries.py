"""How often and how patiently an environment is tried again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from rllib_agentic.envs.faults import FaultCode

WORTH_ANOTHER_SESSION = (FaultCode.ENV_FAILED, FaultCode.ENV_TIMEOUT, FaultCode.ENV_LOST)


class RetryPolicy(NamedTuple):
    """How often and how patiently to try again.

    Attributes:
        max_retries: tries after the first one, for a call that failed on its way and for a reset that failed.
        backoff_s: pause before the first retry; it doubles each time, with up to half of it added at random.
        full_patience_s: how long in all to wait for a free slot.
        sleep: how to wait.
    """

    max_retries: int = 3
    backoff_s: float = 0.2
    full_patience_s: float = 60.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def pause(self, attempt: int) -> None:
        """Wait before try number ``attempt`` (from 1)."""
        await self.sleep(self.backoff_s * 2 ** (attempt - 1) * (1 + random.random() / 2))
