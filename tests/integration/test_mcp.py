"""Tools of real MCP servers, started here, over standard input and output and over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import Client
from mcp_desk_server import http_server
from tool_desk import Desk, call, outputs

from rllib_agentic.components import parse_settings
from rllib_agentic.envs.hosting import EnvHost
from rllib_agentic.envs.local import LocalClient
from rllib_agentic.envs.registry import make_env
from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.tools import ToolError
from rllib_agentic.tools.loop import run_on_tool_loop
from rllib_agentic.tools.mcp import close_shared_mcp, open_mcp
from rllib_agentic.tools.mcp_settings import McpServer
from rllib_agentic.tools.schema import ArgumentsCheck
from rllib_agentic.trajectory import Task
from serve_envs.mcp_server import make_mcp_server
from serve_envs.worker import EnvWorker

SCRIPT = str(Path(__file__).parents[1] / "mcp_desk_server.py")


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    close_shared_mcp()
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def stdio(**settings: Any) -> McpServer:
    return parse_settings(McpServer, {"command": sys.executable, "args": [SCRIPT], **settings}, "server")


class McpDesk(Desk):
    """A desk whose tools are a server's."""

    def __init__(self, server: McpServer, **use: Any) -> None:
        self._connection = open_mcp(server)
        super().__init__(self._connection.tools, **use)

    def close(self) -> None:
        super().close()
        self._connection.close()


def begun(server: McpServer, **use: Any) -> McpDesk:
    env = McpDesk(server, **use)
    env.reset("train", 0, 0)
    return env


def heard(env: Desk, *calls: str) -> list[str]:
    return outputs(env.step("".join(calls)).observation.messages)


def test_a_servers_tools_are_tools_over_stdio_and_http() -> None:
    with http_server() as url:
        for server in (stdio(), McpServer(url=url), McpServer(url=url, headers={"authorization": "Bearer x"})):
            env = begun(server)
            described = env.schema().tools[0]["function"]
            assert described["name"] == "add" and described["description"] == "Add two numbers."
            assert described["parameters"]["properties"]["a"]["type"] == "integer"
            assert heard(env, call("add", a=3, b=4), call("picture")) == ["7", "[image: image/png]"]
            assert heard(env, call("add", a="3", b=4))[0].startswith("error: wrong arguments for add: argument 'a'")
            (refused,) = heard(env, call("refuse", why="not today"))
            assert refused.startswith("error: ") and "not today" in refused
            assert env.step("7").success
            env.close()
        close_shared_mcp()


def test_one_connection_a_process_or_one_an_environment() -> None:
    shared = [begun(stdio(env={"DESK_SECRET": "s"})) for _ in range(2)]
    identities = [heard(env, call("identity"))[0] for env in shared]
    assert identities[0] == identities[1] and identities[0].endswith(" s") and str(os.getpid()) not in identities[0]
    own = [begun(stdio(connection="environment", tools=["note"], prefix="desk_")) for _ in range(2)]
    assert [tool.name for tool in own[0].tools] == ["desk_note"]
    assert [heard(env, call("desk_note", text=text)) for env, text in zip(own, "ab", strict=True)] == [["a"], ["b"]]
    for env in own:
        env.close()


def test_a_slow_call_is_given_up_and_the_connection_lives() -> None:
    env = begun(stdio(), call_timeout_s=0.2)
    assert heard(env, call("rest", seconds=30))[0].startswith("error: time limit")
    assert heard(begun(stdio()), call("add", a=1, b=1)) == ["2"]


def test_a_server_that_dies_makes_the_episode_invalid_and_the_next_one_starts_it_again() -> None:
    async def play() -> None:
        client = LocalClient(partial(McpDesk, stdio()))
        session = await client.create(Task("desk", "train", 0))
        with pytest.raises(InfrastructureError) as failure:
            await session.step(call("crash"))
        assert failure.value.kind == "env_error" and "mcp" in str(failure.value)
        other = await client.create(Task("desk", "train", 0))
        result = await other.step(call("add", a=1, b=2))
        assert outputs(result.observation.messages) == ["3"]
        await client.aclose()

    asyncio.run(play())


