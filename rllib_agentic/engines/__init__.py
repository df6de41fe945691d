"""Engines sample turns: in-process (``hf``), on vLLM, or scripted for tests."""

from rllib_agentic.engines.engine import Completion, Engine, GenerationRequest

__all__ = ["Completion", "Engine", "GenerationRequest"]
