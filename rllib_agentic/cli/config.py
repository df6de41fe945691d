"""``rllib config``: the sections of the configuration, and what every key means."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

_MARKDOWN_HEAD = """\
# Configuration

What may stand under `config` in a YAML file, in `param_space` of a Tuner, or in the chained setters of a config. This
page is `rllib config --markdown`; `rllib config SECTION` prints a part of it. Beside the sections there are RLlib's own
keys, such as `lr`, `grad_clip`, `num_epochs`, `minibatch_size`, `num_env_runners`, `evaluation_interval`, `seed`; one
that nothing would read is refused, with what holds instead.

A section with types is a mapping with `type` and that type's keys, or just the type's name.
"""

_ABOUT = {
    "model": "The language model that is trained.",
    "critic": "A model of its own for the critic, where the advantages need one; empty for a head on the policy.",
    "env_config": "Where the environment of `config.env` runs, its limits, and its arguments.",
    "environments": "Several environments in one run: name to share.",
    "tasks": "Which tasks come up how often.",
    "rollout": "How episodes are sampled, and what limits them.",
    "context": "What an agent sees of a long episode.",
    "renderer": "How messages become tokens.",
    "engine": "What samples.",
    "curriculum": "How the interaction budget grows.",
    "rewards": "What is trained on.",
    "filters": "Which groups are trained on: a list, each of which has a type.",
    "refill": "Whether groups are sampled again for those that were filtered out.",
    "advantages": "The advantage estimator.",
    "loss": "The policy loss.",
    "learner": "Optimizer, epochs, normalisation, precision and memory.",
    "offline": "Stored trajectories to learn from.",
    "store": "Every trajectory of the run, in Parquet.",
    "diagnostics": "Which collapses are watched for, and what an alarm does.",
}


def add_command(commands: Any) -> None:
    """Register ``config``."""
    parser = commands.add_parser("config", help="the sections of the configuration, and their keys")
    parser.add_argument("section", nargs="?", help="such as rollout, or advantages.grpo for one type of a section")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON array")
    form.add_argument("--markdown", action="store_true", help="print a page, all sections where none is named")
    parser.set_defaults(command=config)


def config(given: argparse.Namespace) -> int:
    """Print sections, or keys."""
    from rllib_agentic.algorithms.sections import SECTIONS
    from rllib_agentic.cli.console import print_rows

    if given.markdown:
        print(_MARKDOWN_HEAD if given.section is None else "", end="")
        for section in SECTIONS if given.section is None else [given.section]:
            print(markdown(section), end="")
    elif given.section is None:
        print_rows([_summary(section) for section in SECTIONS], as_json=given.json)
    else:
        rows = [
            ({"type": kind} if kind else {}) | {**key._asdict(), "default": _shown(key.default)}
            for kind, keys in described(given.section)
            for key in keys
        ]
        print_rows(rows, as_json=given.json)
    return 0


def described(name: str) -> Iterator[tuple[str, list[Any]]]:
    """Type and keys of each type of a section, or of the one that is named.

    Raises:
        InputError: no such section or type.
    """
    from rllib_agentic.algorithms.sections import SECTIONS, section_types
    from rllib_agentic.cli.config_reference import keys_of
    from rllib_agentic.errors import InputError, did_you_mean

    section, _, kind = name.partition(".")
    if section not in SECTIONS:
        raise InputError(f"config: there is no section {section!r}. {did_you_mean(section, SECTIONS)}")
    types = section_types(section)
    if kind and kind not in types:
        raise InputError(f"config: {section} has no type {kind!r}. {did_you_mean(kind, types)}")
    for one in [kind] if kind else types:
        yield one, [key for key in keys_of(types[one]) if not _stands_elsewhere(section, key.name)]


def markdown(name: str) -> str:
    """One section as a part of a page."""
    from rllib_agentic.algorithms.sections import section_types
    from rllib_agentic.cli.config_reference import about

    section = name.partition(".")[0]
    types = section_types(section)
    lines = ["", f"## `{section}`", "", _ABOUT[section], ""]
    if section == "critic":
        return "\n".join([*lines, "The keys of `model`.", ""])
    for kind, keys in described(name):
        lines += [f"**`type: {kind}`** {about(types[kind])}", ""] if kind else []
        if keys:
            lines += ["| key | default | values | meaning |", "|---|---|---|---|"]
            lines += [f"| `{key.name}` | {_shown(key.default)} | {key.values} | {_cell(key.about)} |" for key in keys]
            lines.append("")
    return "\n".join(lines)


def _summary(section: str) -> dict[str, Any]:
    from rllib_agentic.algorithms.sections import section_types

    return {"section": section, "about": _ABOUT[section], "types": [kind for kind in section_types(section) if kind]}


def _stands_elsewhere(section: str, key: str) -> bool:
    from rllib_agentic.algorithms.sections import TOP_LEVEL_KEYS

    return (section == "learner" and key in TOP_LEVEL_KEYS) or (section == "environments" and "env_config." in key)


def _shown(default: str | None) -> str:
    return "required" if default is None else default


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
