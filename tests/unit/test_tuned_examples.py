"""Every tuned example loads and can be described, without a network and without starting anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from rllib_agentic.algorithms.presets import PRESETS
from rllib_agentic.cli.describe import describe
from rllib_agentic.cli.example import EXAMPLES, example_files
from rllib_agentic.cli.experiment import read_experiments
from rllib_agentic.cli.yaml_file import read_experiment_file

FILES = example_files()


@pytest.mark.parametrize("example", sorted(FILES))
def test_an_example_says_what_it_is_and_passes_a_dry_run(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    file = FILES[example]
    first = file.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ") and len(first) > 20
    experiments = read_experiments(read_experiment_file(str(file)), str(file))
    for experiment in experiments:
        plan = describe(experiment)
        assert plan["run"] in PRESETS and plan["stop"]
        assert plan["memory"]["learner_gb"] > 0


def test_names_of_experiments_are_unique() -> None:
    names = [name for file in FILES.values() for name in read_experiment_file(str(file))]
    assert len(names) == len(set(names))


def test_every_preset_has_an_example_for_a_cpu() -> None:
    tiny = [file for file in EXAMPLES.glob("*_tiny_cpu.yaml")]
    runs = {entry["run"] for file in tiny for entry in read_experiment_file(str(file)).values()}
    assert runs == set(PRESETS)


def test_published_settings_name_their_paper() -> None:
    published = Path(EXAMPLES, "published")
    assert all("arXiv:" in file.read_text(encoding="utf-8").splitlines()[0] for file in published.glob("*.yaml"))
