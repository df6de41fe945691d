"""One episode: an asyncio loop over turns, without Ray."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rllib_agentic.context import Ask, ContextStrategy, Exchange, Extend, Note, Rewrite
from rllib_agentic.engines.engine import Completion, GenerationRequest, TurnSampler
from rllib_agentic.engines.legal_tokens import TokenTrie
from rllib_agentic.engines.stop_strings import up_to_stop
from rllib_agentic.envs.env import Observation, StepResult
from rllib_agentic.envs.session import EnvClient
from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.rendering.renderer import Renderer
from rllib_agentic.rollout.limits import RolloutSettings
from rllib_agentic.rollout.live_episode import EpisodeEvent, EpisodeObserver, LiveEpisode
from rllib_agentic.rollout.note_writer import NoteWriter
from rllib_agentic.rollout.seeds import seed_of
from rllib_agentic.trajectory.checksum import ENGINE_CHECKSUM, checksum_turn
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.trajectory import Task, Trajectory
from rllib_agentic.trajectory.turn import FinishReason, Ids, Turn

NO_IDS: Ids = np.zeros(0, np.int32)
TIMED_OUT = "episode_timeout"
PROMPT_TOO_LONG = "prompt_too_long"
"""Why an episode is invalid that took longer than ``episode_timeout_s``."""


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """What one episode is to be, before anything has happened.

    Attributes:
        task: environment, split, index and environment seed.
        group_id: the group it belongs to.
        member: number within the group.
        seed: sampling seed; the turn's number is mixed in.
        max_turns: interaction budget.
        policy_version: version that must sample every token; None accepts whatever the engine holds.
    """

    task: Task
    group_id: str
    member: int
    seed: int
    max_turns: int
    policy_version: int | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """The parts that all episodes of a runner share.

    Attributes:
        engine: samples turns.
        renderer: the model's chat format.
        clients: environment name to client, on whatever backend.
        make_strategy: makes a context strategy an episode, given the most tokens of a segment.
        make_trie: from admissible actions to the legal-token trie.
        settings: limits and sampling.
        tools: environment name to the tool definitions that the chat template is to show.
        stop_strings: environment name to its stop strings, beside those of ``settings``.
        observer: is told when an episode is created, starts, has one more turn, and ends; None for nobody.
        writer: writes the notes that a context strategy asks another model for; None where none does.
    """

    engine: TurnSampler
    renderer: Renderer
    clients: Mapping[str, EnvClient]
    make_strategy: Callable[[int], ContextStrategy]
    make_trie: Callable[[Sequence[str]], TokenTrie]
    settings: RolloutSettings
    tools: Mapping[str, Sequence[dict[str, Any]]] = field(default_factory=dict)
    stop_strings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    observer: EpisodeObserver | None = None
    writer: NoteWriter | None = None

    async def run(self, plan: EpisodePlan) -> Trajectory:
        """Play one episode to its end.

        An infrastructure failure, a stuck environment included, gives an *invalid* trajectory with what happened so
        far. Bugs and bad input raise.
        """
        episode = _Episode(self, plan, self.make_strategy(self.settings.max_context_tokens))
        started = time.monotonic()
        episode.tell(EpisodeEvent.CREATED)
        try:
            async with asyncio.timeout(self.settings.episode_timeout_s):
                await episode.play()
        except InfrastructureError as failure:
            episode.fail(failure.kind)
        except TimeoutError:
            episode.fail(TIMED_OUT)
        finally:
            await self.engine.release(episode.episode_id)
        trajectory = episode.trajectory(time.monotonic() - started)
        episode.tell(EpisodeEvent.END, trajectory)
        return trajectory


@dataclass(slots=True)
class _Episode:
    rollout: Rollout
    plan: EpisodePlan
    strategy: ContextStrategy
    prompt: tuple[Message, ...] = ()
    category: str | None = None
    turns: list[Turn] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    segment: int = 0
    segment_ids: Ids = field(default_factory=lambda: NO_IDS)
    added_ids: Ids = field(default_factory=lambda: NO_IDS)
    terminated: bool = False
    success: bool = False
    end_reason: str = "max_turns"
    invalid: str | None = None
    env_seconds: float = 0.0
    cached_tokens: int = 0
    checksum: int = 0
    notes: int = 0
    live: LiveEpisode = field(init=False)

    def __post_init__(self) -> None:
        self.live = LiveEpisode(self.plan.task, self.plan.group_id, self.plan.member, turns=self.turns)

    def tell(self, event: EpisodeEvent, trajectory: Trajectory | None = None) -> None:
        if self.rollout.observer is not None:
            self.live.prompt, self.live.trajectory = self.prompt, trajectory
            self.rollout.observer(event, self.live)

    @property
    def episode_id(self) -> str:
        return f"{self.plan.group_id}/{self.plan.member}"

    @property
    def _tools(self) -> Sequence[dict[str, Any]]:
        return self.rollout.tools.get(self.plan.task.env, ())

    @property
    def _stop_strings(self) -> tuple[str, ...]:
        return (*self.rollout.settings.stop_strings, *self.rollout.stop_strings.get(self.plan.task.env, ()))

    def fail(self, kind: str) -> None:
        self.invalid, self.end_reason = kind, kind
        self.terminated = False

    async def play(self) -> None:
        entered = time.monotonic()
        session = await self.rollout.clients[self.plan.task.env].create(self.plan.task)
        self.env_seconds += time.monotonic() - entered
        try:
            observation = session.first
            self.prompt = observation.messages
            self.category = observation.info.get("category")
            self._open_segment(self.rollout.renderer.render(self.prompt, tools=self._tools))
            self._check_calls()
            self.tell(EpisodeEvent.START)
            for number in range(self.plan.max_turns):
                completion = await self._speak(number, observation)
                if completion is None:
                    return
                text = self._text(completion)
                if self._cut(completion):
                    self._record(completion, text, observation, None)
                    self.end_reason = "max_tokens"
                    return
                entered = time.monotonic()
                result = await session.step(self._heard(text))
                self.env_seconds += time.monotonic() - entered
                self._record(completion, text, observation, result)
                observation = result.observation
                if result.terminated or result.truncated:
                    self.terminated = result.terminated
                    self.end_reason = "terminated" if result.terminated else "env_truncated"
                    return
                if number + 1 < self.plan.max_turns:
                    await self._prepare_context(number)
        finally:
            await session.close()

    async def _speak(self, number: int, observation: Observation) -> Completion | None:
        limits = self.rollout.settings
        room = limits.max_context_tokens - len(self.segment_ids)
        if room < 1:
            self.end_reason = "max_context"
            return None
        budget = self._budget(limits.max_tokens_per_turn, room)
        if budget < 1:
            self.end_reason = "max_tokens"
            return None
        legal = None
        if limits.legal_tokens and observation.actions is not None:
            legal = self.rollout.make_trie(observation.actions)
        completion = await self._generate(self.segment_ids, budget, seed_of(self.plan.seed, number), legal)
        self.checksum = checksum_turn(self.checksum, self.segment_ids, completion.ids)
        return completion

    def _budget(self, most: int, room: int) -> int:
        """Tokens that may be sampled now, under the limits of the turn, the segment and the episode."""
        budget = min(most, room)
        of_episode = self.rollout.settings.max_tokens_per_episode
        return budget if of_episode is None else min(budget, of_episode - sum(len(t.action_ids) for t in self.turns))

    async def _generate(self, context_ids: Ids, max_tokens: int, seed: int, legal: TokenTrie | None) -> Completion:
        limits = self.rollout.settings
        completion = await self.rollout.engine.generate(
            GenerationRequest(
                context_ids=context_ids,
                max_tokens=max_tokens,
                temperature=limits.temperature,
                seed=seed,
                top_p=limits.top_p,
                top_k=limits.top_k,
                stop_ids=self.rollout.renderer.stop_ids,
                stop_strings=self._stop_strings,
                legal=legal,
                episode_id=self.episode_id,
                policy_version=self.plan.policy_version,
            )
        )
        if completion.finish_reason is FinishReason.ABORT or not len(completion.ids):
            raise InfrastructureError(
                "generation_aborted", f"episode {self.episode_id}: turn {len(self.turns)} was aborted"
            )
        if not np.isfinite(completion.logprobs).all():
            raise InfrastructureError("engine_nonfinite", f"episode {self.episode_id}: the engine gave no logprobs")
        self.cached_tokens += completion.cached_tokens
        return completion

    def _text(self, completion: Completion) -> str:
        text = self.rollout.renderer.text(completion.ids)
        stopped = completion.finish_reason is FinishReason.STOP_STRING
        return up_to_stop(text, self._stop_strings) if stopped else text

    def _check_calls(self) -> None:
        if self._tools and self.rollout.renderer.call_markup is None:
            raise InputError(
                f"{self.plan.task.env}: the chat template is to show its tools, but writes no tool calls as JSON that "
                "could be read; choose another call format than 'template' (env_config.args), such as 'hermes'"
            )

    def _heard(self, text: str) -> str:
        """What the environment hears: calls in the chat template's own markup come in the common one."""
        markup = self.rollout.renderer.call_markup if self._tools else None
        return text if markup is None else markup.to_hermes(text)

    def _cut(self, completion: Completion) -> bool:
        return completion.finish_reason is FinishReason.LENGTH and self.rollout.settings.cut_turn == "end_episode"

    def _record(self, completion: Completion, text: str, before: Observation, result: StepResult | None) -> None:
        turn = self._turn(
            completion,
            text,
            observation=() if result is None else result.observation.messages,
            reward=0.0 if result is None else result.reward,
            rewards={} if result is None else dict(result.rewards),
            state_key=before.state_key,
            metrics={} if result is None else dict(result.metrics),
        )
        if not np.isfinite(turn.reward):
            raise InfrastructureError("env_error", f"{self.plan.task.env} gave the reward {turn.reward!r}")
        self.turns.append(turn)
        self.segment_ids = np.concatenate([self.segment_ids, completion.ids])
        self.added_ids = NO_IDS
        self.success = self.success or (result is not None and result.success)
        self.exchanges.append(
            Exchange(Message("assistant", text), completion.ids, completion.finish_reason, turn.observation)
        )
        self.tell(EpisodeEvent.STEP)

    def _turn(self, completion: Completion, text: str, **outcome: Any) -> Turn:
        return Turn(
            context_ids=self.added_ids,
            action_ids=completion.ids,
            logprobs=completion.logprobs,
            policy_versions=completion.policy_versions,
            finish_reason=completion.finish_reason,
            segment=self.segment,
            text=text,
            legal_tokens=completion.legal_tokens,
            **outcome,
        )

    async def _prepare_context(self, number: int) -> None:
        step = self.strategy.next(
            self.rollout.renderer, self.prompt, self.exchanges, self.segment_ids, tools=self._tools
        )
        if isinstance(step, Ask):
            step = step.then(await self._write_note(step, number))
        self._take(step)

    def _take(self, step: Extend | Rewrite) -> None:
        if isinstance(step, Rewrite):
            self.segment += 1
            self._open_segment(step.context_ids)
        else:
            self.added_ids = step.added_ids
            self.segment_ids = np.concatenate([self.segment_ids, step.added_ids])

    async def _write_note(self, ask: Ask, number: int) -> Note | None:
        """Have a note written: by the other model, or by the policy, whose note may be a turn of the trajectory."""
        seed = seed_of(self.plan.seed, "note", number)
        if not ask.by_policy:
            assert self.rollout.writer is not None, "a runner whose context asks for another model has one"
            self.notes += 1
            return Note(await self.rollout.writer.write(ask.messages, ask.max_tokens, seed), None)
        context_ids = (
            ask.step.context_ids
            if isinstance(ask.step, Rewrite)
            else np.concatenate([self.segment_ids, ask.step.added_ids])
        )
        budget = self._budget(ask.max_tokens, self.rollout.settings.max_context_tokens - len(context_ids))
        if budget < 1:
            return None
        completion = await self._generate(context_ids, budget, seed, None)
        self.notes += 1
        text = self._text(completion)
        if ask.trained:
            self._take(ask.step)
            self.checksum = checksum_turn(self.checksum, self.segment_ids, completion.ids)
            self.turns.append(self._turn(completion, text, metrics={"note": 1.0}))
            self.segment_ids, self.added_ids = np.concatenate([self.segment_ids, completion.ids]), NO_IDS
            self.tell(EpisodeEvent.STEP)
        return Note(text, completion.ids, completion.finish_reason)

    def _open_segment(self, context_ids: Ids) -> None:
        self.segment_ids = self.added_ids = context_ids

    def trajectory(self, seconds: float) -> Trajectory:
        sampled_nothing = not any(len(t.action_ids) for t in self.turns)
        if self.invalid is None and sampled_nothing:
            self.fail(PROMPT_TOO_LONG)
        return Trajectory(
            task=self.plan.task,
            group_id=self.plan.group_id,
            member=self.plan.member,
            prompt=self.prompt,
            turns=tuple(self.turns),
            terminated=self.terminated,
            truncated=self.invalid is None and not self.terminated,
            success=self.success and self.invalid is None,
            end_reason=self.end_reason,
            invalid=self.invalid,
            metrics=({} if self.category is None else {"category": str(self.category)})
            | {
                "seconds": seconds,
                "env_seconds": self.env_seconds,
                "cached_tokens": self.cached_tokens,
                "notes": self.notes,
                ENGINE_CHECKSUM: self.checksum,
            },
        )
