"""Call formats, chosen by ``type``."""

from rllib_agentic.components import Family
from rllib_agentic.tools.calling.code_as_action import CodeAsAction
from rllib_agentic.tools.calling.fenced import Fenced
from rllib_agentic.tools.calling.format import CallFormat
from rllib_agentic.tools.calling.function import FunctionJson
from rllib_agentic.tools.calling.hermes import Hermes
from rllib_agentic.tools.calling.react import ReAct
from rllib_agentic.tools.calling.reading import BadCall, Call, Reading
from rllib_agentic.tools.calling.template import Template
from rllib_agentic.tools.calling.xml import XmlTags

CALLING: Family[CallFormat] = Family(
    "calling",
    {
        "code_as_action": CodeAsAction,
        "fenced": Fenced,
        "function": FunctionJson,
        "hermes": Hermes,
        "react": ReAct,
        "template": Template,
        "xml": XmlTags,
    },
)

__all__ = ["CALLING", "BadCall", "Call", "CallFormat", "Reading"]
