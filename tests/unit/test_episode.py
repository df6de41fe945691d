"""The episode loop.

1. A segment is exactly what the engine saw and sampled; nothing else is trained.
2. Every limit ends an episode as truncated, and no engine call goes over a limit.
3. A failure of infrastructure gives an invalid trajectory, never a reward.
4. Sessions and caches are freed however an episode ends.
5. Each member, turn and iteration has a seed of its own, the same in every process.
"""

import asyncio
import dataclasses
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from chat_tokenizers import chatml_tokenizer

from rllib_agentic.advantages.grpo import GRPOEstimator
from rllib_agentic.context import AppendOnly, SlidingWindow
from rllib_agentic.engines.legal_tokens import ActionTries
from rllib_agentic.engines.scripted import ScriptedEngine
from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InfrastructureError
from rllib_agentic.rendering import ChatMLRenderer
from rllib_agentic.rollout import EpisodePlan, Rollout, RolloutSettings, plan_group, play
from rllib_agentic.rollout.live_episode import EpisodeEvent, LiveEpisode
from rllib_agentic.rollout.seeds import seed_of
from rllib_agentic.trajectory import FinishReason, Message, Task, rows_of


@dataclass
class Countries:
    """Asks for capitals; ``faults`` says what goes wrong at which step."""

    questions: tuple[str, ...] = ("And of Spain?", "And of Italy?", "Thank you.")
    rewards: tuple[float, ...] = (0.0, 0.0, 1.0)
    long_answer: int = 0
    fault: str | None = None
    hang: bool = False
    opened: int = 0
    closed: int = 0
    actions: tuple[str, ...] | None = None
    heard: list[str] = field(default_factory=list)

    async def schema(self) -> EnvSchema:
        return EnvSchema("countries", "1", {"train": 3}, "0", "text", lists_actions=False)

    async def create(self, task: Task) -> "CountrySession":
        if self.fault == "create":
            raise InfrastructureError("env_unreachable", "nobody there")
        self.opened += 1
        return CountrySession(self)

    async def aclose(self) -> None:
        pass


class CountrySession:
    def __init__(self, env: Countries) -> None:
        self.env, self.step_number, self.session_id = env, 0, "s"
        self.first = Observation((Message("user", "What is the capital of France?"),), env.actions)

    async def step(self, action: str) -> StepResult:
        self.env.heard.append(action)
        n = self.step_number
        self.step_number += 1
        if self.env.hang:
            await asyncio.Event().wait()
        if self.env.fault == "step":
            raise InfrastructureError("session_lost", "the replica died")
        if self.env.fault == "bug":
            raise KeyError("a bug")
        text = "x " * self.env.long_answer + self.env.questions[n]
        last = n + 1 == len(self.env.questions)
        reward = float("nan") if self.env.fault == "nan" else self.env.rewards[n]
        return StepResult(Observation((Message("user", text),), self.env.actions), reward, last, False, last)

    async def close(self) -> None:
        self.env.closed += 1


@cache
def renderer() -> ChatMLRenderer:
    return ChatMLRenderer(chatml_tokenizer(), default_system=None)


def rollout(engine: Any, env: Countries, context: Any = None, **settings: Any) -> Rollout:
    tokenizer = chatml_tokenizer()
    return Rollout(
        engine=engine,
        renderer=renderer(),
        clients={"countries": env},
        make_strategy=(context or AppendOnly()).make,
        make_trie=ActionTries(tokenizer, renderer().end_of_turn_id).trie,
        settings=RolloutSettings(**settings),
    )


def capitals(script: Any = ("Paris", "Madrid", "Rome")) -> ScriptedEngine:
    return ScriptedEngine(script, chatml_tokenizer(), stop_id=renderer().end_of_turn_id)


def plan(max_turns: int = 10, **changes: Any) -> EpisodePlan:
    return EpisodePlan(Task("countries", "train", 0), "g", 0, seed=1, max_turns=max_turns, **changes)


