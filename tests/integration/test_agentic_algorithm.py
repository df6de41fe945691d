"""The algorithm as its users meet it: build, train, evaluate, save, restore, with and without remote actors.

1. A run stopped at iteration k and resumed equals, at iteration n, one that was never stopped: weights and metrics.
2. The number of runners changes nothing that is sampled.
3. Lost runners are noticed: their episodes are played again, or the run stops with the reason.
4. RLlib's callbacks are called where RLlib calls them, and what they log stands in the results.
5. A result holds what its iteration logged: no NaN stands for a value of an earlier one.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.utils.actor_manager import FaultTolerantActorManager

from rllib_agentic.algorithms.checkpoints import find_checkpoint, load_algorithm
from rllib_agentic.algorithms.dispatch import Dispatcher
from rllib_agentic.algorithms.grpo import GRPO, GRPOConfig
from rllib_agentic.errors import InputError, TooManyFailuresError
from rllib_agentic.store import TrajectoryReader
from rllib_agentic.tracking.metrics import missing_metrics, scalars

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=4, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def config(**changes: Any) -> GRPOConfig:
    small = {
        "env_config": {"backend": "local", "args": {"size": 4}},
        "model": {"preset": "tiny", "hidden_size": 32, "num_layers": 2},
        "rollout": {"group_size": 4, "groups_per_iteration": 4, "max_turns": 4},
        "evaluation_duration": 8,
        "lr": 1e-2,
        "seed": 3,
    }
    return GRPOConfig().environment("frozenlake").update_from_dict(small).update_from_dict(changes)


def weights(algo: GRPO) -> dict[str, np.ndarray]:
    return algo.learner_group.get_weights()["default_policy"]


def steady(result: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on the clock."""
    timed = ("timer", "time", "seconds", "_per_s", "throughput", "perf/", "since_restore")
    return {key: value for key, value in scalars(result).values.items() if not any(word in key for word in timed)}


def test_results_carry_what_everyone_looks_for() -> None:
    algo = config(evaluation_interval=2, evaluation_at_start=True).build_algo()
    try:
        first, second = algo.train(), algo.train()
        some, played = algo.evaluate_episodes(num_turns=5)
    finally:
        algo.stop()
    assert missing_metrics(first) == []  # UX04
    assert first["env_runners"]["num_episodes"] == 16 and first["learners"]["default_policy"]["trained_tokens"] > 0
    assert first["num_env_steps_sampled_lifetime"] < second["num_env_steps_sampled_lifetime"]
    assert "evaluation" not in first and second["evaluation"]["num_episodes"] == 8
    assert 0 <= second["evaluation"]["success_rate_low"] <= second["evaluation"]["success_rate"]
    assert second["evaluation_at_start"] == first["evaluation_at_start"]
    assert first["learners"]["default_policy"]["mismatch_max"] < 1e-4  # engine and learner agree
    turns = [len(t.turns) for t in played]
    assert sum(turns[:-1]) < 5 <= sum(turns) and some["num_tasks"] == len(turns)  # tasks until there are 5 turns
    stored = list(TrajectoryReader(Path(algo.logdir) / "trajectories"))
    assert len(stored) == 32


def test_a_resumed_run_equals_one_that_was_never_stopped(tmp_path: Path) -> None:  # TK13
    curriculum = {"type": "adaptive", "max_turns": [3, 5], "min_iterations": 2, "threshold": 0.01, "patience": 1}
    changes = {"curriculum": curriculum, "evaluation_at_start": True, "learner": {"warmup_steps": 3, "minibatches": 2}}
    whole = config(**changes).build_algo()
    try:
        for _ in range(2):
            whole.train()
        saved = whole.save_to_path(str(tmp_path / "checkpoint"))
        expected = [whole.train() for _ in range(2)]
        final = weights(whole)
    finally:
        whole.stop()
    resumed = load_algorithm(saved)
    try:
        assert resumed.iteration == 2
        got = [resumed.train() for _ in range(2)]
        for name, value in weights(resumed).items():
            np.testing.assert_array_equal(value, final[name], err_msg=name)
    finally:
        resumed.stop()
    assert [steady(r) for r in got] == [steady(r) for r in expected]


