"""Whatever happens to whichever episode: every logprob equals a plain forward's, and no cached token is lost."""

import asyncio

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_engine import STOP, assert_exact, random_ids, tiny_model

from rllib_agentic.engines.engine import GenerationRequest
from rllib_agentic.engines.hf import HFEngine
from rllib_agentic.engines.legal_tokens import TokenTrie
from rllib_agentic.trajectory.turn import FinishReason

MODEL = tiny_model()

turns = st.fixed_dictionaries(
    {
        "context": st.sampled_from(["extend", "extend", "extend", "rewrite", "shorten", "other prompt", "same again"]),
        "added": st.integers(1, 30),
        "max_tokens": st.integers(1, 5),
        "temperature": st.sampled_from([0.0, 0.7, 1.0]),
        "legal": st.booleans(),
        "after": st.sampled_from(["", "", "", "release", "pause", "weights", "abort"]),
    }
)


def next_context(context, turn, seed):
    added = random_ids(turn["added"], seed=seed)
    match turn["context"]:
        case "extend":
            return np.concatenate([context, added])
        case "rewrite":
            return np.concatenate([context[: len(context) // 2], added])
        case "shorten":
            return context[: max(1, len(context) - turn["added"])]
        case "other prompt":
            return added
        case _:
            return context


@settings(max_examples=40, deadline=None)
@given(
    episodes=st.lists(st.lists(turns, min_size=1, max_size=4), min_size=1, max_size=6),
    groups=st.integers(1, 3),
    max_batch_tokens=st.sampled_from([5, 64, 2048]),
    max_cached_tokens=st.sampled_from([160, 400, 10_000]),
)
def test_any_session_is_exact(episodes, groups, max_batch_tokens, max_cached_tokens):
    engine = HFEngine(MODEL, max_batch_tokens=max_batch_tokens, max_cached_tokens=max_cached_tokens)

    async def episode(e, plan):
        context = random_ids(20 + 5 * (e % groups), seed=e % groups)
        for number, turn in enumerate(plan):
            seed = 1000 * e + number
            legal = None
            if turn["legal"]:
                first = seed % 7 + 5
                legal = TokenTrie([[first, 6, 7, STOP], [first, 6, 8, 9, STOP], [first, STOP], [4, 5, STOP]])
            request = GenerationRequest(
                context, turn["max_tokens"], turn["temperature"], seed, legal=legal, episode_id=f"{e}"
            )
            completion = await engine.generate(request)
            assert_exact(MODEL, request, completion)
            assert completion.finish_reason is FinishReason.ABORT or len(completion.ids)
            assert completion.cached_tokens <= len(context)
            context = next_context(np.concatenate([context, completion.ids]), turn, seed)[-130:]
            match turn["after"]:
                case "release":
                    await engine.release(f"{e}")
                case "pause":
                    await asyncio.sleep(0.0005)
                case "weights":
                    engine.weights_updated(seed)
                case "abort":
                    engine.abort({str((e + 1) % len(episodes))})
            assert engine.metrics()["cached_tokens"] <= max_cached_tokens

    async def run():
        await asyncio.gather(*[episode(e, plan) for e, plan in enumerate(episodes)])
        for e in range(len(episodes)):
            await engine.release(f"{e}")

    asyncio.run(run())
    assert engine.metrics()["cached_tokens"] == 0
    assert engine._store._by_block == {}
    engine.close()
