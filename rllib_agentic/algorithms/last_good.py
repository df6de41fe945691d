"""A copy of the learners' last healthy state, to go back to when an alarm rings."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ray.rllib.core.learner.learner_group import LearnerGroup


class LastGood:
    """Keeps one copy on disk; a new one takes its place only when it is whole.

    Args:
        folder: where the copy lies.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def exists(self) -> bool:
        """Whether there is a copy."""
        return self._folder.is_dir()

    def save(self, learners: LearnerGroup) -> None:
        """Keep weights, optimizer state and step count as they are now."""
        aside = self._folder.with_name(f".{self._folder.name}.{os.getpid()}.tmp")
        shutil.rmtree(aside, ignore_errors=True)
        learners.save_to_path(str(aside))
        before = self._folder.with_name(f".{self._folder.name}.{os.getpid()}.old")
        if self.exists:
            os.replace(self._folder, before)
        os.replace(aside, self._folder)
        shutil.rmtree(before, ignore_errors=True)

    def restore(self, learners: LearnerGroup, *, version: int) -> None:
        """Go back to the copy, under a number of weights that was never used.

        Args:
            learners: who go back.
            version: greater than any version so far. Without it a runner that still holds other weights of the same
                number would sample from them.
        """
        learners.restore_from_path(str(self._folder))
        learners.foreach_learner(lambda learner: learner.set_version(version))
