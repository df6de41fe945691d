"""What the sandbox advises where nothing isolates, from what the kernel shows."""

from __future__ import annotations

import pytest

from rllib_agentic.sandbox import mending


@pytest.mark.parametrize(
    ("shown", "release", "step"),
    [
        ({"apparmor_restrict_unprivileged_userns": "1"}, "6.8.0-31-generic", "apparmor_restrict_unprivileged_userns=0"),
        ({"unprivileged_userns_clone": "0"}, "6.8.0", "unprivileged_userns_clone=1"),
        ({"max_user_namespaces": "0"}, "6.8.0", "max_user_namespaces=15000"),
        ({}, "5.10.0-28-amd64", "Linux 6.2"),
    ],
)
def test_each_lock_has_its_key(monkeypatch: pytest.MonkeyPatch, shown: dict[str, str], release: str, step: str) -> None:
    monkeypatch.setattr(mending, "_setting", lambda path: shown.get(path.rpartition("/")[2]))
    monkeypatch.setattr(mending.platform, "release", lambda: release)
    monkeypatch.setattr(mending.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(mending.os.path, "exists", lambda path: False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (found,) = mending.what_to_do()
    assert step in found


def test_elsewhere_than_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mending.sys, "platform", "darwin")
    assert "Linux" in mending.what_to_do()[0]
