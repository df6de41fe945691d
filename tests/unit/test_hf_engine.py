"""The in-process engine against a plain forward over the whole context.

1. Every logprob equals the plain forward's, whatever was batched, cached, shared, forced, evicted or rewritten.
2. A seed gives the same tokens alone and in a batch; greedy takes the best token.
3. A turn ends for the right reason and keeps every sampled id.
4. No cache outlives its weights.
"""

import asyncio
import itertools
import threading
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tiny_engine import (
    STOP,
    VOCABULARY,
    assert_exact,
    byte_tokenizer,
    ids_of,
    plain_logprobs,
    random_ids,
    run_all,
    run_one,
    tiny_model,
)
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

from rllib_agentic.engines.engine import COUNTERS, Completion, Engine, GenerationRequest
from rllib_agentic.engines.hf import HFEngine
from rllib_agentic.engines.legal_tokens import TokenTrie
from rllib_agentic.errors import InfrastructureError, InputError, StaleWeightsError
from rllib_agentic.trajectory.turn import FinishReason

MODEL = tiny_model()


def play(engine, model, episode, *, turns=4, observation=7, exact=True, **fields):
    """An append-only episode; every turn is held against the plain forward. Returns the last context."""

    async def run():
        context = random_ids(20, seed=episode)
        for turn in range(turns):
            request = GenerationRequest(context, 4, seed=turn, episode_id=f"e{episode}", **fields)
            completion = await engine.generate(request)
            if exact:
                assert_exact(model, request, completion)
            context = np.concatenate([context, completion.ids, random_ids(observation, seed=100 * episode + turn)])
        return context

    return run()


# 1. Logprobs


def test_it_is_an_engine():
    engine = HFEngine(MODEL)
    assert isinstance(engine, Engine) and set(COUNTERS) <= set(engine.metrics())


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_ragged_batch_equals_plain_forwards(kv_heads):
    model = tiny_model(kv_heads=kv_heads)
    requests = [
        GenerationRequest(
            random_ids(n, seed=n), max_tokens=1 + n % 5, seed=n, temperature=t, stop_ids=frozenset({STOP})
        )
        for n, t in zip([1, 2, 37, 5, 90, 16, 64], [1.0, 0.7, 1.0, 0.0, 1.4, 0.7, 1.0], strict=True)
    ]
    for request, completion in zip(requests, run_all(HFEngine(model), requests), strict=True):
        assert_exact(model, request, completion)
        assert len(completion.ids) == len(completion.logprobs) == len(completion.policy_versions)


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
@pytest.mark.parametrize("observation", [1, 9, 80])
def test_turns_with_a_cache_equal_plain_forwards_and_read_only_what_is_new(temperature, observation):
    engine = HFEngine(MODEL)

    async def episodes():
        await asyncio.gather(
            *[play(engine, MODEL, e, observation=observation, temperature=temperature) for e in range(3)]
        )

    asyncio.run(episodes())
    # 3 episodes: the first context, then 3 turns of 4 sampled and the observed tokens; the 4th turn's last token
    # is never read.
    assert engine.metrics()["prefilled_tokens"] == 3 * (20 + 3 * (4 + observation) + 3)


def test_absolute_positions_and_sliding_windows_are_exact_too():  # TM20
    torch.manual_seed(0)
    sizes = dict(vocab_size=VOCABULARY, initializer_range=0.4)
    gpt2 = GPT2LMHeadModel(GPT2Config(**sizes, n_embd=32, n_layer=2, n_head=4, n_positions=256)).eval()
    mistral = MistralForCausalLM(
        MistralConfig(
            **sizes,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=6,
        )
    ).eval()
    for model in (gpt2, mistral):
        engine = HFEngine(model)

        async def episodes(engine=engine, model=model):
            await asyncio.gather(*[play(engine, model, e, observation=1 + 8 * e) for e in range(3)])

        asyncio.run(episodes())


def test_the_models_own_attention_is_restored():
    model = tiny_model()
    before = model.config._attn_implementation
    run_one(HFEngine(model), random_ids(5))
    assert model.config._attn_implementation == before


