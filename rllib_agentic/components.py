"""Component families: a dict of typed settings per family, chosen by a ``type`` key, open to third parties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from rllib_agentic.errors import InputError, did_you_mean

SettingsT = TypeVar("SettingsT", bound="Settings")
_TYPES = {
    "float": "a number",
    "int": "an integer",
    "bool": "true or false",
    "str": "text",
    "dict[str,any]": "a mapping",
}
"""Where pydantic puts the types that a value was tried as behind its place, and what they are called here."""


class Settings(BaseModel):
    """Base of every typed setting: unknown keys are refused, instances are frozen, defaults are checked too.

    A component *is* its settings: a frozen model with a method, so that a YAML mapping, its validation and its
    behaviour stand in one small class.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Family(Generic[SettingsT]):
    """One family of components, for example all advantage estimators.

    Args:
        name: what the family is called in messages and in YAML, for example ``"filters"``.
        members: ``type`` to class, or to ``"module:Class"`` where importing is costly.

    Third parties add members through the entry point group ``rllib_agentic.<name>``.
    """

    def __init__(self, name: str, members: Mapping[str, type[SettingsT] | str]) -> None:
        self.name = name
        self._members: dict[str, type[SettingsT] | str] = dict(members)
        self._searched_entry_points = False

    def __iter__(self) -> Iterator[str]:
        """All type names, third parties' included."""
        self._search_entry_points()
        return iter(sorted(self._members))

    def add(self, type_name: str, member: type[SettingsT] | str) -> None:
        """Add a member.

        Raises:
            InputError: the name is taken by another member.
        """
        if self._members.get(type_name, member) != member:
            raise InputError(f"{self.name}: the type {type_name!r} exists already ({self._members[type_name]!r})")
        self._members[type_name] = member

    def get(self, type_name: str) -> type[SettingsT]:
        """The class of one type.

        Raises:
            InputError: no such type; the message lists the known ones.
        """
        member = self._members.get(type_name)
        if member is None:
            self._search_entry_points()
            member = self._members.get(type_name)
        if member is None:
            raise InputError(f"{self.name}: unknown type {type_name!r}. {did_you_mean(type_name, self)}")
        if isinstance(member, str):
            module, _, attribute = member.partition(":")
            member = getattr(import_module(module), attribute)
            self._members[type_name] = member
        return member

    def name_of(self, component: Settings) -> str:
        """The type name of a component that this family made.

        Raises:
            ValueError: no member is of its class.
        """
        for name in self:
            if self.get(name) is type(component):
                return name
        raise ValueError(f"{self.name}: {type(component).__name__} is no member")

    def parse(self, spec: Mapping[str, Any] | str | Settings, where: str | None = None) -> SettingsT:
        """Make a component from its YAML form: ``{type: NAME, ...}``, or just ``NAME`` for all defaults.

        Raises:
            InputError: unknown type or key, wrong value; the message names key, value and what was expected.
        """
        where = where or self.name
        if isinstance(spec, Settings):
            return spec  # type: ignore[return-value]
        if isinstance(spec, str):
            spec = {"type": spec}
        if not isinstance(spec, Mapping):
            raise InputError(f"{where}: expected a mapping with a 'type' key, got {spec!r}")
        if "type" not in spec:
            raise InputError(f"{where}: the key 'type' is missing. Known: {', '.join(self)}.")
        if not isinstance(spec["type"], str):
            raise InputError(f"{where}: 'type' must be a name, got {spec['type']!r}. Known: {', '.join(self)}.")
        return parse_settings(self.get(spec["type"]), {k: v for k, v in spec.items() if k != "type"}, where)

    def _search_entry_points(self) -> None:
        if not self._searched_entry_points:
            self._searched_entry_points = True
            for point in entry_points(group=f"rllib_agentic.{self.name}"):
                self.add(point.name, point.value)


def parse_settings(cls: type[SettingsT], spec: Mapping[str, Any], where: str) -> SettingsT:
    """Validate a mapping against a settings class, with messages for people.

    Raises:
        InputError: every fault in one message, a line each: the full key, what came, what was expected.

    Example:
        >>> class Rollout(Settings):
        ...     max_turns: int = 10
        >>> parse_settings(Rollout, {"max_turn": 3}, "rollout")
        Traceback (most recent call last):
        rllib_agentic.errors.InputError: rollout.max_turn: unknown key. Did you mean 'max_turns'? Known: max_turns.
    """
    if not isinstance(spec, Mapping):
        raise InputError(f"{where}: expected a mapping, got {spec!r}. Known keys: {', '.join(cls.model_fields)}.")
    try:
        return cls.model_validate(dict(spec))
    except ValidationError as error:
        raise InputError("\n".join(_explain(cls, where, fault) for fault in _one_a_value(error.errors()))) from None


def _one_a_value(faults: Sequence[Any]) -> list[Any]:
    """The faults, with one instead of several for a value that may be of several types and is of none."""
    told: dict[tuple[Any, ...], Any] = {}
    for fault in faults:
        place = fault["loc"]
        if place and place[-1] in _TYPES:
            place = place[:-1]
            before = told.get(place)
            wanted = _TYPES[fault["loc"][-1]] if before is None else f"{before['wanted']} or {_TYPES[fault['loc'][-1]]}"
            told[place] = {**fault, "loc": place, "wanted": wanted, "msg": f"expected {wanted}"}
        else:
            told[place] = fault
    return list(told.values())


def _explain(cls: type[BaseModel], where: str, fault: Any) -> str:
    path = [str(part) for part in fault["loc"]]
    key = ".".join([where, *path])
    if fault["type"] == "extra_forbidden":
        owner = cls
        for part in path[:-1]:
            annotation = owner.model_fields[part].annotation if part in owner.model_fields else None
            options = [option for option in (annotation, *get_args(annotation)) if isinstance(option, type)]
            below = next((option for option in options if issubclass(option, BaseModel)), None)
            if below is None:
                break
            owner = below
        return f"{key}: unknown key. {did_you_mean(path[-1], owner.model_fields)}"
    if fault["type"] == "missing":
        return f"{key}: this key is required"
    message = fault["msg"].removeprefix("Value error, ")
    return f"{key}: {message} (got {fault['input']!r})" if path else f"{where}: {message}"
