"""Mathematics with a Python interpreter, as in ToRL (arXiv:2503.23383)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rllib_agentic.components import parse_settings
from rllib_agentic.envs.env import EnvSchema, Observation
from rllib_agentic.errors import InputError
from rllib_agentic.rewards.answer import AnswerChecker
from rllib_agentic.rewards.boxed import boxed_answer
from rllib_agentic.sandbox import OutputShape, SandboxSettings
from rllib_agentic.sandbox.python_tool import PythonTool
from rllib_agentic.sandbox.shared import close_shared
from rllib_agentic.tools import CallResult, Grade, ToolEnv, ToolUse
from rllib_agentic.tools.calling import Fenced
from rllib_agentic.trajectory.message import Message
from serve_envs.math_python.novice import Habits
from serve_envs.math_python.problem import Problem
from serve_envs.math_python.sources import TASKS, Splits
from serve_envs.splits import checked_counts, hash_of

_SLACK_S = 60.0  # a call's time limit is the sandbox's own; this one is for a sandbox that does not answer


class MathPython(ToolEnv):
    r"""Solve a problem, with as many runs of Python as the budget allows, and put the answer in ``\boxed{}``.

    Args:
        tasks: where problems come from: ``generated`` (default), ``reasoning_gym`` or ``dataset``, with settings.
        calls: runs of code that an episode may have; further blocks are text.
        observation: ``continue``: the output is appended to the agent's own turn (ToRL); ``message``: it is a message.
        persist: whether the runs of an episode share their variables.
        timeout_s: wall seconds of a run.
        memory_mb: memory of a run.
        isolation: of the sandbox: ``auto``, ``namespaces``, ``landlock`` or ``none``.
        output: how output is shaped; see :class:`~rllib_agentic.sandbox.OutputShape`.
        right: reward for the right answer.
        wrong: reward for a wrong one.
        hint: whether the system message tells how to run code.
        novice: what kind of beginner the expert is to be, for demonstrations; see :class:`Habits`. None: no beginner.
        train: problems in the split ``train``; of a data set, the most.
        validation: likewise.
        test: likewise.
        use: settings of :class:`~rllib_agentic.tools.ToolUse` that differ from these.

    Raises:
        InputError: an argument is out of range, problems cannot be read, or there are not enough.
    """

    def __init__(
        self,
        tasks: str | dict[str, Any] = "generated",
        calls: int = 1,
        observation: Literal["continue", "message"] = "continue",
        persist: bool = False,
        timeout_s: float = 5.0,
        memory_mb: int = 512,
        isolation: Literal["auto", "namespaces", "landlock", "none"] = "auto",
        output: dict[str, Any] | None = None,
        right: float = 1.0,
        wrong: float = 0.0,
        hint: bool = True,
        novice: dict[str, Any] | None = None,
        train: int = 2000,
        validation: int = 200,
        test: int = 200,
        use: dict[str, Any] | None = None,
    ) -> None:
        settings = {"isolation": isolation, "timeout_s": timeout_s, "cpu_s": timeout_s, "memory_mb": memory_mb}
        self._python = PythonTool(
            parse_settings(SandboxSettings, settings, "env_config"),
            parse_settings(OutputShape, output or {}, "env_config.output"),
            persist=persist,
        )
        chosen: dict[str, Any] = {
            "calling": Fenced(),
            "observation": observation,
            "calls_per_episode": calls,
            "spent": "ignore" if observation == "continue" else "error",
            "call_timeout_s": timeout_s + _SLACK_S,
        }
        super().__init__([self._python], parse_settings(ToolUse, chosen | (use or {}), "env_config.use"))
        self._splits = _splits(tasks, train, validation, test)
        self._checker = AnswerChecker(isolation)
        self._habits = None if novice is None else parse_settings(Habits, novice, "env_config.novice")
        self._rewards = (right, wrong)
        self._hint = hint
        self._problem: Problem | None = None
        self._seed = 0
        self._said: list[str] = []
        self._runs: list[bool] = []

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        right, wrong = self._rewards
        calls = self.use.calls_per_episode
        return self.describe(
            "math_python",
            splits={split: len(problems) for split, problems in self._splits.items()},
            splits_hash=hash_of(self._splits, lambda problem: [problem.question, problem.answer]),
            reward_range=(min(right, wrong, 0.0), max(right, wrong, 0.0)),
            max_turns=10 if calls is None else calls + 3,
        )

    def begin(self, split: str, index: int, seed: int) -> Observation:
        """Ask. ``seed`` is that of the random numbers in the agent's programs."""
        self._problem = self._splits[split][index]
        self._seed = seed
        self._python.begin(seed)
        self._said, self._runs = [], []
        return Observation((Message("user", self._problem.question),), info={"category": self._problem.category})

    def instructions(self) -> str:
        """How to run code and where the answer goes."""
        if not self._hint:
            return ""
        return (
            "Solve the problem. You may run Python: write the code between a line ```python and a line ```, then a "
            "line ```output, and what the code prints is shown there. Put the final answer in \\boxed{}."
        )

    def answer_of(self, said: str) -> str | None:
        r"""What was said, where it has a box. Code and outputs are not what was said."""
        self._said.append(said)
        return said if boxed_answer(self._whole_turn()) is not None else None

    def after_calls(self, results: Sequence[CallResult]) -> Grade | None:
        """Count; nothing is graded yet."""
        metrics: dict[str, float] = {}
        for done in results:
            if "error" in done.result.metadata:
                metrics |= self._count(done.result.metadata["error"] is None)
        return Grade(ended=False, metrics=metrics)

    def grade(self, answer: str) -> Grade:
        """Compare the last box with the answer."""
        assert self._problem is not None
        given = boxed_answer(self._whole_turn())
        verdict = self._checker.check(given, self._problem.answer)
        reward = self._rewards[0] if verdict.right else self._rewards[1]
        kind = "right" if verdict.right else "wrong"
        return Grade(
            reward=reward,
            success=verdict.right,
            rewards={"answer": reward},
            metrics={
                "no_answer": float(given is None),
                "answer_unreadable": float(verdict.problem == "unreadable"),
                "answer_timeout": float(verdict.problem == "timeout"),
                f"{kind}_code_runs": float(len(self._runs)),
                f"{kind}_code_ok": float(sum(self._runs)),
            },
        )

    def end(self) -> None:
        """Free the episode's interpreter."""
        self._python.end()

    def expert_action(self) -> str:
        """A program that prints the answer, then the answer; a beginner's way where that was asked for."""
        if self._problem is None:
            raise RuntimeError("math_python: no episode is running; call reset")
        if self._habits is not None:
            runs, most = len(self._runs), self.use.calls_per_episode
            return self._habits.action(self._problem, self._seed, runs, may_run=most is None or runs < most)
        if self._runs:
            return f"\\boxed{{{self._problem.answer}}}"
        return f"```python\n{self._problem.program}\n```\n```output"

    def random_action(self, draw: random.Random) -> str:
        """A guess."""
        return f"\\boxed{{{draw.randint(-100, 100)}}}"

    @classmethod
    def release(cls) -> None:
        """Close the sandboxes that all sessions of this process share."""
        close_shared()

    def _whole_turn(self) -> str:
        """What the agent has said in its turn so far; with ``continue`` an episode is one turn."""
        return "\n".join(self._said) if self.use.observation == "continue" else self._said[-1]

    def _count(self, ok: bool) -> dict[str, float]:
        self._runs.append(ok)
        first_failure = not ok and self._runs.count(False) == 1
        return {"code_used": float(len(self._runs) == 1), "code_failed": float(first_failure)}


def _splits(tasks: str | Mapping[str, Any], train: int, validation: int, test: int) -> Splits:
    found = TASKS.parse(tasks, "env_config.tasks").splits(checked_counts("math_python", train, validation, test))
    if not any(found.values()):
        raise InputError("math_python: there is no problem in any split")
    return found
