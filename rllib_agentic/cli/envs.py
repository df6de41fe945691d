"""``rllib envs``: the environments, served, checked, played by hand, and by experts."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

from rllib_agentic.cli import envs_mcp
from rllib_agentic.cli.collect import add_options, collect_trajectories
from rllib_agentic.cli.train_options import json_mapping
from rllib_agentic.errors import InputError


def add_command(commands: Any) -> None:
    """Register ``envs list | serve | check | play | mcp | collect``."""
    parser = commands.add_parser("envs", help="list, serve, check and play the environments, collect trajectories")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all environments with their splits")
    listing.add_argument("--json", action="store_true", help="print one JSON array")
    listing.set_defaults(command=list_envs)
    for name, help_text, function in (
        ("serve", "host an environment over HTTP until Ctrl-C", serve_env),
        ("check", "hold an environment against everything that training relies on", check),
        ("play", "play an episode by hand", play),
        ("mcp", "offer an environment as an MCP server", envs_mcp.serve_mcp),
        ("collect", "store trajectories of an expert, of chance or of a model", collect_trajectories),
    ):
        action = actions.add_parser(name, help=help_text)
        what = "an environment's name, or the URL of a service" if name == "check" else "an environment's name"
        action.add_argument("name", help=what)
        action.add_argument("--args", metavar="JSON", help="arguments of its constructor")
        action.set_defaults(command=function)
        if name == "serve":
            action.add_argument("--num-replicas", type=int, default=1)
            action.add_argument("--port", type=int, default=8000)
        if name == "play":
            action.add_argument("--split", default="train")
            action.add_argument("--task", type=int, default=0, help="index of the task in its split")
            action.add_argument("--seed", type=int, default=0)
        if name == "mcp":
            envs_mcp.add_options(action)
        if name == "collect":
            add_options(action)
        if name == "check":
            action.add_argument("--json", action="store_true", help="print one JSON array")


def list_envs(given: argparse.Namespace) -> int:
    """Print name, splits, and what is missing where an environment cannot be made here."""
    from rllib_agentic.cli.console import print_rows
    from rllib_agentic.envs.registry import env_entries, make_env

    rows = []
    for entry in env_entries():
        missing = entry.missing()
        row: dict[str, Any] = {"name": entry.name, "about": entry.summary, "installed": not missing}
        if missing:
            row |= {"splits": {}, "max_turns": None, "missing": missing}
        else:
            env = make_env(entry.name)
            schema = env.schema()
            env.close()
            row |= {"splits": dict(schema.splits), "max_turns": schema.max_turns, "missing": []}
        rows.append(row)
    print_rows(rows, as_json=given.json)
    return 0


def serve_env(given: argparse.Namespace) -> int:
    """Deploy with an HTTP gateway and wait."""
    import signal

    from rllib_agentic.cli.cluster import ClusterOptions, connected
    from rllib_agentic.components import parse_settings
    from rllib_agentic.envs.settings import EnvSettings
    from serve_envs.app import deploy, undeploy

    spec = {"num_replicas": given.num_replicas, "args": json_mapping("--args", given.args)}
    settings = parse_settings(EnvSettings, spec, "rllib envs serve")
    with connected(ClusterOptions()):
        app = deploy(given.name, settings, http_port=given.port)
        print(f"http://127.0.0.1:{given.port}/{app}", flush=True)
        print("Ctrl-C stops it.", file=sys.stderr)
        try:
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        finally:
            undeploy(app)
    return 0


def check(given: argparse.Namespace) -> int:
    """Run the checker.

    Returns:
        1 where something is to be mended.
    """
    from rllib_agentic.cli.console import print_rows
    from rllib_agentic.envs.checker import check_env
    from rllib_agentic.envs.registry import make_env
    from rllib_agentic.envs.remote_env import RemoteEnv

    arguments = json_mapping("--args", given.args)
    if given.name.startswith(("http://", "https://")):
        if arguments:
            raise InputError("--args: a service at a URL has its own arguments; leave them out")
        findings = check_env(partial(RemoteEnv, given.name))
    else:
        findings = check_env(partial(make_env, given.name, **arguments))
    rows = [{"check": f.check, "finding": f.message} for f in findings]
    print_rows(rows, as_json=given.json)
    if not given.json and not findings:
        print(f"{given.name}: everything that training relies on holds")
    return int(bool(findings))


def play(given: argparse.Namespace) -> int:
    """Read actions from standard input until the episode ends."""
    from rllib_agentic.envs.faults import EnvFault
    from rllib_agentic.envs.hosting import EnvHost
    from rllib_agentic.envs.registry import make_env

    make = partial(make_env, given.name, **json_mapping("--args", given.args))
    try:
        EnvHost(make).check_task(given.split, given.task)
    except EnvFault as fault:
        raise InputError(str(fault)) from fault
    env = make()
    try:
        observation, total = env.reset(given.split, given.task, given.seed), 0.0
        while True:
            for message in observation.messages:
                print(f"[{message.role}] {message.content}")
            if observation.actions is not None:
                print(f"actions: {', '.join(observation.actions)}")
            print("> ", end="", flush=True)
            line = sys.stdin.readline()
            if not line:
                return 0
            result = env.step(line.rstrip("\n"))
            total += result.reward
            observation = result.observation
            if result.terminated or result.truncated:
                for message in observation.messages:
                    print(f"[{message.role}] {message.content}")
                print(f"return {total:g}, {'solved' if result.success else 'not solved'}")
                return 0
    finally:
        env.close()
