"""Deep search: questions that no single page answers, over reference texts."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from typing import Any, Literal

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.searchqa.actions import read_action
from serve_envs.searchqa.library import open_library
from serve_envs.searchqa.questions import Question, make_splits
from serve_envs.searchqa.scoring import exact_match, f1
from serve_envs.splits import checked_counts, hash_of

_SNIPPET_CHARS = 160
_SYSTEM = (
    "Answer the question by looking things up. 'search: WORDS' lists pages, 'open: TITLE' shows one, 'answer: TEXT' "
    "ends the task, so answer once you know. Answer briefly; a list as 'a; b', pairs as 'name: value; name: value'."
)


def _tool(name: str, description: str, field: str, what: str) -> Mapping[str, Any]:
    parameters = {"type": "object", "properties": {field: {"type": "string", "description": what}}, "required": [field]}
    return {"name": name, "description": description, "parameters": parameters}


TOOLS = (
    _tool("search", "List the pages that fit best, each with its beginning.", "query", "words to look for"),
    _tool("open", "Show a page.", "title", "title of the page, as search lists it"),
    _tool("answer", "Answer the question; this ends the task.", "text", "the answer, as short as possible"),
)


class SearchQA:
    """Search, read, and answer once.

    Args:
        sources: the reference texts: ``factbook``, ``fanoutqa``, ``foldoc``, ``wordnet``, ``gcide``; the first two hold
            the answers, the others make the search harder.
        results: pages that a search lists.
        reward: for the answer: 1 for an exact match (``em``), or its F1 (``f1``).
        max_steps: steps after which the episode is truncated.
        train: generated questions in the split ``train``.
        validation: generated questions in the split ``validation``.
        test: generated questions in the split ``test``.
        fanout: add the questions of FanOutQA.

    Raises:
        InputError: an argument is out of range, or a source is not installed.
    """

    def __init__(
        self,
        sources: tuple[str, ...] = ("factbook", "fanoutqa", "foldoc"),
        results: int = 5,
        reward: Literal["em", "f1"] = "em",
        max_steps: int = 100,
        train: int = 1200,
        validation: int = 150,
        test: int = 300,
        fanout: bool = True,
    ) -> None:
        needed = {"factbook"} | ({"fanoutqa"} if fanout else set())
        if not needed <= set(sources):
            raise InputError(f"searchqa: sources must hold {', '.join(sorted(needed))}, where the answers are")
        if reward not in ("em", "f1"):
            raise InputError(f"searchqa: reward must be 'em' or 'f1', got {reward!r}")
        if results < 1 or max_steps < 1:
            raise InputError("searchqa: results and max_steps must be at least 1")
        self._splits = make_splits(checked_counts("searchqa", train, validation, test), fanout)
        self._library = open_library(tuple(sources))
        self._results = results
        self._reward = reward
        self._max_steps = max_steps
        self._question: Question | None = None
        self._steps = 0
        self._shown = ""

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        return EnvSchema(
            name="searchqa",
            version="1",
            splits={split: len(questions) for split, questions in self._splits.items()},
            splits_hash=hash_of(self._splits, lambda question: [question.text, question.accepted]),
            action_format=(
                "'search: WORDS', 'open: TITLE' or 'answer: TEXT'; bare, after 'Action:', as <search>WORDS</search>, "
                "or as a <tool_call>. Example: search: longest land border of Chad"
            ),
            lists_actions=False,
            tools=TOOLS,
            reward_range=(0.0, 1.0),
            max_turns=min(self._max_steps, 20),
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Ask the question. Nothing is left to chance, so ``seed`` changes nothing."""
        self._question = self._splits[split][index]
        self._steps = 0
        self._shown = ""
        return Observation(
            messages=(Message("system", _SYSTEM), Message("user", f"Question: {self._question.text}")),
            state_key=self._state_key(self._question),
            info={"category": self._question.category},
        )

    def step(self, action: str) -> StepResult:
        """Search, open or answer; or say how to.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
        """
        question = self._running()
        self._steps += 1
        said = read_action(action)
        if said is not None and said.verb == "answer":
            self._question = None
            return self._judge(question, said.text)
        failed = False
        if said is None:
            text = "That is no action. Write 'search: WORDS', 'open: TITLE' or 'answer: TEXT'."
        elif said.verb == "search":
            text = self._search(said.text)
        else:
            page = self._library.open(said.text)
            failed = page is None
            text = (
                f"{page.title}\n{page.text}" if page else f"There is no page {said.text[:80]!r}. Search for its title."
            )
        self._shown = text
        truncated = self._steps >= self._max_steps
        if truncated:
            self._question = None
        return StepResult(
            Observation((Message("user", text),), state_key=self._state_key(question)),
            truncated=truncated,
            metrics={"invalid_action": float(said is None), "failed_action": float(failed)},
        )

    def close(self) -> None:
        """End the episode; the library stays open for others."""
        self._question = None

    def expert_action(self) -> str:
        """Look up page after page of the chain, by search and open in turn, then answer. Follows its own steps only."""
        question = self._running()
        at, opening = divmod(self._steps, 2)
        if at >= len(question.lookups):
            return f"answer: {question.accepted[0]}"
        query, title = question.lookups[at]
        return f"open: {title}" if opening else f"search: {query}"

    def random_action(self, draw: random.Random) -> str:
        """A search, a page or the answer that some question of the splits wants, whatever is asked now."""
        question = draw.choice([one for questions in self._splits.values() for one in questions])
        query, title = draw.choice(question.lookups)
        return draw.choice((f"search: {query}", f"open: {title}", f"answer: {question.accepted[0]}"))

    def _running(self) -> Question:
        if self._question is None:
            raise RuntimeError("searchqa: no episode is running; call reset")
        return self._question

    def _search(self, query: str) -> str:
        pages = self._library.search(query, self._results)
        if not pages:
            return "Nothing found. Use other words."
        lines = (" ".join(page.text.split()) for page in pages)
        return "\n".join(
            f"{page.title} | {line if len(line) <= _SNIPPET_CHARS else line[: _SNIPPET_CHARS - 3] + '...'}"
            for page, line in zip(pages, lines, strict=True)
        )

    def _judge(self, question: Question, answer: str) -> StepResult:
        right = exact_match(answer, question.accepted)
        overlap = 1.0 if right else f1(answer, question.accepted)
        return StepResult(
            Observation(
                (Message("user", "The answer is right." if right else "The answer is wrong."),),
                state_key=self._state_key(question),
            ),
            reward=float(right) if self._reward == "em" else overlap,
            terminated=True,
            success=right,
            metrics={"invalid_action": 0.0, "failed_action": 0.0, "exact_match": float(right), "f1": overlap},
        )

    def _state_key(self, question: Question) -> str:
        return hashlib.sha256(repr((question.text, self._shown)).encode()).hexdigest()[:16]
