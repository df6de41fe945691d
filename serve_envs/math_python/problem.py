"""A problem with its exact answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One task.

    Attributes:
        question: as it is asked.
        answer: exact, as it is to stand in the box: an integer, a fraction ``3/4``, or mathematics in LaTeX.
        program: Python that prints the answer, by another way than the one that made it where there is one.
        category: for results, ``"algebra 2"``.
    """

    question: str
    answer: str
    program: str
    category: str