def test_long_prompts_are_read_in_pieces():
    engine = HFEngine(MODEL, max_batch_tokens=16)
    requests = [GenerationRequest(random_ids(n, seed=n), 3, seed=n) for n in (100, 5, 33, 16)]
    for request, completion in zip(requests, run_all(engine, requests), strict=True):
        assert_exact(MODEL, request, completion)
    assert engine.metrics()["forwards"] >= (100 + 5 + 33 + 16) / 16


def test_a_prompt_that_a_group_shares_is_read_once():
    engine = HFEngine(MODEL)
    prompt = random_ids(50)
    requests = [GenerationRequest(prompt, 3, seed=s, episode_id=f"g/{s}") for s in range(8)]
    completions = run_all(engine, requests)
    for request, completion in zip(requests, completions, strict=True):
        assert_exact(MODEL, request, completion)
    # One reads 50; seven compute the last position again, since they need its logits; each reads 2 of 3 sampled.
    assert engine.metrics()["prefilled_tokens"] == 50 + 7 * 1 + 8 * 2
    assert sorted(c.cached_tokens for c in completions) == [0] + [49] * 7
    assert len({tuple(c.ids) for c in completions}) > 1  # WS08: members differ


def test_the_beginning_that_different_prompts_share_is_read_once():
    engine = HFEngine(MODEL)
    system = random_ids(40)
    requests = [
        GenerationRequest(
            np.concatenate([system, random_ids(10, seed=task)]), 1, seed=member, episode_id=f"{task}/{member}"
        )
        for task in (1, 2)
        for member in range(2)
    ]
    for request, completion in zip(requests, run_all(engine, requests), strict=True):
        assert_exact(MODEL, request, completion)
    assert engine.metrics()["prefilled_tokens"] == 50 + 10 + 1 + 1


def test_members_of_a_group_do_not_write_into_each_others_cache():
    engine = HFEngine(MODEL)
    prompt = random_ids(40)

    async def member(m):
        context = prompt
        for turn in range(3):
            request = GenerationRequest(context, 3, seed=100 * m + turn, episode_id=f"{m}")
            completion = await engine.generate(request)
            assert_exact(MODEL, request, completion)
            context = np.concatenate([context, completion.ids, random_ids(5 + m, seed=m)])

    async def group():
        await asyncio.gather(*map(member, range(5)))

    asyncio.run(group())


@pytest.mark.parametrize("cut", [0, 3, 25, 40])
def test_a_rewritten_context_is_exact(cut):
    engine = HFEngine(MODEL)
    context = random_ids(40)
    first = run_one(engine, context, episode_id="e")
    for seed in (7, 8):
        rewritten = np.concatenate([context[:cut], random_ids(30, seed=seed)])
        request = GenerationRequest(rewritten, 4, episode_id="e")
        (completion,) = run_all(engine, [request])
        assert_exact(MODEL, request, completion)
        assert completion.cached_tokens >= cut
    (again,) = run_all(engine, [GenerationRequest(context, 4, episode_id="e")])
    assert again.ids.tolist() == first.ids.tolist()


def test_evicted_episodes_are_read_again_and_exact():
    engine = HFEngine(MODEL, max_cached_tokens=150)

    async def episodes():
        await asyncio.gather(*[play(engine, MODEL, e) for e in range(6)])

    asyncio.run(episodes())
    metrics = engine.metrics()
    assert metrics["evictions"] > 0
    assert metrics["cached_tokens"] <= 150


def test_more_requests_than_fit_wait_for_room():
    engine = HFEngine(MODEL, max_cached_tokens=60)
    requests = [GenerationRequest(random_ids(40, seed=s), 5, seed=s, episode_id=f"{s}") for s in range(5)]
    for request, completion in zip(requests, run_all(engine, requests), strict=True):
        assert_exact(MODEL, request, completion)
    assert engine.metrics()["mean_batch_rows"] == 1.0


