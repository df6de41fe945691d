"""``rllib trajectories``: look into what a run stored."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rllib_agentic.errors import InputError


def add_command(commands: Any) -> None:
    """Register ``trajectories list | show | view``."""
    parser = commands.add_parser("trajectories", help="list and show stored trajectories")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, help_text, function in (
        ("list", "a line a trajectory", list_trajectories),
        ("show", "one as a conversation: trained tokens, context tokens, rewards", show_trajectory),
        ("view", "several as an HTML page", view_trajectories),
    ):
        action = actions.add_parser(name, help=help_text)
        action.add_argument("folder", help="a trajectory store, or the folder of a trial or experiment")
        action.add_argument("--iteration", type=int, help="only this iteration")
        action.add_argument("--success", action=argparse.BooleanOptionalAction, help="only (un)successful ones")
        action.add_argument("--invalid", action=argparse.BooleanOptionalAction, help="only (in)valid ones")
        action.set_defaults(command=function)
        if name == "show":
            action.add_argument("number", type=int, nargs="?", default=0, help="place in the list, from 0")
            action.add_argument("--ids", action="store_true", help="token ids too")
        if name == "view":
            action.add_argument("--out", default="trajectories.html", help="the page's file")
        else:
            action.add_argument("--json", action="store_true", help="print JSON")
        if name in ("list", "view"):
            action.add_argument("--limit", type=int, default=50, help="at most so many")


def list_trajectories(given: argparse.Namespace) -> int:
    """Print number, iteration, task, turns, return, success and how each ended."""
    from rllib_agentic.cli.console import print_rows

    rows = []
    for number, stored in zip(range(given.limit), _select(given), strict=False):
        trajectory = stored.trajectory
        rows.append(
            {
                "number": number,
                "iteration": stored.iteration,
                "task": f"{trajectory.task.env}/{trajectory.task.split}/{trajectory.task.index}",
                "group": trajectory.group_id,
                "member": trajectory.member,
                "turns": len(trajectory.turns),
                "tokens": trajectory.num_action_tokens,
                "return": trajectory.total_reward,
                "success": trajectory.success,
                "end": trajectory.end_reason,
            }
        )
    print_rows(rows, as_json=given.json)
    return 0


def show_trajectory(given: argparse.Namespace) -> int:
    """Print one; trained and context tokens are told apart where the model's tokenizer is at hand."""
    from rich.console import Console

    from rllib_agentic.cli.console import print_json
    from rllib_agentic.store import as_dict, as_renderable

    for number, stored in enumerate(_select(given)):
        if number == given.number:
            decode = _decoder(Path(given.folder))
            if given.json:
                print_json(as_dict(stored, decode=decode, ids=given.ids))
            else:
                Console().print(as_renderable(stored, decode=decode, ids=given.ids))
            return 0
    raise InputError(
        f"trajectories: there is no number {given.number} in that selection; see `rllib trajectories list`"
    )


def view_trajectories(given: argparse.Namespace) -> int:
    """Write a page that any browser opens."""
    from rllib_agentic.store import as_dict, as_html

    decode = _decoder(Path(given.folder))
    chosen = [as_dict(stored, decode=decode) for _, stored in zip(range(given.limit), _select(given), strict=False)]
    if not chosen:
        raise InputError(f"trajectories: nothing in {given.folder} fits that selection")
    Path(given.out).write_text(as_html(chosen, title=str(given.folder)), encoding="utf-8")
    print(given.out)
    return 0


def _select(given: argparse.Namespace) -> Any:
    from rllib_agentic.store import TrajectoryReader, find_stores

    stores = find_stores(Path(given.folder))
    if not stores:
        raise InputError(f"{given.folder}: there are no stored trajectories here")
    iterations = None if given.iteration is None else [given.iteration]
    for store in stores:
        yield from TrajectoryReader(store).select(iterations=iterations, success=given.success, invalid=given.invalid)


def _decoder(folder: Path) -> Any:
    """Decodes with the run's tokenizer; None where the experiment's file or its model is out of reach."""
    from rllib_agentic.cli.experiment import read_experiments
    from rllib_agentic.cli.run_experiment import SPEC_FILE
    from rllib_agentic.cli.yaml_file import read_experiment_file
    from rllib_agentic.rl_module.model_loading import load_tokenizer

    for place in (folder, *folder.resolve().parents):
        file = place / SPEC_FILE
        if file.is_file():
            (experiment,) = read_experiments(read_experiment_file(str(file)), str(file))
            tokenizer = load_tokenizer(experiment.config.sections().model)
            return lambda ids: tokenizer.decode(ids, skip_special_tokens=False)
    return None