def test_a_segment_is_what_the_engine_saw_and_sampled() -> None:  # TM06
    engine, env = capitals(), Countries()
    trajectory = asyncio.run(rollout(engine, env).run(plan()))
    ids = trajectory.segment_ids(0)
    for request, turn in zip(engine.requests, trajectory.turns, strict=True):
        seen = len(request.context_ids)
        assert ids[:seen].tolist() == request.context_ids.tolist()
        assert ids[seen : seen + len(turn.action_ids)].tolist() == turn.action_ids.tolist()
    text = chatml_tokenizer().decode(ids)
    assert text.count("<|im_start|>assistant\n") == 3
    header = chatml_tokenizer().encode("<|im_start|>assistant\n")
    (row,) = rows_of(trajectory, [0.0] * 3)
    starts = np.flatnonzero(np.diff(row.action_mask.astype(int), prepend=0) == 1)
    assert len(starts) == 3
    assert all(row.token_ids[s - len(header) : s].tolist() == header for s in starts)
    assert env.heard == ["Paris", "Madrid", "Rome"]
    assert trajectory.terminated and trajectory.success and trajectory.total_reward == 1.0
    assert (env.opened, env.closed, engine.released) == (1, 1, ["g/0"])


def test_sampled_stop_tokens_are_trained_and_added_ones_are_not() -> None:  # TM08
    stop = renderer().end_of_turn_id
    madrid = chatml_tokenizer().encode("Madrid")
    engine = capitals(["Paris", "Madrid STOP", "Rome"])
    trajectory = asyncio.run(rollout(engine, Countries(), stop_strings=("STOP",)).run(plan()))
    first, second, third = trajectory.turns
    assert first.finish_reason is FinishReason.STOP and first.action_ids[-1] == stop
    assert second.finish_reason is FinishReason.STOP_STRING and stop not in second.action_ids
    assert third.context_ids[0] == stop  # added, so it is context
    assert second.action_ids.tolist()[: len(madrid)] == madrid
    (row,) = rows_of(trajectory, [1.0, 2.0, 3.0])
    assert int(row.action_mask.sum()) == sum(len(t.action_ids) for t in trajectory.turns)
    assert row.advantages[row.turn_index == 1].tolist() == [2.0] * len(second.action_ids)


def test_a_turn_at_its_token_limit_truncates_whatever_its_last_id() -> None:  # TM09, TP17
    engine, env = capitals(["Paris is the capital", "Madrid", "Rome"]), Countries()
    trajectory = asyncio.run(rollout(engine, env, max_tokens_per_turn=3).run(plan()))
    assert trajectory.truncated and not trajectory.terminated and trajectory.end_reason == "max_tokens"
    assert trajectory.cut_by_length and len(trajectory.turns[0].action_ids) == 3
    assert env.heard == []  # half an action is never executed
    acting = Countries()
    asyncio.run(
        rollout(capitals(["Paris is the capital", "x", "y"]), acting, max_tokens_per_turn=3, cut_turn="act").run(plan())
    )
    assert len(acting.heard) == 3


def test_context_that_fills_up_inside_an_observation_ends_the_episode() -> None:  # TM18
    engine, env = capitals(), Countries(long_answer=200)
    limits = rollout(engine, env, max_context_tokens=120, max_tokens_per_turn=16)
    trajectory = asyncio.run(limits.run(plan()))
    ids = trajectory.segment_ids(0)
    assert trajectory.truncated and trajectory.end_reason == "max_context"
    assert len(trajectory.turns) == 1 and len(ids) <= 120
    (row,) = rows_of(trajectory, [1.0])
    assert np.flatnonzero(row.action_mask)[-1] == len(ids) - 1  # nothing follows the last sampled token
    assert all(len(r.context_ids) < 120 for r in engine.requests)


@pytest.mark.parametrize(("room", "sampled"), [(10, 10), (1, 1)])
def test_max_tokens_is_clamped_to_the_room_left(room: int, sampled: int) -> None:  # WS09
    prompt = len(renderer().render([Message("user", "What is the capital of France?")]))
    engine = capitals([[40] * 50])
    settings = {"max_context_tokens": prompt + room, "max_tokens_per_turn": min(32, prompt + room - 1)}
    trajectory = asyncio.run(rollout(engine, Countries(), **settings).run(plan()))
    assert engine.requests[0].max_tokens == sampled
    assert trajectory.truncated


def test_a_prompt_that_leaves_no_room_is_invalid_and_never_reaches_the_engine() -> None:  # WS09
    engine, env = capitals(), Countries()
    trajectory = asyncio.run(rollout(engine, env, max_context_tokens=5, max_tokens_per_turn=2).run(plan()))
    assert trajectory.invalid == "prompt_too_long" and engine.requests == [] and env.closed == 1


def test_a_prompt_that_is_too_long_is_not_tried_again() -> None:
    env = Countries()
    limits = {"max_context_tokens": 5, "max_tokens_per_turn": 2, "max_attempts": 3}
    (given_up,) = asyncio.run(play(rollout(capitals(), env, **limits), [plan()]))
    assert given_up.invalid == "prompt_too_long"
    assert given_up.metrics["attempts"] == 1 and env.closed == 1


