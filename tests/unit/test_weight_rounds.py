"""Who takes part in which broadcast: rounds of replicas that come together, late, twice, or for what is old."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rllib_agentic.algorithms.weight_transport import WeightPlace, choose_transport
from rllib_agentic.errors import InputError
from serve_envs.weight_rounds import Round, WeightRounds


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


async def begun(rounds: WeightRounds, token: str, wait_s: float = 10.0) -> Round:
    round_ = await rounds.proposed(token, wait_s)
    assert round_ is not None
    await rounds.begin(round_)
    return round_


def test_who_is_expected_is_waited_for_and_gets_ranks_of_its_own() -> None:
    async def play() -> None:
        rounds = WeightRounds(patience_s=60)
        await rounds.open("v0", ["a", "b"])
        one = asyncio.create_task(rounds.join("v0", "b", 2))
        assert await rounds.proposed("v0", 0.05) is None and not one.done()
        two = asyncio.create_task(rounds.join("v0", "a", 3))
        round_ = await begun(rounds, "v0")
        assert (await one) == (await two) == round_
        assert round_.first_rank == {"a": 1, "b": 4} and round_.size == 6
        await rounds.end(round_.number, whole=True)
        assert await rounds.proposed("v0", 0.05) is None  # nobody is left

    run(play())


def test_who_does_not_come_is_waited_for_no_longer_than_patience() -> None:
    async def play() -> None:
        rounds = WeightRounds(patience_s=0.1)
        await rounds.open("v0", ["a", "dead"])
        joined = asyncio.create_task(rounds.join("v0", "a", 1))
        first = await begun(rounds, "v0")
        assert first.first_rank == {"a": 1} and await joined == first
        await rounds.end(first.number, whole=True)
        late = asyncio.create_task(rounds.join("v0", "late", 1))  # restarted meanwhile: a round of its own
        second = await begun(rounds, "v0")
        assert second.first_rank == {"late": 1} and await late == second
        assert second.number != first.number and second.group != first.group

    run(play())


def test_a_group_stays_while_its_members_do() -> None:
    async def play() -> None:
        rounds, groups = WeightRounds(patience_s=60), []
        for version, members in enumerate(["ab", "ab", "ac", "ab", "ab"]):
            await rounds.open(f"v{version}", list(members))
            joins = [asyncio.create_task(rounds.join(f"v{version}", m, 1)) for m in members]
            round_ = await begun(rounds, f"v{version}")
            await asyncio.gather(*joins)
            groups.append(round_.group)
            await rounds.end(round_.number, whole=version != 3)
        assert groups[0] == groups[1]
        assert len(set(groups)) == 4  # other members, then members that came back, then one that was broken

    run(play())


def test_who_was_interrupted_comes_again_with_the_others_of_its_round() -> None:
    async def play() -> None:
        rounds = WeightRounds(patience_s=60)
        await rounds.open("v0", ["a", "b"])
        joins = [asyncio.create_task(rounds.join("v0", m, 1)) for m in "ab"]
        first = await begun(rounds, "v0")
        await asyncio.gather(*joins)
        await rounds.end(first.number, whole=False)
        again = asyncio.create_task(rounds.join("v0", "a", 1))
        assert await rounds.proposed("v0", 0.05) is None  # b is expected again
        other = asyncio.create_task(rounds.join("v0", "b", 1))
        second = await begun(rounds, "v0")
        assert second.first_rank == first.first_rank and second.group != first.group
        assert await again == await other == second

    run(play())


def test_an_old_version_is_not_waited_for() -> None:
    async def play() -> None:
        rounds = WeightRounds(patience_s=60)
        await rounds.open("v0", ["a", "b"])
        waiting = asyncio.create_task(rounds.join("v0", "a", 1))
        sender = asyncio.create_task(rounds.proposed("v0", 10.0))
        await asyncio.sleep(0)
        await rounds.open("v1", ["a"])
        assert await waiting is None and await sender is None
        assert await rounds.join("v0", "a", 1) is None
        assert await rounds.proposed("v0", 0.01) is None
        early = asyncio.create_task(rounds.proposed("v2", 10.0))  # lent, and published a moment later
        await asyncio.sleep(0.01)
        await rounds.open("v2", ["a"])
        joined = asyncio.create_task(rounds.join("v2", "a", 1))
        round_ = await early
        assert round_ is not None and not joined.done()
        joined.cancel()

    run(play())


def test_a_proposal_that_nobody_begins_leaves_its_members_waiting() -> None:
    async def play() -> None:
        rounds = WeightRounds(patience_s=60)
        await rounds.open("v0", ["a"])
        waiting = asyncio.create_task(rounds.join("v0", "a", 1))
        assert await rounds.proposed("v0", 10.0) is not None  # the lender took its weights back at that moment
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await rounds.open("v1", ["a"])
        assert await waiting is None

    run(play())


def test_the_transport_that_a_setting_amounts_to() -> None:
    cpu, gpus = WeightPlace("cpu", "cpu"), [WeightPlace("cuda", f"GPU-{i}") for i in range(3)]
    assert choose_transport("auto", gpus[0], gpus[1:]) == "collective"
    assert choose_transport("auto", gpus[0], gpus) == "object_store"  # one GPU is shared
    assert choose_transport("auto", gpus[0], [cpu]) == choose_transport("auto", cpu, gpus) == "object_store"
    assert choose_transport("auto", cpu, [cpu, cpu]) == "object_store"
    assert choose_transport("collective", cpu, [cpu, cpu]) == "collective"
    assert choose_transport("object_store", gpus[0], gpus[1:]) == "object_store"
    with pytest.raises(
        InputError, match=r"the learner holds its weights on cpu, the engines on cuda; set object_store"
    ):
        choose_transport("collective", cpu, gpus)
    with pytest.raises(InputError, match="share a GPU"):
        choose_transport("collective", gpus[0], gpus)
