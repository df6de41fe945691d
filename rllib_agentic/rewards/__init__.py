"""What training takes for the reward of a turn: the environment's, its components by weight, and parts of its own."""

from rllib_agentic.rewards.overlong import OverlongPunishment
from rllib_agentic.rewards.settings import OutcomeReward, RewardSettings

__all__ = ["OutcomeReward", "OverlongPunishment", "RewardSettings"]
