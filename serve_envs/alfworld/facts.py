"""What holds in a household now."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

_SEEN_ONLY = ("checked", "not_checked")


class Facts:
    """Facts by predicate. What an action has taken away is remembered as ``not_...``, which the grammar asks for.

    Args:
        facts: those of the start, a predicate and its arguments each.
    """

    def __init__(self, facts: Iterable[tuple[str, tuple[str, ...]]]) -> None:
        self._facts: dict[str, dict[tuple[str, ...], None]] = {}
        for predicate, arguments in facts:
            self._facts.setdefault(predicate, {})[arguments] = None

    def of(self, predicate: str) -> Collection[tuple[str, ...]]:
        """The arguments for which a predicate holds."""
        return self._facts.get(predicate, {}).keys()

    def pairs(self, predicate: str) -> dict[str, str]:
        """A predicate of two arguments, as a mapping from the first to the second."""
        return {first: second for first, second in self.of(predicate)}

    def change(self, effect: str) -> None:
        """Let an effect happen.

        Args:
            effect: as the planner writes it, ``Atom holds(agent1, apple)`` or ``NegatedAtom holds(agent1, apple)``.
        """
        sign, _, atom = effect.partition(" ")
        name, _, inner = atom.removesuffix(")").partition("(")
        arguments = tuple(part for part in inner.split(", ") if part)
        new, old = (f"not_{name}", name) if sign == "NegatedAtom" else (name, f"not_{name}")
        self._facts.get(old, {}).pop(arguments, None)
        self._facts.setdefault(new, {})[arguments] = None

    def key(self) -> str:
        """Equal for equal states; what has been looked at makes no difference."""
        state = sorted(
            f"{predicate}{arguments}"
            for predicate, entries in self._facts.items()
            if predicate not in _SEEN_ONLY and (not predicate.startswith("not_") or predicate == "not_inreceptacle")
            for arguments in entries
        )
        return hashlib.sha256("\n".join(state).encode()).hexdigest()[:16]
