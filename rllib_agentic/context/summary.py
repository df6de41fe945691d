"""Summary: when the context is nearly full, a summary is written, and the episode goes on from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from rllib_agentic.context.append_only import AppendOnly
from rllib_agentic.context.strategy import (
    Ask,
    ContextSettings,
    ContextStrategy,
    Exchange,
    Extend,
    Note,
    Rewrite,
    length_after,
)
from rllib_agentic.rendering.renderer import Renderer
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import Ids

REQUEST = (
    "The conversation is getting too long to be kept. Do not act now. Write down what you need to go on: what the task "
    "is, what you have done and found out, and what remains to be done. Whatever you leave out is forgotten."
)
_HEADING = "Summary of what happened so far:"


class Summary(ContextSettings):
    """Has a summary written once the context passes a share of its limit; a new segment begins with it.

    The policy is asked for the summary at the end of the last observation, in the same segment. What it answers is a
    turn that the environment does not see, without reward, and with the same advantage as the rest of its trajectory
    wherever an estimator gives one to a whole trajectory. The next segment is the prompt with the request, the summary
    in the very ids that were sampled, and the observation that comes next::

        segment 0   S  U task    A  O  A  O+request  A summary
        segment 1   S  U task+request  A summary  O  A  O  A ...

    Where another model writes (``model``), its text stands in the prompt's last message: it is what somebody told the
    policy, and is never trained.

    Attributes:
        at: share of the limit beyond which a summary is asked for.
        max_tokens: the limit; the rollout's ``max_context_tokens`` where None.
        summary_tokens: most tokens of a summary.
        keep: exchanges at the end that stay as they are.
        trained: whether summaries of the policy are turns of the trajectory, trained like others; where not, they
            appear in the next segment as context alone.
        model: the section ``model`` of another model that writes the summaries; None for the policy itself.
        request: how a summary is asked for.
    """

    at: float = Field(default=0.7, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=2)
    summary_tokens: int = Field(default=256, ge=1)
    keep: int = Field(default=0, ge=0)
    trained: bool = True
    model: dict[str, Any] | None = None
    request: str = Field(default=REQUEST, min_length=1)

    def make(self, max_context_tokens: int | None = None) -> ContextStrategy:
        """A context without a summary.

        Raises:
            ValueError: neither the settings nor the rollout say how long a context may be.
        """
        limit = self.max_tokens or max_context_tokens
        if limit is None:
            raise ValueError("summary: give max_tokens, since the rollout has no max_context_tokens")
        return _Summarised(self, threshold=self.at * limit)


@dataclass(slots=True)
class _Summarised:
    settings: Summary
    threshold: float
    first: int = 0  # number of the first exchange that no summary covers
    prompt: tuple[Message, ...] | None = None  # in place of the task's own, once there is a summary
    note: Exchange | None = None  # the policy's own summary, as the first exchange

    def next(
        self,
        renderer: Renderer,
        prompt: Sequence[Message],
        exchanges: Sequence[Exchange],
        segment_ids: Ids,
        *,
        tools: Sequence[dict[str, Any]] = (),
    ) -> Extend | Rewrite | Ask:
        """See :class:`~rllib_agentic.context.strategy.ContextStrategy`."""
        now_prompt, visible = self.prompt or tuple(prompt), self._visible(exchanges)
        step = AppendOnly().next(renderer, now_prompt, visible, segment_ids, tools=tools)
        covered = len(exchanges) - self.settings.keep
        if length_after(segment_ids, step) <= self.threshold or covered <= self.first:
            return step
        asked = [*visible[:-1], replace(visible[-1], observation=_with(visible[-1].observation, self.settings.request))]

        def then(note: Note | None) -> Rewrite:
            self._cover(tuple(prompt), exchanges, covered, note)
            return Rewrite(renderer.render_exchanges(self.prompt or prompt, self._visible(exchanges), tools=tools))

        return Ask(
            step=AppendOnly().next(renderer, now_prompt, asked, segment_ids, tools=tools),
            messages=[*now_prompt, *(m for e in asked for m in (e.action, *e.observation))],
            max_tokens=self.settings.summary_tokens,
            trained=self.settings.trained,
            by_policy=self.settings.model is None,
            then=then,
        )

    def _visible(self, exchanges: Sequence[Exchange]) -> list[Exchange]:
        return [*([] if self.note is None else [self.note]), *exchanges[self.first :]]

    def _cover(
        self, prompt: tuple[Message, ...], exchanges: Sequence[Exchange], covered: int, note: Note | None
    ) -> None:
        """Put a note in the place of the first ``covered`` exchanges; without one, only the last exchange stays."""
        if note is None:
            self.first = max(len(exchanges) - 1, self.first)
            if self.note is not None:
                self.note = replace(self.note, observation=exchanges[self.first - 1].observation)
            return
        following = exchanges[covered - 1].observation
        self.first = covered
        if note.ids is None:
            told = [f"{_HEADING}\n{note.text}", *(message.content for message in following)]
            self.prompt, self.note = _with(prompt, *told), None
        else:
            self.prompt = _with(prompt, self.settings.request)
            self.note = Exchange(Message("assistant", note.text), note.ids, note.finish_reason, following)


def _with(messages: Sequence[Message], *more: str) -> tuple[Message, ...]:
    """The messages with more said at the end: in the last one if that is the user's (two in a row break templates)."""
    said = "\n\n".join(more)
    if messages and messages[-1].role == "user":
        return (*messages[:-1], replace(messages[-1], content=f"{messages[-1].content}\n\n{said}"))
    return (*messages, Message("user", said))
