"""Results to numbers and configs to parameters: names, values, nothing lost, nothing that stops a run."""

from __future__ import annotations

import enum
import functools
import math
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name

from rllib_agentic.tracking.metrics import ALWAYS_PRESENT, clean_name, missing_metrics, scalars
from rllib_agentic.tracking.params import MAX_VALUE, flat_params, plain

TK02_NAMES = ["val/AR@100", "reward[0]", "p(x)", "a//b", "/a", "k" * 251, ""]


def test_nested_results_become_paths_and_only_numbers_stay() -> None:
    result = {
        "training_iteration": 3,
        "env_runners": {"success_rate": np.float32(0.5), 7: {"x": np.array(2)}, "text": "no", "list": [1]},
        "done": True,
        "config": {"lr": 1.0},
        "none": None,
    }
    assert scalars(result).values == {
        "training_iteration": 3.0,
        "env_runners/success_rate": 0.5,
        "env_runners/7/x": 2.0,
        "done": 1.0,
    }
    assert scalars({"env_runners": {"config": 2}}).values == {"env_runners/config": 2.0}


def test_tk04_non_finite_values_are_counted_not_sent() -> None:
    found = scalars(
        {str(i): v for i, v in enumerate([math.nan, math.inf, -math.inf, 1.0, None, np.float32(1.5), 10**400])}
    )
    assert found.values == {"3": 1.0, "5": 1.5}
    assert found.nonfinite == ["0", "1", "2", "6"]


def test_paths_that_join_to_one_name_are_both_kept_whatever_their_order() -> None:
    one = scalars({"a": {"b": 1.0}, "a/b": 2.0}).values
    other = scalars({"a/b": 2.0, "a": {"b": 1.0}}).values
    assert one == other and sorted(one.values()) == [1.0, 2.0] and one["a/b"] == 1.0


def test_good_names_stay() -> None:
    for name in ("env_runners/success_rate", "learners/default_policy/grad_norm", "a.b-c: d", "k" * 250):
        assert clean_name(name) == name


def test_tk02_names_are_valid_and_distinct() -> None:
    cleaned = [clean_name(name) for name in [*TK02_NAMES, "reward(0)", "reward_0_", "..", ".", "a/../b", "a/", "%"]]
    assert len(set(cleaned)) == len(cleaned)
    assert all(0 < len(name) <= 250 for name in cleaned)


@settings(deadline=None)
@given(st.lists(st.text(alphabet=string.printable + "@é/.", max_size=8) | st.text(max_size=300), unique=True))
def test_cleaned_names_never_collide_and_mlflow_takes_them(names: list[str]) -> None:
    cleaned = [clean_name(name) for name in names]
    assert len(set(cleaned)) == len(names)
    for name in cleaned:
        _validate_metric_name(name)
        assert len(name) <= 250


def test_ux04_missing_metrics_are_named() -> None:
    result = {"env_runners": dict.fromkeys(ALWAYS_PRESENT[1:], 0.0), "learners": {"p": {"trained_tokens": None}}}
    assert missing_metrics(result) == ["trained_tokens"]
    assert missing_metrics({**result, "x": {"trained_tokens": 0}}) == []
    assert set(ALWAYS_PRESENT) == {
        *("trained_tokens", "valid_episode_frac", "kept_group_frac", "truncated_frac"),
        *("tool_parse_error_rate", "env_error_rate", "mismatch_p95"),
    }


def test_tk01_params_are_flat_and_cut_with_a_marker() -> None:
    params = flat_params({"a": "x" * 501, "b": "x" * 6001, "c": {"d": {"e": [1, 2, 3]}}, "f": None, "g": {}})
    assert list(params) == ["a", "b", "c.d.e", "f", "g"]
    assert params["a"] == "x" * 501 and params["c.d.e"] == "[1, 2, 3]" and params["f"] == "None"
    assert len(params["b"]) == MAX_VALUE and "[cut: 6001 characters" in params["b"]


def test_params_with_dots_in_their_keys_do_not_overwrite_each_other() -> None:
    assert sorted(flat_params({"a.b": 1, "a": {"b": 2}}).values()) == ["1", "2"]


class _Thing:
    def method(self) -> None: ...


class _Mode(enum.Enum):
    FAST = "fast"


@pytest.mark.parametrize(
    "value",
    [lambda x: x, _Thing(), [_Thing()], functools.partial(print, _Thing()), "<f at 0x7f0123456789>", _Thing().method],
)
def test_tk05_no_memory_address_in_params(value: object) -> None:
    (text,) = flat_params({"fn": value}).values()
    assert "0x" not in text and text


def test_values_become_plain_and_stable() -> None:
    config = {
        "s": {"b", "a"},
        "t": (1, 2),
        "n": np.float64(0.5),
        "m": _Mode.FAST,
        "f": len,
        "c": _Thing,
        3: np.arange(2),
    }
    assert plain(config) == {
        "s": ["a", "b"],
        "t": [1, 2],
        "n": 0.5,
        "m": "fast",
        "f": "builtins.len",
        "c": f"{__name__}._Thing",
        3: [0, 1],
    }
    assert type(plain(np.float64(0.5))) is float
