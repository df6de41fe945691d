"""Numbers about a batch of trajectories, as they appear in results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rllib_agentic.trajectory.trajectory import Trajectory
from rllib_agentic.trajectory.turn import Turn


def episode_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Flat metrics of a batch; means are over valid trajectories, and absent where there are none.

    ``*_frac`` are shares of episodes, ``*_rate`` shares of turns or attempts; ``tool_error_rate`` is the share of tool
    calls that ran and failed, ``code_success_rate`` (where there was code) the share of its runs without an error,
    ``right_code_success_rate`` and ``wrong_code_success_rate`` the same among right and among wrong answers.
    ``env/NAME`` is the sum over an episode's turns of what the environment reports as NAME, ``category/NAME`` the
    success rate in the tasks that the environment counts under NAME, where there is more than one such heading.
    Token counts are tokens.
    """
    valid = [t for t in trajectories if t.invalid is None]
    attempts = sum(int(t.metrics.get("attempts", 1)) for t in trajectories)
    metrics: dict[str, float] = {
        "num_episodes": len(trajectories),
        "num_valid_episodes": len(valid),
        "valid_episode_frac": len(valid) / max(len(trajectories), 1),
        "env_error_rate": (attempts - len(valid)) / max(attempts, 1),
    }
    for kind in sorted({t.invalid for t in trajectories if t.invalid is not None}):
        metrics[f"invalid/{kind}"] = sum(t.invalid == kind for t in trajectories)
    if not valid:
        return metrics
    returns = np.array([t.total_reward for t in valid])
    turns = [turn for t in valid for turn in t.turns]
    metrics |= {
        "episode_return_mean": float(returns.mean()),
        "episode_return_std": float(returns.std()),
        "episode_return_min": float(returns.min()),
        "episode_return_max": float(returns.max()),
        "group_return_std": _group_std(valid),
        "success_rate": float(np.mean([t.success for t in valid])),
        "terminated_frac": float(np.mean([t.terminated for t in valid])),
        "truncated_frac": float(np.mean([t.truncated for t in valid])),
        "num_turns_mean": float(np.mean([len(t.turns) for t in valid])),
        "segments_mean": float(np.mean([t.num_segments for t in valid])),
        "response_tokens_mean": float(np.mean([t.num_action_tokens for t in valid])),
        "context_tokens_max": float(max(len(t.segment_ids(s)) for t in valid for s in {x.segment for x in t.turns})),
        "action_tokens": float(sum(t.num_action_tokens for t in valid)),
        "tool_parse_error_rate": _turn_rate(turns, "tool_parse_error"),
        "tool_error_rate": _failed_calls(turns),
        "invalid_action_rate": _turn_rate(turns, "invalid_action"),
        "episode_seconds_mean": float(np.mean([t.metrics.get("seconds", 0.0) for t in valid])),
        "env_seconds_mean": float(np.mean([t.metrics.get("env_seconds", 0.0) for t in valid])),
    }
    for kind in ("", "right_", "wrong_"):
        if runs := sum(turn.metrics.get(f"{kind}code_runs", 0.0) for turn in turns):
            passed = sum(turn.metrics.get(f"{kind}code_ok", 0.0) for turn in turns)
            metrics[f"{kind}code_success_rate"] = passed / runs
    for name in sorted({name for turn in turns for name in turn.rewards}):
        per_episode = [sum(turn.rewards.get(name, 0.0) for turn in t.turns) for t in valid]
        metrics[f"reward/{name}"] = float(np.mean(per_episode))
    for name in sorted({name for turn in turns for name in turn.metrics}):
        metrics[f"env/{name}"] = float(np.mean([sum(turn.metrics.get(name, 0.0) for turn in t.turns) for t in valid]))
    if len(categories := {t.metrics["category"] for t in valid if "category" in t.metrics}) > 1:
        for category in sorted(categories):
            outcomes = [t.success for t in valid if t.metrics.get("category") == category]
            metrics[f"category/{category}"] = float(np.mean(outcomes))
    for reason in sorted({t.end_reason for t in valid}):
        metrics[f"end/{reason}"] = float(np.mean([t.end_reason == reason for t in valid]))
    return metrics


def _turn_rate(turns: Sequence[Turn], name: str) -> float:
    return float(np.mean([float(turn.metrics.get(name, 0.0) > 0) for turn in turns])) if turns else 0.0


def _failed_calls(turns: Sequence[Turn]) -> float:
    ran = {
        name: sum(turn.metrics.get(name, 0.0) for turn in turns) for name in ("tool_ok", "tool_error", "tool_timeout")
    }
    return (ran["tool_error"] + ran["tool_timeout"]) / max(sum(ran.values()), 1.0)


def _group_std(valid: Sequence[Trajectory]) -> float:
    groups: dict[str, list[float]] = {}
    for t in valid:
        groups.setdefault(t.group_id, []).append(t.total_reward)
    return float(np.mean([np.std(g) for g in groups.values()]))


def by_env(trajectories: Sequence[Trajectory]) -> dict[str, list[Trajectory]]:
    """The trajectories of each environment, by name."""
    parts: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        parts.setdefault(trajectory.task.env, []).append(trajectory)
    return parts


def metrics_by_env(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """The metrics of each environment under ``env/<name>/``; empty where there is one environment alone."""
    parts = by_env(trajectories)
    if len(parts) < 2:
        return {}
    return {f"env/{env}/{name}": value for env, part in parts.items() for name, value in episode_metrics(part).items()}


def success_by_env(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Success rate of valid trajectories by environment; an environment without any is left out."""
    valid = by_env([t for t in trajectories if t.invalid is None])
    return {env: float(np.mean([t.success for t in part])) for env, part in valid.items()}
