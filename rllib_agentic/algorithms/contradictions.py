"""Sections that do not go together, and what one section sets in another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_agentic.advantages import CriticEstimator
from rllib_agentic.algorithms.shares import share_faults
from rllib_agentic.components import parse_settings
from rllib_agentic.engines.settings import ENGINES
from rllib_agentic.envs.registry import env_class
from rllib_agentic.envs.settings import EnvSettings
from rllib_agentic.errors import InputError
from rllib_agentic.losses import POLICY_LOSSES, Importance
from rllib_agentic.rl_module.model_settings import ModelSettings


def contradictions(parts: Mapping[str, Any], config: Any) -> list[str]:
    """What is wrong between sections, or between them and RLlib's own keys, a line each.

    Args:
        parts: every section, typed.
        config: the AlgorithmConfig.
    """
    faults = []
    rollout, learner = parts["rollout"], parts["learner"]
    if getattr(parts["advantages"], "needs_group", False) and rollout.group_size < 2:
        faults.append(
            f"config.rollout.group_size: {parts['advantages'].type} compares the members of a group, so it needs at "
            f"least 2, got {rollout.group_size}"
        )
    if learner.kl.place == "reward" and getattr(parts["advantages"], "scale", None) == "std":
        faults.append(
            "config.learner.kl.place: advantages divided by the group's standard deviation would blow the divergence "
            "up where rewards are equal; place it in the loss, or set advantages.scale 'none'"
        )
    if not config.in_evaluation:
        if rollout.temperature == 0:
            faults.append(
                "config.rollout.temperature: training needs a temperature above 0: greedy groups are all equal"
            )
        if rollout.top_p < 1 or rollout.top_k > 0:
            faults.append(
                f"config.rollout: top_p={rollout.top_p}, top_k={rollout.top_k} truncate the distribution, which the "
                "loss does not know; training needs top_p 1 and top_k 0 (evaluation_config may truncate)"
            )
    cached = getattr(parts["engine"], "max_cached_tokens", None)
    if cached is not None and rollout.max_context_tokens > cached:
        faults.append(
            f"config.rollout.max_context_tokens: {rollout.max_context_tokens} is more than the {cached} tokens of "
            "config.engine.max_cached_tokens, which must hold at least one episode"
        )
    shares = parts["environments"]
    faults += share_faults(shares, config.env)
    own = [share.curriculum for share in shares.values() if isinstance(share.curriculum, Mapping)]
    watches = [getattr(parts["curriculum"], "watch", None), *(c.get("watch") for c in own)]
    if "evaluation" in watches and not config.in_evaluation and not config.evaluation_interval:
        faults.append("config.curriculum.watch: 'evaluation' needs evaluations: set config.evaluation_interval")
    writer = getattr(parts["context"], "model", None)
    if writer is not None:
        try:
            parse_settings(ModelSettings, writer, "config.context.model")
        except InputError as error:
            faults.append(str(error))
    for key in ("evaluation_duration", "evaluation_samples_per_task"):
        wanted = getattr(config, key)
        if not isinstance(wanted, int) or wanted < 1:
            faults.append(f"config.{key}: expected a whole number of at least 1, got {wanted!r}")
    faults += _minibatch_faults(parts, config) + _lora_faults(parts) + _critic_faults(parts)
    if not config.in_evaluation:
        faults += _context_faults(parts) + _filter_faults(parts)
    if learner.recompute_old_logprobs and not parts["loss"].reads_old_logprobs:
        faults.append(f"config.learner.recompute_old_logprobs: has no effect with loss {_name(parts['loss'])!r}")
    if learner.kl.coefficient > 0 and learner.kl.place == "reward" and not parts["loss"].reads_old_logprobs:
        faults.append(
            f"config.learner.kl.place: loss {_name(parts['loss'])!r} trains on tokens of any origin, whose divergence "
            "from the reference is not in their logprobs; place it in the loss"
        )
    if parts["loss"].pairwise != config.algo_class.trains_pairs:
        faults.append(f"config.loss: {_name(parts['loss'])!r} does not go with {config.algo_class.__name__}")
    if config.algo_class.trains_pairs and not parts["offline"].has_data and rollout.group_size < 2:
        faults.append("config.rollout.group_size: pairs are made of the members of a group, so it needs at least 2")
    if rollout.max_staleness > 0 and getattr(parts["engine"], "sleep", "no") != "no":
        faults.append(
            "config.engine.sleep: engines cannot sleep while the learner works where max_staleness is above 0"
        )
    if rollout.max_staleness > 0 and config.algo_class.offline_use != "never":
        faults.append(f"config.rollout.max_staleness: {config.algo_class.__name__} does not sample while it learns")
    if parts["offline"].restart and not getattr(config.algo_class, "restarts", False):
        faults.append(f"config.offline.restart: has no effect with {config.algo_class.__name__}")
    if parts["offline"].has_data and config.algo_class.offline_use == "never":
        faults.append(f"config.offline: {config.algo_class.__name__} samples all that it trains on")
    if not isinstance(config.env, str):
        faults.append(f"config.env: expected an environment's name, got {config.env!r}")
        return faults
    settings = {env: share.env_config or EnvSettings() for env, share in shares.items()}
    for env, where in (settings | {config.env: parts["env_config"]}).items():
        if where.backend != "url":
            try:
                env_class(env)
            except InputError as error:
                faults.append(str(error))
    return faults


def _context_faults(parts: Mapping[str, Any]) -> list[str]:
    wanted, limit = getattr(parts["context"], "max_tokens", None), parts["rollout"].max_context_tokens
    if wanted is None or wanted <= limit:
        return []
    return [
        f"config.context.max_tokens: {wanted} is more than the {limit} of config.rollout.max_context_tokens, so "
        "episodes end before it is reached"
    ]


def _filter_faults(parts: Mapping[str, Any]) -> list[str]:
    """Filters that would keep all groups whatever they are like, or none."""
    rollout, faults = parts["rollout"], []
    for number, chosen in enumerate(parts["filters"]):
        where = f"config.filters[{number}]"
        k, groups = getattr(chosen, "k", None), rollout.groups_per_iteration
        if k is not None and k > groups:
            faults.append(
                f"{where}.k: {k} is more than the {groups} groups of config.rollout.groups_per_iteration, so all "
                "are kept"
            )
        if rollout.group_size < 2 and getattr(chosen, "needs_groups", False):
            faults.append(
                f"{where}: the members of a group are compared, so config.rollout.group_size must be at least 2, got "
                f"{rollout.group_size}: no group would be kept"
            )
    return faults


def _critic_faults(parts: Mapping[str, Any]) -> list[str]:
    critic, faults = parts["critic"], []
    if critic is not None and not isinstance(parts["advantages"], CriticEstimator):
        faults.append(
            f"config.critic: has no effect with advantages {parts['advantages'].type!r}, which need no critic"
        )
    if critic is not None and critic.lora is not None:
        faults.append("config.critic.lora: a critic is trained whole; leave lora out")
    if parts["learner"].value.lr is not None and not isinstance(parts["advantages"], CriticEstimator):
        faults.append(f"config.learner.value.lr: has no effect with advantages {parts['advantages'].type!r}")
    return faults


def _lora_faults(parts: Mapping[str, Any]) -> list[str]:
    lora, loss = parts["model"].lora, parts["loss"]
    if lora is None:
        return []
    faults = []
    if lora.dropout > 0 and (loss.reads_old_logprobs or loss.needs_reference):
        faults.append(
            f"config.model.lora.dropout: set 0; loss {_name(loss)!r} compares logprobs, and they differ under dropout"
        )
    if lora.sync == "adapter" and not parts["engine"].in_runner:
        engine = ENGINES.name_of(parts["engine"])
        faults.append(f"config.model.lora.sync: set 'merged'; engine {engine!r} takes whole weights only")
    return faults


def _minibatch_faults(parts: Mapping[str, Any], config: Any) -> list[str]:
    size = parts["learner"].minibatch_size
    rollout, offline = parts["rollout"], parts["offline"]
    if size is None or config.algo_class.offline_use == "sometimes":  # how much an iteration has is known when it runs
        return []
    batch = rollout.group_size * rollout.groups_per_iteration
    made_of = f"rollout.group_size {rollout.group_size} x rollout.groups_per_iteration {rollout.groups_per_iteration}"
    if config.algo_class.offline_use == "always":
        batch, made_of = offline.trajectories_per_iteration, "offline.trajectories_per_iteration"
    if size > batch:
        return [
            f"config.minibatch_size: {size} trajectories an optimizer step, but an iteration has {batch} ({made_of})"
        ]
    if batch % size:
        return [f"config.minibatch_size: {size} does not divide the {batch} trajectories of an iteration"]
    return []


def _name(loss: Any) -> str:
    return POLICY_LOSSES.name_of(loss)


def for_stale_data(parts: Mapping[str, Any]) -> dict[str, Any]:
    """What a bound on staleness above 0 sets where nothing was said: the importance correction, and the drift alarm."""
    staleness, learner, diagnostics = parts["rollout"].max_staleness, parts["learner"], parts["diagnostics"]
    if staleness == 0:
        return {}
    changed: dict[str, Any] = {}
    told_not_to = "recompute_old_logprobs" in learner.model_fields_set and not learner.recompute_old_logprobs
    if "importance" not in learner.model_fields_set and not told_not_to:
        corrected = {"recompute_old_logprobs": True, "importance": Importance(mode="token_truncate")}
        changed["learner"] = learner.model_copy(update=corrected)
    drift = diagnostics.drift
    if drift is not None:
        # Old tokens differ from the policy that is trained because it has moved; that is no disagreement of engines.
        patient = {"max_stale_versions": staleness, "max_kl": 0.2, "min_ess": 0.5}
        unsaid = {name: value for name, value in patient.items() if name not in drift.model_fields_set}
        changed["diagnostics"] = diagnostics.model_copy(update={"drift": drift.model_copy(update=unsaid)})
    return changed
