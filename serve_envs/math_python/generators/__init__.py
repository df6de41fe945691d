"""Our own problems: five topics in four levels, from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

from serve_envs.math_python.generators import algebra, arithmetic, combinatorics, number_theory, word_problems
from serve_envs.math_python.problem import Problem

Topic = Literal["arithmetic", "number_theory", "algebra", "combinatorics", "word_problems"]
Level = Literal[1, 2, 3, 4]
LEVELS: tuple[Level, ...] = (1, 2, 3, 4)
_TOPICS: dict[Topic, Callable[[random.Random, int], tuple[str, str, str]]] = {
    "arithmetic": arithmetic.make,
    "number_theory": number_theory.make,
    "algebra": algebra.make,
    "combinatorics": combinatorics.make,
    "word_problems": word_problems.make,
}
TOPICS: tuple[Topic, ...] = tuple(_TOPICS)


def generate(topic: Topic, level: Level, draw: random.Random) -> Problem:
    """A problem.

    Args:
        topic: one of ``TOPICS``.
        level: one of ``LEVELS``; a higher one needs longer computations.
        draw: all chance comes from here.
    """
    question, answer, program = _TOPICS[topic](draw, level)
    return Problem(question, answer, program, f"{topic} {level}")
