"""Every key of the configuration, read off the settings classes: name, default, allowed values, meaning."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from docstring_parser import parse
from pydantic.fields import FieldInfo

from rllib_agentic.components import Settings
from rllib_agentic.tracking.params import plain

_ROLE = re.compile(r":\w+:`~?([\w.]+)`")


class Key(NamedTuple):
    """One key. ``default`` is None where the key must be given."""

    name: str
    default: str | None
    values: str
    about: str


def about(cls: type[Settings]) -> str:
    """What a settings class says of itself, in one sentence."""
    return _plain_text(parse(cls.__doc__ or "").short_description)


def keys_of(cls: type[Settings], prefix: str = "") -> Iterator[Key]:
    """The keys of a settings class, those of nested settings under their path."""
    documented = {
        name.strip(): _plain_text(entry.description)
        for entry in parse(cls.__doc__ or "").params
        for name in entry.arg_name.split(",")
    }
    for name, field in cls.model_fields.items():
        nested = [part for part in _parts(field.annotation) if isinstance(part, type) and issubclass(part, Settings)]
        text = documented.get(name) or field.description or ""
        yield Key(f"{prefix}{name}", _default(field), _values(field), text)
        for inner in nested:
            yield from keys_of(inner, f"{prefix}{name}.")


def _plain_text(text: str | None) -> str:
    """One line, with marks of code as in Markdown."""
    return _ROLE.sub(r"`\1`", " ".join((text or "").split())).replace("``", "`")


def _default(field: FieldInfo) -> str | None:
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, Settings):
        return "its keys' defaults"
    value = plain(value)
    return value if isinstance(value, str) else json.dumps(value)


def _values(field: FieldInfo) -> str:
    bounds = []
    for limit in field.metadata:
        for sign, name in ((">=", "ge"), (">", "gt"), ("<=", "le"), ("<", "lt")):
            if (bound := getattr(limit, name, None)) is not None:
                bounds.append(f"{sign} {bound:g}")
    return ", ".join([_type_name(field.annotation), *bounds])


def _type_name(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(_type_name(part) for part in get_args(annotation))
    if origin is Literal:
        return " or ".join(str(value) for value in get_args(annotation))
    if origin is not None:
        inner = [part for part in get_args(annotation) if part is not Ellipsis]
        kind = {"tuple": "list", "dict": "mapping", "Mapping": "mapping"}.get(origin.__name__, origin.__name__)
        joined = " to " if kind == "mapping" else ", "
        return f"{kind} of {joined.join(_type_name(part) for part in inner)}"
    if annotation is type(None):
        return "null"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(str(member.value) for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return "mapping"
    return {"str": "text", "int": "integer", "float": "number", "bool": "true or false", "Any": "anything"}.get(
        getattr(annotation, "__name__", ""), getattr(annotation, "__name__", str(annotation))
    )


def _parts(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        return list(get_args(annotation))
    return [annotation]
