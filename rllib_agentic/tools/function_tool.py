"""Tools from typed functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints, overload

from docstring_parser import DocstringStyle
from docstring_parser import parse as parse_docstring
from pydantic import BaseModel, ConfigDict, Field, PydanticSchemaGenerationError, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema

from rllib_agentic.envs.threads import BlockingCalls
from rllib_agentic.errors import AgenticError, InputError
from rllib_agentic.tools.output import result_text
from rllib_agentic.tools.tool import ToolError, ToolResult

_THREADS = BlockingCalls("tool")
SelfT = TypeVar("SelfT", bound="FunctionTool")


class FunctionTool:
    """A :class:`~rllib_agentic.tools.tool.Tool` made by :func:`tool`. In a class body it is a method's tool."""

    def __init__(self, function: Callable[..., Any], name: str, errors: tuple[type[Exception], ...]) -> None:
        self._function = function
        self._errors = errors
        self._owner: Any = None
        self.name = name
        where = f"@tool {function.__qualname__}"
        doc = parse_docstring(inspect.getdoc(function) or "", DocstringStyle.GOOGLE)
        self.description = "\n\n".join(filter(None, (doc.short_description, doc.long_description)))
        if not self.description:
            raise InputError(f"{where}: a docstring is needed, it tells the agent what the tool does")
        about = {param.arg_name: (param.description or "").replace("\n", " ") for param in doc.params}
        self._is_method, self._model = _arguments_model(function, where, about)
        try:
            self.parameters: Mapping[str, Any] = _without_titles(self._model.model_json_schema())
        except PydanticInvalidForJsonSchema as error:
            raise InputError(f"{where}: a parameter's type has no JSON-Schema: {error.message}") from error

    def __get__(self: SelfT, owner: Any, cls: type) -> SelfT:
        if owner is None:
            return self
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__, _owner=owner)
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, as if it had never been decorated."""
        return self._function(*([] if self._owner is None else [self._owner]), *args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    async def execute(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Call the function with the arguments in its own types; a function that is not async runs in a thread.

        Raises:
            ToolError: the arguments do not fit, or the function raised it or one of the declared errors.
        """
        if self._is_method and self._owner is None:
            raise TypeError(f"tool {self.name!r} is a method's: reach it through an object")
        try:
            model = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            raise ToolError("; ".join(_explain(fault) for fault in error.errors())) from error
        values = {name: getattr(model, name) for name in model.model_fields_set}
        try:
            if inspect.iscoroutinefunction(self._function):
                value = await self(**values)
            else:
                value = await _THREADS.run(lambda: self(**values))
        except AgenticError:
            raise
        except self._errors as error:
            raise ToolError(result_text(error)) from error
        return value if isinstance(value, ToolResult) else ToolResult(result_text(value))


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *, name: str | None = None, errors: tuple[type[Exception], ...] = (ValueError,)
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    errors: tuple[type[Exception], ...] = (ValueError,),
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool from a typed function, sync or async, with a Google docstring.

    The schema follows from the types (whatever pydantic knows; ``Annotated[int, Field(ge=1)]`` for limits), what the
    agent reads of it from the docstring. The function gets the arguments in its types (``3.0`` comes as 3 where an int
    is asked for). It may return anything: see :func:`~rllib_agentic.tools.output.result_text`; or a
    :class:`~rllib_agentic.tools.tool.ToolResult`. A function that is not async runs in a thread; one that passes its
    time limit goes on there, unheard.

    In a class body it decorates a method (first parameter ``self``): ``object.method`` is then the object's own tool.

    Args:
        function: the function.
        name: the tool's name; the function's where None.
        errors: exceptions that tell the agent that its arguments are wrong; they become a
            :class:`~rllib_agentic.tools.tool.ToolError` with type and message. All others end the episode as invalid.

    Raises:
        InputError: no docstring, a parameter without type, or with one that JSON cannot describe, ``*args`` or
            ``**kwargs``, or a docstring that describes a parameter that is not there.

    Example:
        >>> import asyncio
        >>> @tool
        ... def power(base: int, exponent: int = 2) -> int:
        ...     '''Raise a number to a power.
        ...
        ...     Args:
        ...         base: the number.
        ...         exponent: the power.
        ...     '''
        ...     return base**exponent
        >>> power.parameters["properties"]["exponent"]
        {'default': 2, 'description': 'the power.', 'type': 'integer'}
        >>> asyncio.run(power.execute({"base": 3})).text
        '9'
    """

    def make(decorated: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(decorated, name or decorated.__name__, errors)

    return make if function is None else make(function)


def _arguments_model(
    function: Callable[..., Any], where: str, about: Mapping[str, str]
) -> tuple[bool, type[BaseModel]]:
    parameters = list(inspect.signature(function).parameters.values())
    is_method = bool(parameters) and parameters[0].name == "self"
    parameters = parameters[is_method:]
    if unknown := set(about) - {parameter.name for parameter in parameters}:
        raise InputError(f"{where}: the docstring describes {sorted(unknown)}, which are no parameters")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InputError(f"{where}: a type is not known where the function is defined: {error}") from error
    fields: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InputError(f"{where}: {parameter} cannot be filled by name; give every parameter a name of its own")
        if parameter.name not in hints:
            raise InputError(f"{where}: parameter {parameter.name!r} has no type; the schema is made of types")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], Field(default, description=about.get(parameter.name) or None))
    try:
        config = ConfigDict(extra="forbid", protected_namespaces=())
        return is_method, create_model(f"{function.__name__}_arguments", __config__=config, **fields)
    except (PydanticSchemaGenerationError, NameError, TypeError) as error:
        raise InputError(f"{where}: its parameters cannot be described: {error}") from error


def _without_titles(schema: Any) -> Any:
    """Pydantic titles everything by its name, which tells an agent nothing; a property called ``title`` stays."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_titles(part) for name, part in value.items()}
        if key in ("properties", "$defs")
        else _without_titles(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def _explain(fault: Any) -> str:
    at = ".".join(str(part) for part in fault["loc"])
    return f"argument {at!r}: {fault['msg']}" if at else str(fault["msg"])
