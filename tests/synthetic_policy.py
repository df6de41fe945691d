"""Policies whose every answer can be listed: healthy, fallen into the echo trap, collapsed to a template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rllib_agentic.trajectory import FinishReason, Task, Trajectory, Turn, rows_of
from rllib_agentic.trajectory.checksum import ENGINE_CHECKSUM, checksum_rows

PROMPTS, TOKENS = 8, 4
ANSWERS = TOKENS * TOKENS  # two tokens
Table = npt.NDArray[np.float64]


def one_hot(answers: npt.NDArray[np.int64]) -> Table:
    return np.eye(ANSWERS)[answers]


TARGETS = one_hot(np.arange(PROMPTS))
"""The right answer of each prompt."""


@dataclass(frozen=True)
class TablePolicy:
    """Answers of two tokens, ``4 * first + second``, from a table ``[prompts, answers]`` of probabilities."""

    table: Table
    mismatch: Mapping[str, float] = field(default_factory=lambda: {"mean": 0.0, "max": 1e-6, "kl": 1e-12, "ess": 1.0})

    def logprobs(self, prompt: int, answer: int) -> list[float]:
        """Of the two tokens: ``log p(first | prompt)``, ``log p(second | prompt, first)``."""
        first = self.table[prompt].reshape(TOKENS, TOKENS).sum(axis=1)[answer // TOKENS]
        return [float(np.log(first)), float(np.log(self.table[prompt, answer] / first))]

    def episode(self, prompt: int, answer: int, member: int = 0, version: int = 0) -> Trajectory:
        ids = np.array([1 + answer // TOKENS, 1 + answer % TOKENS], np.int32)
        right = bool(TARGETS[prompt, answer])
        turn = Turn(
            context_ids=np.array([100 + prompt, 7], np.int32),
            action_ids=ids,
            logprobs=np.array(self.logprobs(prompt, answer), np.float32),
            policy_versions=np.full(2, version, np.int32),
            finish_reason=FinishReason.STOP,
            segment=0,
            text=str(answer),
            reward=float(right),
        )
        made = Trajectory(
            Task("t", "train", prompt), f"g{prompt}", member, (), (turn,), True, False, right, "terminated"
        )
        checksum = checksum_rows(rows_of(made, [0.0]))
        return Trajectory(
            made.task, made.group_id, member, (), (turn,), True, False, right, "terminated",
            metrics={ENGINE_CHECKSUM: checksum},
        )  # fmt: skip

    def sample(self, rng: np.random.Generator, size: int = 8, version: int = 0) -> list[list[Trajectory]]:
        """A group a prompt."""
        return [
            [
                self.episode(prompt, int(rng.choice(ANSWERS, p=self.table[prompt])), member, version)
                for member in range(size)
            ]
            for prompt in range(PROMPTS)
        ]

    def cross_scores(self, groups: list[list[Trajectory]]) -> tuple[Table, npt.NDArray[np.int64]]:
        answers = [(t.task.index, int(t.turns[0].text)) for group in groups for t in group]
        scores = np.log(self.table[:, [answer for _, answer in answers]]).T
        return scores, np.array([prompt for prompt, _ in answers])


def mix(*parts: tuple[float, Table]) -> Table:
    table = np.sum([share * part for share, part in parts], axis=0)
    return table / table.sum(axis=1, keepdims=True)


UNIFORM = np.full((PROMPTS, ANSWERS), 1 / ANSWERS)
START = mix((0.7, UNIFORM), (0.3, TARGETS))
ECHO = one_hot(np.full(PROMPTS, ANSWERS - 1))  # one answer to everything, and a wrong one


def healthy(iteration: int) -> tuple[TablePolicy, float]:
    """Learns: the right answer of each prompt becomes all but certain; the gradient fades."""
    learned = min(iteration / 30, 1.0)
    return TablePolicy(mix((1 - learned, START), (learned, mix((0.03, UNIFORM), (0.97, TARGETS))))), 1.2 - learned


def echoing(iteration: int) -> tuple[TablePolicy, float]:
    """Falls for one answer after a good start; when nothing but it is left, gradients explode."""
    lost = float(np.clip((iteration - 12) / 10, 0.0, 0.99))
    return TablePolicy(
        mix((1 - lost, START), (lost, mix((0.01, UNIFORM), (0.99, ECHO))))
    ), 8.0 if iteration > 26 else 1.0


def templated(iteration: int) -> tuple[TablePolicy, float]:
    """Keeps its stock of answers, and forgets which prompt is whose."""
    listening = mix((0.4, UNIFORM), (0.6, TARGETS))
    deaf = np.broadcast_to(listening.mean(axis=0), listening.shape)
    lost = float(np.clip((iteration - 12) / 10, 0.0, 1.0))
    return TablePolicy(mix((1 - lost, listening), (lost, deaf))), 1.0


def drifting(iteration: int) -> tuple[TablePolicy, float]:
    """Learns, while the engine runs away from the learner."""
    policy, norm = healthy(iteration)
    far = 0.02 * max(iteration - 12, 0)
    return TablePolicy(policy.table, {"mean": 0.0, "max": far, "kl": far**2 / 2, "ess": float(np.exp(-(far**2)))}), norm
