"""Episodes: how they are planned, limited, played, and gathered."""

from rllib_agentic.rollout.episode import EpisodePlan, Rollout
from rllib_agentic.rollout.group import plan_group, play
from rllib_agentic.rollout.limits import RolloutSettings

__all__ = ["EpisodePlan", "Rollout", "RolloutSettings", "plan_group", "play"]
