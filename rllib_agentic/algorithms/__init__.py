"""The algorithm over RLlib, its configuration, and one small file a preset."""

from rllib_agentic.algorithms.presets import PRESETS, algorithm_class

__all__ = ["PRESETS", "algorithm_class"]
