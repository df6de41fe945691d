"""How AgentGym's servers differ: one row each of names of fields, of shapes of answers, and of what a task is called.

Written from the servers and clients of the AgentGym repository; both our client and our servers follow these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rllib_agentic.errors import InputError, did_you_mean

Kind = Literal["object", "text", "pair"]


@dataclass(frozen=True, slots=True)
class AgentGymStyle:
    """One server's way.

    Attributes:
        session: the field that names a session in requests, ``id`` or ``env_idx``.
        create_body: what ``POST /create`` is given; None for no body.
        create: what it answers: an object with the session's field, or the bare number (``text``).
        task: the field of ``POST /reset`` that chooses the task.
        reset_extra: further fields that a reset needs.
        reset: what a reset answers: an ``object`` with the observation, the bare ``text``, or the ``pair`` of the
            text and null.
        observation: the field of the observation in answers.
        done: the field that says that the episode ended.
        success_reward: the reward, in the server's own scale, from which an episode counts as solved.
        score_scale: answers also carry ``score``, the rewards so far times this; None where they do not. Where they do,
            the repository's clients take the score for the reward.
        info: answers of ``step`` carry ``info``.
        lists_actions: answers carry ``available_actions``.
        closes: the server has ``POST /close``.
        begins: ``POST /create`` begins an episode at once.
        verb: what that server's actions begin with and ours do not; left out on our servers.
        describes_task: a reset also carries ``task_description``, which belongs before the observation.
    """

    session: str = "id"
    create_body: Mapping[str, Any] | None = None
    create: Kind = "object"
    task: str = "data_idx"
    reset_extra: Mapping[str, Any] = field(default_factory=dict)
    reset: Kind = "object"
    observation: str = "observation"
    done: str = "done"
    success_reward: float = 1.0
    score_scale: float | None = None
    info: bool = False
    lists_actions: bool = False
    closes: bool = False
    begins: bool = False
    verb: str = ""
    describes_task: bool = False


_TOOLS = AgentGymStyle(session="env_idx", create_body={"id": 0}, create="text", task="id", reset="text")

AGENTGYM_STYLES: Mapping[str, AgentGymStyle] = {
    "babyai": AgentGymStyle(score_scale=1.0, closes=True),
    "sciworld": AgentGymStyle(score_scale=100.0, success_reward=100.0, closes=True, describes_task=True),
    "textcraft": AgentGymStyle(create_body={}, closes=True, begins=True),
    "alfworld": AgentGymStyle(task="game", reset_extra={"world_type": "Text"}, lists_actions=True, closes=True),
    "maze": AgentGymStyle(task="game", verb="move "),
    "wordle": AgentGymStyle(task="seed", begins=True),
    "searchqa": AgentGymStyle(
        session="env_idx", create_body={"id": 0}, create="text", task="id", reset="text", info=True, closes=True
    ),
    "sqlgym": AgentGymStyle(
        session="env_idx", create="text", task="item_id", reset="pair", observation="state", info=True
    ),
    "webshop": AgentGymStyle(
        session="env_idx", create="text", task="session_id", reset="pair", observation="state", info=True, closes=True
    ),
    "weather": _TOOLS,
    "movie": _TOOLS,
    "academia": _TOOLS,
    "todo": _TOOLS,
    "sheet": _TOOLS,
    "webarena": AgentGymStyle(
        session="env_idx", task="idx", reset_extra={"seed": 0}, done="terminated", info=True, closes=True
    ),
}
"""AgentGym's environments by name."""

_OURS = {"toolbox": "weather", "webarena_local": "webarena", "webnav": "webarena", "textworld_express": "babyai"}


def agentgym_style(name: str) -> AgentGymStyle:
    """The row of an environment of AgentGym's, or of one of ours of that kind.

    Raises:
        InputError: there is none.
    """
    style = AGENTGYM_STYLES.get(_OURS.get(name, name))
    if style is None:
        raise InputError(f"AgentGym has no environment {name!r}. {did_you_mean(name, AGENTGYM_STYLES)}")
    return style