def test_restoring_an_older_checkpoint_in_place_takes_everything_back(tmp_path: Path) -> None:
    algo = config().build_algo()
    try:
        saved = algo.save_to_path(str(tmp_path / "start"))
        before = {name: value.copy() for name, value in weights(algo).items()}
        first = steady(algo.train())
        algo.restore_from_path(saved)
        assert all(np.array_equal(before[name], value) for name, value in weights(algo).items())
        assert steady(algo.train()) == first
    finally:
        algo.stop()


def test_remote_runners_and_learners_sample_and_learn_the_same() -> None:
    def run(**changes: Any) -> tuple[list[float], dict[str, np.ndarray]]:
        algo = config(**changes).build_algo()
        try:
            results = [algo.train() for _ in range(2)]
            return [r["env_runners"]["episode_return_mean"] for r in results], weights(algo)
        finally:
            algo.stop()

    local, remote = run(), run(num_env_runners=2, num_learners=1)
    assert local[0] == pytest.approx(remote[0])
    for name, value in local[1].items():
        np.testing.assert_allclose(value, remote[1][name], atol=1e-5, err_msg=name)


def test_episodes_of_a_killed_runner_are_played_again(tmp_path: Path) -> None:  # FT08 too
    algo = config(num_env_runners=2).build_algo()
    try:
        algo.train()
        pid = algo.env_runner_group.foreach_env_runner(lambda runner: os.getpid(), local_env_runner=False)[0]
        os.kill(pid, signal.SIGKILL)
        result = algo.train()
        algo.restore_from_path(algo.save_to_path(str(tmp_path)))
        algo.train()
        versions = algo.env_runner_group.foreach_env_runner(lambda runner: runner._policy_version)
    finally:
        algo.stop()
    assert result["env_runners"]["num_valid_episodes"] == 16
    assert len(set(versions) - {-1}) == 1  # after a restore all hold the same weights; -1 is the idle local one


