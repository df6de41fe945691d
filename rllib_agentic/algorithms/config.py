"""The configuration: RLlib's own keys, and one typed section a family of components."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rllib_agentic.algorithms.dead_keys import dead_key_faults
from rllib_agentic.algorithms.keys import TOP_LEVEL_ALIASES, check_types, has_search_space, merge_section, named_object
from rllib_agentic.algorithms.live_change import check_reactions
from rllib_agentic.algorithms.sections import SECTIONS, Sections, read_sections, section_faults
from rllib_agentic.errors import InputError, did_you_mean

_RLLIB_ALIASES = {
    "multiagent", "callbacks", "create_env_on_driver", "custom_eval_function", "framework", "input", "lambda",
    "num_workers", "num_cpus_for_driver", "_enable_new_api_stack", "optimizer",
    "train_batch_size_per_learner",
}  # fmt: skip

_READ_OF_RLLIB = (
    "env", "seed", "lr", "grad_clip", "num_epochs", "minibatch_size", "num_env_runners", "num_learners",
    "num_cpus_per_env_runner", "num_gpus_per_env_runner", "num_cpus_per_learner", "num_gpus_per_learner",
    "num_cpus_for_main_process", "evaluation_interval", "evaluation_duration", "evaluation_at_start",
    "evaluation_samples_per_task", "evaluation_config", "restart_failed_env_runners", "callbacks_class",
    "custom_resources_per_env_runner", "log_level",
)  # fmt: skip
"""RLlib's keys that mean something here, as :meth:`AgenticConfig.resolved` lists them."""


