"""The worker without Ray: sessions, numbered steps, faults, slots, time to live."""

import asyncio
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from counter_env import CounterEnv, Ledger, QuickCounterEnv
from hypothesis import given
from hypothesis import strategies as st

from rllib_agentic.envs import hosting, wire
from rllib_agentic.envs.env import Env
from rllib_agentic.envs.faults import FaultCode
from rllib_agentic.envs.hosting import EnvHost
from rllib_agentic.envs.latencies import Latencies
from rllib_agentic.envs.service_metrics import summarize
from rllib_agentic.envs.threads import BlockingCalls
from serve_envs.worker import EnvWorker

SOON = wire.Patience(wait_s=60.0, linger_s=60.0)
AT_ONCE = wire.Patience(wait_s=0.0, linger_s=0.0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_worker(ledger: Ledger, env: Callable[..., Env] = CounterEnv, timeout_s: float = 60.0, **limits) -> EnvWorker:
    worker = EnvWorker(EnvHost(partial(env, ledger), timeout_s), **limits)
    ledger.made = ledger.closed = 0  # forget the one that told the schema
    return worker


async def ask(worker: EnvWorker, request: Any) -> Any:
    (answer,) = await worker.batch([request], SOON)
    return answer


def create(session_id: str, index: int = 0, seed: int = 0, split: str = "train") -> wire.CreateRequest:
    return wire.CreateRequest(session_id=session_id, split=split, index=index, seed=seed)


def step(session_id: str, number: int, action: str) -> wire.StepRequest:
    return wire.StepRequest(session_id=session_id, step=number, action=action)


def close(session_id: str) -> wire.CloseRequest:
    return wire.CloseRequest(session_id=session_id)


def text_of(answer: wire.Answer) -> str:
    assert isinstance(answer, wire.StepAnswer), answer
    return answer.result.observation.messages[0].content


def code_of(answer: wire.Answer) -> FaultCode:
    assert isinstance(answer, wire.ErrorAnswer), answer
    return answer.error.code


async def sessions_of(worker: EnvWorker) -> int:
    return (await worker.health()).workers[0].sessions


def test_create_echoes_the_task_and_shows_the_first_observation():
    async def run():
        return await ask(make_worker(Ledger()), create("a", 7, 3, "train"))

    answer = asyncio.run(run())
    assert (answer.session_id, answer.split, answer.index, answer.seed) == ("a", "train", 7, 3)
    assert answer.observation.messages[0].content == "TASK train 7 3"


def test_repeated_requests_get_the_answers_they_had():
    async def run():
        worker = make_worker(ledger := Ledger())
        first = await ask(worker, create("a", 1))
        assert await ask(worker, create("a", 1)) == first
        one = await ask(worker, step("a", 1, "inc"))
        assert await ask(worker, step("a", 1, "inc")) == one
        assert text_of(one) == "1"
        assert text_of(await ask(worker, step("a", 2, "inc"))) == "2"
        assert ledger.made == 1
        return await ask(worker, create("a", 2))

    assert code_of(asyncio.run(run())) is FaultCode.SESSION_EXISTS


@pytest.mark.parametrize(("number", "action"), [(1, "inc"), (4, "inc"), (2, "other"), (99, "inc")])
def test_stale_and_wrong_steps_are_refused_and_change_nothing(number, action):
    async def run():
        worker = make_worker(Ledger())
        await ask(worker, create("a"))
        for i in (1, 2):
            await ask(worker, step("a", i, "inc"))
        refused = await ask(worker, step("a", number, action))
        return refused, await ask(worker, step("a", 3, "get"))

    refused, after = asyncio.run(run())
    assert code_of(refused) is FaultCode.WRONG_STEP
    assert "expected 3" in refused.error.message
    assert text_of(after) == "2"


@pytest.mark.parametrize("last", ["end", "cut"])
def test_step_after_the_end_is_refused_and_state_unchanged(last):  # EV14
    async def run():
        worker = make_worker(Ledger())
        await ask(worker, create("a"))
        await ask(worker, step("a", 1, "inc"))
        end = await ask(worker, step("a", 2, last))
        refused = await ask(worker, step("a", 3, "inc"))
        repeat = await ask(worker, step("a", 2, last))
        return end, refused, repeat, await ask(worker, wire.StateRequest(session_id="a"))

    end, refused, repeat, state = asyncio.run(run())
    assert code_of(refused) is FaultCode.EPISODE_OVER
    assert repeat == end
    assert (state.steps, state.over, state.observation) == (2, True, end.result.observation)


def test_close_is_idempotent_and_later_requests_say_so():  # EV03
    async def run():
        worker = make_worker(ledger := Ledger())
        await ask(worker, create("a"))
        answers = [await ask(worker, close("a")), await ask(worker, close("a")), await ask(worker, close("never"))]
        assert [answer.was_open for answer in answers] == [True, False, False]
        later = [step("a", 1, "inc"), wire.StateRequest(session_id="a"), create("a")]
        assert {code_of(await ask(worker, request)) for request in later} == {FaultCode.SESSION_CLOSED}
        assert code_of(await ask(worker, step("unheard-of", 1, "inc"))) is FaultCode.UNKNOWN_SESSION
        await worker.aclose()
        return ledger.made, ledger.closed

    assert asyncio.run(run()) == (1, 1)


def test_a_create_that_arrives_after_its_close_opens_nothing():
    async def run():
        worker = make_worker(ledger := Ledger())
        await ask(worker, close("a"))
        return code_of(await ask(worker, create("a"))), ledger.made

    assert asyncio.run(run()) == (FaultCode.SESSION_CLOSED, 0)


@pytest.mark.parametrize("action", ["raise", "exit", "nan", "object", "tuple"])
def test_a_failing_step_frees_the_slot_and_tells_why_to_whoever_repeats_it(action):  # EV04
    async def run():
        worker = make_worker(ledger := Ledger(), max_sessions=1)
        await ask(worker, create("a"))
        failed = await ask(worker, step("a", 1, action))
        assert await sessions_of(worker) == 0
        assert await ask(worker, step("a", 1, action)) == failed
        assert code_of(await ask(worker, step("a", 2, "inc"))) is FaultCode.SESSION_CLOSED
        assert (await ask(worker, create("b"))).kind == "created"
        await worker.aclose()
        assert (ledger.made, ledger.closed) == (2, 2)
        return code_of(failed)

    assert asyncio.run(run()) is FaultCode.ENV_FAILED


def test_failing_resets_free_their_slots():  # EV04: capacity 2, 10 resets that raise
    async def run():
        worker = make_worker(ledger := Ledger(), max_sessions=2)
        ledger.failing_resets = 10
        for i in range(10):
            assert code_of(await ask(worker, create(f"s{i}"))) is FaultCode.ENV_FAILED
        assert await sessions_of(worker) == 0
        assert (await ask(worker, create("ok"))).kind == "created"
        await worker.aclose()
        return ledger.made, ledger.closed

    assert asyncio.run(run()) == (11, 11)


@pytest.mark.parametrize(
    ("split", "index", "message"),
    [("train", -1, "0 to 9"), ("train", 10, "0 to 9"), ("test", 5, "0 to 4"), ("dev", 0, "known: train, test")],
)
def test_a_task_that_is_none_is_refused_with_the_valid_ones(split, index, message):  # EV15
    async def run():
        worker = make_worker(ledger := Ledger())
        answer = await ask(worker, create("a", index, split=split))
        return answer, await sessions_of(worker), ledger.made

    answer, sessions, made = asyncio.run(run())
    assert code_of(answer) is FaultCode.BAD_INPUT
    assert message in answer.error.message
    assert (sessions, made) == (0, 0)


def test_a_full_worker_says_when_to_come_back_and_vanished_clients_lose_their_slots():  # EV05
    async def run():
        clock = Clock()
        worker = make_worker(ledger := Ledger(), max_sessions=4, ttl_s=2.0, clock=clock)
        for i in range(4):
            await ask(worker, create(f"gone{i}"))
        full = await ask(worker, create("new"))
        assert code_of(full) is FaultCode.FULL
        assert full.error.retry_after_s > 0
        clock.now = 3.0
        assert (await ask(worker, create("new"))).kind == "created"
        expired = await ask(worker, step("gone0", 1, "inc"))
        assert code_of(expired) is FaultCode.SESSION_CLOSED
        assert "2 s without a request" in expired.error.message
        assert await sessions_of(worker) == 1
        await worker.aclose()
        return ledger.made, ledger.closed

    assert asyncio.run(run()) == (5, 5)


def test_a_session_in_the_middle_of_a_step_never_expires():
    async def run():
        clock = Clock()
        worker = make_worker(ledger := Ledger(), ttl_s=1.0, clock=clock)
        await ask(worker, create("a"))
        (pending,) = await worker.batch([step("a", 1, "wait")], AT_ONCE)
        assert pending.kind == "pending"
        clock.now = 100.0
        assert worker.sweep() == 0
        ledger.gate.set()
        assert text_of(await ask(worker, step("a", 1, "wait"))) == "wait"
        assert worker.sweep() == 0
        clock.now = 102.0
        assert worker.sweep() == 1
        await worker.aclose()

    asyncio.run(run())


def test_slow_steps_hold_back_neither_others_nor_the_health_check():  # EV17
    async def run():
        worker = make_worker(ledger := Ledger())
        ids = [f"s{i}" for i in range(8)]
        await worker.batch([create(i) for i in ids], SOON)
        slow = await worker.batch(
            [step(i, 1, "wait") for i in ids[:7]] + [step(ids[7], 1, "inc")], wire.Patience(wait_s=0.5, linger_s=0.5)
        )
        assert [answer.kind for answer in slow] == ["pending"] * 7 + ["stepped"]
        for _ in range(7):
            assert ledger.waiting.acquire(timeout=10)  # all seven are inside their environments at once
        assert (await worker.health()).workers[0].sessions == 8
        ledger.gate.set()
        answers = await worker.batch([step(i, 1, "wait") for i in ids[:7]], SOON)
        assert {text_of(answer) for answer in answers} == {"wait"}
        await worker.aclose()

    asyncio.run(run())


def test_a_stuck_step_loses_its_session_at_once_and_its_environment_is_closed_when_it_comes_back():
    async def run():
        worker = make_worker(ledger := Ledger(), timeout_s=0.05, max_sessions=1)
        await ask(worker, create("a"))
        (stuck,) = await worker.batch([step("a", 1, "wait")], SOON)
        assert code_of(stuck) is FaultCode.ENV_TIMEOUT
        assert await sessions_of(worker) == 0
        assert (await worker.health()).workers[0].stuck_calls == 1
        assert await ask(worker, step("a", 1, "wait")) == stuck
        assert (await ask(worker, create("b"))).kind == "created"
        ledger.gate.set()
        await worker.aclose()
        async with asyncio.timeout(10):
            while ledger.closed < 2:  # the thread that was stuck closes what it was in
                await asyncio.sleep(0.001)
        assert (await worker.health()).workers[0].stuck_calls == 0
        return ledger.made

    assert asyncio.run(run()) == 2


def test_closing_in_the_middle_of_a_step_frees_the_slot_and_closes_once():  # EV01
    async def run():
        worker = make_worker(ledger := Ledger())
        await ask(worker, create("a"))
        await worker.batch([step("a", 1, "wait")], AT_ONCE)
        assert ledger.waiting.acquire(timeout=10)
        assert (await ask(worker, close("a"))).was_open
        assert (await sessions_of(worker), ledger.closed) == (0, 0)
        ledger.gate.set()
        await worker.aclose()
        return ledger.made, ledger.closed

    assert asyncio.run(run()) == (1, 1)


def test_racing_creates_share_nothing():  # EV02, EV11
    async def run():
        worker = make_worker(ledger := Ledger())
        ids = [f"s{i}" for i in range(64)]
        await worker.batch([create(i) for i in ids], SOON)
        await worker.batch([step(i, 1, f"set x={i}") for i in ids[::2]], SOON)
        answers = await worker.batch([step(i, 2 if n % 2 == 0 else 1, "get x") for n, i in enumerate(ids)], SOON)
        assert [text_of(answer) for answer in answers] == [i if n % 2 == 0 else "unset" for n, i in enumerate(ids)]
        await worker.aclose()
        return ledger.made, ledger.closed

    assert asyncio.run(run()) == (64, 64)


def test_two_creates_of_one_id_at_once_make_one_session():
    async def run():
        worker = make_worker(ledger := Ledger())
        answers = await worker.batch([create("a")] * 5, SOON)
        assert all(answer == answers[0] and answer.kind == "created" for answer in answers)
        await worker.aclose()
        return ledger.made

    assert asyncio.run(run()) == 1


def test_a_repeat_that_waits_while_its_request_fails_hears_the_same_failure():
    async def run():
        worker = make_worker(ledger := Ledger())
        await ask(worker, create("a"))
        answers = await worker.batch([step("a", 1, "raise")] * 3, SOON)
        ledger.failing_resets = 1
        creates = await worker.batch([create("b")] * 3, SOON)
        await worker.aclose()
        return [code_of(answer) for answer in answers + creates]

    assert asyncio.run(run()) == [FaultCode.ENV_FAILED] * 6


def test_steps_of_one_session_in_one_batch_run_in_order():
    async def run():
        worker = make_worker(Ledger())
        await ask(worker, create("a"))
        answers = await worker.batch([step("a", i, "inc") for i in (1, 2, 3)], SOON)
        await worker.aclose()
        return [text_of(answer) for answer in answers]

    assert asyncio.run(run()) == ["1", "2", "3"]


def test_a_cancelled_caller_leaves_no_half_done_step():
    async def run():
        worker = make_worker(ledger := Ledger())
        await ask(worker, create("a"))
        caller = asyncio.create_task(ask(worker, step("a", 1, "wait")))
        while not ledger.waiting.acquire(blocking=False):
            await asyncio.sleep(0)
        caller.cancel()
        ledger.gate.set()
        assert text_of(await ask(worker, step("a", 1, "wait"))) == "wait"
        assert text_of(await ask(worker, step("a", 2, "inc"))) == "1"
        await worker.aclose()

    asyncio.run(run())


def test_a_restart_begins_anew_under_the_same_id_and_its_repeats_do_not():
    def restart(nonce, index=0):
        return wire.RestartRequest(session_id="a", nonce=nonce, split="train", index=index)

    def act(nonce, action):
        return wire.ActRequest(session_id="a", nonce=nonce, action=action)

    async def run():
        worker = make_worker(ledger := Ledger(), max_sessions=1)
        first = await ask(worker, restart("r1"))
        assert await ask(worker, restart("r1")) == first
        assert text_of(await ask(worker, act("1", "inc"))) == "1"
        assert text_of(await ask(worker, act("1", "inc"))) == "1"
        assert text_of(await ask(worker, act("2", "inc"))) == "2"
        assert (await ask(worker, restart("r2", 3))).observation.messages[0].content == "TASK train 3 0"
        end = await ask(worker, act("3", "end"))
        assert (end.step, end.total_reward) == (1, 1.0)
        assert code_of(await ask(worker, act("4", "inc"))) is FaultCode.EPISODE_OVER
        ledger.failing_resets = 1
        failed = await ask(worker, restart("r3"))
        assert code_of(failed) is FaultCode.ENV_FAILED
        assert await ask(worker, restart("r3")) == failed
        assert (await ask(worker, restart("r4"))).kind == "created"  # after a failure it may begin anew
        await ask(worker, close("a"))
        assert code_of(await ask(worker, restart("r5"))) is FaultCode.SESSION_CLOSED  # after a close it may not
        await worker.aclose()
        return ledger.made, ledger.closed

    assert asyncio.run(run()) == (4, 4)


def test_what_an_environment_runs_on_may_die():
    async def run():
        worker = make_worker(ledger := Ledger())
        await ask(worker, create("a"))
        lost = await ask(worker, step("a", 1, "lose"))
        assert code_of(lost) is FaultCode.ENV_LOST
        assert lost.to_fault().to_client_error("here").kind == "session_lost"
        assert await sessions_of(worker) == 0
        await worker.aclose()
        return ledger.made, ledger.closed

    assert asyncio.run(run()) == (1, 1)


def test_a_full_reset_ends_all_sessions_and_frees_what_they_share():
    async def run():
        worker = make_worker(ledger := Ledger())
        await worker.batch([create("a"), create("b")], SOON)
        assert (await worker.full_reset()).sessions_closed == 2
        assert (ledger.closed, ledger.released) == (2, 1)
        assert "full reset" in (await ask(worker, step("a", 1, "inc"))).error.message
        assert (await ask(worker, create("c"))).kind == "created"
        await worker.aclose()
        return ledger.made, ledger.closed, ledger.released

    assert asyncio.run(run()) == (3, 3, 2)


def test_a_worker_counts_what_it_does():
    async def run():
        clock = Clock()
        worker = make_worker(Ledger(), ttl_s=5.0, clock=clock)
        await worker.batch([create("a"), create("b"), create("c", 99)], SOON)
        await worker.batch([step("a", 1, "inc"), step("b", 1, "raise"), step("x", 1, "inc")], SOON)
        clock.now = 6.0
        worker.sweep()
        numbers = summarize(await worker.metrics())
        await worker.aclose()
        return numbers

    numbers = asyncio.run(run())
    counted = {name: value for name, value in numbers.items() if not name.endswith("_s")}
    assert counted == {
        "workers": 1, "sessions": 0, "sessions_begun": 2, "sessions_expired": 1, "steps": 1, "stuck_calls": 0,
        "failed_requests": 3, "errors/bad_input": 1, "errors/env_failed": 1, "errors/unknown_session": 1,
    }  # fmt: skip
    assert set(numbers) - set(counted) == {f"{what}_p{p}_s" for what in ("reset", "step") for p in (50, 90, 99)}


@given(st.lists(st.floats(1e-5, 1e3), min_size=1, max_size=200), st.integers(1, 99), st.integers(0, 200))
def test_percentiles_are_right_to_a_bucket_however_the_counts_were_added_up(durations, percent, cut):
    parts = Latencies(), Latencies()
    for number, duration in enumerate(durations):
        parts[number < cut].add(duration)
    merged = Latencies(parts[0].counts() + parts[1].counts())
    exact = sorted(durations)[max(0, math.ceil(len(durations) * percent / 100) - 1)]
    assert merged.percentile(percent) == pytest.approx(exact, rel=0.06)


def test_an_environment_instead_of_a_factory_is_a_type_error():  # EV11
    with pytest.raises(TypeError, match="expected a factory"):
        EnvHost(CounterEnv())  # type: ignore[arg-type]


@pytest.mark.parametrize("env", [CounterEnv, QuickCounterEnv])
def test_two_hundred_sessions_leave_nothing_behind(env, monkeypatch):  # EV01: a third abandoned, closed, failing
    monkeypatch.setattr(hosting, "BlockingCalls", partial(BlockingCalls, idle_s=0.0))

    async def run():
        clock = Clock()
        make = partial(env, name="leak")
        worker = make_worker(ledger := Ledger(), make, ttl_s=5.0, clock=clock, max_sessions=200)
        ids = [f"s{i}" for i in range(200)]
        assert {answer.kind for answer in await worker.batch([create(i) for i in ids], SOON)} == {"created"}
        await worker.batch([step(i, 1, "inc") for i in ids[0::3]], SOON)
        await worker.batch([close(i) for i in ids[1::3]], SOON)
        await worker.batch([step(i, 1, "raise") for i in ids[2::3]], SOON)
        assert await sessions_of(worker) == len(ids[0::3])
        clock.now = 6.0
        worker.sweep()
        assert await sessions_of(worker) == 0
        await worker.aclose()
        return ledger.made, ledger.closed

    assert asyncio.run(run()) == (200, 200)
    assert live_threads("leak-call") == 0


def test_threads_are_reused_and_end_when_unused():
    async def run(calls):
        return await asyncio.gather(*(calls.run(threading.get_ident) for _ in range(50)))

    assert len(asyncio.run(run(BlockingCalls("once", idle_s=0.0)))) == 50
    assert live_threads("once-call") == 0
    kept = BlockingCalls("kept", idle_s=60.0)

    async def one_by_one():
        return {await kept.run(threading.get_ident) for _ in range(50)}

    assert len(asyncio.run(one_by_one())) == 1


def live_threads(name: str) -> int:
    """How many threads of that name are left, once those that are ending have ended."""
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(timeout=10)
    return sum(thread.name == name for thread in threading.enumerate())
