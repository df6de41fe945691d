"""Coroutines from plain code, also where a loop is running already."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_aside(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end in a loop and a thread of its own: the caller may stand in a loop, as notebooks do.

    Example:
        >>> run_aside(asyncio.sleep(0, "done"))
        'done'
    """
    with ThreadPoolExecutor(1, thread_name_prefix="aside") as thread:
        return thread.submit(asyncio.run, coroutine).result()
