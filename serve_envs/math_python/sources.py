"""Where the problems come from: our generators, reasoning-gym's, or a data set. The argument ``tasks`` chooses."""

from __future__ import annotations

import importlib.util
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice

from pydantic import Field

from rllib_agentic.components import Family, Settings
from rllib_agentic.errors import InputError
from serve_envs.math_python.dataset import read_problems
from serve_envs.math_python.generators import LEVELS, TOPICS, Level, Topic, generate
from serve_envs.math_python.problem import Problem
from serve_envs.splits import Counts, fill_splits

Splits = Mapping[str, Sequence[Problem]]
_TRIES = 40  # candidates for each task that is wanted; small topics repeat themselves


class TaskSource(Settings, ABC):
    """A member of the family ``math_tasks``."""

    @abstractmethod
    def splits(self, counts: Counts) -> Splits:
        """The problems of each split; none is in two.

        Raises:
            InputError: there are not enough, or they cannot be read.
        """


class Generated(TaskSource):
    """Our own generators.

    Attributes:
        topics: which.
        levels: from 1 to 4.
        seed: another seed, other problems.
    """

    topics: tuple[Topic, ...] = Field(default=TOPICS, min_length=1)
    levels: tuple[Level, ...] = Field(default=LEVELS, min_length=1)
    seed: int = 0

    def splits(self, counts: Counts) -> Splits:
        """See :class:`TaskSource`."""
        return _deal(self, counts)

    def candidates(self) -> Iterator[Problem]:
        """Problems without end, each topic and level in its turn."""
        number = 0
        while True:
            for topic in self.topics:
                for level in self.levels:
                    draw = random.Random(f"math_python {self.seed} {topic} {level} {number}")
                    yield generate(topic, level, draw)
            number += 1


class ReasoningGym(TaskSource):
    """Generators of the package ``reasoning-gym``. Answers are compared by value, as everywhere here.

    Attributes:
        datasets: their names; such whose answers are numbers or expressions.
        seed: another seed, other problems.
    """

    datasets: tuple[str, ...] = Field(default=("chain_sum", "gcd", "lcm", "products", "basic_arithmetic"), min_length=1)
    seed: int = 0

    def splits(self, counts: Counts) -> Splits:
        """See :class:`TaskSource`."""
        if importlib.util.find_spec("reasoning_gym") is None:
            raise InputError("tasks: reasoning_gym is not installed: pip install 'rllib-agentic[reasoning_gym]'")
        return _deal(self, counts)

    def candidates(self) -> Iterator[Problem]:
        """Problems without end, each data set in its turn."""
        import reasoning_gym

        number = 0
        while True:
            for name in self.datasets:
                try:
                    item = reasoning_gym.create_dataset(name, size=1, seed=self.seed * 1_000_003 + number)[0]
                except ValueError as error:
                    raise InputError(f"tasks: reasoning_gym: {name!r}: {error}") from error
                answer = str(item["answer"])
                yield Problem(item["question"], answer, f"print({answer!r})", name)
            number += 1


class Dataset(TaskSource):
    r"""A data set in the manner of GSM8K or MATH: JSONL or Parquet, here or under a URL that fsspec knows.

    ``hf://datasets/openai/gsm8k/main/train-00000-of-00001.parquet`` is one on the Hugging Face hub.

    Attributes:
        path: of one file, whose rows are dealt to the splits 8 : 1 : 1; or of one file for each split.
        question: name of the column.
        answer: name of the column. What follows ``####`` at its end, or stands in its last ``\boxed{}``, is the answer;
            else all of it is.
    """

    path: str | dict[str, str]
    question: str = "question"
    answer: str = "answer"

    def splits(self, counts: Counts) -> Splits:
        """See :class:`TaskSource`. ``counts`` caps each split."""
        caps = dict(counts)
        found: dict[str, list[Problem]] = {}
        if isinstance(self.path, str):
            for problem in read_problems(self.path, self.question, self.answer):
                draw = random.Random(f"math_python split {problem.question}")
                found.setdefault(draw.choices(list(caps), (8, 1, 1))[0], []).append(problem)
        else:
            if unknown := sorted(set(self.path) - set(caps)):
                raise InputError(f"tasks.path: {unknown} are no splits; known: {', '.join(caps)}")
            found = {s: list(read_problems(path, self.question, self.answer)) for s, path in self.path.items()}
        return _apart(found, caps)


TASKS: Family[TaskSource] = Family(
    "math_tasks", {"generated": Generated, "reasoning_gym": ReasoningGym, "dataset": Dataset}
)


@lru_cache(maxsize=8)
def _deal(source: Generated | ReasoningGym, counts: Counts) -> Splits:
    wanted = sum(count for _, count in counts)
    candidates = islice(source.candidates(), _TRIES * wanted + 1000)
    return fill_splits("math_python", candidates, counts, lambda problem: problem.question)


def _apart(found: Mapping[str, Sequence[Problem]], caps: Mapping[str, int]) -> Splits:
    """Each question once, in the split that is tested where it is in several; at most so many."""
    seen: set[str] = set()
    kept: dict[str, tuple[Problem, ...]] = {}
    for split in ("test", "validation", "train"):
        unique = {problem.question: problem for problem in found.get(split, ()) if problem.question not in seen}
        kept[split] = tuple(unique.values())[: caps[split]]
        seen |= set(unique)
    return {split: kept[split] for split in caps if kept[split]}