def test_unreachable_servers_are_refused_at_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    dead = tmp_path / "dead.py"
    dead.write_text("raise SystemExit(1)")
    silent = tmp_path / "silent.py"
    silent.write_text("import time; time.sleep(60)")
    for settings, says in (
        ({"url": f"http://127.0.0.1:{port}/mcp"}, f"127.0.0.1:{port}/mcp cannot be reached"),
        ({"command": "no-such-command-anywhere"}, "no-such-command-anywhere cannot be reached"),
        ({"command": sys.executable, "args": [str(dead)]}, "dead.py cannot be reached"),
        ({"command": sys.executable, "args": [str(silent)], "connect_timeout_s": 1.0}, "no answer within 1 s"),
        ({"command": sys.executable, "args": [SCRIPT], "tools": ["addd"]}, "no tool 'addd'. Did you mean 'add'?"),
    ):
        with pytest.raises(InputError, match="mcp: ") as refusal:
            open_mcp(parse_settings(McpServer, settings, "server"))
        assert says in str(refusal.value)


def test_a_server_that_was_there_and_is_gone_is_a_failure_and_no_wrong_input(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(Path(SCRIPT).read_text())
    server = parse_settings(
        McpServer, {"command": sys.executable, "args": [str(script)], "connection": "environment"}, "server"
    )
    open_mcp(server).close()
    script.unlink()
    with pytest.raises(InfrastructureError) as failure:
        open_mcp(server)
    assert failure.value.kind == "mcp_unreachable"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "give either 'command'"),
        ({"command": "a", "url": "http://b"}, "give either 'command'"),
        ({"url": "http://b", "args": ["c"]}, "belong to 'command'"),
        ({"command": "a", "headers": {"c": "d"}}, "belong to 'url'"),
        ({"url": "b:1"}, "url"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_settings(McpServer, settings, "server")


def test_our_environments_are_mcp_servers() -> None:
    code = "from rllib_agentic.cli.main import main; raise SystemExit(main())"
    command = {"command": sys.executable, "args": ["-c", code, "envs", "mcp", "bandit", "--args", '{"pulls": 2}']}
    connection = open_mcp(parse_settings(McpServer, command, "server"))
    tools = {tool.name: tool for tool in connection.tools}
    assert list(tools) == ["describe", "create", "step", "close"]
    assert ArgumentsCheck(tools["create"]).fault({"task": -1}) is not None

    def use(name: str, **arguments: Any) -> str:
        return run_on_tool_loop(tools[name].execute(arguments)).text

    assert "max_turns: 2" in use("describe")
    first = use("create", split="test", task=1, seed=3)
    session = first.split()[1]
    name = first.rpartition("Arms: ")[2].split(",")[0]
    assert first != use("create", split="test", task=2, seed=3)
    assert f"{name} pays" in use("step", session=session, action=name)
    last = use("step", session=session, action=f"Action: {name}")
    assert "The task is over" in last
    for arguments, says in (
        ({"session": session, "action": name}, "closed"),
        ({"session": "nobody", "action": name}, "no session"),
    ):
        with pytest.raises(ToolError, match=says):
            use("step", **arguments)
    with pytest.raises(ToolError, match="known: train"):
        use("create", split="nowhere")
    other = use("create", task=0).split()[1]
    assert use("close", session=other) == "closed" and use("close", session=other) == "was closed already"


def test_one_server_holds_many_tasks_and_tells_clients_what_is_wrong() -> None:
    async def play() -> list[str]:
        worker = EnvWorker(EnvHost(partial(make_env, "bandit")))
        async with Client(make_mcp_server(worker, "bandit")) as client:
            begun = await asyncio.gather(*(client.call_tool("create", {"task": task}) for task in range(5)))
            texts = [result.structured_content["observation"] for result in begun]
            wrong = await client.call_tool("step", {"session": 3})
            assert wrong.is_error and "session" in str(wrong.content) and "action" in str(wrong.content)
            assert (await client.call_tool("fly", {})).is_error
        await worker.aclose()
        return texts

    assert len(set(asyncio.run(play()))) == 5


def test_the_command_serves_over_http_until_it_is_told_to_stop() -> None:
    code = "from rllib_agentic.cli.main import main; raise SystemExit(main())"
    arguments = [sys.executable, "-c", code, "envs", "mcp", "bandit", "--port", "0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stderr is not None
        connection = open_mcp(McpServer(url=child.stdout.readline().strip(), tools=("describe",)))
        assert "bandit" in run_on_tool_loop(connection.tools[0].execute({})).text
        close_shared_mcp()
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) == 0 and child.stderr.read() == "Ctrl-C stops it.\n"
