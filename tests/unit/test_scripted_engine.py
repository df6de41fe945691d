"""The scripted engine keeps every rule that tests of other rooms rely on."""

import asyncio

import numpy as np
import pytest
from tiny_engine import STOP, byte_tokenizer, ids_of

from rllib_agentic.engines import Engine, GenerationRequest, ScriptedEngine, TokenTrie
from rllib_agentic.engines.engine import COUNTERS
from rllib_agentic.errors import InputError, StaleWeightsError
from rllib_agentic.trajectory.turn import FinishReason


def ask(engine, max_tokens=20, context=(1,), **fields):
    return asyncio.run(engine.generate(GenerationRequest(ids_of(*context), max_tokens, **fields)))


def test_answers_come_in_order_and_the_script_ends_with_a_message():
    engine = ScriptedEngine([[5, STOP], [6, 7, STOP]], policy_version=4)
    assert isinstance(engine, Engine)
    first, second = (ask(engine, stop_ids=frozenset({STOP})) for _ in range(2))
    assert (first.ids.tolist(), second.ids.tolist()) == ([5, STOP], [6, 7, STOP])
    assert first.finish_reason is FinishReason.STOP
    assert first.logprobs.tolist() == [-0.5, -0.5]
    assert first.policy_versions.tolist() == [4, 4]
    assert first.legal_tokens is None
    with pytest.raises(InputError, match="no answer left"):
        ask(engine)
    assert len(engine.requests) == 3


def test_a_function_sees_the_context():
    engine = ScriptedEngine(lambda context: [int(context.sum()), STOP])
    assert ask(engine, context=(3, 4), stop_ids=frozenset({STOP})).ids.tolist() == [7, STOP]


def test_texts_are_encoded_and_closed():
    tokenizer = byte_tokenizer()
    completion = ask(ScriptedEngine(["go up"], tokenizer, stop_id=STOP), stop_ids=frozenset({STOP}))
    assert tokenizer.decode(completion.ids) == "go up<end>"
    with pytest.raises(InputError, match="no tokenizer"):
        ask(ScriptedEngine(["go up"]))


def test_limits_and_stops_cut_the_answer():
    assert ask(ScriptedEngine([[5, 6, 7]]), max_tokens=2).finish_reason is FinishReason.LENGTH
    assert ask(ScriptedEngine([[5, 6, 7]])).finish_reason is FinishReason.ABORT
    completion = ask(ScriptedEngine(["a</x>b"], byte_tokenizer()), stop_strings=("</x>",))
    assert (len(completion.ids), completion.finish_reason) == (5, FinishReason.STOP_STRING)
    with pytest.raises(InputError, match="max_tokens"):
        ask(ScriptedEngine([[5]]), max_tokens=0)


def test_legal_tokens_are_recorded_and_enforced():
    trie = TokenTrie([[5, STOP], [6, 7, STOP]])
    completion = ask(ScriptedEngine([[6, 7, STOP]]), legal=trie)
    assert completion.legal_tokens is not None
    assert [completion.legal_tokens.at(i).tolist() for i in range(3)] == [[5, 6], [7], [STOP]]
    assert completion.logprobs.tolist() == [-0.5, 0.0, 0.0]
    assert completion.finish_reason is FinishReason.STOP
    with pytest.raises(InputError, match="id 9 after \\[\\], legal are \\[5, 6\\]"):
        ask(ScriptedEngine([[9]]), legal=trie)


def test_versions_and_releases():
    engine = ScriptedEngine(lambda context: [5])
    with pytest.raises(StaleWeightsError, match="version 1 was asked for, 0 is loaded"):
        ask(engine, policy_version=1)
    engine.policy_version = 1
    assert ask(engine, policy_version=1).policy_versions.tolist() == [1]
    asyncio.run(engine.release("e"))
    assert engine.released == ["e"]
    assert np.isfinite(ask(engine).logprobs).all()
    engine.weights_updated(2)
    assert ask(engine, policy_version=2).policy_versions.tolist() == [2]


def test_it_counts_what_it_says():
    engine = ScriptedEngine(lambda context: [6, 7, STOP])
    assert set(engine.metrics()) == set(COUNTERS) and not any(engine.metrics().values())
    ask(engine, legal=TokenTrie([[5, STOP], [6, 7, STOP]]))
    assert (engine.metrics()["sampled_tokens"], engine.metrics()["forced_tokens"]) == (1, 2)
    assert engine.abort() == 0
    engine.close()
