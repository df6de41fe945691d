"""Context strategies in a run: what the policy saw is what is trained, whoever wrote the summary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from rllib_agentic.algorithms.grpo import GRPOConfig
from rllib_agentic.rl_module.model_loading import load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings
from rllib_agentic.store import TrajectoryReader
from rllib_agentic.trajectory import Trajectory, rows_of

pytestmark = pytest.mark.ray

HEADING = "Summary of what happened so far:"
TINY = {"preset": "tiny", "hidden_size": 16, "num_layers": 1, "num_heads": 2}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def trained(context: dict[str, Any], **rollout: int) -> tuple[list[dict[str, Any]], list[Trajectory]]:
    """Two iterations of mazes too large to be left soon, and what was played in the second."""
    limits = {"group_size": 2, "groups_per_iteration": 3, "max_turns": 8, "max_tokens_per_turn": 8}
    given = {
        "env_config": {"backend": "local", "args": {"size": 6, "trail": False}},
        "model": TINY,
        "rollout": limits | rollout,
        "context": context,
        "lr": 1e-2,
    }
    algo = GRPOConfig().environment("maze").update_from_dict(given).build_algo()
    try:
        results = [algo.train() for _ in range(2)]
        stored = TrajectoryReader(Path(algo.logdir) / "trajectories")
        return results, [s.trajectory for s in stored.select(iterations=[2])]
    finally:
        algo.stop()


def spoken(ids: Any) -> str:
    return str(load_tokenizer(ModelSettings.model_validate(TINY)).decode(ids))


def test_a_second_model_writes_the_summaries_and_is_not_trained() -> None:
    summary = {"type": "summary", "max_tokens": 220, "summary_tokens": 12, "model": TINY | {"seed": 7}}
    results, played = trained(summary)
    assert all(r["diagnostics"]["drift"]["reencoded_tokens"] == 0 for r in results)
    noted = [t for t in played if t.metrics["notes"]]
    assert noted and results[1]["env_runners"]["segments_mean"] > 1
    for trajectory in noted:
        assert not any(turn.metrics.get("note") for turn in trajectory.turns)
        first, *later = rows_of(trajectory, [1.0] * len(trajectory.turns))
        assert HEADING not in spoken(first.token_ids) and later
        for row in later:
            before_it_acts = spoken(row.token_ids[: int(np.argmax(row.action_mask))])
            assert before_it_acts.count(HEADING) == 1  # the newest one stands for all before it
            assert HEADING not in spoken(row.token_ids[row.action_mask])
        assert sum(int(row.action_mask.sum()) for row in (first, *later)) == trajectory.num_action_tokens


def test_the_policys_own_summaries_are_turns_within_the_budgets() -> None:
    budgets = {"max_context_tokens": 300, "max_tokens_per_episode": 60}
    results, played = trained({"type": "summary", "at": 0.6, "summary_tokens": 10}, **budgets)
    assert all(r["diagnostics"]["drift"]["reencoded_tokens"] == 0 for r in results)
    notes = [turn for t in played for turn in t.turns if turn.metrics.get("note")]
    assert notes and all(1 <= len(turn.action_ids) <= 10 for turn in notes)  # a turn's budget of its own
    acts = [turn for t in played for turn in t.turns if not turn.metrics.get("note")]
    assert all(len(turn.action_ids) <= 8 for turn in acts)
    assert all(t.num_action_tokens <= 60 for t in played)
    rows = [row for t in played for row in rows_of(t, [1.0] * len(t.turns))]
    assert max(len(row.token_ids) for row in rows) <= 300 + 10 and len(rows) > len(played)
