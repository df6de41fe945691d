"""Chat formats as token ids."""

from rllib_agentic.rendering.chatml import ChatMLRenderer
from rllib_agentic.rendering.choose import renderer_for
from rllib_agentic.rendering.hf_template import HFTemplateRenderer
from rllib_agentic.rendering.renderer import Exchange, Renderer

__all__ = ["ChatMLRenderer", "Exchange", "HFTemplateRenderer", "Renderer", "renderer_for"]
