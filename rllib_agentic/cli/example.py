"""``rllib example``: the tuned examples that come with the package."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rllib_agentic.errors import InputError, did_you_mean

EXAMPLES = Path(__file__).resolve().parents[2] / "tuned_examples"


def add_command(commands: Any) -> None:
    """Register ``example list | get | run``."""
    parser = commands.add_parser("example", help="list, show and run the tuned examples")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all examples")
    listing.add_argument("-f", "--filter", default="", help="only those whose id holds this text")
    listing.add_argument("--json", action="store_true", help="print one JSON array")
    listing.set_defaults(command=list_examples)
    get = actions.add_parser("get", help="print an example's file")
    get.add_argument("id")
    get.set_defaults(command=get_example)
    run = actions.add_parser("run", help="train an example; further options as of `rllib train file`")
    run.add_argument("id")
    run.add_argument("options", nargs=argparse.REMAINDER, help="options of `rllib train file`")
    run.set_defaults(command=run_example)


def example_files() -> dict[str, Path]:
    """Id to file; an id is the path without its ending."""
    files = sorted(EXAMPLES.rglob("*.yaml"))
    return {str(file.relative_to(EXAMPLES).with_suffix("")): file for file in files}


def find_example(example: str) -> Path:
    """The file of an example.

    Raises:
        InputError: no such id.
    """
    files = example_files()
    if example not in files:
        raise InputError(f"example: no such id {example!r}. {did_you_mean(example, files)}")
    return files[example]


def list_examples(given: argparse.Namespace) -> int:
    """Print id, algorithm, environment and what the file says of itself."""
    from rllib_agentic.cli.console import print_rows
    from rllib_agentic.cli.yaml_file import read_experiment_file

    rows = []
    for example, file in example_files().items():
        if given.filter.lower() not in example.lower():
            continue
        entry = next(iter(read_experiment_file(str(file)).values()))
        first = file.read_text(encoding="utf-8").splitlines()[0]
        about = first.lstrip("# ") if first.startswith("#") else ""
        rows.append({"id": example, "run": entry.get("run"), "env": entry.get("env"), "about": about})
    print_rows(rows, as_json=given.json)
    return 0


def get_example(given: argparse.Namespace) -> int:
    """Print the file as it is."""
    print(find_example(given.id).read_text(encoding="utf-8"), end="")
    return 0


def run_example(given: argparse.Namespace) -> int:
    """Train it."""
    from rllib_agentic.cli.main import make_parser

    inner = make_parser().parse_args(["train", "file", str(find_example(given.id)), *given.options])
    return inner.command(inner)
