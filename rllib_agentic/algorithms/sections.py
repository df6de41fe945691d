"""The sections of the configuration: from plain mappings to checked, typed components."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rllib_agentic.advantages import ESTIMATORS, CriticEstimator
from rllib_agentic.algorithms.contradictions import contradictions, for_stale_data
from rllib_agentic.algorithms.shares import EnvironmentShare, read_shares
from rllib_agentic.components import Settings, parse_settings
from rllib_agentic.context import CONTEXTS, AppendOnly, Summary
from rllib_agentic.curriculum import CURRICULA, TASK_SAMPLERS, Budgets, TaskMixture
from rllib_agentic.diagnostics import DiagnosticsSettings
from rllib_agentic.engines.legal_tokens import ActionTries
from rllib_agentic.engines.settings import ENGINES
from rllib_agentic.envs.env import EnvSchema
from rllib_agentic.envs.settings import EnvSettings
from rllib_agentic.errors import InputError, did_you_mean
from rllib_agentic.filters import FILTERS, RefillSettings
from rllib_agentic.learner.settings import LearnerSettings, LearnerSetup
from rllib_agentic.losses import POLICY_LOSSES
from rllib_agentic.offline.settings import OfflineSettings
from rllib_agentic.rendering import Renderer
from rllib_agentic.rendering.settings import RendererSettings
from rllib_agentic.rewards import RewardSettings
from rllib_agentic.rl_module.model_loading import load_config, load_stop_ids, load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings
from rllib_agentic.rollout.limits import RolloutSettings
from rllib_agentic.rollout.seeds import seed_of
from rllib_agentic.rollout.spoken import Speech
from rllib_agentic.store.settings import StoreSettings

SECTIONS: dict[str, Any] = {
    "model": {"preset": "tiny"},
    "critic": {},
    "env_config": {},
    "environments": {},
    "tasks": {"type": "uniform"},
    "rollout": {},
    "context": {"type": "append_only"},
    "renderer": {},
    "engine": {"type": "hf"},
    "curriculum": {"type": "fixed"},
    "rewards": {},
    "filters": [],
    "refill": {},
    "advantages": {"type": "grpo"},
    "loss": {"type": "ppo_clip"},
    "learner": {},
    "offline": {},
    "store": {},
    "diagnostics": {},
}
"""Every section with the value that a config starts from; presets lay theirs over it."""

_PLAIN: dict[str, type[Settings]] = {
    "model": ModelSettings,
    "env_config": EnvSettings,
    "rollout": RolloutSettings,
    "renderer": RendererSettings,
    "rewards": RewardSettings,
    "refill": RefillSettings,
    "learner": LearnerSettings,
    "offline": OfflineSettings,
    "store": StoreSettings,
    "diagnostics": DiagnosticsSettings,
}
_FAMILIES: dict[str, Any] = {
    "context": CONTEXTS,
    "engine": ENGINES,
    "curriculum": CURRICULA,
    "tasks": TASK_SAMPLERS,
    "advantages": ESTIMATORS,
    "loss": POLICY_LOSSES,
}
TOP_LEVEL_KEYS = ("lr", "grad_clip", "num_epochs", "minibatch_size")
"""Keys of RLlib's own that the learner reads; they stand at the top level, where RLlib's users look for them."""


@dataclass(frozen=True, slots=True)
class Sections:
    """All sections of one config, typed. ``seed`` is the run's."""

    model: ModelSettings
    critic: ModelSettings | None
    env_config: EnvSettings
    environments: Mapping[str, EnvironmentShare]
    tasks: Any
    rollout: RolloutSettings
    context: Any
    renderer: RendererSettings
    engine: Any
    curriculum: Any
    rewards: RewardSettings
    filters: tuple[Any, ...]
    refill: RefillSettings
    advantages: Any
    loss: Any
    learner: LearnerSettings
    offline: OfflineSettings
    store: StoreSettings
    diagnostics: DiagnosticsSettings
    seed: int

    def module_config(self) -> dict[str, Any]:
        """The RLModule's ``model_config``: the model, seeded by the run, with a critic exactly where one is needed."""
        settings = self.model.model_dump(exclude_unset=True) | {"value_head": self.needs_critic}
        if self.model.preset == "tiny" and self.model.seed is None:
            settings["seed"] = self.seed
        if self.critic is not None and self.needs_critic:
            settings["critic"] = self.critic.model_dump(exclude_unset=True)
            if self.critic.preset == "tiny" and self.critic.seed is None:
                settings["critic"]["seed"] = seed_of(self.seed, "critic") % 2**31
        if self.model.lora is not None and self.model.lora.seed is None:
            settings["lora"] = settings["lora"] | {"seed": self.seed}
        return settings

    def dump(self) -> dict[str, Any]:
        """Every section in full, as it could stand in YAML."""
        entries: dict[str, Any] = {}
        for name in SECTIONS:
            part = getattr(self, name)
            if name == "filters":
                entries[name] = [_typed(FILTERS, entry) for entry in part]
            elif name == "environments":
                entries[name] = {env: share.model_dump(mode="json") for env, share in part.items()}
            elif name in _FAMILIES:
                entries[name] = _typed(_FAMILIES[name], part)
            else:
                entries[name] = {} if part is None else part.model_dump(mode="json")
        for key in TOP_LEVEL_KEYS:
            entries["learner"].pop(key)
        return entries

    @property
    def needs_critic(self) -> bool:
        """Whether the advantages come from a critic on the learner."""
        return isinstance(self.advantages, CriticEstimator)

    def learner_setup(self) -> LearnerSetup:
        """What the learner reads."""
        critic = self.advantages if self.needs_critic else None
        drops = self.model.lora is not None and self.model.lora.dropout > 0
        seed = seed_of(self.seed, "dropout") if drops else None
        learner = self.learner
        if critic is not None and self.critic is not None and learner.value.lr is None:
            # a model of its own has a gradient norm of its own to clip
            value = learner.value.model_copy(update={"lr": learner.lr})
            learner = learner.model_copy(update={"value": value})
        return LearnerSetup(learner, self.loss, self.rollout.temperature, critic, seed, self.offline.restart)

    def make_renderer(self, model: Any, tokenizer: Any) -> Renderer:
        """The model's chat format, with every id that its generation config ends a turn on."""
        ends = getattr(model.generation_config, "eos_token_id", None)
        return self.renderer.build(tokenizer, [ends] if isinstance(ends, int) else ends or ())

    def speech(self) -> Speech:
        """Makes trajectories of texts, in the tokens and under the limits of this run; no weights are loaded."""
        tokenizer = load_tokenizer(self.model)
        renderer = self.renderer.build(tokenizer, load_stop_ids(self.model))
        tries = ActionTries(tokenizer, renderer.end_of_turn_id)
        context = AppendOnly() if isinstance(self.context, Summary) else self.context  # nobody is there to write one
        return Speech(renderer, tries, context.make, self.rollout)

    def env_settings(self, main: str) -> dict[str, EnvSettings]:
        """Every environment's settings by name; ``main`` is the one in ``config.env``."""
        others = {env: share.env_config or EnvSettings() for env, share in self.environments.items()}
        return others | {main: self.env_config}

    def sampler(self, schemas: Mapping[str, EnvSchema]) -> TaskMixture:
        """Draws the tasks of each iteration, from the environments by name."""
        settings = self.env_settings(next(iter(schemas)))
        samplers = {
            env: self.tasks.make(
                env=schema.name, split=settings[env].split, num_tasks=schema.splits[settings[env].split], seed=self.seed
            )
            for env, schema in schemas.items()
        }
        return TaskMixture(samplers, {env: self._share(env).weight for env in schemas})

    def budgets(self, envs: Iterable[str]) -> Budgets:
        """The interaction budget of each environment."""
        own = {env: self._share(env).curriculum for env in envs}
        curricula: dict[str, Any] = {
            env: self.curriculum if c is None else CURRICULA.parse(c) for env, c in own.items()
        }
        return Budgets(curricula, self.rollout.max_turns)

    def check_against(self, schemas: Mapping[str, EnvSchema]) -> None:
        """Check what only the environments know.

        Args:
            schemas: by name, that of ``config.env`` first.

        Raises:
            InputError: no such split, or it is empty.
        """
        main = next(iter(schemas))
        for env, settings in self.env_settings(main).items():
            split, schema = settings.split, schemas[env]
            if schema.splits.get(split, 0) < 1:
                place = "config.env_config" if env == main else f"config.environments.{env}.env_config"
                known = did_you_mean(split, schema.splits)
                raise InputError(f"{place}.split: {schema.name} has no tasks in {split!r}. {known}")

    def check_model(self) -> None:
        """Check what only the model knows, without its weights.

        Raises:
            InputError: there is no such model, its context is too short, or its chat template cannot be used.
        """
        positions = getattr(load_config(self.model).get_text_config(), "max_position_embeddings", None)
        if positions is not None and self.rollout.max_context_tokens > positions:
            raise InputError(
                f"config.rollout.max_context_tokens: {self.rollout.max_context_tokens} is more than the {positions} "
                f"positions of the model {self.model.name!r}"
            )
        self.renderer.build(load_tokenizer(self.model), load_stop_ids(self.model))

    def _share(self, env: str) -> EnvironmentShare:
        return self.environments.get(env, EnvironmentShare())