def test_the_death_of_a_runner_is_told_with_node_reason_and_log() -> None:  # FT10
    @ray.remote(num_cpus=0)
    class Runner:
        def apply(self, func: Any, *args: Any, **kwargs: Any) -> Any:
            return func(self, *args, **kwargs)

        def ping(self) -> str:
            return "pong"

    class Runners:
        _worker_manager = FaultTolerantActorManager([Runner.remote(), Runner.remote()])  # type: ignore[attr-defined]

        def num_remote_env_runners(self) -> int:
            return 2

        def probe_unhealthy_env_runners(self) -> None:
            pass

        def healthy_env_runner_ids(self) -> list[int]:
            return self._worker_manager.healthy_actor_ids()

    def die(runner: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def pid(runner: Any) -> int:
        return os.getpid()

    dispatcher = Dispatcher(Runners(), {})  # type: ignore[arg-type]
    first, second = dispatcher.runners_alive()
    pids = dispatcher.on_runners({first: pid, second: pid})
    answers = dispatcher.on_runners({first: die, second: pid})
    assert answers == {second: pids[second]} and dispatcher.runners_alive() == [second]
    dispatcher.on_runners({second: die})
    with pytest.raises(TooManyFailuresError) as caught:
        dispatcher.runners_alive()
    message = str(caught.value)
    assert "all 2 env runners are dead" in message
    for runner, number in pids.items():
        assert f"env runner {runner}: node {ray.util.get_node_ip_address()}; reason: " in message
        assert f"worker-*-{number}.err" in message


def test_a_run_whose_episodes_all_fail_stops_with_the_reason() -> None:
    algo = config(rollout={"max_context_tokens": 20, "max_tokens_per_turn": 4}).build_algo()
    try:
        with pytest.raises(TooManyFailuresError, match=r"16 of 16 .*prompt_too_long"):
            algo.train()
    finally:
        algo.stop()


def test_bad_environments_and_splits_stop_the_start_and_leave_nothing_running() -> None:
    with pytest.raises(InputError, match="no split 'trian'"):
        config(env_config={"split": "trian"}).build_algo()
    with pytest.raises(InputError, match=r"http://127.0.0.1:9"):
        GRPOConfig().environment("frozenlake", env_config={"url": "http://127.0.0.1:9/x"}).build_algo()


def watching() -> type[RLlibCallback]:
    """Made here, so that it travels to the runners by value."""

    class Watching(RLlibCallback):
        """Notes what it is told, and logs a metric an episode and a metric a job."""

        def on_episode_created(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
            assert not episode.prompt and not len(episode) and not episode.is_done
            episode.custom_data["seen"] = ["created"]

        def on_episode_start(self, *, episode: Any, env_index: int, **kwargs: Any) -> None:
            assert episode.prompt[-1].role == "user" and episode.id_.endswith(f"/{env_index}")
            episode.custom_data["seen"].append("start")

        def on_episode_step(self, *, episode: Any, rl_module: Any, **kwargs: Any) -> None:
            assert len(episode.turns[-1].action_ids) and rl_module is not None
            episode.custom_data["seen"].append("step")

        def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
            assert episode.custom_data["seen"] == ["created", "start"] + ["step"] * len(episode)
            assert episode.is_done and episode.get_return() == episode.trajectory.total_reward
            metrics_logger.log_value("mine/steps", len(episode), reduce="sum")

        def on_sample_end(self, *, env_runner: Any, metrics_logger: Any, samples: list[Any], **kwargs: Any) -> None:
            assert env_runner.module is not None
            metrics_logger.log_value(("mine", "samples"), len(samples), reduce="sum")

        def on_evaluate_start(self, *, algorithm: Any, **kwargs: Any) -> None:
            algorithm.told = ["start"]

        def on_evaluate_end(self, *, algorithm: Any, evaluation_metrics: dict[str, Any], **kwargs: Any) -> None:
            algorithm.told += ["end", evaluation_metrics["num_tasks"]]

    return Watching


@pytest.mark.parametrize("runners", [0, 2])
def test_callbacks_are_called_and_what_they_log_is_in_the_results(runners: int) -> None:
    algo = config(num_env_runners=runners, evaluation_interval=2).callbacks(watching()).build_algo()
    try:
        results = [algo.train() for _ in range(2)]
        assert algo.told == ["start", "end", 8]
    finally:
        algo.stop()
    for result in results:
        sampled = result["env_runners"]
        assert sampled["mine"]["samples"] == sampled["num_episodes"] == 16
        assert sampled["mine/steps"] == sampled["num_env_steps_sampled"]
    held_out = results[1]["evaluation"]
    assert held_out["mine"]["samples"] == 8 and held_out["mine/steps"] == 8 * held_out["num_turns_mean"]


def test_a_callback_that_takes_a_name_of_ours_stops_the_run_with_the_reason() -> None:
    def clash(*, metrics_logger: Any, **kwargs: Any) -> None:
        metrics_logger.log_value("success_rate", 1.0)

    algo = config().callbacks(on_episode_end=clash).build_algo()
    try:
        with pytest.raises(InputError, match=r"'success_rate' is a metric of rllib_agentic"):
            algo.train()
    finally:
        algo.stop()


def test_an_iteration_that_trained_nothing_reports_no_values_of_an_earlier_one() -> None:
    def first_alone(*, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        if episode.group_id.startswith("1."):
            metrics_logger.log_value("of_the_first", 1.0, reduce="mean")

    nothing_passes = [{"type": "success_rate", "above": 0.999}]
    algo = config(evaluation_interval=None).callbacks(on_episode_end=first_alone).build_algo()
    try:
        first = algo.train()
        algo._sections = config(filters=nothing_passes).sections()
        second = algo.train()
    finally:
        algo.stop()
    assert first["env_runners"]["of_the_first"] == 1.0
    assert "grad_norm" in first["learners"]["default_policy"] and first["env_runners"]["advantages"]
    assert second["learners"]["default_policy"] == {"trained_tokens": 0.0}
    assert "of_the_first" not in second["env_runners"]
    assert scalars(first).nonfinite == scalars(second).nonfinite == []


def test_a_checkpoint_is_found_in_the_folders_around_it(tmp_path: Path) -> None:
    algo = config().build_algo()
    try:
        saved = algo.save_to_path(str(tmp_path / "exp" / "trial" / "checkpoint_000001"))
    finally:
        algo.stop()
    assert find_checkpoint(tmp_path / "exp") == find_checkpoint(saved) == Path(saved).resolve()
    with pytest.raises(InputError, match="no whole checkpoint here"):
        find_checkpoint(tmp_path / "nothing")