def test_the_sampled_turns_follow_the_exact_distribution():
    # Every turn of two tokens over five legal ones, enumerated: 6 sequences.
    sequences = [[5, 6, STOP], [5, 7, STOP], [5, STOP], [8, 9, STOP], [8, 6, STOP], [10, STOP]]
    trie, context, temperature, count = TokenTrie(sequences), random_ids(12), 0.7, 2000
    engine = HFEngine(MODEL)
    completions = run_all(
        engine,
        [
            GenerationRequest(context, 8, temperature, s, stop_ids=frozenset({STOP}), legal=trie, episode_id=f"{s}")
            for s in range(count)
        ],
    )
    observed = {tuple(s): 0 for s in sequences}
    for completion in completions:
        observed[tuple(completion.ids.tolist())] += 1
    expected = [np.exp(_turn_logprob(context, s, trie, temperature)) for s in sequences]
    assert sum(expected) == pytest.approx(1)
    assert chisquare(list(observed.values()), np.array(expected) * count).pvalue > 1e-3


def _turn_logprob(context, sequence, trie, temperature):
    total = 0.0
    for i, token in enumerate(sequence):
        with torch.no_grad():
            ids = torch.from_numpy(np.concatenate([context, sequence[:i]]).astype(np.int64))[None]
            logits = MODEL(input_ids=ids).logits[0, -1].double() / temperature
        legal = trie.at(sequence[:i]).tolist()
        total += float(logits[token] - torch.logsumexp(logits[legal], 0))
    return total


# Forced tokens


def test_a_turn_of_one_choice_costs_one_forward():
    engine = HFEngine(MODEL)
    trie = TokenTrie([[5, STOP], [6, STOP], [7, STOP]])
    context = random_ids(12)
    for turn in range(3):
        request = GenerationRequest(context, 8, seed=turn, stop_ids=frozenset({STOP}), legal=trie, episode_id="e")
        (completion,) = run_all(engine, [request])
        assert completion.finish_reason is FinishReason.STOP
        assert completion.ids[1] == STOP
        assert completion.logprobs[1] == 0.0
        assert_exact(MODEL, request, completion)
        assert completion.legal_tokens is not None
        assert [completion.legal_tokens.at(i).tolist() for i in (0, 1)] == [[5, 6, 7], [STOP]]
        context = np.concatenate([context, completion.ids, random_ids(6, seed=turn)])
    metrics = engine.metrics()
    assert metrics["forwards"] == metrics["sampled_tokens"] == metrics["forced_tokens"] == 3


def test_a_turn_without_a_choice_costs_no_forward():
    engine = HFEngine(MODEL)
    completion = run_one(engine, random_ids(9), 8, legal=TokenTrie([[5, 6, 7, STOP]]), stop_ids=frozenset({STOP}))
    assert completion.ids.tolist() == [5, 6, 7, STOP]
    assert completion.logprobs.tolist() == [0.0] * 4
    assert completion.finish_reason is FinishReason.STOP
    assert engine.metrics()["forwards"] == 0


def test_forced_runs_before_between_and_after_choices_are_exact():
    engine = HFEngine(MODEL)
    tails = itertools.product([10, 11], [20, 21])
    trie = TokenTrie([[5, 6, a, 7, 8, 9, b, 12, STOP] for a, b in tails])
    context = random_ids(12)
    for turn in range(3):
        request = GenerationRequest(context, 20, seed=turn, stop_ids=frozenset({STOP}), legal=trie, episode_id="e")
        (completion,) = run_all(engine, [request])
        assert_exact(MODEL, request, completion)
        assert completion.legal_tokens is not None
        assert len(completion.ids) == len(completion.legal_tokens) == 9
        assert (completion.logprobs != 0).sum() == 2
        context = np.concatenate([context, completion.ids, random_ids(6, seed=turn)])
    assert engine.metrics()["forwards"] == 6


def test_forced_tokens_stop_at_the_limit():
    completion = run_one(HFEngine(MODEL), random_ids(9), 2, legal=TokenTrie([[5, 6, 7, STOP]]))
    assert (completion.ids.tolist(), completion.finish_reason) == ([5, 6], FinishReason.LENGTH)


def test_the_end_of_the_trie_ends_the_turn_whatever_the_stop_ids():
    completion = run_one(HFEngine(MODEL), random_ids(9), 9, legal=TokenTrie([[5, STOP], [6, STOP]]))
    assert (completion.ids[-1], completion.finish_reason) == (STOP, FinishReason.STOP)