def read_sections(given: Mapping[str, Any], config: Any) -> Sections:
    """Type all sections.

    Args:
        given: section name to its mapping (or list).
        config: the AlgorithmConfig, for RLlib's own keys that sections read.

    Raises:
        InputError: every fault of every section, a line each.
    """
    faults, parts = [], {}
    for name, value in given.items():
        try:
            parts[name] = _read(name, value, config)
        except InputError as error:
            faults.append(str(error))
    if not faults:
        faults += contradictions(parts, config)
        parts |= for_stale_data(parts)
    if faults:
        raise InputError("\n".join(faults))
    return Sections(**parts, seed=int(config.seed or 0))


def section_types(name: str) -> dict[str, type[Settings]]:
    """The settings classes of a section: by ``type``, or the only one under the empty name."""
    special: dict[str, type[Settings]] = {"critic": ModelSettings, "environments": EnvironmentShare, **_PLAIN}
    if name in special:
        return {"": special[name]}
    family = FILTERS if name == "filters" else _FAMILIES[name]
    return {kind: family.get(kind) for kind in family}


def section_faults(name: str, value: Any) -> list[str]:
    """Faults of one section on its own; empty where it is fine."""
    try:
        _read(name, value, None)
    except InputError as error:
        return [str(error)]
    return []


def _read(name: str, value: Any, config: Any) -> Any:
    if name == "environments":
        return read_shares(value, "config.environments")
    if name in _FAMILIES:
        return _FAMILIES[name].parse(value, f"config.{name}")
    if name == "critic":  # nothing given: a head on the policy
        return parse_settings(ModelSettings, value, "config.critic") if value else None
    if name == "filters":
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise InputError(f"config.filters: expected a list of mappings with a 'type' key, got {value!r}")
        return tuple(FILTERS.parse(entry, f"config.filters[{i}]") for i, entry in enumerate(value))
    if name == "learner" and isinstance(value, Mapping):
        twice = [key for key in TOP_LEVEL_KEYS if key in value]
        if twice:
            raise InputError(
                "\n".join(f"config.learner.{key}: stands at the top level: write config.{key}" for key in twice)
            )
        if config is not None:
            value = {**value, **{key: getattr(config, key) for key in TOP_LEVEL_KEYS}}
    return parse_settings(_PLAIN[name], value, f"config.{name}")


def _typed(family: Any, component: Settings) -> dict[str, Any]:
    return {"type": family.name_of(component)} | component.model_dump(mode="json")
