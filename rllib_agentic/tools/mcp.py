"""Tools of MCP servers (modelcontextprotocol.io), through the ``mcp`` package."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rllib_agentic.errors import InfrastructureError, InputError, did_you_mean
from rllib_agentic.tools.loop import run_on_tool_loop
from rllib_agentic.tools.mcp_settings import McpServer
from rllib_agentic.tools.tool import ToolError, ToolResult
from rllib_agentic.trajectory.message import dump_json

if TYPE_CHECKING:
    from mcp import Client

_INVALID_PARAMS = -32602  # JSON-RPC 2.0, section 5.1
_CONNECTION_CLOSED = -32000  # the mcp package's own
_shared: dict[str, McpConnection] = {}
_shared_lock = threading.Lock()
_reached: set[str] = set()  # servers that answered once: when they fail later, that is no wrong input


class McpTool:
    """One tool of an MCP server. See :class:`~rllib_agentic.tools.tool.Tool`; made by :class:`McpConnection`."""

    def __init__(
        self, connection: McpConnection, remote_name: str, description: str, schema: Mapping[str, Any]
    ) -> None:
        self._connection = connection
        self._remote_name = remote_name
        self.name = connection.server.prefix + remote_name
        self.description = description
        self.parameters = schema

    async def execute(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Call it.

        Raises:
            ToolError: the tool says that the call failed, or that its arguments are wrong.
            InfrastructureError: ``mcp_failed`` or ``mcp_unreachable``: the server did not do its part.
        """
        return await self._connection.call(self._remote_name, arguments)


class McpConnection:
    """A connection to one MCP server, on the loop on which all tools run; made by :func:`open_mcp`.

    It is opened again by the next call after it broke; the call that found it broken fails.

    Args:
        server: where it is.

    Attributes:
        tools: what it offers, as far as ``server.tools`` takes it.
    """

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.tools: tuple[McpTool, ...] = ()
        self._client: Client | None = None
        self._holder: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Connect and list the tools.

        Raises:
            InputError: a tool that is to be taken is not there.
            InfrastructureError: ``mcp_unreachable``.
        """
        ready: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._holder = asyncio.create_task(self._hold(ready))
        offered = {tool.name: tool for tool in await ready}
        taken = offered if self.server.tools is None else self.server.tools
        if missing := [name for name in taken if name not in offered]:
            await self.leave()
            raise InputError(
                f"mcp: {self.server.address} has no tool {missing[0]!r}. {did_you_mean(missing[0], offered)}"
            )
        self.tools = tuple(
            McpTool(self, name, offered[name].description or "", offered[name].input_schema) for name in taken
        )

    async def leave(self) -> None:
        """Disconnect; a server that was started here is stopped, its children too."""
        self._leave.set()
        if self._holder is not None:
            await asyncio.gather(self._holder, return_exceptions=True)

    def close(self) -> None:
        """Disconnect, unless other environments share the connection; it then stays until the process ends."""
        if self.server.connection == "environment":
            run_on_tool_loop(self.leave())

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool by the server's name for it. See :meth:`McpTool.execute`."""
        from mcp import MCPError

        async with self._opening:
            if self._client is None:
                await self.open()
            client = self._client
        assert client is not None
        try:
            result = await client.call_tool(name, dict(arguments))
        except MCPError as error:
            if error.code == _INVALID_PARAMS:
                raise ToolError(error.message) from error
            if error.code == _CONNECTION_CLOSED:
                self._broken()
            raise InfrastructureError("mcp_failed", f"mcp: {self.server.address}: {name}: {error.message}") from error
        except Exception as error:
            self._broken()
            what = f"{type(error).__name__}: {error}"
            raise InfrastructureError("mcp_failed", f"mcp: {self.server.address}: {name}: {what}") from error
        text = _text_of(result)
        if result.is_error:
            raise ToolError(text)
        return ToolResult(text)

    def _broken(self) -> None:
        self._client = None
        self._leave.set()

    async def _hold(self, ready: asyncio.Future[list[Any]]) -> None:
        """Enter and leave the client in one task, as its cancel scopes demand."""
        leave = self._leave
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.server.connect_timeout_s):
                    client = await _connect(self.server, stack)
                    tools = await _list_tools(client)
                self._client = client
                ready.set_result(tools)
                await leave.wait()
        except BaseException as error:
            if ready.done():
                if isinstance(error, asyncio.CancelledError):
                    raise
                return  # it broke while nobody called; the next call connects anew
            ready.set_exception(_unreachable(self.server, error))
        finally:
            if self._leave is leave:
                self._client = None


def open_mcp(server: McpServer) -> McpConnection:
    """Connect to an MCP server, or take the process's connection to it; for the constructor of an environment.

    Raises:
        InputError: it cannot be reached, is no MCP server, or lacks a tool; or the package ``mcp`` is not installed.
        InfrastructureError: ``mcp_unreachable``: this process has reached it before.
    """
    if find_spec("mcp") is None:
        raise InputError("mcp: the package is not installed here; run: pip install 'rllib-agentic[mcp]'")
    if server.connection == "environment":
        return _opened(server)
    with _shared_lock:
        key = server.model_dump_json()
        if key not in _shared:
            _shared[key] = _opened(server)
        return _shared[key]


@atexit.register
def close_shared_mcp() -> None:
    """Close the connections that environments of this process share; what is opened later connects anew."""
    with _shared_lock:
        for connection in _shared.values():
            run_on_tool_loop(connection.leave())
        _shared.clear()


def _opened(server: McpServer) -> McpConnection:
    connection = McpConnection(server)
    try:
        run_on_tool_loop(connection.open())
    except InfrastructureError as error:
        if server.address in _reached:
            raise
        raise InputError(str(error)) from error
    _reached.add(server.address)
    return connection


async def _connect(server: McpServer, stack: AsyncExitStack) -> Client:
    import httpx2
    from mcp import Client, StdioServerParameters
    from mcp.client.streamable_http import streamable_http_client

    if server.command is not None:
        child = StdioServerParameters(
            command=server.command, args=list(server.args), env=dict(server.env) or None, cwd=server.cwd
        )
        return await stack.enter_async_context(Client(child))
    assert server.url is not None
    timeout = httpx2.Timeout(server.connect_timeout_s, read=None)  # calls have a limit of their own
    http = await stack.enter_async_context(httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout))
    return await stack.enter_async_context(Client(streamable_http_client(server.url, http_client=http)))


async def _list_tools(client: Client) -> list[Any]:
    page = await client.list_tools()
    tools = list(page.tools)
    while page.next_cursor is not None:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return tools


def _unreachable(server: McpServer, error: BaseException) -> InfrastructureError:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    reason = f"no answer within {server.connect_timeout_s:g} s" if isinstance(error, TimeoutError) else repr(error)
    return InfrastructureError("mcp_unreachable", f"mcp: {server.address} cannot be reached: {reason}")


def _text_of(result: Any) -> str:
    parts = []
    for block in result.content:
        resource = getattr(block, "resource", None)
        if block.type == "text":
            parts.append(block.text)
        elif resource is not None and hasattr(resource, "text"):
            parts.append(resource.text)
        else:
            kind = getattr(block, "mime_type", None) or getattr(resource, "mime_type", None) or "unknown type"
            parts.append(f"[{block.type}: {kind}]")
    if not parts and result.structured_content is not None:
        parts.append(dump_json(result.structured_content))
    return "\n".join(parts)
