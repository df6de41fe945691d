"""The background loop: results and errors come back; an interrupted caller goes on only after the clean-up."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from rllib_agentic.rollout.background_loop import BackgroundLoop


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    made = BackgroundLoop("test", cleanup_timeout_s=20.0)
    yield made
    made.stop()
    assert not made.running


async def answer(value: int) -> int:
    await asyncio.sleep(0)
    if value < 0:
        raise KeyError(value)
    return value


def test_results_and_errors_come_back(loop: BackgroundLoop) -> None:
    assert loop.run(answer(3)) == 3
    with pytest.raises(KeyError, match="-1"):
        loop.run(answer(-1))
    assert loop.run(answer(4)) == 4


def test_it_serves_a_caller_whose_own_loop_runs(loop: BackgroundLoop) -> None:
    async def notebook() -> int:
        return loop.run(answer(5))

    assert asyncio.run(notebook()) == 5


def test_an_interrupted_caller_waits_for_the_clean_up(loop: BackgroundLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    entered = threading.Event()

    async def session() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)  # closing takes a call of its own
            steps.append("closed")

    _interrupt_once(monkeypatch, entered)
    with pytest.raises(KeyboardInterrupt):
        loop.run(session())
    assert steps == ["closed"]
    assert loop.run(answer(6)) == 6


def test_a_clean_up_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, release = threading.Event(), threading.Event()
    loop = BackgroundLoop("test", cleanup_timeout_s=0.05)

    async def stubborn() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            while not release.is_set():
                await asyncio.sleep(0.01)

    _interrupt_once(monkeypatch, entered)
    with pytest.raises(KeyboardInterrupt):
        loop.run(stubborn())
    assert loop.running
    release.set()
    while loop.run(_others()):
        time.sleep(0.01)
    loop.stop()


async def _others() -> int:
    return len(asyncio.all_tasks()) - 1


def _interrupt_once(monkeypatch: pytest.MonkeyPatch, entered: threading.Event) -> None:
    """Make the caller's first wait end as Ctrl-C ends it, once the coroutine runs."""
    from rllib_agentic.rollout import background_loop

    wait = background_loop.wait

    def interrupted(futures: list, timeout: float | None = None) -> object:
        if timeout is None and entered.wait(20):
            monkeypatch.setattr(background_loop, "wait", wait)
            raise KeyboardInterrupt
        return wait(futures, timeout=timeout)

    monkeypatch.setattr(background_loop, "wait", interrupted)