# 2. Seeds and greedy


def mixed_requests():
    trie = TokenTrie([[5, 6, STOP], [5, STOP], [8, 9, STOP]])
    kinds: list[dict[str, Any]] = [
        dict(),
        dict(temperature=0.0),
        dict(legal=trie),
        dict(temperature=0.7, top_p=0.8),
        dict(top_k=3),
    ]
    return [
        GenerationRequest(random_ids(3 + 7 * s, seed=s), 6, seed=s, stop_ids=frozenset({STOP}), **kinds[s % 5])
        for s in range(10)
    ]


def test_a_request_gives_the_same_tokens_alone_and_in_any_batch():
    requests = mixed_requests()
    together = run_all(HFEngine(MODEL), requests)
    pieces = run_all(HFEngine(MODEL, max_batch_tokens=7), requests[::-1])[::-1]
    for request, a, b in zip(requests, together, pieces, strict=True):
        (alone,) = run_all(HFEngine(MODEL), [request])
        assert alone.ids.tolist() == a.ids.tolist() == b.ids.tolist()
        np.testing.assert_allclose(alone.logprobs, a.logprobs, atol=1e-4)
        np.testing.assert_allclose(alone.logprobs, b.logprobs, atol=1e-4)


def test_other_seeds_give_other_turns():  # WS08
    context = random_ids(10)
    turns = {tuple(run_one(HFEngine(MODEL), context, 6, seed=s).ids) for s in range(6)}
    assert len(turns) == 6


def test_greedy_takes_the_best_token_each_time():
    context = random_ids(10)
    completion = run_one(HFEngine(MODEL), context, 6, temperature=0.0)
    ids = torch.from_numpy(context.astype(np.int64))[None]
    for token in completion.ids.tolist():
        with torch.no_grad():
            best = int(MODEL(input_ids=ids).logits[0, -1].argmax())
        assert token == best
        ids = torch.cat([ids, torch.tensor([[token]])], dim=1)


# 3. How turns end


def test_a_sampled_stop_id_is_kept_with_its_logprob():  # TM08
    request = GenerationRequest(random_ids(10), 500 - 10, stop_ids=frozenset(range(3, 20)), seed=3)
    (completion,) = run_all(HFEngine(MODEL), [request])
    assert completion.finish_reason is FinishReason.STOP
    assert completion.ids[-1] in request.stop_ids
    assert not set(completion.ids[:-1].tolist()) & request.stop_ids
    assert_exact(MODEL, request, completion)
    assert completion.logprobs[-1] < 0


def test_the_last_id_says_nothing_about_truncation():  # TM09
    completion = run_one(
        HFEngine(MODEL), random_ids(10), 3, legal=TokenTrie([[5, 6, STOP]]), stop_ids=frozenset({STOP})
    )
    assert completion.finish_reason is FinishReason.STOP  # at the limit, but it did stop
    completion = run_one(HFEngine(MODEL), random_ids(10), 3)
    assert completion.finish_reason is FinishReason.LENGTH


def scripted_turn(tokenizer, ids, max_tokens=50, **fields):
    """The turn that a model which always says ``ids`` would have."""
    model = tiny_model(vocabulary=len(tokenizer))
    trie = TokenTrie([ids, [*ids[:-1], 4]])  # a choice at the end, so that the model is really asked
    engine = HFEngine(model, tokenizer)
    return run_one(engine, random_ids(5), max_tokens, legal=trie, **fields)


def test_a_stop_string_that_ends_inside_a_token_keeps_the_whole_token():  # TP20
    tokenizer = byte_tokenizer([("`", "`"), ("``", "`"), ("```", "p")])
    ids = tokenizer.encode("ab ```p", add_special_tokens=False)
    assert tokenizer.decode(ids[-1]) == "```p"  # one token, in the middle of which the stop string ends
    completion = scripted_turn(tokenizer, [*ids, 40, 41], stop_strings=("```",))
    assert completion.finish_reason is FinishReason.STOP_STRING
    assert completion.ids.tolist() == ids
    assert len(completion.logprobs) == len(ids)