def test_turn_and_episode_limits_are_two_settings() -> None:  # TM19
    eight = [40] * 7 + [renderer().end_of_turn_id]
    engine, env = capitals([eight, eight, eight]), Countries()
    both = {"max_tokens_per_turn": 8, "max_tokens_per_episode": 64}
    whole = asyncio.run(rollout(engine, env, **both).run(plan()))
    assert whole.num_action_tokens == 24 and whole.terminated
    short = asyncio.run(
        rollout(capitals([eight, eight, eight]), Countries(), **{**both, "max_tokens_per_episode": 20}).run(plan())
    )
    assert short.num_action_tokens == 20 and short.end_reason == "max_tokens"
    budget = asyncio.run(rollout(capitals(), Countries()).run(plan(max_turns=2)))
    assert len(budget.turns) == 2 and budget.truncated and budget.end_reason == "max_turns" and not budget.success


@pytest.mark.parametrize(
    ("env", "kind"),
    [
        (Countries(fault="create"), "env_unreachable"),
        (Countries(fault="step"), "session_lost"),
        (Countries(fault="nan"), "env_error"),
        (Countries(hang=True), "episode_timeout"),
    ],
)
def test_failures_of_infrastructure_are_invalid_and_free_everything(env: Countries, kind: str) -> None:  # EV06, FT02
    engine = capitals()
    trajectory = asyncio.run(rollout(engine, env, episode_timeout_s=0.2).run(plan()))
    assert trajectory.invalid == kind and not trajectory.success and not trajectory.truncated
    assert env.closed == env.opened and engine.released == ["g/0"]
    with pytest.raises(ValueError, match="not evidence"):
        rows_of(trajectory, [0.0] * len(trajectory.turns))


def test_bugs_are_not_hidden_and_cancel_the_others_with_their_sessions_closed() -> None:
    env = Countries(fault="bug")
    with pytest.raises(KeyError, match="a bug"):
        asyncio.run(play(rollout(capitals(lambda ids: "Paris"), env), [plan(), plan()]))
    assert env.closed == env.opened


def test_invalid_episodes_are_drawn_again_with_the_same_seeds() -> None:
    class FailsOnce(Countries):
        async def create(self, task: Task) -> CountrySession:
            if self.opened == 0:
                self.opened, self.closed = 1, 1
                raise InfrastructureError("session_lost", "once")
            return await super().create(task)

    engine = capitals()
    (trajectory,) = asyncio.run(play(rollout(engine, FailsOnce()), [plan()]))
    assert trajectory.invalid is None and trajectory.metrics["attempts"] == 2
    (lost,) = asyncio.run(play(rollout(capitals(), Countries(fault="step"), max_attempts=2), [plan()]))
    assert lost.invalid == "session_lost" and lost.metrics["attempts"] == 2


def test_a_stuck_member_is_waited_for_once_and_its_group_goes_on_without_it() -> None:  # FT02
    class ThirdHangs(Countries):
        async def create(self, task: Task) -> CountrySession:
            session = await super().create(task)
            if self.opened == 3:
                session.env = Countries(hang=True)
            return session

    env = ThirdHangs()
    running = rollout(capitals(lambda ids: "Paris"), env, episode_timeout_s=0.3)
    group = plan_group(Task("countries", "train", 0), group_id="g", size=4, run_seed=0, iteration=1, max_turns=3)
    played = asyncio.run(play(running, group))
    assert [t.invalid for t in played] == [None, None, "episode_timeout", None]
    assert [t.metrics["attempts"] for t in played] == [1, 1, 1, 1] and env.opened == 4
    advantages = GRPOEstimator()(played)
    assert [a is None for a in advantages] == [False, False, True, False]


def test_a_slow_environment_holds_nobody_back() -> None:
    class OneHangs(Countries):
        async def create(self, task: Task) -> CountrySession:
            session = await super().create(task)
            if task.index == 1:
                session.env = Countries(hang=True)
            return session

    plans = [EpisodePlan(Task("countries", "train", i), f"g{i}", 0, seed=i, max_turns=3) for i in range(3)]
    finished: list[str] = []
    engine = capitals(lambda ids: "Paris")

    async def go() -> None:
        running = rollout(engine, OneHangs())
        tasks = {asyncio.create_task(running.run(p)): p.group_id for p in plans}
        done: set[Any] = set()
        while len(done) < 2:
            newly, _ = await asyncio.wait(tasks.keys() - done, return_when=asyncio.FIRST_COMPLETED)
            finished.extend(tasks[t] for t in newly)
            done |= newly
        for task in tasks.keys() - done:
            task.cancel()

    asyncio.run(go())
    assert sorted(finished) == ["g0", "g2"]


