"""Tool calls as text, for experts and random baselines of environments that are used through tools."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from rllib_agentic.tools import Tool, ToolUse


def write_call(use: ToolUse, name: str, arguments: Mapping[str, Any]) -> str:
    r"""One call, in the format that the environment reads.

    Raises:
        InputError: the format has no way to call this tool.

    Example:
        >>> write_call(ToolUse(), "add", {"a": 1})
        '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    """
    return use.calling.write(name, arguments)


def random_call(use: ToolUse, tools: Sequence[Tool], words: Sequence[Any], draw: random.Random) -> str:
    """A call of some tool whose arguments fit their schema.

    Args:
        use: how calls are written.
        tools: what can be called.
        words: values of the world to draw arguments from, where their type fits.
        draw: the source of chance.
    """
    tool = draw.choice(list(tools))
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", ())
    chosen = [name for name in properties if name in required or draw.random() < 0.5]
    return write_call(use, tool.name, {name: _value(properties[name], words, draw) for name in chosen})


def _value(schema: Mapping[str, Any], words: Sequence[Any], draw: random.Random) -> Any:
    options = schema.get("enum") or [schema["const"]] if "const" in schema else schema.get("enum")
    if options:
        return draw.choice(list(options))
    if "anyOf" in schema:
        return _value(draw.choice(list(schema["anyOf"])), words, draw)
    kind = schema.get("type", "string")
    if kind == "array":
        return [_value(schema.get("items", {}), words, draw) for _ in range(draw.randint(1, 3))]
    if kind == "object":
        return {}
    if kind == "null":
        return None
    if kind == "boolean":
        return draw.random() < 0.5
    if kind in ("integer", "number") and "minimum" in schema and "maximum" in schema:
        return draw.randint(schema["minimum"], schema["maximum"])
    if kind in ("integer", "number"):
        numbers = [word for word in words if isinstance(word, int | float) and not isinstance(word, bool)]
        fitting = [number for number in numbers if kind == "number" or isinstance(number, int)]
        return draw.choice(fitting) if fitting else draw.randint(0, 10)
    texts = [word for word in words if isinstance(word, str)]
    return draw.choice(texts) if texts else "x"