def test_a_stop_string_may_span_many_tokens_and_characters_of_many_bytes():
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode("xx ответ: 四二</answer>yy", add_special_tokens=False)
    for stop in ("四", "</answer>", "ответ: 四二</answer>"):
        completion = scripted_turn(tokenizer, ids, stop_strings=("never", stop), max_tokens=len(ids))
        assert completion.finish_reason is FinishReason.STOP_STRING
        assert tokenizer.decode(completion.ids).endswith(stop)


def test_a_control_token_can_be_a_stop_string():
    tokenizer = byte_tokenizer()
    completion = scripted_turn(tokenizer, [40, 3, 41, 42], stop_strings=("<tool>",))
    assert (completion.ids.tolist(), completion.finish_reason) == ([40, 3], FinishReason.STOP_STRING)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(max_tokens=0), "max_tokens must be at least 1"),  # WS09: clamping is the rollout's
        (dict(context_ids=ids_of()), "context_ids is empty"),
        (dict(context_ids=ids_of(1, VOCABULARY)), "the model knows 0 to 52"),
        (dict(context_ids=ids_of(-1)), "the model knows 0 to 52"),
        (dict(temperature=-1.0), "temperature must be 0"),
        (dict(temperature=float("nan")), "temperature must be 0"),
        (dict(temperature=1e-5), "temperature must be 0"),
        (dict(top_p=0.0), "top_p"),
        (dict(top_k=-1), "top_k"),
        (dict(stop_strings=("",)), "stop string is empty"),
        (dict(stop_strings=("x",)), "tokenizer"),
        (dict(max_tokens=512), "exceed 202"),
        (dict(max_tokens=194), "shorten the context"),
    ],
)
def test_a_bad_request_is_refused_and_harms_nobody(fields, message):
    engine = HFEngine(MODEL, max_cached_tokens=202)
    good = GenerationRequest(random_ids(9), 3)

    async def both():
        return await asyncio.gather(
            engine.generate(GenerationRequest(**{"context_ids": random_ids(9), "max_tokens": 3, **fields})),
            engine.generate(good),
            return_exceptions=True,
        )

    refused, completion = asyncio.run(both())
    assert isinstance(refused, InputError)
    assert message in str(refused)
    assert_exact(MODEL, good, completion)


def test_logits_that_are_not_finite_fail_their_own_request_only():  # AL25
    model = tiny_model()
    engine = HFEngine(model)
    with torch.no_grad():
        model.get_input_embeddings().weight[50] = torch.nan
    good = GenerationRequest(random_ids(9, vocabulary=50), 1, episode_id="good")

    async def both(bad_context):
        return await asyncio.gather(
            engine.generate(GenerationRequest(bad_context, 3, episode_id="bad")),
            engine.generate(good),
            return_exceptions=True,
        )

    failed, completion = asyncio.run(both(ids_of(4, 50, 6)))
    assert isinstance(failed, InfrastructureError)
    assert failed.kind == "engine_nonfinite"
    assert "'bad'" in str(failed)
    assert np.isfinite(completion.logprobs).all()
    healthy = asyncio.run(both(ids_of(4, 5, 6)))[0]
    assert isinstance(healthy, Completion)  # nothing of the failed turn was kept


def run_during(engine, requests, number, then):
    """Start the requests, call ``then`` on the loop while forward ``number`` is in the worker; return all answers."""

    async def run():
        loop, numbers, outcomes = asyncio.get_running_loop(), itertools.count(1), []
        forward = engine._forward

        def forward_and_then(rows):
            drawn = forward(rows)
            if next(numbers) == number:
                happened = threading.Event()

                def happen():
                    try:
                        outcomes.append(then(tasks))
                    finally:
                        happened.set()

                loop.call_soon_threadsafe(happen)
                assert happened.wait(60)
            return drawn

        engine._forward = forward_and_then
        tasks = [asyncio.create_task(engine.generate(request)) for request in requests]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        engine._forward = forward
        return outcomes[0], answers

    return asyncio.run(run())