def test_a_sliding_window_opens_segments_that_hold_sampled_ids() -> None:
    engine, env = capitals(), Countries()
    trajectory = asyncio.run(rollout(engine, env, SlidingWindow(turns=1)).run(plan()))
    assert trajectory.num_segments == 2
    for request, turn in zip(engine.requests, trajectory.turns, strict=True):
        ids = trajectory.segment_ids(turn.segment)
        assert ids[: len(request.context_ids)].tolist() == request.context_ids.tolist() or turn.segment == 0
    rows = rows_of(trajectory, [1.0, 1.0, 1.0])
    assert sum(int(r.action_mask.sum()) for r in rows) == trajectory.num_action_tokens  # each token trained once
    assert [r.last for r in rows] == [False, True]


def test_legal_actions_reach_the_engine_as_a_mask() -> None:
    engine, env = capitals(["Paris"] * 3), Countries(actions=("Paris", "Rome"))
    trajectory = asyncio.run(rollout(engine, env).run(plan()))
    legal = trajectory.turns[0].legal_tokens
    assert legal is not None and len(legal) == len(trajectory.turns[0].action_ids)
    assert all(token in legal.at(i) for i, token in enumerate(trajectory.turns[0].action_ids))
    off = asyncio.run(rollout(capitals(["Paris"] * 3), env, legal_tokens=False).run(plan()))
    assert off.turns[0].legal_tokens is None


def test_members_turns_and_iterations_have_seeds_of_their_own() -> None:  # WS08
    def seeds(run_seed: int, iteration: int) -> list[int]:
        task = Task("countries", "train", 0)
        return [
            p.seed
            for p in plan_group(task, group_id="1.0.0", size=8, run_seed=run_seed, iteration=iteration, max_turns=3)
        ]

    assert len({*seeds(7, 1), *seeds(7, 2), *seeds(8, 1)}) == 24
    assert seeds(7, 1) == seeds(7, 1)
    assert seed_of(7, "a", 1) == 7621895877209417969  # the same in every process and release
    assert seed_of("1", 2) != seed_of(1, 2) != seed_of(12)


@pytest.mark.parametrize(
    ("env", "limits", "steps", "invalid"),
    [
        (Countries(), {}, 3, None),
        (Countries(), {"max_tokens_per_turn": 1}, 1, None),  # a cut turn is a turn
        (Countries(fault="step"), {}, 0, "session_lost"),
        (Countries(fault="create"), {}, None, "env_unreachable"),
    ],
)
def test_an_observer_is_told_of_every_event(
    env: Countries, limits: dict[str, Any], steps: int | None, invalid: str | None
) -> None:
    told: list[tuple[str, int]] = []
    seen: list[LiveEpisode] = []

    def observer(event: EpisodeEvent, episode: LiveEpisode) -> None:
        told.append((event.name, len(episode)))
        seen.append(episode)
        assert bool(episode.prompt) == (event is not EpisodeEvent.CREATED and invalid != "env_unreachable")
        assert episode.is_done == (event is EpisodeEvent.END)

    running = dataclasses.replace(rollout(capitals(), env, **limits), observer=observer)
    trajectory = asyncio.run(running.run(plan()))
    started = [] if steps is None else [("START", 0), *(("STEP", n + 1) for n in range(steps))]
    assert told == [("CREATED", 0), *started, ("END", steps or 0)]
    assert len({id(episode) for episode in seen}) == 1 and seen[0].trajectory is trajectory
    assert trajectory.invalid == invalid
    assert (seen[0].id_, seen[0].get_return()) == ("g/0", trajectory.total_reward)


def test_what_an_observer_raises_is_a_bug_and_frees_everything() -> None:
    def observer(event: EpisodeEvent, episode: LiveEpisode) -> None:
        if event is EpisodeEvent.STEP:
            raise ZeroDivisionError("in the callback")

    engine, env = capitals(), Countries()
    with pytest.raises(ZeroDivisionError, match="in the callback"):
        asyncio.run(play(dataclasses.replace(rollout(engine, env), observer=observer), [plan()]))
    assert env.opened == env.closed == 1 and engine.released == ["g/0"]
