"""A critic that is a model of its own: apart from the policy in values, gradients, clipping and what travels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_policy import TinyPolicy, grad_of, random_rows

from rllib_agentic.advantages.gae import GAEEstimator
from rllib_agentic.algorithms.presets import algorithm_class
from rllib_agentic.errors import InputError
from rllib_agentic.learner.report import Tally
from rllib_agentic.learner.row_trainer import RowTrainer, make_optimizer
from rllib_agentic.learner.scoring import Scorer, find_head
from rllib_agentic.learner.settings import LearnerSettings, LearnerSetup
from rllib_agentic.learner.train_batch import plan_minibatches
from rllib_agentic.losses.policy import PPOClip
from rllib_agentic.rl_module.llm_rl_module import LLMTorchRLModule
from rllib_agentic.trajectory import Row

SMALL = {"preset": "tiny", "seed": 0, "hidden_size": 16, "num_layers": 1, "num_heads": 2}
OTHER = {"preset": "tiny", "seed": 9, "hidden_size": 32, "num_layers": 2, "num_heads": 2}
IDS = torch.arange(3, 15)[None]


def module(**changes: Any) -> LLMTorchRLModule:
    inference = changes.pop("inference_only", False)
    return LLMTorchRLModule(
        observation_space=None, action_space=None, inference_only=inference, model_config={**SMALL, **changes}
    )  # type: ignore[arg-type]


class WithCritic(TinyPolicy):
    """The tiny policy of the tests, and another one as its critic."""

    def __init__(self) -> None:
        super().__init__()
        other = TinyPolicy(seed=5)
        with torch.no_grad():
            next(other.value_head.parameters()).normal_()
        self.critic_model, self.value_head = other.model.model, other.value_head

    def critic_hidden(self, ids: torch.Tensor) -> torch.Tensor:
        return self.critic_model(input_ids=ids, use_cache=False).last_hidden_state


def trainer_of(policy: WithCritic, **settings: Any) -> RowTrainer:
    learner = LearnerSettings.model_validate({"lr": 1e-2, **settings})
    setup = LearnerSetup(learner, PPOClip(), 1.0, GAEEstimator(whiten=False))
    scorer = Scorer(policy, 1.0, 1 << 20, None, find_head(policy), policy.value_head, policy.critic_hidden)
    return RowTrainer(scorer, None, make_optimizer(policy, learner), setup)


def rewarded(rows: list[Row]) -> list[Row]:
    return [
        replace(r, rewards=np.where(np.arange(len(r)) == r.action_mask.nonzero()[0][-1], 1, 0).astype(np.float32))
        for r in rows
    ]


def test_values_are_those_of_the_critics_own_model():
    whole = module(critic=OTHER)
    alone = module(**OTHER, value_head=False)
    assert whole.value_head.linear.in_features == 32
    assert torch.equal(whole.critic_hidden(IDS), alone.hidden(IDS))
    assert torch.equal(whole.hidden(IDS), module().hidden(IDS))
    on_the_policy = module()
    assert torch.equal(on_the_policy.critic_hidden(IDS), on_the_policy.hidden(IDS))


def test_the_two_losses_meet_in_no_parameter():
    """The value loss alone reaches the critic alone, the policy loss alone the policy alone."""
    rows = rewarded(random_rows(4))
    batch = plan_minibatches(rows)

    def reached(**settings: Any) -> set[str]:
        policy = WithCritic()
        trainer = trainer_of(policy, **settings)
        columns = _columns(trainer, batch)
        trainer.accumulate(batch.rows, batch.minibatches[0], columns, Tally(), first=True)
        return {
            name.split(".")[0]
            for name, p in policy.named_parameters()
            if p.grad is not None and bool(grad_of(p).abs().max() > 0)
        }

    assert reached(value={"coefficient": 0.0}) == {"model"}
    assert reached(value={"warmup_steps": 1}) == {"critic_model", "value_head"}
    assert reached() == {"model", "critic_model", "value_head"}


def _columns(trainer: RowTrainer, batch: Any) -> Any:
    from rllib_agentic.learner.preparation import columns_before_training

    return columns_before_training(
        batch, batch.owned_by(0, 1), trainer._setup, trainer._policy, None, Tally(), distributed=False
    )


def test_value_targets_come_from_the_critics_model():
    policy = WithCritic()
    trainer = trainer_of(policy)
    (row,) = rewarded(random_rows(1))
    batch = plan_minibatches([row])
    old = _columns(trainer, batch)["old_values"][0]
    ids = torch.tensor(row.token_ids, dtype=torch.int64)[None]
    with torch.no_grad():
        values = policy.value_head(policy.critic_hidden(ids))[0].numpy()
    np.testing.assert_allclose(old, values[row.action_mask.nonzero()[0] - 1], rtol=1e-6)


def test_the_critic_has_a_learning_rate_and_a_norm_of_its_own():
    rows = rewarded(random_rows(4))
    policy = WithCritic()
    trainer = trainer_of(policy, lr=1e-3, value={"lr": 5e-2, "clip": None}, grad_clip=1e-3)
    groups = trainer._optimizer.param_groups
    assert [(g["critic"], g["lr"]) for g in groups] == [(False, 1e-3)] * 2 + [(True, 5e-2)] * 2
    held = [id(p) for g in groups for p in g["params"]]
    assert sorted(held) == sorted(id(p) for p in policy.parameters())
    batch = plan_minibatches(rows)
    seen: dict[str, float] = {}

    def note(*_: object) -> None:
        for name in ("model", "critic_model"):
            norms = [grad_of(p).norm() for n, p in policy.named_parameters() if n.startswith(f"{name}.")]
            seen[name] = float(torch.stack(norms).norm())

    trainer._optimizer.register_step_pre_hook(note)
    trainer.train(batch)
    # Clipped apart: each has (nearly, beside the head's part of the critic's) the whole norm to itself
    assert seen["model"] == pytest.approx(1e-3, rel=1e-3)
    assert 5e-4 < seen["critic_model"] <= 1e-3 + 1e-9


def test_runners_neither_hold_nor_receive_it():
    learner, runner = module(critic=OTHER), module(critic=OTHER, inference_only=True)
    assert not hasattr(runner, "value_head") and getattr(runner, "critic_model", None) is None
    sent = learner.get_state(inference_only=True)
    assert not any(name.startswith(("critic_model", "value_head")) for name in sent)
    runner.set_state(sent)
    runner.set_state(learner.get_state())
    assert torch.equal(runner.hidden(IDS), learner.hidden(IDS))
    kept = learner.get_state()
    assert any(name.startswith("critic_model.") for name in kept)
    again = module(critic={**OTHER, "seed": 3})
    again.set_state(kept)
    assert torch.equal(again.critic_hidden(IDS), learner.critic_hidden(IDS))


def test_another_vocabulary_is_refused(tmp_path: Any):
    from chat_tokenizers import chatml_tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = chatml_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="other tokens"):
        module(critic={"path": str(tmp_path)})


def test_what_has_no_effect_is_refused():
    def sections(run: str, **changes: Any) -> Any:
        config = algorithm_class(run).get_default_config()
        return config.update_from_dict({"env": "bandit", **changes}).sections()

    with pytest.raises(InputError, match=r"config\.critic: has no effect"):
        sections("GRPO", critic={"preset": "tiny"})
    with pytest.raises(InputError, match=r"learner\.value\.lr: has no effect"):
        sections("GRPO", learner={"value": {"lr": 1e-3}})
    with pytest.raises(InputError, match=r"config\.critic\.lora"):
        sections("PPO_LLM", critic={"preset": "tiny", "lora": {}})
    with pytest.raises(InputError, match=r"config\.critic\.pth: unknown key"):
        sections("PPO_LLM", critic={"pth": "x"})
    mine = sections("PPO_LLM", critic={"preset": "tiny", "hidden_size": 64}, lr=2e-3)
    assert mine.module_config()["critic"]["hidden_size"] == 64
    assert mine.learner_setup().settings.value.lr == 2e-3
    assert sections("PPO_LLM").learner_setup().settings.value.lr is None
