"""The package's services, as tools."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from rllib_agentic.tools import ToolResult
from serve_envs.bfcl.calls import GoldCall
from serve_envs.bfcl.scenarios import Scenario, data_folder

_SOURCES = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}

# With long contexts the services answer from dicts that the whole process shares: read out before anyone else calls.
_LOCK = threading.Lock()


class Services:
    """The services of one scenario, with their own state.

    Args:
        scenario: which services, and their first state.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.instances: dict[str, Any] = {}
        for name in scenario.services:
            instance = getattr(import_module(f"{_SOURCES}.{_MODULES[name]}"), name)()
            if name != "MathAPI":  # the one without a state
                state = copy.deepcopy(scenario.state.get(name, {}))
                instance._load_scenario(state, long_context=scenario.long_context)
            self.instances[name] = instance

    def call(self, name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> str:
        """Call a function and put its result into words, as the package does; its errors are results too."""
        function = self._function(name)
        with _LOCK:
            try:
                return _in_words(function(*positional, **named))
            except Exception as error:  # the functions check little: whatever they raise is the agent's fault
                return f"Error during execution: {error}"

    def _function(self, name: str) -> Callable[..., Any]:
        return next(found for one in self.instances.values() if (found := getattr(one, name, None)) is not None)


class ServiceTool:
    """One function of a service.

    Args:
        document: the package's description of it.
        call: calls a function by name, and takes note of it.
    """

    def __init__(self, document: Mapping[str, Any], call: Callable[[str, Mapping[str, Any]], str]) -> None:
        self.name: str = document["name"]
        self.description: str = document["description"]
        self.parameters: Mapping[str, Any] = document["parameters"]
        self._call = call

    async def execute(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Call the function."""
        return ToolResult(self._call(self.name, arguments))


@cache
def documents(service: str) -> tuple[Mapping[str, Any], ...]:
    """The package's descriptions of a service's functions, their parameters in JSON-Schema's words."""
    path = data_folder() / "multi_turn_func_doc" / f"{_MODULES[service]}.json"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return tuple({**line, "parameters": _schema(line["parameters"])} for line in lines)


@cache
def service_names() -> tuple[str, ...]:
    """All eight services."""
    return tuple(_MODULES)


def with_names(call: GoldCall, services: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of a right call, each under its name.

    Args:
        call: the call.
        services: where the function is to be looked for.
    """
    document = next(one for service in services for one in documents(service) if one["name"] == call.name)
    names = list(document["parameters"].get("properties", {}))
    return dict(zip(names, call.positional, strict=False)) | call.named


def _schema(given: Any) -> Any:
    """The package's types in JSON-Schema's words."""
    if isinstance(given, list):
        return [_schema(item) for item in given]
    if not isinstance(given, dict):
        return given
    schema = {key: _schema(value) for key, value in given.items() if key != "properties"}
    if isinstance(schema.get("type"), str):
        schema["type"] = _TYPES.get(schema["type"], schema["type"])
        if schema["type"] == "any":
            del schema["type"]
    if isinstance(given.get("properties"), dict):
        schema["properties"] = {name: _schema(value) for name, value in given["properties"].items()}
    return schema


def _in_words(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        try:
            return json.dumps(value)
        except (TypeError, ValueError):
            return str(value)
    return str(value)
