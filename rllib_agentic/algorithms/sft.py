"""SFT: behaviour cloning of stored trajectories."""

from __future__ import annotations

from typing import ClassVar, Literal

from rllib_agentic.algorithms.config import AgenticConfig
from rllib_agentic.algorithms.offline import Offline


class SFTConfig(AgenticConfig):
    """Cross-entropy of what the agent said in solved trajectories; what it was told is context.

    An iteration takes ``offline.trajectories_per_iteration`` trajectories and ``learner.minibatches`` optimizer steps.
    Evaluation plays held-out tasks, as for every other algorithm. The loss of a token is that of its own legal-token
    mask, where there is one: the policy is trained as it will be sampled. ``policy_loss`` in the results is the mean
    over the tokens of a step.

    Example:
        >>> config = SFTConfig().environment("frozenlake").training(offline={"paths": "runs/expert"})
        >>> config.sections().offline.success
        True
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or SFT)
        self.training(
            offline={"success": True, "trajectories_per_iteration": 128},
            advantages={"type": "cloning"},
            loss={"type": "sft"},
            learner={"aggregation": "token_mean", "minibatches": 8},
        )


class SFT(Offline):
    """Behaviour cloning; see :class:`SFTConfig`."""

    config_class = SFTConfig
    offline_use: ClassVar[Literal["never", "sometimes", "always"]] = "always"

    def training_step(self) -> None:
        """One iteration: no sampling."""
        self._train_on_stored()