def test_abort_answers_with_what_there_is():  # WS06
    engine = HFEngine(MODEL)
    requests = [GenerationRequest(random_ids(9, seed=s), 50, seed=s, episode_id=f"{s}") for s in range(3)]
    ended, answers = run_during(engine, requests, 4, lambda tasks: engine.abort({"0", "2", "unknown"}))
    assert ended == 2
    assert [c.finish_reason for c in answers] == [FinishReason.ABORT, FinishReason.LENGTH, FinishReason.ABORT]
    for request, completion in zip(requests, answers, strict=True):
        assert_exact(MODEL, request, completion)
    assert [len(c.ids) for c in answers] == [3, 50, 3]  # what forward 4 sampled came too late
    assert engine.abort() == 0
    for episode in ("0", "1", "2"):
        asyncio.run(engine.release(episode))
    assert engine.metrics()["cached_tokens"] == 0


def test_an_aborted_turn_goes_on_where_it_stopped():  # WS05
    engine = HFEngine(MODEL)
    request = GenerationRequest(random_ids(9), 30, temperature=0.0, episode_id="e")
    ended, (first,) = run_during(engine, [request], 4, lambda tasks: engine.abort())
    assert ended == 1
    rest = run_one(
        engine, np.concatenate([request.context_ids, first.ids]), 30 - len(first.ids), temperature=0.0, episode_id="e"
    )
    assert rest.cached_tokens > 9
    whole = run_one(HFEngine(MODEL), request.context_ids, 30, temperature=0.0)
    assert [*first.ids, *rest.ids] == whole.ids.tolist()


def test_abort_in_the_middle_of_a_shared_prompt_lets_the_group_go_on():
    engine = HFEngine(MODEL, max_batch_tokens=16)
    prompt = random_ids(100)
    requests = [GenerationRequest(prompt, 2, seed=s, episode_id=f"{s}") for s in range(3)]
    _, answers = run_during(engine, requests, 2, lambda tasks: engine.abort({"0"}))
    assert answers[0].finish_reason is FinishReason.ABORT
    assert len(answers[0].ids) == 0
    for request, completion in zip(requests[1:], answers[1:], strict=True):
        assert_exact(MODEL, request, completion)
    again = run_one(engine, prompt, 2, episode_id="0")
    assert again.cached_tokens == 16  # what the first forward read; the second one came too late


def test_a_cancelled_call_frees_its_place():
    engine = HFEngine(MODEL, max_cached_tokens=70)
    requests = [GenerationRequest(random_ids(9, seed=s), 50, seed=s, episode_id=f"{s}") for s in range(2)]
    _, (cancelled, answer) = run_during(engine, requests, 3, lambda tasks: tasks[0].cancel())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert engine.metrics()["sampled_tokens"] == 2 + 50  # the cancelled turn did not go on
    assert_exact(MODEL, requests[1], answer)


def test_the_engine_outlives_an_event_loop_that_was_stopped():
    engine = HFEngine(MODEL)
    request = GenerationRequest(random_ids(9), 100, episode_id="e")

    async def leave():
        task = asyncio.create_task(engine.generate(request))
        while engine.metrics()["forwards"] < 2:
            await asyncio.sleep(0)
        return task

    task = asyncio.run(leave())
    assert task.cancelled()
    (completion,) = run_all(engine, [GenerationRequest(random_ids(9), 5, episode_id="e")])
    assert_exact(MODEL, GenerationRequest(random_ids(9), 5), completion)


def test_a_failing_model_fails_the_calls_and_not_the_engine():
    model = tiny_model()
    engine = HFEngine(model)
    forward, model.forward = model.forward, None
    with pytest.raises(TypeError):
        run_one(engine, random_ids(9), episode_id="e")
    model.forward = forward
    request = GenerationRequest(random_ids(9), 4, episode_id="e")
    assert_exact(model, request, run_all(engine, [request])[0])


