"""LoRA: what is trained, what travels, and what comes out, against models whose weights were merged by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_policy import TinyPolicy, make_trainer, random_rows
from torch.func import functional_call

from rllib_agentic.errors import InputError
from rllib_agentic.learner.reference import reference_of
from rllib_agentic.learner.report import Tally
from rllib_agentic.learner.row_trainer import make_optimizer
from rllib_agentic.learner.settings import LearnerSettings
from rllib_agentic.learner.train_batch import plan_minibatches
from rllib_agentic.losses.policy import Reinforce, Sft
from rllib_agentic.rl_module.export import export_adapter, export_hf
from rllib_agentic.rl_module.llm_rl_module import LLMTorchRLModule
from rllib_agentic.rl_module.lora import adapter_off, adapter_parameters, add_lora, has_lora, is_adapter, merged_weights
from rllib_agentic.rl_module.model_settings import LoraSettings, ModelSettings

pytest.importorskip("peft")
SMALL = {"preset": "tiny", "seed": 0, "hidden_size": 16, "num_layers": 2, "num_heads": 2}


def module(**changes: Any) -> LLMTorchRLModule:
    inference = changes.pop("inference_only", False)
    config = {**SMALL, "lora": {"rank": 3, "alpha": 5.0, "seed": 1}, **changes}
    return LLMTorchRLModule(observation_space=None, action_space=None, inference_only=inference, model_config=config)  # type: ignore[arg-type]


def stir(part: torch.nn.Module, seed: int = 0) -> None:
    """Give the adapters something to say: B is 0 at first."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in part.named_parameters():
            if is_adapter(name):
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))


def adapted_policy(seed: int = 0) -> TinyPolicy:
    policy = TinyPolicy(seed)
    add_lora(policy.model, LoraSettings(rank=3, alpha=6.0))
    policy.double()
    return policy


IDS = torch.arange(3, 15)[None]


def test_only_adapters_are_trained_and_the_start_is_the_base():
    plain, adapted = TinyPolicy(), adapted_policy()
    assert torch.equal(plain.logits(plain.hidden(IDS)), adapted.logits(adapted.hidden(IDS)))
    trained = {name for name, p in adapted.model.named_parameters() if p.requires_grad}
    assert trained == {name for name, _ in adapted.model.named_parameters() if is_adapter(name)}
    assert len(trained) == 2 * 7 * 2  # A and B of seven linear layers in each of two blocks
    counted = sum(p.numel() for p in adapted.model.parameters() if p.requires_grad)
    assert adapter_parameters(TinyPolicy().model, LoraSettings(rank=3)) == counted
    optimizer = make_optimizer(adapted.model, LearnerSettings())
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for name, p in adapted.model.named_parameters() if is_adapter(name)}


def test_gradients_and_logprobs_equal_a_model_merged_by_hand():
    """W + alpha / rank B A as a function of A and B, in float64, differentiated by autograd."""
    policy = adapted_policy()
    stir(policy)
    rows = random_rows(5)
    batch = plan_minibatches(rows)
    trainer = make_trainer(policy, Reinforce())
    trainer.accumulate(batch.rows, batch.minibatches[0], {}, Tally(), first=True)
    found = {name: p.grad for name, p in policy.model.named_parameters() if is_adapter(name)}

    plain = TinyPolicy()
    leaves = {n: p.detach().clone().requires_grad_() for n, p in policy.model.named_parameters() if is_adapter(n)}
    weights = dict(plain.model.named_parameters())
    for name in leaves:
        if ".lora_A." in name:
            layer = name.split(".lora_A.")[0]
            a, b = leaves[name], leaves[name.replace("lora_A", "lora_B")]
            weights[f"{layer}.weight"] = weights[f"{layer}.weight"].detach() + 6.0 / 3 * b @ a
    total = torch.zeros((), dtype=torch.float64)
    for row, weight in zip(rows, batch.minibatches[0].weights, strict=True):
        ids = torch.tensor(row.token_ids, dtype=torch.int64)
        logits = functional_call(plain.model, weights, (ids[None],)).logits[0]
        for t in row.action_mask.nonzero()[0]:
            total = total - weight * float(row.advantages[t]) * logits[t - 1].log_softmax(0)[ids[t]]
    total.backward()
    assert found.keys() == leaves.keys()
    for name, leaf in leaves.items():
        torch.testing.assert_close(found[name], leaf.grad, rtol=1e-4, atol=1e-7)  # Llama's norms compute in float32
        assert leaf.grad is not None and leaf.grad.abs().max() > 1e-4


def test_merged_weights_have_the_plain_names_and_give_the_same_logits():
    policy, plain = adapted_policy(), TinyPolicy()
    stir(policy)
    merged = merged_weights(policy.model)
    known = {n for n, _ in plain.model.named_parameters(remove_duplicate=True)}
    assert merged.keys() == known
    plain.model.load_state_dict(merged, strict=False)
    torch.testing.assert_close(plain.logits(plain.hidden(IDS)), policy.logits(policy.hidden(IDS)), rtol=1e-5, atol=1e-6)
    layer = policy.model.model.layers[0].self_attn.q_proj
    by_hand = layer.base_layer.weight + 2.0 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    torch.testing.assert_close(merged["model.layers.0.self_attn.q_proj.weight"], by_hand, rtol=1e-12, atol=1e-12)


