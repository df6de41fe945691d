"""Stored trajectories as a run reads them: which, in whose tokens, in which order, and by which pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_tokenizers import chatml_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from spoken_episodes import collected, speech_of, tiny

from rllib_agentic.advantages import ESTIMATORS
from rllib_agentic.advantages.estimator import advantage_metrics
from rllib_agentic.errors import InputError
from rllib_agentic.offline.dataset import load_offline
from rllib_agentic.offline.pairs import make_pairs, rows_of_pairs
from rllib_agentic.offline.settings import OfflineSettings, PairSettings
from rllib_agentic.offline.stream import endless
from rllib_agentic.store import TrajectoryWriter
from rllib_agentic.trajectory import Trajectory


def stored(folder: Path, **options: Any) -> list[Trajectory]:
    """Eight random walks in two groups, in a store with two partitions."""
    walks = collected("frozenlake", speech_of(tiny()), expert=False, episodes=8, group_size=4, **options)
    writer = TrajectoryWriter(folder)
    writer.write(0, walks[:4])
    writer.write(1, walks[4:])
    return walks


def load(path: Any, *, tokenizer: Any = None, limits: dict[str, Any] | None = None, **settings: Any) -> Any:
    speech = speech_of(tokenizer or tiny(), **(limits or {}))
    return load_offline(OfflineSettings(paths=path, **settings), speech)


def test_what_was_stored_is_trained_token_by_token(tmp_path: Path):
    walks = stored(tmp_path)
    data = load(str(tmp_path))
    assert data.counts == {"read": 8}
    for one, two in zip(walks, data.trajectories, strict=True):
        np.testing.assert_array_equal(one.segment_ids(0), two.segment_ids(0))
        assert [t.legal_tokens is not None for t in two.turns] == [True] * len(two.turns)
    assert [len(group) for group in data.groups()] == [4, 4]


def test_groups_of_two_stores_stay_apart_though_their_names_are_equal(tmp_path: Path):
    stored(tmp_path / "a")
    stored(tmp_path / "b", seed=5)
    groups = load([str(tmp_path / "a"), str(tmp_path / "b")]).groups()
    assert [len(group) for group in groups] == [4] * 4
    assert all(len({t.task for t in group}) == 1 for group in groups)


def test_wishes_are_met_and_counted(tmp_path: Path):
    walks = stored(tmp_path / "random")
    TrajectoryWriter(tmp_path / "expert").write(0, collected("frozenlake", speech_of(tiny()), episodes=3))
    everything = [str(tmp_path)]
    solved = sum(t.success for t in walks) + 3
    assert len(load(everything, success=True).trajectories) == solved
    assert len(load(everything, success=False).trajectories) == 11 - solved
    assert len(load(everything, min_return=0.5).trajectories) == solved
    assert len(load(everything, max_trajectories=2).trajectories) == 2
    assert load(everything, success=True).counts == {"read": 11, "unwanted": 11 - solved}


def test_invalid_ones_are_never_learned_from(tmp_path: Path):
    walks = collected("frozenlake", speech_of(tiny()), episodes=2)
    broken = replace(walks[0], invalid="session_lost", end_reason="session_lost", success=False)
    TrajectoryWriter(tmp_path).write(0, [broken, walks[1]])
    assert len(load(str(tmp_path)).trajectories) == 1


def test_another_models_tokens_are_told_anew_or_refused(tmp_path: Path):
    walks = stored(tmp_path)
    data = load(str(tmp_path), tokenizer=chatml_tokenizer())
    assert data.counts == {"read": 8, "retold": 8}
    for one, two in zip(walks, data.trajectories, strict=True):
        assert [t.text for t in one.turns] == [t.text for t in two.turns]
        assert chatml_tokenizer().decode(two.turns[0].action_ids.tolist()) == f"{one.turns[0].text}<|im_end|>"
    with pytest.raises(InputError, match="'auto'"):
        load(str(tmp_path), tokenizer=chatml_tokenizer(), tokens="stored")
    again = load(str(tmp_path), tokens="texts")
    assert again.counts["retold"] == 8
    assert all(turn.legal_tokens is None for t in again.trajectories for turn in t.turns)


def test_limits_of_the_run_hold_for_what_was_stored(tmp_path: Path):
    walks = stored(tmp_path)
    lengths = sorted(len(t.segment_ids(0)) for t in walks)
    limit = lengths[3]
    data = load(str(tmp_path), limits={"max_tokens_per_turn": 20, "max_context_tokens": limit})
    assert len(data.trajectories) == sum(n <= limit for n in lengths)
    assert data.counts["too_long"] == sum(n > limit for n in lengths)
    free = load(str(tmp_path), limits={"legal_tokens": False})
    assert all(turn.legal_tokens is None for t in free.trajectories for turn in t.turns)


def test_nothing_to_learn_from_is_an_error_that_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stored(tmp_path / "some")
    with pytest.raises(InputError, match="unwanted: 8"):
        load(str(tmp_path), min_return=2.0)
    with pytest.raises(InputError, match="rllib envs collect"):
        load(str(tmp_path / "none"))
    monkeypatch.setenv("TUNE_ORIG_WORKING_DIR", str(tmp_path))
    assert len(load("some").trajectories) == 8


@given(st.integers(1, 7), st.integers(0, 30), st.integers(1, 20), st.integers(0, 5))
def test_a_stream_is_permutations_end_to_end_whatever_part_is_asked_for(count, start, size, seed):
    whole = endless(count, 0, start + size, seed)
    assert endless(count, start, size, seed) == whole[start:]
    for epoch in range(len(whole) // count):
        assert sorted(whole[epoch * count : (epoch + 1) * count]) == list(range(count))


def returning(*rewards: float) -> list[Trajectory]:
    (base,) = collected("bandit", speech_of(tiny()), episodes=1)
    (turn,) = base.turns
    return [replace(base, member=i, turns=(replace(turn, reward=r),)) for i, r in enumerate(rewards)]


def test_pairs_are_best_with_worst_and_nobody_is_in_two():
    group = returning(0, 1, 0.2, 1, 0)
    pairs = make_pairs([group], PairSettings())
    assert [(p.better.member, p.worse.member) for p in pairs] == [(1, 4), (3, 0)]
    assert [(p.better.member, p.worse.member) for p in make_pairs([group], PairSettings(per_group=1))] == [(1, 4)]
    assert make_pairs([group], PairSettings(min_gap=1.5)) == []
    assert make_pairs([returning(1, 1, 1), returning(0), []], PairSettings()) == []
    broken = [replace(t, invalid="lost") if t.member == 4 else t for t in group]
    assert [(p.better.member, p.worse.member) for p in make_pairs([broken], PairSettings())] == [(1, 0), (3, 2)]


def test_rows_of_a_pair_bear_one_number_and_their_side():
    pairs = make_pairs([returning(0, 1), returning(2, 3)], PairSettings())
    rows = rows_of_pairs(pairs)
    assert [row.trajectory for row in rows] == [0, 0, 1, 1]
    assert [set(row.advantages[row.action_mask].tolist()) for row in rows] == [{1.0}, {-1.0}] * 2


def test_cloning_weighs_by_return_and_leaves_out_the_rest():
    group = returning(1.0, 0.5, 0.0, -1.0)
    group[1] = replace(group[1], success=False)
    lost = replace(group[0], invalid="lost", success=False)

    def weights(**settings: Any) -> list[Any]:
        found = ESTIMATORS.parse({"type": "cloning", **settings})([*group, lost])  # type: ignore[operator]
        return [None if entry is None else entry[0] for entry in found]

    assert weights() == [1.0, 1.0, 1.0, 1.0, None]
    assert weights(weight="return") == [1.0, 0.5, None, None, None]
    assert weights(success=True) == [1.0, None, 1.0, 1.0, None]
    assert weights(weight="return", min_return=0.75) == [1.0, None, None, None, None]
    nothing = weights(min_return=5.0)
    assert nothing == [None] * 5
    assert "min" not in advantage_metrics([*group, lost], nothing)
