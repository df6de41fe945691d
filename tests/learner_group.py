"""RLlib learners over the tiny preset, without an algorithm around them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rllib_agentic.learner.agentic_learner import AgenticLearner
from rllib_agentic.learner.settings import LearnerSettings, LearnerSetup
from rllib_agentic.losses.policy import PPOClip
from rllib_agentic.rl_module.llm_rl_module import LLMTorchRLModule


class LearnerOnlyConfig(AlgorithmConfig):
    """The least that a learner needs; ``sections()`` as AgenticConfig has it."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Box(0, 1, (1,))
        self.action_space = gym.spaces.Discrete(2)
        self.learner_section: dict[str, Any] = {}
        self.critic: Any = None
        self.model_dtype = "float32"

    def sections(self) -> LearnerOnlyConfig:
        return self

    def learner_setup(self) -> LearnerSetup:
        settings = LearnerSettings.model_validate({"lr": 1e-2, "grad_clip": None, **self.learner_section})
        return LearnerSetup(settings, PPOClip(), 1.0, self.critic)

    def get_default_learner_class(self) -> type:
        return AgenticLearner

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        model = {
            "preset": "tiny", "seed": 0, "hidden_size": 16, "num_layers": 1, "num_heads": 2,
            "value_head": self.critic is not None, "dtype": self.model_dtype,
        }  # fmt: skip
        return RLModuleSpec(module_class=LLMTorchRLModule, model_config=model)


def learner_config(
    num_learners: int = 0, critic: Any = None, dtype: str = "float32", **section: Any
) -> AlgorithmConfig:
    config = LearnerOnlyConfig()
    config.learner_section = section
    config.critic = critic
    config.model_dtype = dtype
    return config.learners(num_learners=num_learners, num_gpus_per_learner=0).framework("torch")
