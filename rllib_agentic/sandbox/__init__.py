"""Model-written Python runs here, without network and files, under limits, and nowhere else."""

from rllib_agentic.sandbox.observation import OutputShape
from rllib_agentic.sandbox.sandbox import Execution, Sandbox, Session
from rllib_agentic.sandbox.settings import SandboxSettings
from rllib_agentic.sandbox.warm import WarmSandbox

__all__ = ["Execution", "OutputShape", "Sandbox", "SandboxSettings", "Session", "WarmSandbox"]
