"""The ``rllib`` command: it left Ray in 2025, and this package provides it again."""

from __future__ import annotations

import argparse
import io
import sys
from importlib import import_module

from rllib_agentic.cli.console import run_command

COMMANDS = ("train", "evaluate", "config", "example", "envs", "trajectories", "export", "doctor")


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 well, 1 failed, 2 bad input, 130 interrupted."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # each iteration's line at once, into a pipe or a file too
    parser = make_parser()
    given = parser.parse_args(arguments)
    if not hasattr(given, "command"):
        parser.print_help()
        return 0
    return run_command(lambda: given.command(given))


def make_parser() -> argparse.ArgumentParser:
    """The parser with all commands; heavy imports wait until a command runs."""
    parser = argparse.ArgumentParser(prog="rllib", description="Reinforcement learning of LLM agents on Ray RLlib.")
    commands = parser.add_subparsers(metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"rllib_agentic.cli.{name}").add_command(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
