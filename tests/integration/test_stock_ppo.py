"""LLMTorchRLModule in RLlib's own PPO, on TokenEnv, with the runner in a process of its own."""

import numpy as np
import pytest
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from transformers import AutoModelForCausalLM

from rllib_agentic.envs.token_env import TokenEnv
from rllib_agentic.rl_module import LLMTorchRLModule, export_hf

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def cluster():
    ray.init(address="local", num_cpus=2, object_store_memory=100_000_000, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_stock_ppo_trains_it_syncs_it_and_saves_it(cluster, dtype, tmp_path):
    model = {"preset": "tiny", "hidden_size": 16, "num_layers": 1, "num_heads": 2, "seed": 0, "dtype": dtype}
    config = (
        PPOConfig()
        .environment(TokenEnv, env_config={"env": "bandit", "max_context_tokens": 96})
        .env_runners(num_env_runners=1, num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=32, minibatch_size=16, num_epochs=1, lr=0.01)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=LLMTorchRLModule, model_config=model))
        .debugging(seed=0)
    )
    algorithm = config.build_algo()
    try:
        learner = algorithm.learner_group._learner.module[DEFAULT_MODULE_ID]
        before = learner.get_state()
        results = algorithm.train()
        after = learner.get_state()
        (runner,) = algorithm.env_runner_group.foreach_env_runner(
            lambda runner: (runner.module.get_state(), hasattr(runner.module, "value_head")), local_env_runner=False
        )
        # RLlib's own learner cannot save an optimizer's state in bf16, so only the module is saved there.
        (algorithm if dtype == "float32" else learner).save_to_path(str(tmp_path / "checkpoint"))
    finally:
        algorithm.stop()

    assert results["env_runners"]["num_env_steps_sampled"] >= 32
    assert np.isfinite(results["learners"][DEFAULT_MODULE_ID]["total_loss"])
    assert results["env_runners"]["episode_len_mean"] >= 2  # a name and the end of the turn
    assert not all(np.array_equal(before[name], after[name]) for name in before)
    state, has_critic = runner
    assert not has_critic
    assert state.keys() == {name for name in after if not name.startswith("value_head.")}
    assert all(np.array_equal(state[name], after[name]) for name in state)

    exported = AutoModelForCausalLM.from_pretrained(export_hf(tmp_path / "checkpoint", tmp_path / "out"))
    ids = torch.arange(9)[None]
    assert all(torch.equal(a, b) for a, b in zip(exported.parameters(), learner.model.parameters(), strict=True))
    with torch.no_grad():
        torch.testing.assert_close(exported(ids).logits, learner.model(ids).logits)
