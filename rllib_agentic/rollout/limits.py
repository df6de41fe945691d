"""How an episode is sampled and what limits it: the YAML section ``rollout``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rllib_agentic.components import Settings


class RolloutSettings(Settings):
    """Sampling and limits. A turn, a segment and an episode have limits of their own.

    Attributes:
        group_size: G, trajectories of one task under one policy version.
        groups_per_iteration: tasks drawn an iteration; the batch has group_size times as many trajectories.
        max_turns: interaction budget; a curriculum overrides it.
        max_tokens_per_turn: most tokens sampled in one turn.
        max_tokens_per_episode: most tokens sampled in one episode; None = no such limit.
        max_context_tokens: most tokens of one segment, prompt and sampled ones together.
        temperature: one temperature for sampling and for training.
        top_p, top_k: truncate the distribution; evaluation only (the loss would not know the truncated mask).
        legal_tokens: where an environment lists the admissible actions, only token sequences that spell one of them
            can be sampled, and the loss uses the same mask. Switch off to let a model think before it acts.
        stop_strings: end a turn as soon as its text contains one of these; those of the environment's call format come
            on top by themselves.
        cut_turn: what happens to a turn that ran into its token limit: ``end_episode`` (truncated, the environment
            never sees half an action) or ``act`` (the environment gets the text as it is).
        max_staleness: how many versions older than the policy that is trained a trajectory's oldest token may be. 0:
            sampling and training take turns. Above 0 rollouts go on while the learner works, what gets older is
            dropped, and the loss corrects for the difference unless ``learner.importance`` says otherwise.
        turns_at_update: what new weights do to turns that run, where ``max_staleness`` is above 0. ``interrupt``: they
            go on under the new weights from the next token on, each token with its own version; ``finish``: new
            weights wait until they have ended.
        max_concurrent_episodes: episodes in flight on one runner.
        episode_timeout_s: an episode that takes longer is invalid (a stuck environment is no evidence).
        max_attempts: how often an episode is played until it is valid, before it is given up. One that ran into
            ``episode_timeout_s`` is given up at once, so that no iteration waits for a stuck environment twice; so is
            one whose prompt is too long.
        max_invalid_share: the run stops when more than this share of an iteration's episodes stays invalid.
    """

    group_size: int = Field(default=8, ge=1)
    groups_per_iteration: int = Field(default=16, ge=1)
    max_turns: int = Field(default=10, ge=1)
    max_tokens_per_turn: int = Field(default=64, ge=1)
    max_tokens_per_episode: int | None = Field(default=None, ge=1)
    max_context_tokens: int = Field(default=2048, ge=2)
    temperature: float = Field(default=1.0, ge=0.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=0, ge=0)
    legal_tokens: bool = True
    stop_strings: tuple[str, ...] = ()
    cut_turn: Literal["end_episode", "act"] = "end_episode"
    max_staleness: int = Field(default=0, ge=0)
    turns_at_update: Literal["interrupt", "finish"] = "interrupt"
    max_concurrent_episodes: int = Field(default=256, ge=1)
    episode_timeout_s: float = Field(default=600.0, gt=0.0)
    max_attempts: int = Field(default=3, ge=1)
    max_invalid_share: float = Field(default=0.5, ge=0.0, le=1.0)

    def most_action_tokens(self, max_turns: int | None = None) -> int:
        """The most tokens that an episode can sample: under these limits, or under another interaction budget."""
        by_turns = (max_turns or self.max_turns) * self.max_tokens_per_turn
        return min(by_turns, self.max_tokens_per_episode or by_turns)

    @model_validator(mode="after")
    def _limits_fit(self) -> RolloutSettings:
        if self.max_tokens_per_turn >= self.max_context_tokens:
            raise ValueError(
                f"max_tokens_per_turn ({self.max_tokens_per_turn}) must be smaller than max_context_tokens "
                f"({self.max_context_tokens}), which also holds the prompt"
            )
        if self.max_tokens_per_episode is not None and self.max_tokens_per_episode < self.max_tokens_per_turn:
            raise ValueError(
                f"max_tokens_per_episode ({self.max_tokens_per_episode}) is smaller than max_tokens_per_turn "
                f"({self.max_tokens_per_turn})"
            )
        return self
