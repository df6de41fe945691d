"""Stored trajectories in the tokens of another model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import PrefixError
from rllib_agentic.rollout.episode import EpisodePlan
from rllib_agentic.rollout.spoken import Speech
from rllib_agentic.trajectory import FinishReason, Task, Trajectory, Turn


def speaks(speech: Speech, trajectory: Trajectory) -> bool:
    """Whether the stored tokens are what this chat format and tokenizer make of the stored texts.

    Then the tokens are used as they are: what was sampled is trained. Compared are the prompt, every turn as text (a
    model may have sampled other ids than the text would be encoded to), and what was put between two turns of a
    segment. What a context strategy put at the head of a later segment, or around a note, is not known and not
    compared.
    """
    renderer, turns = speech.renderer, trajectory.turns
    if not turns or not _same(turns[0].context_ids, renderer.render(trajectory.prompt, tools=speech.tools)):
        return False
    try:
        if not all(_says(renderer.text(turn.action_ids), turn) for turn in turns):
            return False
    except (IndexError, OverflowError, KeyError, TypeError):  # ids beyond this vocabulary
        return False
    so_far = np.zeros(0, np.int32)
    for number, turn in enumerate(turns):
        before = turns[number - 1] if number else None
        if before is not None and turn.segment == before.segment and not (_is_note(turn) or _is_note(before)):
            try:
                bridge = renderer.bridge(so_far, before.finish_reason, before.observation)
            except PrefixError:
                return False
            if not _same(turn.context_ids, bridge):
                return False
        elif before is not None and turn.segment != before.segment:
            so_far = np.zeros(0, np.int32)
        so_far = np.concatenate([so_far, turn.context_ids, turn.action_ids])
    return True


async def retold(speech: Speech, trajectory: Trajectory) -> Trajectory:
    """The same episode, its texts encoded anew: prompt and answers of the environment, and what the agent said.

    Everything else stays: rewards, outcome, group. There are no legal-token masks, because the admissible actions
    were stored as another model's tokens only. Where the limits of ``speech.settings`` leave room for fewer turns, the
    trajectory is cut there and counts as truncated and not solved. Notes that the policy wrote for itself are left out.

    Raises:
        InputError: the run's context strategy asks for notes.
    """
    trajectory = replace(trajectory, turns=tuple(turn for turn in trajectory.turns if not _is_note(turn)))
    recording = _Recording(trajectory)
    plan = EpisodePlan(trajectory.task, trajectory.group_id, trajectory.member, 0, max(len(trajectory.turns), 1))
    told = await speech.play(plan, recording, lambda _: trajectory.turns[recording.next_turn].text)
    whole = len(told.turns) == len(trajectory.turns) and told.end_reason != "max_tokens"
    if not whole:
        return replace(told, metrics=dict(trajectory.metrics), success=False)
    return replace(
        told,
        metrics=dict(trajectory.metrics),
        terminated=trajectory.terminated,
        truncated=trajectory.truncated,
        success=trajectory.success,
        end_reason=trajectory.end_reason,
    )


@dataclass(slots=True)
class _Recording:
    """Client and session over one stored trajectory: whatever is said, it answers what was answered then."""

    trajectory: Trajectory
    next_turn: int = 0
    session_id: str = "recording"

    async def schema(self) -> EnvSchema:
        task = self.trajectory.task
        return EnvSchema(task.env, "recorded", {task.split: task.index + 1}, "", "", lists_actions=False)

    async def create(self, task: Task) -> _Recording:
        return self

    @property
    def first(self) -> Observation:
        return self._shown(self.trajectory.prompt)

    async def step(self, action: str) -> StepResult:
        turn = self.trajectory.turns[self.next_turn]
        self.next_turn += 1
        over = self.next_turn == len(self.trajectory.turns)
        return StepResult(
            observation=self._shown(turn.observation),
            reward=turn.reward,
            terminated=over and self.trajectory.terminated,
            truncated=over and not self.trajectory.terminated,
            success=over and self.trajectory.success,
            rewards=turn.rewards,
            metrics=turn.metrics,
        )

    async def close(self) -> None:
        pass

    async def aclose(self) -> None:
        pass

    def _shown(self, messages: tuple) -> Observation:
        turns = self.trajectory.turns
        key = turns[self.next_turn].state_key if self.next_turn < len(turns) else None
        return Observation(messages, state_key=key)


def _is_note(turn: Turn) -> bool:
    return bool(turn.metrics.get("note"))


def _says(said: str, turn: Turn) -> bool:
    """Whether these decoded tokens are the stored text, which ends where a stop string does."""
    return said == turn.text or (turn.finish_reason is FinishReason.STOP_STRING and said.startswith(turn.text))


def _same(stored: np.ndarray, rendered: np.ndarray) -> bool:
    return np.array_equal(stored, rendered)
