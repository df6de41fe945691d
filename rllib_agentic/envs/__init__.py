"""Environments: the protocol their authors write, and the clients that drive them anywhere."""

from rllib_agentic.envs.client import check_env_config, make_client
from rllib_agentic.envs.env import Env, EnvSchema, Observation, StepResult
from rllib_agentic.envs.session import EnvClient, EnvSession
from rllib_agentic.envs.settings import EnvSettings

__all__ = [
    "Env",
    "EnvClient",
    "EnvSchema",
    "EnvSession",
    "EnvSettings",
    "Observation",
    "StepResult",
    "check_env_config",
    "make_client",
]
