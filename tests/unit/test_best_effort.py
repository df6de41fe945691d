"""The queue behind tracking: in order, patient with outages, bounded, honest about gaps; the caller never waits."""

from __future__ import annotations

import threading

from rllib_agentic.tracking.best_effort import BestEffortQueue


def queue(capacity: int = 100) -> BestEffortQueue:
    return BestEffortQueue("test", lambda error: isinstance(error, ValueError), capacity=capacity, max_pause_s=0.5)


def test_work_is_done_in_order_and_flush_waits() -> None:
    done: list[int] = []
    q = queue()
    for i in range(50):
        q.add("work", lambda i=i: done.append(i))  # type: ignore[misc]
    assert q.flush(10) is None and done == list(range(50))


def test_an_outage_loses_nothing() -> None:
    done: list[int] = []
    failures = iter([ConnectionError("down")] * 2)

    def work(i: int) -> None:
        for error in failures:
            raise error
        done.append(i)

    q = queue()
    for i in range(3):
        q.add("work", lambda i=i: work(i))  # type: ignore[misc]
    assert q.flush(10) is None and done == [0, 1, 2]


def test_hopeless_work_is_dropped_and_the_rest_goes_on() -> None:
    done: list[int] = []

    def refuse() -> None:
        raise ValueError("bad name")

    q = queue()
    q.add("metrics", refuse)
    q.add("metrics", lambda: done.append(1))
    gap = q.flush(10)
    assert gap is not None and gap.lost == {"metrics": 1} and "bad name" in gap.reason and done == [1]
    assert "1 x metrics" in str(gap)


def test_a_hanging_service_never_blocks_and_the_gap_is_reported() -> None:
    release = threading.Event()

    def hang() -> None:
        release.wait(30)

    q = queue(capacity=3)
    q.add("results", hang)
    added = [q.add("results", lambda: None) for _ in range(10)]
    assert added == [True, True] + [False] * 8
    assert q.add("end of the run", lambda: None, always=True)
    gap = q.flush(0.05)
    release.set()
    assert gap is not None and gap.lost == {"results": 11, "end of the run": 1}


def test_work_given_up_by_a_flush_does_not_return() -> None:
    started, release, done = threading.Event(), threading.Event(), []

    def slow() -> None:
        started.set()
        release.wait(30)

    q = queue()
    q.add("slow", slow)
    started.wait(30)
    q.add("old", lambda: done.append("old"))
    assert q.flush(0.01) is not None
    q.add("new", lambda: done.append("new"))
    release.set()
    q.flush(10)
    assert done == ["new"]
