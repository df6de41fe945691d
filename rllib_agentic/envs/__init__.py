"""Environments: the protocol their authors write, and the clients that drive them anywhere."""

from rllib_agentic.envs.env import Env, EnvSchema, Observation, StepResult
from rllib_agentic.envs.session import EnvClient, EnvSession

__all__ = ["Env", "EnvClient", "EnvSchema", "EnvSession", "Observation", "StepResult"]