def test_released_episodes_leave_nothing():
    engine = HFEngine(MODEL)

    async def episodes():
        await asyncio.gather(*[play(engine, MODEL, e, exact=False) for e in range(4)])
        assert engine.metrics()["cached_tokens"] > 0
        for e in range(4):
            await engine.release(f"e{e}")
        await engine.release("unknown")

    asyncio.run(episodes())
    assert engine.metrics()["cached_tokens"] == 0
    assert run_one(engine, random_ids(20, seed=0), episode_id="e0").cached_tokens == 0


def test_an_episode_released_while_it_speaks_keeps_nothing():
    engine = HFEngine(MODEL)

    async def run():
        task = asyncio.create_task(engine.generate(GenerationRequest(random_ids(9), 20, episode_id="e")))
        while engine.metrics()["forwards"] < 2:
            await asyncio.sleep(0)
        await engine.release("e")
        return await task

    assert len(asyncio.run(run()).ids) == 20
    assert engine.metrics()["cached_tokens"] == 0


def test_two_calls_at_once_for_one_episode_are_both_exact():
    engine = HFEngine(MODEL)
    requests = [GenerationRequest(random_ids(30), 4, seed=s, episode_id="e") for s in range(3)]
    for request, completion in zip(requests, run_all(engine, requests), strict=True):
        assert_exact(MODEL, request, completion)
    assert engine.metrics()["cached_tokens"] == 33


def test_slow_environments_hold_nobody_back():
    engine = HFEngine(MODEL)
    finished = []

    async def episode(e, gate):
        context = random_ids(10, seed=e)
        for turn in range(3):
            request = GenerationRequest(context, 3, seed=turn, episode_id=f"{e}")
            completion = await engine.generate(request)
            assert_exact(MODEL, request, completion)
            if turn == 1:
                await gate.wait()
            context = np.concatenate([context, completion.ids, random_ids(4, seed=turn)])
        finished.append(e)

    async def run():
        slow, open_gate = asyncio.Event(), asyncio.Event()
        open_gate.set()
        tasks = [asyncio.create_task(episode(e, slow if e % 3 == 0 else open_gate)) for e in range(12)]
        await asyncio.gather(*[t for e, t in enumerate(tasks) if e % 3])
        assert sorted(finished) == [e for e in range(12) if e % 3]
        slow.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_episodes_that_answer_at_once_share_their_forwards():
    engine = HFEngine(MODEL)

    async def run():
        await asyncio.gather(*[play(engine, MODEL, e, exact=False) for e in range(16)])

    asyncio.run(run())
    assert engine.metrics()["mean_batch_rows"] == 16


# 4. Weights


def nudge(model, seed=1):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)


def test_after_new_weights_a_repeated_prompt_equals_a_fresh_engine():  # WS01
    model = tiny_model()
    engine = HFEngine(model)
    requests = [GenerationRequest(random_ids(30), 6, seed=s, episode_id=f"{s}") for s in range(3)]
    before = run_all(engine, requests)
    nudge(model)
    engine.weights_updated(1)
    after, fresh = run_all(engine, requests), run_all(HFEngine(model), requests)
    for request, a, f, b in zip(requests, after, fresh, before, strict=True):
        assert_exact(model, request, a)
        assert a.ids.tolist() == f.ids.tolist()
        assert np.abs(plain_logprobs(model, request, b) - b.logprobs).max() > 1e-3  # the change was visible
        assert set(a.policy_versions) == {1}


def test_another_version_is_refused():  # WS03
    engine = HFEngine(MODEL, policy_version=3)
    assert run_one(engine, random_ids(5), policy_version=3).policy_versions.tolist() == [3] * 4
    with pytest.raises(StaleWeightsError, match="policy version 4, but version 3 is loaded"):
        run_one(engine, random_ids(5), policy_version=4)
    engine.weights_updated(4)
    assert engine.policy_version == 4
    assert run_one(engine, random_ids(5), policy_version=4).policy_versions.tolist() == [4] * 4


