import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib_agentic.envs.registry import make_env
from rllib_agentic.rl_module.model_loading import load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings
from rllib_agentic.rl_module.tiny.build_tokenizer import CORPUS_ENVIRONMENTS, FOLDER, VOCABULARY, build_tokenizer

TOKENIZER = load_tokenizer(ModelSettings(preset="tiny"))


def encode(text):
    return TOKENIZER.encode(text, add_special_tokens=False)


def test_the_shipped_files_are_what_the_script_makes_of_the_shipped_corpus(tmp_path):
    build_tokenizer(json.loads((FOLDER / "corpus.json").read_text(encoding="utf-8"))).save_pretrained(tmp_path)
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert made == {name: (FOLDER / name).read_text(encoding="utf-8") for name in made}


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_every_text_has_an_encoding_and_comes_back(text):
    ids = TOKENIZER.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert TOKENIZER.decode(ids) == text
    assert not set(ids) & set(TOKENIZER.all_special_ids)


def test_digits_are_tokens_of_their_own():
    assert [TOKENIZER.decode([i]) for i in encode("12 305")] == ["1", "2", " ", "3", "0", "5"]


@pytest.mark.parametrize(
    "word", ["left", " left", "Left", " Right", "up", " down", "user", "assistant", "system", "\n"]
)
def test_common_words_are_one_token(word):
    assert len(encode(word)) == 1


@pytest.mark.parametrize("name", CORPUS_ENVIRONMENTS)
def test_an_environments_words_are_mostly_one_token_each(name):
    env = make_env(name)
    texts = []
    for index in range(20):
        observation = env.reset("train", index, 0)
        texts += [message.content for message in observation.messages] + list(observation.actions or ())
    env.close()
    splitter = TOKENIZER.backend_tokenizer.pre_tokenizer
    words = sum(len(splitter.pre_tokenize_str(text)) for text in texts)
    assert sum(len(encode(text)) for text in texts) <= 1.1 * words


def test_control_tokens():
    controls = TOKENIZER.convert_tokens_to_ids(["<|pad|>", "<|im_start|>", "<|im_end|>"])
    assert controls == [0, 1, 2] == sorted(TOKENIZER.all_special_ids)
    assert (TOKENIZER.pad_token_id, TOKENIZER.eos_token_id, TOKENIZER.bos_token_id) == (0, 2, None)
    assert encode("a")[0] not in controls and len(encode("a")) == 1
    assert len(TOKENIZER) <= VOCABULARY


def test_the_chat_template_is_chatml_and_adds_no_system_prompt():
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    assert TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>assistant\n"
    )
