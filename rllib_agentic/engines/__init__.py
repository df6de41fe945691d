"""Engines sample turns: in-process (``hf``), on vLLM, or scripted for tests.

``HFEngine`` is imported from ``rllib_agentic.engines.hf``, so that this package stays free of torch.
"""

from rllib_agentic.engines.engine import Completion, Engine, GenerationRequest
from rllib_agentic.engines.legal_tokens import ActionTries, TokenTrie
from rllib_agentic.engines.scripted import ScriptedEngine

__all__ = ["ActionTries", "Completion", "Engine", "GenerationRequest", "ScriptedEngine", "TokenTrie"]