def test_new_weights_in_the_middle_of_a_turn():  # WS05, WS07
    model = tiny_model()
    engine = HFEngine(model)
    requests = [
        GenerationRequest(random_ids(30), 12, seed=1, episode_id="any"),
        GenerationRequest(random_ids(30), 12, seed=2, episode_id="pinned", policy_version=0),
    ]

    def update(tasks):
        nudge(model)
        engine.weights_updated(1)

    _, (answer, refused) = run_during(engine, requests, 5, update)
    assert isinstance(refused, StaleWeightsError)
    assert answer.finish_reason is FinishReason.LENGTH
    old = int((answer.policy_versions == 0).sum())
    assert answer.policy_versions.tolist() == [0] * old + [1] * (12 - old)
    assert 0 < old < 12
    new_logprobs = plain_logprobs(model, requests[0], answer)
    np.testing.assert_allclose(answer.logprobs[old:], new_logprobs[old:], atol=1e-4)
    old_logprobs = plain_logprobs(tiny_model(), requests[0], answer)
    np.testing.assert_allclose(answer.logprobs[:old], old_logprobs[:old], atol=1e-4)


def change_during(engine, requests, number, load, **how):
    """Ask for new weights while forward ``number`` is in the worker; return what the change gave, and all answers."""
    changes = []
    _, answers = run_during(
        engine,
        requests,
        number,
        lambda tasks: changes.append(asyncio.ensure_future(engine.change_weights(1, load, **how))),
    )
    return changes[0], answers


def test_weights_that_change_between_forwards_split_the_turns_that_run():
    model = tiny_model()
    engine = HFEngine(model)
    requests = [GenerationRequest(random_ids(30, seed=s), 12, seed=s, episode_id=f"{s}") for s in range(3)]
    change, answers = change_during(engine, requests, 5, lambda: nudge(model))
    assert change.done() and change.exception() is None
    new, old = model, tiny_model()
    for request, answer in zip(requests, answers, strict=True):
        assert answer.policy_versions.tolist() == [0] * 5 + [1] * 7  # the forward under way counts, under its version
        expected = np.where(
            answer.policy_versions == 0, plain_logprobs(old, request, answer), plain_logprobs(new, request, answer)
        )
        np.testing.assert_allclose(answer.logprobs, expected, atol=1e-4)


def test_turns_may_finish_before_the_weights_change_and_waiting_ones_see_the_new_ones():
    model = tiny_model()
    engine = HFEngine(model, max_cached_tokens=2 * 42)
    requests = [GenerationRequest(random_ids(30, seed=s), 12, seed=s) for s in range(3)]  # the third one must wait
    change, answers = change_during(engine, requests, 5, lambda: nudge(model), finish_turns=True)
    assert change.done() and engine.policy_version == 1
    assert [set(a.policy_versions.tolist()) for a in answers] == [{0}, {0}, {1}]
    assert_exact(model, requests[2], answers[2])
    assert_exact(tiny_model(), requests[0], answers[0])


def test_weights_that_cannot_be_loaded_change_nothing():
    def broken():
        raise ValueError("of another shape")

    engine = HFEngine(MODEL)
    request = GenerationRequest(random_ids(9), 8)
    change, (answer,) = change_during(engine, [request], 3, broken)
    assert isinstance(change.exception(), ValueError) and engine.policy_version == 0
    assert answer.policy_versions.tolist() == [0] * 8
    assert_exact(MODEL, request, answer)


# What the engine cannot serve


def test_a_model_whose_attention_it_cannot_take_over_is_refused():
    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = tiny_model()
            self.config = self.inner.config
            self.dtype = self.inner.dtype

        def get_input_embeddings(self):
            return self.inner.get_input_embeddings()

        def forward(self, input_ids, position_ids=None, use_cache=None, logits_to_keep=0, **dropped):
            return self.inner(
                input_ids=input_ids, position_ids=position_ids, use_cache=use_cache, logits_to_keep=logits_to_keep
            )

    with pytest.raises(InputError, match="cannot serve Wrapped"):
        HFEngine(Wrapped())


def test_limits_of_the_engine_itself_are_checked():
    with pytest.raises(InputError, match="max_batch_tokens=0"):
        HFEngine(MODEL, max_batch_tokens=0)


def test_close_ends_what_runs():
    engine = HFEngine(MODEL)
    run_one(engine, random_ids(5), episode_id="e")
    engine.close()
    assert engine.metrics()["cached_tokens"] == 0
