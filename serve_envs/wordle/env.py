"""Wordle as a text environment."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.wordle.expert import solver_for
from serve_envs.wordle.marks import Hint, mark, obeying, obeys
from serve_envs.wordle.words import TIERS, Tier, all_guesses, answers_by_tier, make_splits, splits_hash, tier_of

_SYSTEM = (
    "Find the hidden word of five letters. After each guess every letter gets a mark: G right place, Y another place, "
    "- not in the word (or not once more). Answer one word."
)
_HARD = " Marked letters must be used again, those marked G in their places."
_WORD = re.compile(r"[a-z]{5}")


class Wordle:
    """Find a hidden word; each guess is marked letter by letter.

    Args:
        tiers: how usual the answers are: some of ``very common``, ``common``, ``less common``.
        guesses: guesses in an episode.
        hard: marked letters must be used again.
        answers_only: only words that can be the answer count as guesses, and not the 4000 others.
        list_actions: list all guesses that would count, as admissible actions.
        reward_per_guess: added for every guess that is counted and not the word; negative for a cost.
        max_steps: turns after which the episode is truncated; what is no word takes a turn but no guess.

    Raises:
        InputError: an argument is out of range.
    """

    def __init__(
        self,
        tiers: Sequence[Tier] = TIERS,
        guesses: int = 6,
        hard: bool = False,
        answers_only: bool = False,
        list_actions: bool = False,
        reward_per_guess: float = 0.0,
        max_steps: int = 12,
    ) -> None:
        if not tiers or not set(tiers) <= set(TIERS):
            raise InputError(f"wordle: tiers must be some of {', '.join(TIERS)}, got {list(tiers)}")
        if guesses < 1:
            raise InputError(f"wordle: guesses must be at least 1, got {guesses}")
        if max_steps < 1:
            raise InputError(f"wordle: max_steps must be at least 1, got {max_steps}")
        self._tiers: tuple[Tier, ...] = tuple(tier for tier in TIERS if tier in tiers)
        self._guesses = guesses
        self.quick = not (hard and list_actions)  # thousands of words are then sifted in a step
        self._hard = hard
        self._list_actions = list_actions
        self._reward_per_guess = reward_per_guess
        self._max_steps = max_steps
        self._splits = make_splits(self._tiers)
        self._answers = tuple(sorted(word for tier in self._tiers for word in answers_by_tier()[tier]))
        self._words = self._answers if answers_only else all_guesses()
        self._known = frozenset(self._words)
        self._open = self._words
        self._answer = ""
        self._hints: list[Hint] = []
        self._steps = 0

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        paid = self._reward_per_guess * self._guesses
        return EnvSchema(
            name="wordle",
            version="1",
            splits={split: len(words) for split, words in self._splits.items()},
            splits_hash=splits_hash(self._tiers),
            action_format="A word of five letters; bare, or after 'Action:'. Example: crane",
            lists_actions=self._list_actions,
            reward_range=(min(0.0, paid), 1.0 + max(0.0, paid)),
            max_turns=min(self._max_steps, self._guesses + 2),
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Hide a word. Nothing is left to chance, so ``seed`` changes nothing."""
        self._answer = self._splits[split][index]
        self._hints = []
        self._open = self._words
        self._steps = 0
        return Observation(
            messages=(
                Message("system", _SYSTEM + (_HARD if self._hard else "")),
                Message("user", f"{self._left()} left."),
            ),
            actions=self._actions(),
            state_key=self._state_key(),
            info={"category": tier_of(self._answer)},
        )

    def step(self, action: str) -> StepResult:
        """Mark a guess, or say why it does not count.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
        """
        answer = self._running()
        self._steps += 1
        guess = "".join(extract_action(action).lower().split())
        fault = self._fault(guess)
        if not fault:
            self._hints.append((guess, mark(guess, answer)))
            if self._hard and self._list_actions:
                self._open = obeying(self._open, self._hints[-1])
        success = not fault and guess == answer
        spent = len(self._hints) >= self._guesses
        ended = success or spent
        truncated = not ended and self._steps >= self._max_steps
        text = fault or f"{_spell(self._hints[-1])}."
        text += " That is the word." if success else f" The word was {answer}." if spent else f" {self._left()} left."
        observation = Observation(
            messages=(Message("user", text),),
            actions=() if ended else self._actions(),
            state_key=self._state_key(),
        )
        if ended or truncated:
            self._answer = ""
        return StepResult(
            observation,
            reward=float(success) + (0.0 if fault or success else self._reward_per_guess),
            terminated=ended,
            truncated=truncated,
            success=success,
            metrics={"invalid_action": float(bool(fault)), "guesses": float(not fault)},
        )

    def close(self) -> None:
        """End the episode; nothing else is held."""
        self._answer = ""

    def expert_action(self) -> str:
        """The guess that tells most about the answers that are still possible."""
        self._running()
        return solver_for(self._answers).choose(self._hints, self._hard)

    def _running(self) -> str:
        if not self._answer:
            raise RuntimeError("wordle: no episode is running; call reset")
        return self._answer

    def _fault(self, guess: str) -> str:
        if not _WORD.fullmatch(guess):
            return "That is no word of five letters."
        if guess not in self._known:
            return f"{guess} is not in the list of words."
        if self._hard and not obeys(guess, self._hints):
            return f"{guess} does not use every marked letter."
        return ""

    def _actions(self) -> tuple[str, ...] | None:
        return self._open if self._list_actions else None

    def _left(self) -> str:
        left = self._guesses - len(self._hints)
        return f"{left} guess{'' if left == 1 else 'es'}"

    def _state_key(self) -> str:
        return hashlib.sha256(repr((self._answer, self._hints)).encode()).hexdigest()[:16]


def _spell(hint: Hint) -> str:
    return " / ".join(f"{letter} {sign}" for letter, sign in zip(*hint, strict=True))
