from __future__ import annotations

from functools import partial

import broken_envs as broken
import pytest

from rllib_agentic.envs.checker import check_env
from rllib_agentic.envs.registry import make_env
from rllib_agentic.errors import InputError


@pytest.mark.parametrize(
    ("name", "arguments", "expert_success"),
    [
        ("bandit", {}, 1.0),
        ("bandit", {"safe_arms": 3, "risky_arms": 2, "pulls": 3}, 1.0),
        ("frozenlake", {}, 1.0),
        ("frozenlake", {"size": 3, "slip": 0.2, "train": 20, "validation": 5, "test": 5}, 0.0),
        ("frozenlake", {"start": "random", "corners": "random", "show_map": "never"}, 1.0),
        ("textcraft", {}, 1.0),
        ("textcraft", {"depths": [1], "distractors": 0}, 1.0),
    ],
)
def test_our_environments_pass(name: str, arguments: dict, expert_success: float) -> None:
    make = partial(make_env, name, **arguments)
    assert check_env(make, expert_success=expert_success, processes=not arguments) == []


def test_a_sound_environment_passes() -> None:
    assert check_env(broken.Sound, processes=False) == []


@pytest.mark.parametrize(
    ("make", "check", "says"),
    [
        (broken.NoClose, "protocol", "lacks the methods close"),
        (broken.SchemaIsDict, "protocol", "must return an EnvSchema, got dict"),
        (broken.EmptySplit, "protocol", "a number of tasks from 1"),
        (broken.SchemaChanges, "protocol", "depend on the arguments only"),
        (broken.ResetGivesText, "types", "reset must give an Observation, got str"),
        (broken.SpeaksAsAssistant, "types", "not as 'assistant'"),
        (broken.ActionsAsList, "types", "None or a tuple of texts"),
        (broken.ListsNothing, "types", "lists_actions is true"),
        (broken.InfoNotJson, "types", "plain JSON"),
        (broken.RewardNan, "types", "reward must be a finite number"),
        (broken.FlagIsNumber, "types", "success must be True or False"),
        (broken.GlobalRandom, "determinism", "at reset, messages"),
        (broken.RemembersEpisodes, "determinism", "keep no state over reset"),
        (broken.UsesHash, "processes", "PYTHONHASHSEED"),
        (broken.Shared, "isolation", "beside another session"),
        (broken.CloseTwiceFails, "lifecycle", "ValueError: closed already"),
        (broken.NoResetAfterClose, "lifecycle", "ValueError: I am closed"),
        (broken.PaysAfterTheEnd, "lifecycle", "after the end"),
        (broken.ReusesObservation, "lifecycle", "changed after it was returned"),
        (broken.ListsAnInvalidAction, "actions", "'fly'"),
        (broken.RaisesOnNonsense, "actions", "answer with an observation instead"),
        (broken.DoesNotCountNonsense, "actions", "invalid_action"),
        (broken.PaysTooMuch, "rewards", "returned 3"),
        (broken.SplitsOverlap, "splits", "no task may be in two splits"),
        (broken.ExpertIsWrong, "expert", "solved 0%"),
    ],
)
def test_a_broken_environment_is_told_what_to_mend(make: type[broken.Sound], check: str, says: str) -> None:
    findings = check_env(make, processes=check == "processes")
    assert [finding for finding in findings if finding.check == check and says in finding.message], findings


def test_one_object_for_all_sessions_is_noticed() -> None:
    env = broken.Sound()
    findings = check_env(lambda: env, processes=False)
    assert findings[0].check == "protocol"
    assert "one object twice" in findings[0].message


def test_what_cannot_reach_another_process_is_refused_with_the_way_out() -> None:
    with pytest.raises(InputError, match="processes=False"):
        check_env(lambda: broken.Sound())
    assert check_env(lambda: broken.Sound(), processes=False) == []


def test_an_environment_in_place_of_a_factory_is_refused() -> None:
    with pytest.raises(InputError, match="make must be callable"):
        check_env(broken.Sound())  # type: ignore[arg-type]
