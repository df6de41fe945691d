"""The table in docs/algorithms.md says what the presets set; where it does not, the failure shows what to paste."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rllib_agentic.algorithms.presets import PRESETS, algorithm_class
from rllib_agentic.algorithms.sections import Sections

DOC = Path(__file__).resolve().parents[2] / "docs" / "algorithms.md"
HEAD = (
    "| `run` | advantages | policy loss | aggregation | divergence | critic | besides |",
    "|---|---|---|---|---|---|---|",
)


def sections_of(name: str) -> Sections:
    return algorithm_class(name).get_default_config().environment("bandit").sections()


def call(parts: dict[str, Any], hidden: tuple[str, ...] = ()) -> str:
    name = parts.pop("type")
    shown = [f"{key} {value}" for key, value in parts.items() if key not in hidden and value not in (None, "linear")]
    return f"{name} ({', '.join(shown)})" if shown else str(name)


def line(name: str) -> str:
    sections = sections_of(name)
    dump, learner = sections.dump(), sections.learner
    kl = learner.kl
    besides = []
    if learner.minibatches > 1:
        besides.append(f"{learner.minibatches} minibatches")
    if learner.entropy_coefficient:
        besides.append(f"entropy bonus {learner.entropy_coefficient}")
    if learner.recompute_old_logprobs:
        besides.append("old logprobs recomputed")
    use = algorithm_class(name).offline_use
    if use != "never":
        besides.append("stored trajectories" if use == "always" else "sampled trajectories, stored ones if any")
    besides += [f"filter {entry['rule']} {entry[entry['rule']]}" for entry in dump["filters"]]
    if sections.refill.resample:
        besides.append(f"refill in up to {sections.refill.max_tries} tries")
    if sections.rewards.outcome is not None:
        outcome = sections.rewards.outcome
        besides.append(f"outcome {outcome.success:+g} / {outcome.failure:+g} as the only reward")
    if sections.rewards.overlong is not None:
        besides.append(f"overlong punishment, buffer {sections.rewards.overlong.buffer}")
    divergence = f"{kl.chosen_estimator} in the {kl.place}, {kl.coefficient}" if kl.coefficient else "none"
    if not kl.coefficient and kl.place == "reward":
        divergence = "none (in the reward if asked for)"
    cells = [
        f"`{name}`",
        "pairs by return"
        if algorithm_class(name).trains_pairs
        else call(dump["advantages"], ("tolerance", "epsilon", "ddof", "success")),
        call(dump["loss"]),
        learner.aggregation,
        divergence,
        f"value clip {learner.value.clip}" if sections.needs_critic else "none",
        "; ".join(besides) or "nothing",
    ]
    return "| " + " | ".join(cells) + " |"


def test_the_table_of_presets_is_what_the_code_sets() -> None:
    expected = [*HEAD, *(line(name) for name in PRESETS)]
    text = DOC.read_text(encoding="utf-8").splitlines()
    assert HEAD[0] in text, "\n".join(expected)
    start = text.index(HEAD[0])
    assert text[start : start + len(expected)] == expected, "\n".join(["paste this:", *expected])


def test_every_preset_has_its_section() -> None:
    text = DOC.read_text(encoding="utf-8")
    assert [name for name in PRESETS if f"`{name}`" not in text] == []
