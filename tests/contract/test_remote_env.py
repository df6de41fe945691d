"""A service at a URL passes, or fails, the checker as its environment does."""

from __future__ import annotations

from functools import partial

import broken_envs as broken
import pytest
from http_service import served

from rllib_agentic.cli.main import main
from rllib_agentic.envs.checker import check_env
from rllib_agentic.envs.hosting import EnvHost
from rllib_agentic.envs.remote_env import RemoteEnv
from rllib_agentic.errors import InfrastructureError, InputError
from serve_envs.gateway import make_http_app
from serve_envs.worker import EnvWorker


def test_a_sound_service_passes_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with served(make_http_app(EnvWorker(EnvHost(broken.Sound)))) as url:
        assert main(["envs", "check", url]) == 0
    assert "everything that training relies on holds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("env", "check", "says"),
    [
        (broken.GlobalRandom, "determinism", "at reset, messages"),
        (broken.SplitsOverlap, "splits", "no task may be in two splits"),
        (broken.RaisesOnNonsense, "actions", "answer with an observation instead"),
        (broken.PaysTooMuch, "rewards", "returned 3"),
    ],
)
def test_a_broken_service_is_told_what_to_mend(env: type[broken.Sound], check: str, says: str) -> None:
    with served(make_http_app(EnvWorker(EnvHost(env)))) as url:
        findings = check_env(partial(RemoteEnv, url), processes=False)
    assert [finding for finding in findings if finding.check == check and says in finding.message], findings


def test_what_is_no_service_is_refused() -> None:
    with pytest.raises(InputError, match="expected http"):
        RemoteEnv("ftp://127.0.0.1/x")
    with pytest.raises(InfrastructureError, match=r"127\.0\.0\.1:9"):
        RemoteEnv("http://127.0.0.1:9").schema()
