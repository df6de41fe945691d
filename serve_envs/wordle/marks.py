"""What a guess tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

Hint = tuple[str, str]
"""A guess and its marks."""

RIGHT, ELSEWHERE, ABSENT = "G", "Y", "-"
"""Right place, another place, not in the word (or not once more)."""


def mark(guess: str, answer: str) -> str:
    """Marks of a guess, one a letter.

    Letters in their places are marked first. Then, from left to right, a letter is elsewhere as often as the answer
    has it beyond those; so of two equal letters in a guess the second may be absent.

    Example:
        >>> mark("eerie", "three"), mark("allow", "label")
        ('Y-G-G', 'YYY--')
    """
    marks = [RIGHT if letter == wanted else ABSENT for letter, wanted in zip(guess, answer, strict=True)]
    left = Counter(wanted for wanted, sign in zip(answer, marks, strict=True) if sign != RIGHT)
    for place, letter in enumerate(guess):
        if marks[place] != RIGHT and left[letter]:
            left[letter] -= 1
            marks[place] = ELSEWHERE
    return "".join(marks)


def fits(word: str, hints: Iterable[Hint]) -> bool:
    """Whether a word may still be the answer."""
    return all(mark(guess, word) == marks for guess, marks in hints)


def obeys(word: str, hints: Iterable[Hint]) -> bool:
    """Hard mode: letters in place stay there, and letters that are elsewhere are used again.

    Example:
        >>> obeys("llama", [("label", "GY--Y")]), obeys("slope", [("label", "GY--Y")])
        (True, False)
    """
    return all(obeying((word,), hint) for hint in hints)


def obeying(words: Iterable[str], hint: Hint) -> tuple[str, ...]:
    """Those words that use what one hint tells; see :func:`obeys`."""
    guess, marks = hint
    fixed = [(place, guess[place]) for place, sign in enumerate(marks) if sign == RIGHT]
    known = Counter(letter for letter, sign in zip(guess, marks, strict=True) if sign != ABSENT)
    needed = list(known.items())
    return tuple(
        word
        for word in words
        if all(word[place] == letter for place, letter in fixed)
        and all(word.count(letter) >= count for letter, count in needed)
    )
