"""DPO: direct preference optimisation over pairs of trajectories of one task."""

from __future__ import annotations

from typing import ClassVar

from rllib_agentic.advantages import Advantages
from rllib_agentic.algorithms.collected import Collected
from rllib_agentic.algorithms.config import AgenticConfig
from rllib_agentic.algorithms.offline import Offline
from rllib_agentic.algorithms.update import Update, plan_rows
from rllib_agentic.errors import InputError
from rllib_agentic.offline.pairs import Pair, make_pairs, rows_of_pairs
from rllib_agentic.offline.stream import endless


class DPOConfig(AgenticConfig):
    """The better of two trajectories of a task becomes likelier than the worse one, against a frozen reference.

    Rafailov et al., arXiv:2305.18290, equation 7, with a trajectory's sampled tokens, of all its turns, as the
    response. With ``offline.paths`` the pairs come from stored groups (runs, or ``rllib envs collect --group-size``);
    without, every iteration samples groups from the current policy and pairs their members by return. The reference
    is the policy at the start of the run.

    Example:
        >>> DPOConfig().environment("frozenlake").sections().loss.beta
        0.1
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DPO)
        self.training(
            advantages={"type": "cloning"},
            loss={"type": "dpo", "beta": 0.1},
            learner={"aggregation": "sequence_mean_token_sum", "minibatches": 4},
        )


class DPO(Offline):
    """Direct preference optimisation; see :class:`DPOConfig`."""

    config_class = DPOConfig
    trains_pairs: ClassVar[bool] = True

    def training_step(self) -> None:
        """One iteration: of stored pairs where there are any, else sampled."""
        if self._data is None:
            super().training_step()
        else:
            self._train_on_stored()

    def _stored_update(self, iteration: int) -> Update:
        assert self._data is not None
        pairs = make_pairs(self._data.groups(), self._sections.offline.pairs)
        if not pairs:
            raise InputError(
                "config.offline: no group of the stored trajectories has two members whose returns differ: DPO needs "
                "groups (rllib envs collect --group-size) with both good and bad trajectories (no offline.success)"
            )
        size = max(self._sections.offline.trajectories_per_iteration // 2, 1)
        chosen = endless(len(pairs), (iteration - 1) * size, size, self._sections.seed, "pairs")
        return self._pairs_update([pairs[i] for i in chosen], Collected(), iteration)

    def _make_update(self, collected: Collected, iteration: int) -> Update:
        kept = [group for group, stays in zip(collected.groups, collected.keep, strict=True) if stays]
        return self._pairs_update(make_pairs(kept, self._sections.offline.pairs), collected, iteration)

    def _pairs_update(self, pairs: list[Pair], collected: Collected, iteration: int) -> Update:
        batch = plan_rows(rows_of_pairs(pairs), self._sections, collected.loss_scale, iteration)
        return Update(batch, _signs(collected, pairs), {"pairs": float(len(pairs))})


def _signs(collected: Collected, pairs: list[Pair]) -> list[Advantages | None]:
    """What the store keeps as advantages: 1 for the better one of a pair, -1 for the worse, None for the rest."""
    sign = {id(pair.better): 1.0 for pair in pairs} | {id(pair.worse): -1.0 for pair in pairs}
    return [[sign[id(t)]] * len(t.turns) if id(t) in sign else None for t in collected.trajectories]
