"""An environment that holds what can be left behind: a process of its own with a process under it, a port, a folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import Any

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.trajectory.message import Message
from serve_envs.child import Child

_TESTS = os.path.dirname(os.path.abspath(__file__))


class Sleeper:
    """In a child: makes a temporary folder, and starts a process that would sleep for long."""

    def __init__(self, own_session: bool) -> None:
        self.folder = tempfile.mkdtemp()
        self._process = subprocess.Popen(["sleep", "600"], start_new_session=own_session)

    def ids(self) -> tuple[int, int]:
        return os.getpid(), self._process.pid

    def where(self) -> str:
        return self.folder


class HoldingEnv:
    """Each session has a folder, a listening port, and a process: ``sleep``, or a child that has started one."""

    def __init__(self, folder: str, child: bool = False) -> None:
        self._folder = folder
        self._child = child
        self._held: Any = None

    def schema(self) -> EnvSchema:
        return EnvSchema(
            name="holding",
            version="1",
            splits={"train": 1000},
            splits_hash="0",
            action_format="look, die, end, or where",
            lists_actions=False,
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        self._held = tempfile.mkdtemp(dir=self._folder)
        self._port = socket.socket()
        self._port.bind(("127.0.0.1", 0))
        self._port.listen()
        if self._child:
            if _TESTS not in sys.path:  # as in a replica: the class travelled there by value, its child imports it
                sys.path.append(_TESTS)
            self._process: Any = Child("holding_env:Sleeper", {"own_session": index % 2 == 1})
            own, under = self._process.call("ids")
            return Observation((Message("user", f"{own} {under}"),))
        self._process = subprocess.Popen(["sleep", "600"])
        return Observation((Message("user", str(self._process.pid)),))

    def step(self, action: str) -> StepResult:
        if action == "die":
            self._process.kill()
            raise RuntimeError("my process was killed")
        if self._child:
            self._process.call("ids")
        if action == "where":
            return StepResult(Observation((Message("user", self._process.call("where")),)))
        return StepResult(Observation((Message("user", "fine"),)), terminated=action == "end")

    def close(self) -> None:
        if self._held is not None:
            self._process.kill()
            if not self._child:
                self._process.wait()
            self._port.close()
            shutil.rmtree(self._held)
            self._held = None
