"""The environment, as its author writes it: one object is one session, an episode at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from rllib_agentic.trajectory.message import Message


@dataclass(frozen=True, slots=True)
class Observation:
    """What the environment shows.

    Attributes:
        messages: at reset the system message (if any) and the first observation; after a step the answer.
        actions: the admissible actions right now as texts, where they can be listed; they feed the legal-token mask.
        state_key: a short hash of the state, equal exactly for equal states; None where unknown.
        info: anything more, JSON-able; never shown to the policy. At the first observation ``task_id`` may tell apart
            tasks that look alike, ``category`` says under which heading results count them.
    """

    messages: tuple[Message, ...]
    actions: tuple[str, ...] | None = None
    state_key: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one action led to.

    Attributes:
        observation: the answer.
        reward: raw reward of this step.
        terminated: the task ended.
        truncated: a limit of the environment ended it. ``terminated`` wins where both hold.
        success: whether the task is solved now.
        rewards: named components of ``reward``.
        metrics: numbers to log, for example ``{"invalid_action": 1}``.
    """

    observation: Observation
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    rewards: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EnvSchema:
    """What a client must know before the first episode.

    Attributes:
        name: the registry's name.
        version: of the environment; recorded with every trajectory.
        splits: number of tasks a split, ``{"train": 800, "validation": 100, "test": 100}``; they share no task.
        splits_hash: hash of the task lists, so that results can name exactly what they were measured on.
        action_format: one paragraph for people: what an action looks like, with an example.
        lists_actions: whether observations list the admissible actions.
        tools: JSON-Schema tool definitions, where the environment is used through tools.
        tools_in_template: whether the model's chat template is to show them; else the messages describe them.
        stop_strings: where generation is to pause, so that the environment can answer within the agent's turn.
        reward_range: smallest and largest return an episode can have.
        max_turns: a sensible interaction budget.
    """

    name: str
    version: str
    splits: Mapping[str, int]
    splits_hash: str
    action_format: str
    lists_actions: bool
    tools: tuple[Mapping[str, Any], ...] = ()
    tools_in_template: bool = False
    stop_strings: tuple[str, ...] = ()
    reward_range: tuple[float, float] = (0.0, 1.0)
    max_turns: int = 30

    @property
    def shown_tools(self) -> tuple[Mapping[str, Any], ...]:
        """The tools that the chat template is to show; none where the messages describe them."""
        return self.tools if self.tools_in_template else ()


@runtime_checkable
class Env(Protocol):
    """One session. Cheap to make; ``reset`` may be called again for another episode.

    A class under ``serve_envs/<name>/env.py`` implements this with plain keyword arguments (the user's
    ``env_config`` beyond the reserved keys). Methods are synchronous and run in a thread of the worker; the
    object is never used by two threads at once. A class whose ``reset`` and ``step`` take microseconds and never
    block may say ``quick = True``: they are then called on the event loop itself, without a thread.

    A class whose objects share something costly (a JVM, a browser) may have ``release``, a class method that frees it
    and never raises; the next session makes it anew. Where that dies under a session, the session's call raises
    ``InfrastructureError("session_lost", ...)``: clients rebuild the episode from its actions.

    Equal ``(split, index, seed)`` and equal actions give equal observations in any process under any
    PYTHONHASHSEED.
    """

    def schema(self) -> EnvSchema:
        """Splits, limits and formats of this environment under its arguments."""
        ...

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Begin the task. The server has checked ``split`` and ``index`` against the schema."""
        ...

    def step(self, action: str) -> StepResult:
        """Apply the agent's text. A malformed action is an observation (and a metric), never an exception."""
        ...

    def close(self) -> None:
        """Free everything, children included. Called once or more; never raises."""
        ...
