"""JSON-Schemas of tools: checked when a tool is taken in, and held against every call."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

from rllib_agentic.errors import InputError
from rllib_agentic.tools.tool import Tool

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}")


class ArgumentsCheck:
    """Holds arguments against one tool's schema.

    Types are JSON's: ``true`` is no integer, ``3.0`` is one (JSON-Schema 2020-12, 6.1.1), ``"3"`` is not.

    Args:
        tool: its ``parameters`` may name a dialect by ``$schema``; 2020-12 where they do not.

    Raises:
        InputError: ``parameters`` is no JSON-Schema, or not one of an object.

    Example:
        >>> from rllib_agentic.tools import tool
        >>> @tool
        ... def add(a: int, b: int) -> int:
        ...     '''Add two numbers.'''
        ...     return a + b
        >>> ArgumentsCheck(add).fault({"a": 1, "b": "2"})
        "argument 'b': '2' is not of type 'integer'"
    """

    def __init__(self, tool: Tool) -> None:
        schema = tool.parameters
        where = f"tool {tool.name!r}: parameters"
        if not isinstance(schema, Mapping):
            raise InputError(f"{where} must be a JSON-Schema, a mapping, got {schema!r:.120}")
        try:
            self._validator = _validator(json.dumps(schema, default=_plain))
        except SchemaError as error:
            at = ".".join(str(part) for part in error.absolute_path) or "its root"
            raise InputError(f"{where} is no JSON-Schema: at {at}: {error.message}") from error
        for reference in _references(schema):
            if not _resolves(reference, schema):
                raise InputError(f"{where}: $ref {reference!r} leads nowhere within the schema")
        if schema.get("type", "object") != "object":
            raise InputError(f"{where} must describe an object, a value for each name, got type {schema['type']!r}")

    def fault(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments, in words that name the argument; None where nothing is."""
        error = best_match(self._validator.iter_errors(arguments))
        return None if error is None else _explain(error)


def tool_definition(tool: Tool) -> dict[str, Any]:
    """A tool as chat templates and OpenAI's interface take it: ``{"type": "function", "function": {...}}``."""
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
    }


def check_tools(tools: Sequence[Tool]) -> dict[str, ArgumentsCheck]:
    """Refuse what cannot work before an episode begins.

    Returns:
        The check of every tool's arguments, by name, in the order given.

    Raises:
        InputError: something is no tool, a name cannot be called or stands twice, or a schema is none.
    """
    checks: dict[str, ArgumentsCheck] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            raise InputError(f"tools: expected a Tool (name, description, parameters, execute), got {tool!r:.120}")
        if not isinstance(tool.name, str) or not _NAME.fullmatch(tool.name):
            raise InputError(
                f"tools: {tool.name!r} cannot be a tool's name; use letters, digits, and _ . / -, 128 at most"
            )
        if tool.name in checks:
            raise InputError(f"tools: two tools are called {tool.name!r}; rename one of them")
        checks[tool.name] = ArgumentsCheck(tool)
    return checks


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Validator:
    """Checking a schema takes milliseconds, and environments take in the same tools at every reset."""
    content = json.loads(schema)
    kind: type[Validator] = validator_for(content, default=Draft202012Validator)
    kind.check_schema(content)
    return kind(content)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _explain(error: ValidationError) -> str:
    if not error.absolute_path:
        return f"{error.message:.300}"
    at = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    return f"argument {at!r}: {error.message:.300}"


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _references(part)


def _resolves(reference: str, schema: Any) -> bool:
    if not reference.startswith("#"):
        return False
    for key in reference.removeprefix("#").split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list) and key.isdigit() and int(key) < len(schema):
            schema = schema[int(key)]
        elif isinstance(schema, Mapping) and key in schema:
            schema = schema[key]
        else:
            return False
    return True
