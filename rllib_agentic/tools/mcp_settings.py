"""Where an MCP server is, and which of its tools are taken: a part of an environment's arguments in YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from rllib_agentic.components import Settings


class McpServer(Settings):
    """A server of the Model Context Protocol: a command to start, or a URL.

    Attributes:
        command: started as a child of its own; it speaks over its standard input and output.
        args: of the command.
        env: further environment variables of the command; it inherits only a few harmless ones.
        cwd: where the command runs.
        url: of a server that runs already (streamable HTTP), for example ``http://127.0.0.1:8000/mcp``.
        headers: sent with every request to ``url``, for example an authorization.
        tools: names of the tools to take; None takes all.
        prefix: put before every tool's name, so that two servers may have tools of one name.
        connection: ``process``: all environments of a process share one connection; for servers that keep nothing
            between calls. ``environment``: each has its own, and with ``command`` its own child.
        connect_timeout_s: longest time for the first answer.
    """

    command: str | None = Field(default=None, min_length=1)
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    url: str | None = Field(default=None, pattern=r"^https?://")
    headers: Mapping[str, str] = Field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    prefix: str = ""
    connection: Literal["process", "environment"] = "process"
    connect_timeout_s: float = Field(default=30.0, gt=0)

    @model_validator(mode="after")
    def _one_of_two(self) -> McpServer:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either 'command', to start a server, or 'url', to reach one")
        if self.url is not None and (self.args or self.env or self.cwd):
            raise ValueError("'args', 'env' and 'cwd' belong to 'command', but 'url' is given")
        if self.command is not None and self.headers:
            raise ValueError("'headers' belong to 'url', but 'command' is given")
        return self

    @property
    def address(self) -> str:
        """The server, for messages."""
        return self.url or " ".join([self.command or "", *self.args])
