"""Reinforcement learning of LLM agents over long horizons, native to Ray RLlib."""
