"""Chat formats as token ids."""

from rllib_agentic.rendering.renderer import Renderer

__all__ = ["Renderer"]
