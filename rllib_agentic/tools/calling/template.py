"""Calls as the model's own chat template writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rllib_agentic.tools.calling.format import Output
from rllib_agentic.tools.calling.hermes import Hermes, json_call
from rllib_agentic.tools.calling.reading import BadCall, Call
from rllib_agentic.tools.tool import Tool
from rllib_agentic.trajectory.message import Message


class Template(Hermes):
    """The chat template shows the tools to the agent and wraps the outputs; nothing of ours does.

    The rollout finds out from the template how it writes calls, and hands them over between the tags of
    :class:`~rllib_agentic.tools.calling.hermes.Hermes`, whatever the template's own are: one object, or a list of
    them; ``parameters`` is read like ``arguments``.
    """

    in_template: ClassVar[bool] = True

    def stop_strings(self, names: Sequence[str]) -> tuple[str, ...]:
        """None: the agent ends its turn itself, whatever the template's own marks are."""
        return ()

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Nothing: the template's words stand."""
        return ""

    def messages(self, outputs: Sequence[Output]) -> tuple[Message, ...]:
        """One message of the role ``tool`` an output."""
        return tuple(Message("tool", output.text, name=output.name or None) for output in outputs)

    def _calls(self, payload: Any) -> tuple[Call | BadCall, ...]:
        payloads = payload if isinstance(payload, list) and payload else [payload]
        return tuple(json_call(one, self.name_key, self._arguments_key_of(one)) for one in payloads)

    def _arguments_key_of(self, payload: Any) -> str:
        other = isinstance(payload, dict) and self.arguments_key not in payload and "parameters" in payload
        return "parameters" if other else self.arguments_key
