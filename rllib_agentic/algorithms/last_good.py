"""A copy of the learners' last healthy state, to go back to when an alarm rings."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ray.rllib.core.learner.learner_group import LearnerGroup

_NAME = "last_good"


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
        self._replace(lambda aside: learners.save_to_path(str(aside)))

    def restore(self, learners: LearnerGroup, *, version: int) -> None:
        """Go back to the copy, under a number of weights that was never used.

        Args:
            learners: who go back.
            version: greater than any version so far. Without it a runner that still holds other weights of the same
                number would sample from them.
        """
        learners.restore_from_path(str(self._folder))
        learners.foreach_learner(lambda learner: learner.set_version(version))

    def copy_into(self, checkpoint: Path) -> None:
        """Put the copy, where there is one, into a checkpoint: a resumed run goes back where this one would have."""
        if self.exists:
            shutil.copytree(self._folder, checkpoint / _NAME, dirs_exist_ok=True)

    def take_from(self, checkpoint: Path) -> None:
        """Have the copy that a checkpoint holds, or none: what lies here belongs to a course that was left."""
        if (checkpoint / _NAME).is_dir():
            self._replace(lambda aside: shutil.copytree(checkpoint / _NAME, aside))
        else:
            self.clear()

    def clear(self) -> None:
        """Forget the copy; a run that begins anew in an old folder must not go back to another run's weights."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _replace(self, write: Callable[[Path], object]) -> None:
        aside = self._folder.with_name(f".{self._folder.name}.{os.getpid()}.tmp")
        shutil.rmtree(aside, ignore_errors=True)
        write(aside)
        before = self._folder.with_name(f".{self._folder.name}.{os.getpid()}.old")
        if self.exists:
            os.replace(self._folder, before)
        os.replace(aside, self._folder)
        shutil.rmtree(before, ignore_errors=True)
