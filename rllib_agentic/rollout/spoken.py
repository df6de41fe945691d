"""Episodes whose turns are texts that somebody says (an expert, a chance, a recording), as token ids like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rllib_agentic.context.strategy import Ask, ContextStrategy, Extend, Rewrite
from rllib_agentic.engines.engine import Completion, GenerationRequest
from rllib_agentic.engines.generation import Generation
from rllib_agentic.engines.legal_tokens import ActionTries
from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.envs.session import EnvClient, EnvSession
from rllib_agentic.errors import InputError
from rllib_agentic.rendering.renderer import Renderer
from rllib_agentic.rollout.episode import EpisodePlan, Rollout
from rllib_agentic.rollout.limits import RolloutSettings
from rllib_agentic.trajectory.trajectory import Task, Trajectory

NO_POLICY = -1
"""The policy version of tokens that no policy sampled."""


@dataclass(frozen=True, slots=True)
class Speech:
    """Makes trajectories of texts, in the episode loop of every rollout: their tokens are laid out like all others.

    A text becomes ids once: its own, then the end of turn where no stop string comes before it. They stand in the
    trajectory as if sampled, under the legal-token mask of the turn, with the logprob 0 and the policy version -1:
    nobody knows how likely they were.

    Attributes:
        renderer: the model's chat format.
        tries: encodes actions, and makes the legal-token masks.
        make_strategy: makes a context strategy an episode, given the most tokens of a segment.
        settings: limits, as of the policy that is to learn from this.
        tools: the tool definitions that the chat template is to show.
        stop_strings: where a turn pauses, beside those of ``settings``.
    """

    renderer: Renderer
    tries: ActionTries
    make_strategy: Callable[[int], ContextStrategy]
    settings: RolloutSettings
    tools: Sequence[dict[str, Any]] = ()
    stop_strings: tuple[str, ...] = ()

    def to(self, schema: EnvSchema) -> Speech:
        """The same for an environment with this schema: with its tools and its stop strings."""
        tools = tuple(dict(tool) for tool in schema.shown_tools)
        return replace(self, tools=tools, stop_strings=schema.stop_strings)

    async def play(self, plan: EpisodePlan, client: EnvClient, say: Callable[[Observation], str]) -> Trajectory:
        """Play one episode.

        Args:
            plan: which.
            client: where the environment is.
            say: from what the environment shows to the text of the turn.

        Raises:
            InputError: a text that is not admissible where the environment lists the admissible ones; a context for
                which somebody must write notes.
        """
        speaker = _Speaker(client, say, self.tries)
        rollout = Rollout(
            engine=speaker,
            renderer=self.renderer,
            clients={plan.task.env: speaker},
            make_strategy=lambda most_tokens: _WithoutNotes(self.make_strategy(most_tokens)),
            make_trie=self.tries.trie,
            settings=self.settings,
            tools={plan.task.env: self.tools},
            stop_strings={plan.task.env: self.stop_strings},
        )
        return await rollout.run(plan)


@dataclass(frozen=True, slots=True)
class _WithoutNotes:
    """A context strategy that must do without notes: nobody here could write one."""

    strategy: ContextStrategy

    def next(self, *conversation: Any, tools: Sequence[dict[str, Any]] = ()) -> Extend | Rewrite:
        step = self.strategy.next(*conversation, tools=tools)
        if isinstance(step, Ask):
            raise InputError(
                f"context: {type(self.strategy).__name__} asks for notes, which neither an expert nor a recording can "
                "write; choose another context, or train stored tokens as they are (offline.tokens 'stored')"
            )
        return step


@dataclass(slots=True)
class _Speaker:
    """Engine, client and session of one episode: what the session shows is what the engine answers."""

    client: EnvClient
    say: Callable[[Observation], str]
    tries: ActionTries
    policy_version: int = NO_POLICY
    shown: Observation = field(default_factory=lambda: Observation(()))
    session: EnvSession | None = None

    async def generate(self, request: GenerationRequest) -> Completion:
        text = self.say(self.shown)
        generation = Generation(request, self.tries.tokenizer)
        for token in self.tries.encode(text):
            legal = generation.legal
            if legal is not None and token not in legal:
                raise InputError(
                    f"{text!r} was to be said, but is none of the {len(self.shown.actions or ())} admissible actions; "
                    "set rollout.legal_tokens to false where others may be said too"
                )
            generation.push(token, 0.0, NO_POLICY)
            if generation.finish_reason is not None:
                break
        return generation.completion(cached_tokens=0)

    async def release(self, episode_id: str) -> None:
        pass

    async def schema(self) -> EnvSchema:
        return await self.client.schema()

    async def create(self, task: Task) -> _Speaker:
        self.session = await self.client.create(task)
        self.shown = self.session.first
        return self

    async def aclose(self) -> None:
        pass

    @property
    def session_id(self) -> str:
        assert self.session is not None
        return self.session.session_id

    @property
    def first(self) -> Observation:
        return self.shown

    async def step(self, action: str) -> StepResult:
        assert self.session is not None
        result = await self.session.step(action)
        self.shown = result.observation
        return result

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()
