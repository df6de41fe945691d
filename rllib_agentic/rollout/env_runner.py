"""The env runner: the Ray shell around the episode loop."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import ray
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.framework import get_device
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from rllib_agentic.engines.engine import COUNTERS, Engine
from rllib_agentic.engines.legal_tokens import ActionTries
from rllib_agentic.envs.session import EnvClient
from rllib_agentic.errors import InputError, StaleWeightsError
from rllib_agentic.rl_module.model_loading import load_stop_ids, load_tokenizer
from rllib_agentic.rollout.background_loop import BackgroundLoop
from rllib_agentic.rollout.callbacks import RunnerCallbacks
from rllib_agentic.rollout.episode import EpisodePlan, Rollout
from rllib_agentic.rollout.group import play
from rllib_agentic.rollout.in_flight import GroupsInFlight
from rllib_agentic.rollout.limits import RolloutSettings
from rllib_agentic.rollout.note_writer import NoteWriter, load_writer
from rllib_agentic.trajectory.trajectory import Trajectory


class Connection(Protocol):
    """How a runner reaches an environment."""

    def open(self) -> EnvClient:
        """A client of its own."""
        ...


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """What the driver asks of one runner. A runner that was just restarted can do it: everything is in here.

    Attributes:
        plans: the episodes, whole groups together so that they share their prompt's prefill.
        connections: environment name to where it is served.
        policy_version: the version that must sample.
        weights: the state of that version, or a reference to it; fetched only by a runner that holds another.
        rollout: limits and sampling (evaluation has its own).
        engine: address of an engine outside the runner, which has the weights then; None for the runner's own.
    """

    plans: tuple[EpisodePlan, ...]
    connections: Mapping[str, Connection]
    policy_version: int
    weights: Any
    rollout: RolloutSettings
    engine: str | None = None


@dataclass(frozen=True, slots=True)
class RolloutReport:
    """What a runner gives back: trajectories in the order of the plans, or the failure that stopped it.

    Attributes:
        trajectories: empty where ``failure`` is set, or where nothing has landed.
        policy_version: the version that the runner held.
        engine_metrics: counters of the engine since the last report.
        logged: what callbacks logged, reduced by RLlib's logger; None where they logged nothing.
        in_flight: groups that were launched and have not landed.
        failure: traceback of a bug in our or the environment's code, for the driver to raise.
        input_error: message of an :class:`InputError`, for the driver to raise as such.
    """

    trajectories: list[Trajectory]
    policy_version: int
    engine_metrics: dict[str, float]
    logged: Any = None
    in_flight: tuple[str, ...] = ()
    failure: str | None = None
    input_error: str | None = None


class AgenticEnvRunner(EnvRunner, Checkpointable):
    """Plays many episodes at once over its own copy of the policy.

    It has no gymnasium environment, connectors or RLlib episodes: environments are sessions of a service, and what it
    samples are :class:`Trajectory` objects. The local runner beside remote ones never samples and holds no model.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self.worker_index: int = kwargs.get("worker_index") or 0
        self.module: Any = None
        self._policy_version = -1
        self._engine: Engine | None = None
        self._writer: NoteWriter | None = None
        self._clients: dict[str, Any] = {}
        self._tools: dict[str, Any] = {}
        self._stop_strings: dict[str, tuple[str, ...]] = {}
        self._in_flight = GroupsInFlight()
        self._reported: Mapping[str, float] = dict.fromkeys(COUNTERS, 0.0)
        self._loop = BackgroundLoop(f"episodes-{self.worker_index}")
        self._callbacks = RunnerCallbacks(self)
        if self.worker_index > 0 or self.config.num_env_runners == 0:
            self.make_module()

    def make_module(self) -> None:
        """Build the renderer, and the policy with its engine where they live in this process."""
        self._sections = sections = self.config.sections()
        device = get_device(self.config, self.config.num_gpus_per_env_runner if self.worker_index else 0)
        if sections.engine.in_runner:
            self.module = self.config.get_rl_module_spec(spaces=self.get_spaces(), inference_only=True).build()
            self.module.to(device)
            self.module.eval()
            tokenizer = self.module.tokenizer
            self._renderer = sections.make_renderer(self.module.model, tokenizer)
            self._engine = sections.engine.build(self.module.model, tokenizer)
        else:
            tokenizer = load_tokenizer(sections.model)
            self._renderer = sections.renderer.build(tokenizer, load_stop_ids(sections.model))
        self._make_trie = ActionTries(tokenizer, self._renderer.end_of_turn_id).trie
        writes = getattr(sections.context, "model", None)
        self._writer = None if writes is None else load_writer(writes, device)

    def sample(self, job: RolloutJob) -> RolloutReport:
        """Play the job's episodes to their end. What is in flight goes on meanwhile."""
        return self._report(self._play(job))

    def launch(self, job: RolloutJob) -> RolloutReport:
        """Begin to play the job's groups, and come back at once; an empty job brings new weights to those in flight."""
        return self._report(self._begin(job))

    def landed(self, wait_s: float) -> RolloutReport:
        """The groups that are complete; waits so long for one where none is."""
        return self._report(self._in_flight.landed(wait_s))

    def recall(self) -> RolloutReport:
        """Throw away what is in flight."""
        return self._report(self._recall())

    def _report(self, work: Coroutine[Any, Any, list[Trajectory]]) -> RolloutReport:
        """Nothing raises in here: an exception would end the actor and hide its cause."""
        try:
            trajectories = self._loop.run(work)
            if trajectories:
                self._callbacks.sample_end(trajectories)
            logged = self._callbacks.take_logged()
        except InputError as error:
            return RolloutReport([], self._policy_version, {}, input_error=str(error))
        except Exception:
            return RolloutReport([], self._policy_version, {}, failure=traceback.format_exc())
        now = self._engine.metrics() if self._engine is not None else self._reported
        spent = {name: now[name] - self._reported[name] for name in COUNTERS}
        self._reported = now
        return RolloutReport(trajectories, self._policy_version, spent, logged, self._in_flight.group_ids)

    async def _play(self, job: RolloutJob) -> list[Trajectory]:
        return await play(await self._rollout(job), job.plans)

    async def _begin(self, job: RolloutJob) -> list[Trajectory]:
        self._in_flight.launch(await self._rollout(job), job.plans)
        return []

    async def _recall(self) -> list[Trajectory]:
        await self._in_flight.recall()
        return []

    async def _rollout(self, job: RolloutJob) -> Rollout:
        """All that the job's episodes share, once the policy is the job's."""
        if self._engine is None and job.engine is not None:
            from rllib_agentic.engines.vllm_transport import connect

            self._engine = connect(job.engine)
        assert self._engine is not None, "the local runner beside remote ones never samples"
        await self._load(job)
        for name, connection in job.connections.items():
            if name not in self._clients:
                client = connection.open()
                schema = await client.schema()
                self._tools[name] = tuple(dict(tool) for tool in schema.tools if schema.tools_in_template)
                self._stop_strings[name] = schema.stop_strings
                self._clients[name] = client
        return Rollout(
            engine=self._engine,
            renderer=self._renderer,
            clients=self._clients,
            make_strategy=self._sections.context.make,
            make_trie=self._make_trie,
            settings=job.rollout,
            tools=self._tools,
            stop_strings=self._stop_strings,
            observer=self._callbacks.observer,
            writer=self._writer,
        )

    async def _load(self, job: RolloutJob) -> None:
        assert self._engine is not None
        if job.policy_version == self._policy_version:
            return
        if job.engine is not None:
            self._set_version(job.policy_version)
            return
        weights = job.weights
        if isinstance(weights, ray.ObjectRef):
            weights = await asyncio.to_thread(ray.get, weights)
        if weights is None:
            raise StaleWeightsError(
                "stale_weights",
                f"runner {self.worker_index} holds version {self._policy_version}, version {job.policy_version} was "
                "asked for, and no weights came with the job",
            )
        await self._engine.change_weights(
            job.policy_version,
            lambda: self.module.set_state(weights),
            finish_turns=job.rollout.turns_at_update == "finish",
        )
        self._policy_version = job.policy_version

    def _set_version(self, version: int) -> None:
        self._policy_version = version
        if self._engine is not None:
            self._engine.weights_updated(version)

    # --- what RLlib asks ----------------------------------------------------------------------------------------

    def get_spaces(self) -> dict[str, Any]:
        """Dummy spaces: the policy reads tokens, not gymnasium observations."""
        spaces = (self.config.observation_space, self.config.action_space)
        return {INPUT_ENV_SPACES: spaces, INPUT_ENV_SINGLE_SPACES: spaces, DEFAULT_MODULE_ID: spaces}

    def assert_healthy(self) -> None:
        """A runner that samples has a renderer, and a policy or the way to one."""
        if not hasattr(self, "_renderer") and (self.worker_index > 0 or self.config.num_env_runners == 0):
            raise AssertionError(f"runner {self.worker_index} was not built")

    def get_metrics(self) -> Any:
        """RLlib's way to ask for what callbacks logged; ours is that it travels with the reports."""
        return self.metrics.reduce()

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Version and (where asked for) weights."""
        state: dict[str, Any] = {WEIGHTS_SEQ_NO: self._policy_version}
        if self.module is not None and self._check_component(COMPONENT_RL_MODULE, components, not_components):
            state[COMPONENT_RL_MODULE] = self.module.get_state(**kwargs)
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Take weights as RLlib sends them after a restore. Jobs bring weights of their own, with their version."""
        weights = state.get(COMPONENT_RL_MODULE)
        if weights is None or self.module is None:
            return
        if isinstance(weights, ray.ObjectRef):
            weights = ray.get(weights)
        self.module.set_state(weights.get(DEFAULT_MODULE_ID, weights))
        self._set_version(int(state.get(WEIGHTS_SEQ_NO, -1)))

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """How a checkpoint makes this object again."""
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Checkpointable]]:
        """None: the weights lie in the learner group's checkpoint once."""
        return []

    def stop(self) -> None:
        """Close sessions, connections and the loop."""
        if self._loop.running:
            self._loop.run(self._recall())
            for client in self._clients.values():
                self._loop.run(client.aclose())
            self._clients.clear()
            if self._engine is not None:
                self._engine.close()
            self._loop.stop()


def split_plans(plans: Sequence[EpisodePlan], parts: int) -> list[tuple[EpisodePlan, ...]]:
    """Deal whole groups to ``parts`` runners, the largest group first to the runner with the fewest episodes."""
    groups: dict[str, list[EpisodePlan]] = {}
    for plan in plans:
        groups.setdefault(plan.group_id, []).append(plan)
    shares: list[list[EpisodePlan]] = [[] for _ in range(parts)]
    for group in sorted(groups.values(), key=len, reverse=True):
        min(shares, key=len).extend(group)
    return [tuple(share) for share in shares]
