"""From a call as it was written to the arguments that its tool takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_agentic.tools.calling.reading import Call
from rllib_agentic.tools.calling.strict_json import JsonFault, decode


class ArgumentsFault(ValueError):
    """The call does not fit its tool; the message is for the agent."""


def bind_arguments(call: Call, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Give every value of a call its parameter's name, and read texts as the schema wants them.

    Values without a name fill the parameters in the schema's order, the required ones first. In formats that write
    plain text, a text stays a text where the schema takes one; elsewhere it is read as JSON, and stays as it is where
    it is none.

    Raises:
        ArgumentsFault: more values than parameters, or one parameter twice.

    Example:
        >>> schema = {"properties": {"k": {"type": "integer"}, "query": {"type": "string"}}, "required": ["query"]}
        >>> bind_arguments(Call("search", positional=("42", "3"), as_text=True), schema)
        {'query': '42', 'k': 3}
    """
    properties: Mapping[str, Any] = parameters.get("properties", {})
    required = [name for name in parameters.get("required", ()) if name in properties]
    order = [*required, *(name for name in properties if name not in required)]
    if len(call.positional) > len(order):
        raise ArgumentsFault(f"{len(call.positional)} values were given; {call.name} takes {len(order)}: {order}")
    arguments = dict(zip(order, call.positional, strict=False))
    if twice := [name for name in call.arguments if name in arguments]:
        raise ArgumentsFault(f"argument {twice[0]!r} is given twice")
    arguments |= call.arguments
    if not call.as_text:
        return arguments
    return {name: _read(value, properties.get(name, {})) for name, value in arguments.items()}


def _read(value: Any, schema: Any) -> Any:
    if not isinstance(value, str) or _takes_text(schema):
        return value
    try:
        return decode(value)
    except JsonFault:
        return value


def _takes_text(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return True
    kinds = schema.get("type")
    if kinds is not None:
        return kinds == "string" or (isinstance(kinds, list) and "string" in kinds)
    if "enum" in schema or "const" in schema:
        return any(isinstance(option, str) for option in schema.get("enum", [schema.get("const")]))
    parts = [part for key in ("anyOf", "oneOf") for part in schema.get(key, ())]
    return any(_takes_text(part) for part in parts) if parts else "$ref" not in schema
