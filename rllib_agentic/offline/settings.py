"""Which stored trajectories a run learns from: the YAML section ``offline``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from rllib_agentic.components import Settings


class CollectSettings(Settings):
    """Trajectories that the run collects for itself before it begins, in its own process.

    Attributes:
        policy: ``expert``, the environment's own, or ``random``, over its admissible actions.
        episodes: how many.
        group_size: episodes a task.
        split: whose tasks.
        seed: of tasks and of chance.
    """

    policy: Literal["expert", "random"] = "expert"
    episodes: int = Field(default=256, ge=1)
    group_size: int = Field(default=1, ge=1)
    split: str = "train"
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _whole_groups(self) -> CollectSettings:
        if self.episodes % self.group_size:
            raise ValueError(f"episodes ({self.episodes}) must be a multiple of group_size ({self.group_size})")
        return self


class PairSettings(Settings):
    """How groups of trajectories become pairs of a better and a worse one.

    The best member is paired with the worst, the second best with the second worst, and so on: no trajectory is in two
    pairs, and the clearest pairs come first.

    Attributes:
        per_group: most pairs a group; None for as many as there are.
        min_gap: least difference of the two returns.
    """

    per_group: int | None = Field(default=None, ge=1)
    min_gap: float = Field(default=1e-6, gt=0)


class OfflineSettings(Settings):
    """Stored trajectories, which of them, and how many an iteration.

    The n-th batch of a run depends on its seed and n alone, so a resumed run reads on exactly where it was.

    Attributes:
        paths: stores, or folders of trials, experiments and sweeps with stores below; one or a list. Relative ones
            begin where the command was given.
        collect: collect some more at the start; None for none.
        success: only solved (true) or unsolved (false) ones; None for all.
        min_return: only those whose rewards add up to at least this.
        max_trajectories: at most so many, the first ones.
        tokens: ``auto`` trains stored tokens where they are what this model's tokenizer and chat format make of the
            stored texts, and encodes the texts anew where they are not; ``stored`` refuses what is not, ``texts``
            encodes all anew. Texts that are encoded anew have no legal-token masks.
        pairs: DPO: how groups become pairs.
        trajectories_per_iteration: how many an iteration trains on. Every trajectory comes up once before any comes
            again, and more often in one iteration only where fewer than this are there. A pair counts as two.
        clone_iterations: AgentEvol: so many iterations at the start imitate stored trajectories alone.
        restart: AgentEvol: every iteration trains the weights of the start of the run, with a new optimizer, on what
            the policy of the last iteration explored; without, it goes on from that policy.
    """

    paths: tuple[str, ...] = ()
    collect: CollectSettings | None = None
    success: bool | None = None
    min_return: float | None = None
    max_trajectories: int | None = Field(default=None, ge=1)
    tokens: Literal["auto", "stored", "texts"] = "auto"
    pairs: PairSettings = PairSettings()
    trajectories_per_iteration: int = Field(default=128, ge=1)
    clone_iterations: int = Field(default=0, ge=0)
    restart: bool = False

    @field_validator("paths", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @property
    def has_data(self) -> bool:
        """Whether any trajectories are named."""
        return bool(self.paths) or self.collect is not None

    def wants(self, *, success: bool, total_reward: float) -> bool:
        """Whether a trajectory with this outcome is one of those to learn from."""
        if self.success is not None and success != self.success:
            return False
        return self.min_return is None or total_reward >= self.min_return
