"""The languages that a service at a URL may speak, beside our own."""

from __future__ import annotations

from rllib_agentic.components import Family
from rllib_agentic.envs.foreign import ForeignSettings

DIALECTS: Family[ForeignSettings] = Family(
    "dialects",
    {
        "agentgym": "rllib_agentic.envs.agentgym:AgentGymDialect",
        "openenv": "rllib_agentic.envs.openenv:OpenEnvDialect",
    },
)
"""``env_config.dialect`` by ``type``. A member has ``client(url, env_name, retries)``, which makes an EnvClient."""
