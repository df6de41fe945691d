"""A trial that goes on from another one's checkpoint says so, once, and nothing else does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rllib_agentic.tracking.takeover import Takeovers


def trial(config: dict[str, Any], checkpoint: str | None = None, iteration: int = 0) -> Any:
    return SimpleNamespace(
        trial_id="a",
        config=config,
        checkpoint=None if checkpoint is None else SimpleNamespace(path=checkpoint),
        last_result={"training_iteration": iteration} if iteration else None,
    )


def test_a_changed_configuration_is_told_with_where_the_trial_goes_on_from() -> None:
    seen = Takeovers()
    before = {"lr": 0.1, "loss": {"type": "ppo_clip", "clip_low": 0.2}}
    after = {"lr": 0.08, "loss": {"type": "ppo_clip", "clip_low": 0.2}, "seed": 1}
    assert seen.noticed(trial(before)) is None
    assert seen.noticed(trial(before, "/runs/x/x_00000/checkpoint_000003", 4)) is None  # paused, and goes on
    event = seen.noticed(trial(after, "/runs/x/x_00001/checkpoint_000002", 4))
    assert event is not None and event.tag == "event.000004.scheduler"
    assert event.message == "goes on from the checkpoint of x_00001 with lr 0.1 -> 0.08, seed not set -> 1"
    assert seen.noticed(trial(after, "/runs/x/x_00000/checkpoint_000004", 6)) is None
