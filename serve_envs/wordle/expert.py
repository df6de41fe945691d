"""The guess that tells most, over all answers that are still possible."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from serve_envs.wordle.marks import Hint, obeys

_CODES = 3**5


class Solver:
    """Chooses guesses by entropy: the one whose marks split the possible answers most evenly.

    Guesses are taken from the answers alone; among the best, one that may itself be the answer wins.

    Args:
        answers: every word that can be the answer.
    """

    def __init__(self, answers: tuple[str, ...]) -> None:
        self._answers = answers
        self._places = {word: number for number, word in enumerate(answers)}
        self._codes = _all_marks(answers)
        self._first: dict[bool, str] = {}

    def choose(self, hints: Sequence[Hint], hard: bool) -> str:
        """The next guess.

        Args:
            hints: the guesses so far, with their marks.
            hard: keep to hard mode's rule.
        """
        if not hints:
            if hard not in self._first:
                self._first[hard] = self._best(np.arange(len(self._answers)), np.arange(len(self._answers)))
            return self._first[hard]
        possible = np.arange(len(self._answers))
        for guess, marks in hints:
            possible = possible[self._told(guess)[possible] == _code(marks)]
        if len(possible) <= 2:
            return self._answers[possible[0]]
        allowed = np.arange(len(self._answers))
        if hard:
            allowed = np.array([number for number in allowed if obeys(self._answers[number], hints)])
        return self._best(possible, allowed)

    def _told(self, guess: str) -> np.ndarray:
        if guess in self._places:
            return self._codes[self._places[guess]]
        return _marks_of(guess, _letters(self._answers))

    def _best(self, possible: np.ndarray, allowed: np.ndarray) -> str:
        codes = self._codes[np.ix_(allowed, possible)]
        rows = np.arange(len(allowed))[:, None] * _CODES
        counts = np.bincount((rows + codes).ravel(), minlength=len(allowed) * _CODES).reshape(-1, _CODES)
        entropy = -_x_log_x(len(possible))[counts].sum(axis=1)
        may_be_it = np.isin(allowed, possible)
        best = np.lexsort((np.arange(len(allowed)), ~may_be_it, -entropy.round(9)))[0]
        return self._answers[allowed[best]]


@lru_cache(maxsize=8)
def solver_for(answers: tuple[str, ...]) -> Solver:
    """The solver for a set of answers; takes about a second for two thousand of them, once a process."""
    return Solver(answers)


@lru_cache(maxsize=4096)
def _x_log_x(most: int) -> np.ndarray:
    shares = np.arange(most + 1) / most
    return shares * np.log(np.where(shares > 0, shares, 1.0))


def _code(marks: str) -> int:
    return sum("-YG".index(sign) * 3**place for place, sign in enumerate(marks))


def _letters(words: Sequence[str]) -> np.ndarray:
    return np.array([[ord(letter) for letter in word] for word in words], dtype=np.uint8)


def _all_marks(answers: tuple[str, ...]) -> np.ndarray:
    letters = _letters(answers)
    return np.stack([_marks_of(word, letters) for word in answers])


def _marks_of(guess: str, answers: np.ndarray) -> np.ndarray:
    """Codes of one guess against all answers; the same rule as ``marks.mark``, for arrays."""
    letters = _letters([guess])[0]
    right = answers == letters
    code = right @ (2 * 3 ** np.arange(5))
    for place, letter in enumerate(letters):
        spare = ((answers == letter) & ~right).sum(axis=1)
        used = sum((~right[:, before] for before in range(place) if letters[before] == letter), np.zeros(len(answers)))
        code = code + np.where(~right[:, place] & (used < spare), 3**place, 0)
    return code.astype(np.uint8)
