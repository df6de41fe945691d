"""A beginner who demonstrates: sometimes with code, sometimes from the head, not always right.

Cloning it makes a policy from which reinforcement has something to choose.
"""

from __future__ import annotations

import random

from pydantic import Field

from rllib_agentic.components import Settings
from serve_envs.math_python.problem import Problem


class Habits(Settings):
    """How often a beginner does what.

    Attributes:
        code: share of problems that are solved with code; the others are guessed.
        slips: share of the programs that fail, by a bracket or a name that is wrong.
        mends: share of the failing programs after which the right one is written, where the budget allows a second run.
        misreads: share of the programs whose output is not what ends up in the box.
    """

    code: float = Field(default=0.5, ge=0, le=1)
    slips: float = Field(default=0.3, ge=0, le=1)
    mends: float = Field(default=0.0, ge=0, le=1)
    misreads: float = Field(default=0.0, ge=0, le=1)

    def action(self, problem: Problem, seed: int, runs: int, may_run: bool) -> str:
        """What the beginner says now; equal problem and seed give equal habits.

        Args:
            problem: to be solved.
            seed: of the episode.
            runs: programs that ran in this episode.
            may_run: whether the budget allows another one.
        """
        draw = random.Random(f"novice {problem.question} {seed}")
        codes, slips, misreads = (draw.random() < share for share in (self.code, self.slips, self.misreads))
        mends = slips and random.Random(f"novice mends {problem.question} {seed}").random() < self.mends
        if may_run and codes and runs <= mends:
            program = _slip(problem.program, draw) if slips and runs == 0 else problem.program
            return f"```python\n{program}\n```\n```output"
        succeeded = runs > slips
        return f"\\boxed{{{problem.answer if succeeded and not misreads else _guess(problem, draw)}}}"


def _slip(program: str, draw: random.Random) -> str:
    return draw.choice([program.removesuffix(")"), program.replace("print(", "prin(", 1)])


def _guess(problem: Problem, draw: random.Random) -> str:
    digits = len(problem.answer.lstrip("-"))
    return str(draw.randint(10 ** (digits - 1), 10**digits - 1)) if digits < 10 else str(draw.randint(0, 99))