class AgenticConfig(AlgorithmConfig):
    """Base of every preset's config.

    Sections (see :mod:`rllib_agentic.algorithms.sections`): ``model``, ``critic``, ``env_config``, ``environments``,
    ``tasks``, ``rollout``, ``context``, ``renderer``, ``engine``, ``curriculum``, ``rewards``, ``filters``, ``refill``,
    ``advantages``, ``loss``, ``learner``, ``offline``, ``store``, ``diagnostics``.
    Each is a plain mapping here, so that Tune can search in it at any depth, and is checked and typed by
    :meth:`sections`.

    Example:
        >>> config = AgenticConfig().environment("frozenlake").env_runners(rollout={"group_size": 4})
        >>> config.sections().rollout.group_size
        4
    """

    def __init__(self, algo_class: type | None = None) -> None:
        if algo_class is None:
            from rllib_agentic.algorithms.agentic import Agentic as algo_class
        super().__init__(algo_class=algo_class)
        from rllib_agentic.learner.agentic_learner import AgenticLearner
        from rllib_agentic.rollout.env_runner import AgenticEnvRunner

        self.env_runner_cls = AgenticEnvRunner
        self._learner_class = AgenticLearner
        self.create_local_env_runner = True
        self._dont_auto_sync_env_runner_states = True
        self.restart_failed_env_runners = True
        self.num_env_runners = 0
        self.num_learners = 0
        self.observation_space = gym.spaces.Box(0, 1, (1,))
        self.action_space = gym.spaces.Discrete(2)
        self.lr = 1e-3
        self.grad_clip = 1.0
        self.num_epochs = 1
        self.minibatch_size = None
        self.seed = 0
        self.evaluation_interval = None
        self.evaluation_duration = 100
        self.evaluation_at_start = False
        self.evaluation_samples_per_task = 1
        self.evaluation_config = {"env_config": {"split": "validation"}, "rollout": {"temperature": 0.0}}
        for section, default in SECTIONS.items():
            setattr(self, _attribute(section), copy.deepcopy(default))

    # --- RLlib's chained setters, each with the sections that belong to it -------------------------------------

    def training(self, **settings: Any) -> AgenticConfig:
        """RLlib's training settings, and the sections that say what is learned and how.

        Those are ``model``, ``critic``, ``rewards``, ``filters``, ``refill``, ``advantages``, ``loss``, ``learner``,
        ``curriculum``, ``tasks``, ``environments`` and ``offline``.
        """
        sections = "model critic rewards filters refill advantages loss learner curriculum tasks environments offline"
        return self._chain(super().training, settings, sections)

    def env_runners(self, **settings: Any) -> AgenticConfig:
        """RLlib's settings of env runners, and the sections ``rollout, context, engine``."""
        return self._chain(super().env_runners, settings, "rollout context renderer engine")

    def reporting(self, **settings: Any) -> AgenticConfig:
        """RLlib's reporting settings, and the sections ``store`` and ``diagnostics``."""
        return self._chain(super().reporting, settings, "store diagnostics")

    def evaluation(
        self,
        *,
        evaluation_at_start: bool = NotProvided,
        evaluation_samples_per_task: int = NotProvided,
        **settings: Any,
    ) -> AgenticConfig:
        """RLlib's evaluation settings, and two of ours.

        Args:
            evaluation_at_start: evaluate before the first update too; results carry it as ``evaluation_at_start``.
            evaluation_samples_per_task: episodes a held-out task (intervals are then clustered by task).
            **settings: RLlib's: ``evaluation_interval`` (iterations), ``evaluation_duration`` (held-out tasks),
                ``evaluation_config`` (overrides, for example ``{"env_config": {"split": "test"}}``).
        """
        if evaluation_at_start is not NotProvided:
            self.evaluation_at_start = evaluation_at_start
        if evaluation_samples_per_task is not NotProvided:
            self.evaluation_samples_per_task = evaluation_samples_per_task
        override = settings.get("evaluation_config")
        if isinstance(override, Mapping) and isinstance(self.evaluation_config, Mapping):
            merged = copy.deepcopy(dict(self.evaluation_config))
            for key, value in override.items():
                merged[key] = merge_section(merged.get(key), value) if isinstance(value, Mapping) else value
            settings["evaluation_config"] = merged
        super().evaluation(**settings)
        return self

    def _chain(self, setter: Any, settings: dict[str, Any], sections: str) -> AgenticConfig:
        ours = {name: settings.pop(name) for name in sections.split() if name in settings}
        setter(**settings)
        for name, value in ours.items():
            self._merge(name, value)
        return self

    def _merge(self, section: str, value: Any) -> None:
        attribute = _attribute(section)
        setattr(self, attribute, merge_section(getattr(self, attribute), value))

    # --- dicts: YAML, Tune, checkpoints -------------------------------------------------------------------------

    def update_from_dict(self, config_dict: Mapping[str, Any]) -> AgenticConfig:
        """Take over a mapping as it comes from YAML or Tune.

        Raises:
            InputError: unknown keys at any depth, wrong types, unknown component types: all in one message.
        """
        given = {key: value for key, value in config_dict.items() if not _is_of_tune(key)}
        faults = [self._unknown_key(key) for key in given if not self._knows(key)]
        sections = {name: given.pop(name) for name in SECTIONS if name in given}
        faults += check_types(self, given)
        for key in {"callbacks", "callbacks_class"} & given.keys():
            try:
                given[key] = _callbacks(given[key], f"config.{key}")
            except InputError as error:
                faults.append(str(error))
        for name, value in sections.items():
            merged = merge_section(getattr(self, _attribute(name)), value)
            if not has_search_space(merged):
                faults += section_faults(name, merged)
        if faults:
            raise InputError("\n".join(faults))
        super().update_from_dict(given)
        for name, value in sections.items():
            self._merge(name, value)
        return self

    def to_dict(self) -> dict[str, Any]:
        """A mapping that :meth:`update_from_dict` takes back."""
        entries = super().to_dict()
        entries["model"] = entries.pop(_attribute("model"))
        return entries

    def _knows(self, key: str) -> bool:
        return key in SECTIONS or key in _RLLIB_ALIASES or hasattr(self, key)

    def _unknown_key(self, key: str) -> str:
        hint = TOP_LEVEL_ALIASES.get(key)
        if hint:
            return f"config.{key}: unknown key. Did you mean {hint!r}?"
        near = did_you_mean(key, [*SECTIONS, *(k for k in vars(self) if not k.startswith("_"))])
        guess = near.split("Known:")[0].strip()
        return f"config.{key}: unknown key. {guess or ''} Sections: {', '.join(SECTIONS)}; and RLlib's own keys."

    # --- what RLlib asks ----------------------------------------------------------------------------------------

    def sections(self) -> Sections:
        """All sections, checked and typed.

        Raises:
            InputError: every fault of every section in one message.
        """
        return read_sections({name: getattr(self, _attribute(name)) for name in SECTIONS}, self)

    def resolved(self) -> dict[str, Any]:
        """What this config amounts to: every key of RLlib's that is read here, and every section in full."""
        return {key: getattr(self, key) for key in _READ_OF_RLLIB} | self.sections().dump()

    def changes(self) -> dict[str, Any]:
        """What differs from the preset's defaults, in the form that :meth:`update_from_dict` takes."""
        default, mine = type(self)().to_dict(), self.to_dict()
        skipped = ("env", "algo_class")
        return {k: v for k, v in mine.items() if k not in skipped and v != default.get(k, NotProvided)}

    def validate(self) -> None:
        """Check everything that can be checked without starting anything.

        Raises:
            InputError: what is wrong and what to do.
        """
        faults = [] if self.in_evaluation else dead_key_faults(self)
        try:
            sections = self.sections()
        except InputError as error:
            raise InputError("\n".join([*faults, str(error)])) from None
        if faults:
            raise InputError("\n".join(faults))
        check_reactions(self, sections.diagnostics)
        rllib_logger = logging.getLogger("ray.rllib.algorithms.algorithm_config")
        level = rllib_logger.level
        rllib_logger.setLevel(logging.ERROR)  # it advertises its old API stack at every start
        try:
            super().validate()
        finally:
            rllib_logger.setLevel(level)

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The RLModule around the language model of section ``model``."""
        from rllib_agentic.rl_module.llm_rl_module import LLMTorchRLModule

        return RLModuleSpec(module_class=LLMTorchRLModule, model_config=self.sections().module_config())

    def get_default_learner_class(self) -> type:
        """The learner that trains rows."""
        from rllib_agentic.learner.agentic_learner import AgenticLearner

        return AgenticLearner

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        return {}


def _callbacks(value: Any, where: str) -> Any:
    """Classes, or their names as ``module:Class``: one or a list."""
    if isinstance(value, list | tuple):
        return [_callbacks(part, where) for part in value]
    return named_object(value, where) if isinstance(value, str) else value


def _is_of_tune(key: str) -> bool:
    return key.startswith("__") and key.endswith("__")


def _attribute(section: str) -> str:
    # RLlib's old stack owns the attribute ``model`` and validates it, so ours has another name inside.
    return "language_model" if section == "model" else section
