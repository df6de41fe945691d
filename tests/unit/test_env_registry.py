from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from rllib_agentic.envs import registry
from rllib_agentic.envs.env import Env
from rllib_agentic.envs.registry import EnvEntry, env_class, env_entries, env_names, make_env
from rllib_agentic.errors import InputError


def test_our_environments_are_there_and_can_be_made() -> None:
    assert {"bandit", "frozenlake", "textcraft"} <= set(env_names())
    for name in ("bandit", "frozenlake", "textcraft"):
        env = make_env(name)
        assert isinstance(env, Env)
        assert env.schema().name == name


def test_listing_imports_no_environment() -> None:
    loaded = set(sys.modules)
    env_entries()
    assert not {name for name in set(sys.modules) - loaded if name.startswith("serve_envs")}


def test_unknown_name_lists_the_known_and_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean 'frozenlake'"):
        make_env("frozen_lake")


def test_unknown_argument_and_wrong_type_name_the_key() -> None:
    with pytest.raises(InputError, match=r"env_config\.sizes: unknown key\. Did you mean 'size'"):
        make_env("frozenlake", sizes=4)
    with pytest.raises(InputError, match=r"env_config\.size: .*integer.*'four'"):
        make_env("frozenlake", size="four")
    with pytest.raises(InputError, match=r"env_config\.start"):
        make_env("frozenlake", start="middle")


def test_arguments_reach_the_environment() -> None:
    splits = make_env("textcraft", depths=[1]).schema().splits
    assert sum(splits.values()) == 125


def test_what_is_missing_is_answered_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EnvEntry(
        "web",
        "nowhere:Web",
        modules=("no_such_module_here",),
        extra="web",
        programs=("no-such-program-here",),
        debian=("some-browser",),
    )
    assert entry.missing() == ["pip install 'rllib-agentic[web]'", "apt-get install some-browser"]
    monkeypatch.setattr(registry, "_BUILT_IN", (entry,))
    with pytest.raises(InputError, match=r"pip install 'rllib-agentic\[web\]' && apt-get install some-browser"):
        env_class("web")


class Foreign:
    """A third party's environment with an argument that must be given, and open ones."""

    def __init__(self, level: int, **more: object) -> None:
        self.level, self.more = level, more


def test_third_parties_come_through_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("foreign_environments")
    module.Foreign = Foreign  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "foreign_environments", module)
    point = EntryPoint("foreign", "foreign_environments:Foreign", "rllib_agentic.envs")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == "rllib_agentic.envs" else [])
    assert "foreign" in env_names()
    env = make_env("foreign", level=3, colour="red")
    assert (env.level, env.more) == (3, {"colour": "red"})  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"env_config\.level: this key is required"):
        make_env("foreign")


def test_two_environments_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("bandit", "elsewhere:Bandit", "rllib_agentic.envs")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    with pytest.raises(InputError, match="two environments are called 'bandit'"):
        env_entries()


def test_a_target_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_BUILT_IN", (EnvEntry("gone", "serve_envs.bandit.env:Gone"),))
    with pytest.raises(InputError, match=r"'gone'.*serve_envs\.bandit\.env:Gone"):
        env_class("gone")
