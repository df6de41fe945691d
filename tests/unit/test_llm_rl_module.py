"""LLMTorchRLModule held to the bare Hugging Face model."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import ray
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from transformers import Gemma2Config, Gemma2ForCausalLM, GraniteConfig, GraniteForCausalLM, LlamaForCausalLM

from rllib_agentic.errors import InputError
from rllib_agentic.rl_module import llm_rl_module
from rllib_agentic.rl_module.llm_rl_module import LLMTorchRLModule
from rllib_agentic.rl_module.model_loading import load_model, load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings

TINY: dict[str, Any] = {"preset": "tiny", "hidden_size": 16, "num_layers": 2, "num_heads": 2, "seed": 0}
LENGTH = 12
VOCABULARY = len(load_tokenizer(ModelSettings(preset="tiny")))
SPACE = gym.spaces.Dict(
    {
        "observations": gym.spaces.Box(0, VOCABULARY - 1, (LENGTH,), np.int32),
        "length": gym.spaces.Box(1, LENGTH, (1,), np.int32),
        "action_mask": gym.spaces.MultiBinary(VOCABULARY),
    }
)


def build(inference_only: bool = False, **settings) -> LLMTorchRLModule:
    spec = RLModuleSpec(
        module_class=LLMTorchRLModule,
        observation_space=SPACE,
        action_space=gym.spaces.Discrete(VOCABULARY),
        inference_only=inference_only,
        model_config={**({} if "path" in settings else TINY), **settings},
    )
    return spec.build()


def observations(lengths=(5, 12, 1, 8), padding=0, seed=0):
    random = np.random.default_rng(seed)
    ids = random.integers(0, VOCABULARY, (len(lengths), LENGTH))
    mask = random.random((len(lengths), VOCABULARY)) < 0.1
    mask[:, 7] = True
    for row, length in enumerate(lengths):
        ids[row, length:] = padding
    columns = {"observations": ids, "length": np.array(lengths)[:, None], "action_mask": mask.astype(np.int8)}
    return {Columns.OBS: {name: torch.as_tensor(column) for name, column in columns.items()}}


def by_hand(module, batch):
    """Each row alone, unpadded, through the bare model."""
    rows = []
    for ids, length in zip(batch[Columns.OBS]["observations"], batch[Columns.OBS]["length"], strict=True):
        with torch.no_grad():
            rows.append(module.model(ids[: int(length)][None]).logits[0, -1])
    return torch.stack(rows)


def test_next_token_logits_are_the_bare_models_under_the_mask():
    module, batch = build(), observations()
    legal = batch[Columns.OBS]["action_mask"].bool()
    expected = by_hand(module, batch)
    for forward in (module.forward_inference, module.forward_exploration, module.forward_train):
        logits = forward(batch)[Columns.ACTION_DIST_INPUTS]
        assert logits.shape == (4, VOCABULARY)
        torch.testing.assert_close(logits[legal], expected[legal], atol=1e-5, rtol=1e-5)
        assert torch.softmax(logits, -1)[~legal].max() == 0


def test_padding_changes_nothing_whatever_the_pad_id_is():  # TM10, TM20
    module = build()
    outputs = []
    for padding in (0, module.tokenizer.eos_token_id, 99):
        batch = observations(padding=padding)
        outputs.append(module.forward_train(batch)[Columns.ACTION_DIST_INPUTS])
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[0], outputs[2])


def test_a_context_that_ends_with_the_pad_id_is_read_to_its_end():  # TM10
    module, batch = build(), observations(lengths=(4, 6))
    batch[Columns.OBS]["observations"][:, 3:6] = module.tokenizer.pad_token_id
    expected = by_hand(module, batch)
    logits = module.forward_train(batch)[Columns.ACTION_DIST_INPUTS]
    torch.testing.assert_close(logits[:, 7], expected[:, 7], atol=1e-5, rtol=1e-5)
    assert not torch.equal(logits[0], logits[1])


def test_many_contexts_are_scored_in_passes_with_the_same_result(monkeypatch):
    module, batch = build(), observations(lengths=(5, 12, 1, 8, 3, 3))
    whole = module.forward_train(batch)
    monkeypatch.setattr(llm_rl_module, "_TOKENS_PER_PASS", 2 * LENGTH)
    parts = module.forward_train(batch)
    for key in (Columns.ACTION_DIST_INPUTS, Columns.EMBEDDINGS):
        torch.testing.assert_close(parts[key], whole[key], atol=1e-5, rtol=1e-5)


def test_hidden_states_through_the_head_are_the_models_logits():
    module = build()
    ids = torch.randint(0, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(module.logits(module.hidden(ids)), module.model(ids).logits)
    left = torch.cat([torch.zeros(2, 3, dtype=torch.long), ids], 1)
    mask = torch.tensor([[0] * 3 + [1] * 9] * 2)
    shifted = module.hidden(left, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))[:, 3:]
    torch.testing.assert_close(shifted, module.hidden(ids), atol=1e-5, rtol=1e-5)


SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.mark.parametrize(
    ("cls", "config"),
    [
        (Gemma2ForCausalLM, Gemma2Config(**SMALL, head_dim=8, final_logit_softcapping=0.05)),
        (GraniteForCausalLM, GraniteConfig(**SMALL, logits_scaling=8.0)),
    ],
)
def test_models_that_change_their_logits_after_the_head(cls, config, tmp_path):
    torch.manual_seed(0)
    cls(config).save_pretrained(tmp_path)
    load_tokenizer(ModelSettings(preset="tiny")).save_pretrained(tmp_path)
    module = build(path=str(tmp_path))
    ids = torch.arange(6)[None]
    torch.testing.assert_close(module.logits(module.hidden(ids)), module.model(ids).logits)


def test_a_model_with_unknown_logits_is_refused(monkeypatch):
    original = LlamaForCausalLM.forward

    def forward(self, *args, **kwargs):
        out = original(self, *args, **kwargs)
        out.logits = out.logits * 2
        return out

    monkeypatch.setattr(LlamaForCausalLM, "forward", forward)
    with pytest.raises(InputError, match="changes its logits after the output layer"):
        build()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_attention_that_was_asked_for_is_used(attention):
    assert build(attn_implementation=attention).model.config._attn_implementation == attention


def test_a_vocabulary_padded_beyond_the_tokenizer_gives_no_more_actions(tmp_path):
    model = load_model(ModelSettings(**{**TINY, "seed": None}), seed=0)
    model.resize_token_embeddings(VOCABULARY + 64)
    model.save_pretrained(tmp_path)
    load_tokenizer(ModelSettings(preset="tiny")).save_pretrained(tmp_path)
    module = build(path=str(tmp_path))
    assert module.forward_train(observations())[Columns.ACTION_DIST_INPUTS].shape == (4, VOCABULARY)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_travel_to_a_runner_through_ray(dtype):
    learner, runner = build(dtype=dtype, seed=0), build(inference_only=True, dtype=dtype, seed=1)
    state = ray.cloudpickle.loads(ray.cloudpickle.dumps(learner.get_state(inference_only=True)))
    for array in state.values():
        assert isinstance(array, np.ndarray)
        array.flags.writeable = False  # as the object store hands them out
    runner.set_state(state)
    batch = observations()
    logits = [m.forward_inference(batch)[Columns.ACTION_DIST_INPUTS] for m in (learner, runner)]
    assert torch.equal(*logits)


def test_an_fp32_learner_feeds_a_bf16_runner():
    learner, runner = build(seed=0), build(inference_only=True, dtype="bfloat16", seed=1)
    runner.set_state(learner.get_state(inference_only=True))
    assert runner.model.dtype == torch.bfloat16
    assert torch.equal(runner.model.lm_head.weight, learner.model.lm_head.weight.bfloat16())


def test_the_critic_stays_with_the_learner():
    learner, runner = build(), build(inference_only=True)
    assert not hasattr(runner, "value_head")
    assert not any("value_head" in name for name in learner.get_state(inference_only=True))
    runner.set_state(learner.get_state())  # a whole state is fine too: restoring a checkpoint
    with pytest.raises(InputError, match="no critic"):
        runner.compute_values(observations())


def test_a_tied_head_is_in_the_state_once_and_stays_tied():  # WS04
    module = build()
    state = module.get_state()
    assert [name for name in state if "embed_tokens" in name or "lm_head" in name] == [
        "model.model.embed_tokens.weight"
    ]
    module.set_state({name: array + 1 for name, array in state.items()})
    assert module.model.lm_head.weight is module.model.model.embed_tokens.weight
    np.testing.assert_array_equal(
        module.model.lm_head.weight.detach().numpy(), state["model.model.embed_tokens.weight"] + 1
    )


def test_an_untied_head_is_in_the_state(tmp_path):
    config = load_model(ModelSettings(**TINY)).config
    config.tie_word_embeddings = False
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    load_tokenizer(ModelSettings(preset="tiny")).save_pretrained(tmp_path)
    assert "model.lm_head.weight" in build(path=str(tmp_path)).get_state()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("model.model.norm.weight"), r"missing: model\.model\.norm\.weight"),
        (lambda s: s.pop("value_head.linear.bias"), r"missing: value_head\.linear\.bias"),
        (lambda s: s.update(other=np.zeros(1)), "unknown: other"),
        (lambda s: s.update({"model.lm_head.weight": s["model.model.embed_tokens.weight"]}), "unknown: model.lm_head"),
        (lambda s: s.update({"model.model.norm.weight": np.zeros(17, np.float32)}), "another shape: model.model.norm"),
    ],
)
def test_names_or_shapes_that_do_not_fit_are_errors_and_load_nothing(change, said):  # WS04
    module = build()
    before, state = module.get_state(), build(seed=1).get_state()
    change(state)
    with pytest.raises(ValueError, match=said):
        module.set_state(state)
    after = module.get_state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_an_inference_only_module_still_refuses_other_names():  # WS04
    runner, state = build(inference_only=True), build().get_state()
    with pytest.raises(ValueError, match=r"unknown: model\.extra"):
        runner.set_state({**state, "model.extra": np.zeros(1)})
    state.pop("model.model.norm.weight")
    with pytest.raises(ValueError, match="missing"):
        runner.set_state(state)


def test_a_state_is_a_snapshot():
    module = build()
    state = module.get_state()
    before = state["model.model.norm.weight"].copy()
    with torch.no_grad():
        module.model.model.norm.weight.add_(1)
    np.testing.assert_array_equal(state["model.model.norm.weight"], before)


def test_set_state_writes_in_place_so_that_optimizers_go_on():
    module = build()
    parameter = module.model.model.norm.weight
    module.set_state(build(seed=3).get_state())
    assert module.model.model.norm.weight is parameter


def test_values_start_at_zero_and_train_the_trunk_only_through_embeddings():
    module, batch = build(), observations()
    assert torch.equal(module.compute_values(batch), torch.zeros(4))
    torch.nn.init.ones_(module.value_head.linear.weight)
    targets = module.compute_values(batch)
    out = module.forward_train(batch)
    values = module.compute_values(batch, embeddings=out[Columns.EMBEDDINGS])
    torch.testing.assert_close(values, targets)
    for result, reaches in ((targets, False), (values, True)):
        module.zero_grad()
        result.sum().backward()
        assert (module.model.model.norm.weight.grad is not None) == reaches


def test_the_critic_of_a_bf16_model_computes_in_float32():
    module = build(dtype="bfloat16")
    assert module.compute_values(observations()).dtype == torch.float32
    assert module.value_head.linear.weight.dtype == torch.float32


def test_gradients_do_not_depend_on_gradient_checkpointing():
    gradients = []
    for checkpointing in (False, True):
        module = build(gradient_checkpointing=checkpointing)
        logits = module.forward_train(observations())[Columns.ACTION_DIST_INPUTS]
        torch.log_softmax(logits, -1)[:, 7].sum().backward()
        gradients.append(module.model.model.layers[0].mlp.up_proj.weight.grad)
    torch.testing.assert_close(*gradients)


def test_rllibs_own_additions_to_the_model_config_are_passed_over_and_others_refused():
    assert build(vf_share_layers=False).settings == build().settings
    with pytest.raises(InputError, match="fcnet_hiddens: unknown key"):
        build(fcnet_hiddens=[64])


def test_an_attribute_error_in_setup_is_not_hidden_by_rllib(monkeypatch):
    def broken(settings):
        raise AttributeError("what really happened")

    monkeypatch.setattr(llm_rl_module, "load_model", broken)
    with pytest.raises(RuntimeError, match="what really happened"):
        build()


def test_a_module_without_critic_has_no_values():
    module = build(value_head=False)
    assert not any("value_head" in name for name in module.get_state())
    with pytest.raises(InputError, match=r"model\.value_head"):
        module.compute_values(observations())


def test_a_saved_module_comes_back_equal(tmp_path):
    module = build(dtype="bfloat16")
    module.set_state(build(dtype="bfloat16", seed=5).get_state())
    module.save_to_path(str(tmp_path / "module"))
    back = LLMTorchRLModule.from_checkpoint(str(tmp_path / "module"))
    assert back.settings == module.settings
    before, after = module.get_state(), back.get_state()
    assert before.keys() == after.keys() and all(np.array_equal(before[n], after[n]) for n in before)
