import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rllib_agentic.errors import InputError
from rllib_agentic.rl_module.export import export_hf
from rllib_agentic.rl_module.llm_rl_module import LLMTorchRLModule


def module(dtype="float32"):
    config = {"preset": "tiny", "hidden_size": 16, "num_layers": 1, "num_heads": 2, "seed": 0, "dtype": dtype}
    return LLMTorchRLModule(observation_space=None, action_space=None, inference_only=False, model_config=config)


def trained(dtype="float32"):
    """A module whose weights are not those that its settings alone would give."""
    policy = module(dtype)
    policy.set_state({name: array + array.dtype.type(1) for name, array in policy.get_state().items()})
    return policy


def logits_of(model):
    with torch.no_grad():
        return model(torch.arange(20)[None]).logits


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_folder_loads_without_us_and_gives_equal_logits(dtype, tmp_path):
    policy = trained(dtype)
    folder = export_hf(policy, tmp_path / "out")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.dtype == policy.model.dtype
    assert torch.equal(logits_of(model), logits_of(policy.model))
    assert tokenizer.encode("Go Left 12") == policy.tokenizer.encode("Go Left 12")
    assert tokenizer.chat_template == policy.tokenizer.chat_template
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


@pytest.mark.parametrize(
    "below", ["", "default_policy", "rl_module/default_policy", "learner_group/learner/rl_module/default_policy"]
)
def test_a_checkpoint_at_any_depth_is_found(below, tmp_path):
    policy = trained()
    policy.save_to_path(str(tmp_path / "checkpoint" / below))
    model = AutoModelForCausalLM.from_pretrained(export_hf(tmp_path / "checkpoint", tmp_path / "out"))
    assert torch.equal(logits_of(model), logits_of(policy.model))


def test_what_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(InputError, match="no checkpoint folder"):
        export_hf(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(InputError, match="is no checkpoint of an LLMTorchRLModule"):
        export_hf(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        export_hf(module(), tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_export_that_dies_leaves_nothing(tmp_path, monkeypatch):
    policy = module()

    def die(folder):
        raise OSError("disk full")

    monkeypatch.setattr(policy.tokenizer, "save_pretrained", die)
    with pytest.raises(OSError, match="disk full"):
        export_hf(policy, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_critic_stays_behind(tmp_path):
    from safetensors import safe_open

    folder = export_hf(module(), tmp_path / "out")
    with safe_open(folder / "model.safetensors", "np") as file:
        names = set(file.keys())
    assert "model.embed_tokens.weight" in names and not any(
        "value_head" in n or n.startswith("model.model") for n in names
    )
