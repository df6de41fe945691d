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


# arXiv:2509.08755: stages and their length, turns where fixed, group, tasks a step and an update, tokens a turn
AGENTGYM_RL = {
    "webarena": ([8, 12, 15], 80, 15, 4, 32, 4, 512),
    "searchqa": ([5, 8, 10], 100, 5, 4, 32, 8, 512),
    "textcraft": ([10, 20, 30], 100, 30, 8, 32, 8, 512),
    "babyai": ([6, 13, 20], 100, 20, 4, 32, 8, 512),
    "sciworld": ([10, 20, 30], 100, 20, 8, 16, 8, 200),
}


@pytest.mark.parametrize("size", ["3b", "7b"])
@pytest.mark.parametrize("env", sorted(AGENTGYM_RL))
def test_agentgym_rl_is_trained_with_its_published_numbers(env: str, size: str) -> None:
    stages, every, turns, group, tasks, tasks_an_update, tokens = AGENTGYM_RL[env]
    for kind in ("fixed", "scaling_inter"):
        file = FILES[f"published/agentgym_rl_{env}_{size}_{kind}"]
        (experiment,) = read_experiments(read_experiment_file(str(file)), str(file))
        sections = experiment.config.sections()
        rollout, learner = sections.rollout, sections.learner
        assert (rollout.group_size, rollout.groups_per_iteration, rollout.max_tokens_per_turn) == (group, tasks, tokens)
        assert learner.minibatches * tasks_an_update == tasks and learner.kl.coefficient == 0.001
        budgets = sections.budgets([env])
        seen = []
        for iteration in range(1, 2 * every + 2):
            seen.append(budgets[env])
            budgets.advance(iteration, {}, {})
        grown = [stages[0]] * every + [stages[1]] * every + [stages[2]]
        assert seen == (grown if kind == "scaling_inter" else [turns] * len(seen))
        assert experiment.config.lr == 1e-6 and rollout.temperature == 1.0
