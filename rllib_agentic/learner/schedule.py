"""The learning rate as a function of the optimizer step."""

from __future__ import annotations

import math

from rllib_agentic.learner.settings import LearnerSettings


def learning_rate(settings: LearnerSettings, step: int, peak: float | None = None) -> float:
    """Learning rate of an optimizer step, counted from 0: warm-up from 0, then the schedule.

    Args:
        settings: warm-up, schedule and ``lr``.
        step: number of the step.
        peak: instead of ``lr``.

    Example:
        >>> settings = LearnerSettings(lr=1.0, warmup_steps=2, schedule="linear", decay_steps=6)
        >>> [learning_rate(settings, step) for step in range(8)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    """
    peak = settings.lr if peak is None else peak
    if step < settings.warmup_steps:
        return peak * (step + 1) / settings.warmup_steps
    if settings.schedule == "constant" or settings.decay_steps is None:
        return peak
    done = min((step - settings.warmup_steps) / (settings.decay_steps - settings.warmup_steps), 1.0)
    left = 1 - done if settings.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return peak * (settings.min_lr_ratio + (1 - settings.min_lr_ratio) * left)
