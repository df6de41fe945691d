"""docs/configuration.md is what the command prints, and every key says what it means."""

import json
from pathlib import Path
from typing import Any

import pytest

from rllib_agentic.algorithms.sections import SECTIONS, section_types
from rllib_agentic.cli.config import described
from rllib_agentic.cli.main import main

DOC = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date(capsys: Any) -> None:
    assert main(["config", "--markdown"]) == 0
    page = capsys.readouterr().out
    assert DOC.read_text(encoding="utf-8") == page, "run: make docs"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_says_what_it_means(section: str) -> None:
    silent = [f"{kind}.{key.name}" for kind, keys in described(section) for key in keys if not key.about]
    assert silent == []
    assert all(types.__doc__ for types in section_types(section).values())


def test_keys_are_shown_with_defaults_bounds_and_types(capsys: Any) -> None:
    def rows(section: str) -> dict[str, dict[str, str]]:
        assert main(["config", section, "--json"]) == 0
        return {row["name"]: row for row in json.loads(capsys.readouterr().out)}

    rollout = rows("rollout")
    assert (rollout["group_size"]["default"], rollout["group_size"]["values"]) == ("8", "integer, >= 1")
    assert rollout["max_tokens_per_episode"]["values"] == "integer or null, >= 1"
    assert rollout["cut_turn"]["values"] == "end_episode or act"
    assert rollout["top_k"]["about"] == rollout["top_p"]["about"] != ""
    assert rows("curriculum.adaptive")["max_turns"]["default"] == "required"
    learner = rows("learner")
    assert "kl.coefficient" in learner and "lr" not in learner  # it stands at the top level


@pytest.mark.parametrize(("name", "nearest"), [("rolout", "'rollout'"), ("advantages.grpoo", "'grpo'")])
def test_what_does_not_exist_is_an_error(capsys: Any, name: str, nearest: str) -> None:
    assert main(["config", name]) == 2
    assert nearest in capsys.readouterr().err
