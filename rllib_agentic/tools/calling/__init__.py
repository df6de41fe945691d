"""Call formats, chosen by ``type``."""

from rllib_agentic.components import Family
from rllib_agentic.tools.calling.format import CallFormat
from rllib_agentic.tools.calling.hermes import Hermes
from rllib_agentic.tools.calling.reading import BadCall, Call, Reading

CALLING: Family[CallFormat] = Family("calling", {"hermes": Hermes})

__all__ = ["CALLING", "BadCall", "Call", "CallFormat", "Hermes", "Reading"]