def test_the_reference_is_the_base_under_the_adapters_and_costs_no_copy():
    policy, base = adapted_policy(), TinyPolicy()
    reference = reference_of(policy)
    rows = random_rows(4)
    trainer = make_trainer(policy, reference=reference, kl={"coefficient": 0.1}, lr=0.1, num_epochs=1)
    trainer.train(plan_minibatches(rows, num_epochs=3))
    now = policy.logits(policy.hidden(IDS))
    assert not torch.allclose(now, base.logits(base.hidden(IDS)))
    assert torch.equal(reference.logits(reference.hidden(IDS)), base.logits(base.hidden(IDS)))
    assert torch.equal(policy.logits(policy.hidden(IDS)), now)
    assert {id(p) for p in reference.model.parameters()} == {id(p) for p in policy.model.parameters()}
    assert all(p.requires_grad == is_adapter(name) for name, p in policy.model.named_parameters())
    with adapter_off(policy.model):
        assert torch.equal(policy.logits(policy.hidden(IDS)), base.logits(base.hidden(IDS)))


@pytest.mark.parametrize("sync", ["adapter", "merged"])
def test_what_travels_makes_the_runner_equal_to_the_learner(sync: str):
    lora = {"rank": 3, "alpha": 5.0, "seed": 1, "sync": sync}
    learner, runner = module(lora=lora), module(lora=lora, inference_only=True)
    assert has_lora(runner.model) == (sync == "adapter")
    stir(learner)
    state = learner.get_state(inference_only=True)
    runner.set_state(state)
    torch.testing.assert_close(runner.logits(runner.hidden(IDS)), learner.logits(learner.hidden(IDS)))
    total = sum(p.numel() for p in learner.model.parameters() if not p.requires_grad)
    sent = sum(array.size for array in state.values())
    assert sent == total if sync == "merged" else sent < total
    with pytest.raises(ValueError, match="do not fit"):
        runner.set_state(dict(list(state.items())[1:]))


def test_a_checkpoint_holds_adapters_and_critic_and_nothing_else(tmp_path: Path):
    learner = module()
    stir(learner)
    state = learner.get_state()
    assert all(is_adapter(name) or name.startswith("value_head.") for name in state)
    learner.save_to_path(tmp_path / "module")
    again = LLMTorchRLModule.from_checkpoint(str(tmp_path / "module"))
    assert torch.equal(again.logits(again.hidden(IDS)), learner.logits(learner.hidden(IDS)))


def test_exports_load_without_us(tmp_path: Path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    learner = module(value_head=False)
    stir(learner)
    wanted = learner.model(IDS).logits
    whole = AutoModelForCausalLM.from_pretrained(export_hf(learner, tmp_path / "whole"))
    torch.testing.assert_close(whole(IDS).logits, wanted, rtol=1e-4, atol=1e-5)
    folder = export_adapter(learner, tmp_path / "adapter")
    base = module(lora=None, value_head=False).model
    adapted = PeftModel.from_pretrained(base, str(folder))
    torch.testing.assert_close(adapted(IDS).logits, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="without adapters"):
        export_adapter(module(lora=None), tmp_path / "none")
    with pytest.raises(InputError, match="not empty"):
        export_adapter(learner, folder)


def test_adapters_follow_from_their_seed_alone():
    torch.manual_seed(5)
    one = module()
    torch.manual_seed(6)
    two, other = module(), module(lora={"rank": 3, "alpha": 5.0, "seed": 2})
    name = "model.model.layers.0.mlp.up_proj.lora_A.default.weight"
    np.testing.assert_array_equal(one.get_state()[name], two.get_state()[name])
    assert not np.array_equal(one.get_state()[name], other.get_state()[name])


def test_a_frozen_base_keeps_its_dtype():
    learner = module(dtype="bfloat16")
    dtypes = {is_adapter(name): p.dtype for name, p in learner.model.named_parameters()}
    assert dtypes == {True: torch.float32, False: torch.bfloat16}


def test_dropout_is_drawn_anew_each_step_and_the_same_after_a_resume():
    rows = random_rows(4)

    def after(steps: int, seed: int | None) -> list[torch.Tensor]:
        policy = TinyPolicy()
        add_lora(policy.model, LoraSettings(rank=3, dropout=0.5))
        policy.double()
        trainer = make_trainer(policy, Sft(), dropout_seed=seed, lr=0.05)
        trainer.train(plan_minibatches(rows, num_epochs=steps))
        assert not policy.training
        return [p.detach().clone() for p in policy.parameters() if p.requires_grad]

    def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
        return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))

    assert same(after(3, 1), after(3, 1))
    assert not same(after(3, 1), after(3, 2))
    assert not same(after(3, 1), after(3, None))


@pytest.mark.parametrize(
    ("targets", "fault"), [(("no_such_layer",), "no_such_layer"), (("embed_tokens",), "name neither")]
)
def test_layers_that_cannot_have_adapters_are_said(targets: tuple[str, ...], fault: str):
    with pytest.raises(InputError, match=fault):
        add_lora(TinyPolicy().model, LoraSettings(target_modules=targets))


def test_targets_may_be_named():
    policy = TinyPolicy()
    add_lora(policy.model, LoraSettings(target_modules=("q_proj", "v_proj")))
    named = {
        name.rsplit(".lora_", 1)[0].rsplit(".", 1)[1] for name, _ in policy.model.named_parameters() if is_adapter(name)
    }
    assert named == {"q_proj", "v_proj"}


def test_settings_that_contradict_are_refused():
    from rllib_agentic.algorithms.presets import algorithm_class

    def sections(run: str, **changes: Any) -> Any:
        config = algorithm_class(run).get_default_config()
        return config.update_from_dict({"env": "bandit", **changes}).sections()

    lora = {"preset": "tiny", "lora": {"dropout": 0.1}}
    with pytest.raises(InputError, match=r"lora\.dropout"):
        sections("GRPO", model=lora)
    assert sections("SFT", model=lora).learner_setup().dropout_seed is not None
    assert sections("SFT", model=lora, seed=4).module_config()["lora"]["seed"] == 4
    assert ModelSettings(preset="tiny").lora is None
