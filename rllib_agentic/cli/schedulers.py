"""Tune's schedulers from a YAML file, and which trials of an interrupted sweep go on."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ray.tune import Callback
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

from rllib_agentic.cli.interrupt import InterruptStopper
from rllib_agentic.cli.places import Place
from rllib_agentic.cli.search_space import read_space
from rllib_agentic.errors import InputError, did_you_mean
from rllib_agentic.tracking.history import read_history
from rllib_agentic.tracking.trial_folder import trial_folder

END_NOTE = "ended.json"
_MUTATIONS, _BOUNDS = "hyperparam_mutations", "hyperparam_bounds"

_ALIASES = {
    "asha": "ASHAScheduler",
    "fifo": "FIFOScheduler",
    "hyperband": "HyperBandScheduler",
    "median_stopping_rule": "MedianStoppingRule",
    "pb2": "PB2",
    "pbt": "PopulationBasedTraining",
}


def make_scheduler(spec: str | Mapping[str, Any] | None, *, metric: str, mode: str) -> TrialScheduler:
    """The scheduler that ``scheduler`` in a YAML file asks for.

    Where the arguments do not say otherwise, time is counted in training iterations, whatever a scheduler's own default
    (a population's is seconds, which differ from machine to machine), and results without the metric are passed over:
    an iteration without an evaluation reports nothing that is held out.

    Args:
        spec: a class of ``ray.tune.schedulers`` by name (or ``asha``, ``pbt``, ``hyperband``, ``pb2``, ``fifo``,
            ``median_stopping_rule``), or ``{type: NAME, ...}`` with its arguments. Search spaces in the arguments
            (``hyperparam_mutations``) are written like those of the configuration.
        metric: what it goes by where its arguments do not say.
        mode: ``max`` or ``min``.

    Raises:
        InputError: no such scheduler, or an argument that it does not take.
    """
    import ray.tune.schedulers as known

    given = {"type": spec} if isinstance(spec, str) else dict(spec or {"type": "fifo"})
    name = given.pop("type", None)
    names = [n for n in known.__all__ if inspect.isclass(getattr(known, n, None))]
    cls = getattr(known, _ALIASES.get(str(name), str(name)), None)
    if not (inspect.isclass(cls) and issubclass(cls, TrialScheduler)) or cls is TrialScheduler:
        raise InputError(f"scheduler: unknown type {name!r}. {did_you_mean(str(name), [*names, *_ALIASES])}")
    takes = inspect.signature(cls.__init__).parameters
    if unknown := [key for key in given if key not in takes]:
        arguments = [key for key in takes if key != "self"]
        raise InputError(
            f"scheduler.{unknown[0]}: {name} takes no such argument. {did_you_mean(unknown[0], arguments)}"
        )
    wanted: dict[str, Any] = {"metric": metric, "mode": mode, "time_attr": "training_iteration", "require_attrs": False}
    defaults = {key: value for key, value in wanted.items() if key in takes}
    try:
        return cls(**(defaults | read_space(given, "scheduler")))
    except (TypeError, ValueError, AssertionError) as error:
        raise InputError(f"scheduler: {name}: {error}") from error


def mutations(spec: str | Mapping[str, Any] | None) -> dict[Place, Any]:
    """What a population changes: the place in the configuration, and the domain that its first value is drawn from.

    Raises:
        InputError: a value is no domain, and no list to choose from (``pb2``: of the lowest and the highest value).

    Example:
        >>> found = mutations({"type": "pbt", "hyperparam_mutations": {"loss": {"clip_low": [0.1, 0.2]}}})
        >>> found[("loss", "clip_low")].categories
        [0.1, 0.2]
    """
    given = spec if isinstance(spec, Mapping) else {}
    return {
        place: _first_value(value, bounds=name == _BOUNDS, where=f"scheduler.{name}.{'.'.join(map(str, place))}")
        for name in (_MUTATIONS, _BOUNDS)
        for place, value in _leaves(given.get(name) or {}, ())
    }


def _leaves(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    if not isinstance(value, Mapping):
        yield place, value
    else:
        for key, part in value.items():
            yield from _leaves(part, (*place, key))


def _first_value(value: Any, *, bounds: bool, where: str) -> Any:
    from ray import tune
    from ray.tune.search.sample import Domain

    read = read_space(value, where)
    if isinstance(read, Domain):
        return read
    if not isinstance(read, list) or len(read) < 1 or (bounds and len(read) != 2):
        expected = "[LOWEST, HIGHEST]" if bounds else "a list of values, or a call such as tune.uniform(0, 1)"
        raise InputError(f"{where}: expected {expected}, got {value!r}")
    return tune.uniform(*read) if bounds else tune.choice(read)


class EndNotes(Callback):
    """Notes in a trial's folder why it ended, so that a resumed experiment knows which trials are done.

    Args:
        stopper: knows which trials met their criteria, or were broken off.
    """

    def __init__(self, stopper: InterruptStopper) -> None:
        self._stopper = stopper

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """It goes on: whatever ended it before does not count."""
        self._stopper.running.add(trial.trial_id)
        (trial_folder(trial) / END_NOTE).unlink(missing_ok=True)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """By its criteria, by an interrupt, or by neither: then the scheduler or the trial itself ended it."""
        self._stopper.running.discard(trial.trial_id)
        reason = self._stopper.reasons.get(trial.trial_id, "scheduler")
        (trial_folder(trial) / END_NOTE).write_text(json.dumps({"reason": reason}))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """It failed, and may be tried again."""
        self._stopper.running.discard(trial.trial_id)


def goes_on(trial: Any, stopper: InterruptStopper) -> bool:
    """Whether a trial of an earlier session has anything left to do.

    One that the scheduler or an alarm ended has not. One that met its criteria has, where they have been raised.
    """
    note = Path(trial_folder(trial)) / END_NOTE
    if not note.is_file():
        return True
    reason = json.loads(note.read_text())["reason"]
    return reason == "interrupt" or (reason == "criteria" and not stopper.reached(trial.last_result or {}))


def prepare_resume(scheduler: TrialScheduler, goes_on: Callable[[Any], bool]) -> TrialScheduler:
    """Make a scheduler take over an experiment that was begun in another session.

    What is done already it leaves alone: Tune can resume all finished trials or none, and a resumed one trains an
    iteration before anybody looks at its stop criteria. And since Tune keeps no scheduler's memory, ASHA is told what
    every trial had reported: else the next ones would be judged by nobody.
    """
    add = scheduler.on_trial_add

    def on_trial_add(controller: Any, trial: Any) -> None:
        ended = trial.last_result and not goes_on(trial)
        if ended:
            trial.set_status("TERMINATED")
        if not ended or isinstance(scheduler, AsyncHyperBandScheduler):
            add(controller, trial)
        if isinstance(scheduler, AsyncHyperBandScheduler):
            for result in read_history(trial_folder(trial)):
                scheduler.on_trial_result(controller, trial, result)  # what it says was said before

    scheduler.on_trial_add = on_trial_add  # type: ignore[method-assign]
    return scheduler
