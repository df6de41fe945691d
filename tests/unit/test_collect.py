"""Collected trajectories: the expert's words as tokens, once, as the model that learns would say them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_tokenizers import chatml_tokenizer
from spoken_episodes import collected, speech_of, tiny

from rllib_agentic.cli.main import main
from rllib_agentic.context import SlidingWindow
from rllib_agentic.context.strategy import Ask, Extend, Rewrite
from rllib_agentic.engines.legal_tokens import ActionTries
from rllib_agentic.envs.advice import ADVICE, advised
from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.envs.registry import env_factory
from rllib_agentic.errors import InputError
from rllib_agentic.offline.collect import Spoken, collect
from rllib_agentic.offline.retelling import retold, speaks
from rllib_agentic.rendering import ChatMLRenderer, renderer_for
from rllib_agentic.rollout.spoken import Speech
from rllib_agentic.store import TrajectoryReader
from rllib_agentic.trajectory import FinishReason, Message, Trajectory, rows_of


@pytest.mark.parametrize("env", ["textcraft", "frozenlake", "bandit"])
def test_a_segment_is_what_the_chat_format_makes_of_the_conversation(env):
    tokenizer = tiny()
    renderer = renderer_for(tokenizer)
    for trajectory in collected(env, speech_of(tokenizer)):
        assert trajectory.success and trajectory.invalid is None and trajectory.metrics["policy"] == "expert"
        said = [turn.text for turn in trajectory.turns]
        # An oracle that knows ChatML as text: markers around plain texts, encoded piece by piece
        conversation = "".join(f"<|im_start|>{m.role}\n{m.content}<|im_end|>\n" for m in trajectory.prompt)
        for number, turn in enumerate(trajectory.turns):
            conversation += f"<|im_start|>assistant\n{turn.text}<|im_end|>\n"
            if number + 1 < len(trajectory.turns):
                conversation += "".join(f"<|im_start|>{m.role}\n{m.content}<|im_end|>\n" for m in turn.observation)
        ids = trajectory.segment_ids(0).tolist()
        assert tokenizer.decode(ids) == conversation.removesuffix("\n")
        (row,) = rows_of(trajectory, [1.0] * len(said))
        trained = row.token_ids[row.action_mask].tolist()
        end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        assert trained == [i for text in said for i in [*tokenizer.encode(text, add_special_tokens=False), end]]
        assert renderer.end_of_turn_id == end
        assert not row.logprobs.any() and set(row.policy_versions.tolist()) == {-1}
        assert all(turn.finish_reason is FinishReason.STOP for turn in trajectory.turns)


def test_tokens_stand_under_the_legal_token_mask_that_a_policy_would_have_had():
    for trajectory in collected("frozenlake", speech_of(tiny())):
        for turn in trajectory.turns:
            assert turn.legal_tokens is not None and turn.state_key is not None
            for position, token in enumerate(turn.action_ids.tolist()):
                assert token in turn.legal_tokens.at(position)
    free = collected("frozenlake", speech_of(tiny(), legal_tokens=False))
    assert all(turn.legal_tokens is None for t in free for turn in t.turns)


def test_a_sliding_window_opens_segments_whose_turns_keep_their_ids():
    played = collected("textcraft", speech_of(tiny(), SlidingWindow(turns=1)))
    trajectory = max(played, key=lambda t: len(t.turns))
    assert trajectory.num_segments > 1
    for turn in trajectory.turns:
        assert tiny().decode(turn.action_ids.tolist()) == f"{turn.text}<|im_end|>"


def test_chance_is_of_the_seed_and_members_of_a_group_differ():
    one = collected("frozenlake", speech_of(tiny()), expert=False, episodes=8, group_size=4)
    again = collected("frozenlake", speech_of(tiny()), expert=False, episodes=8, group_size=4)
    other = collected("frozenlake", speech_of(tiny()), expert=False, episodes=8, group_size=4, seed=1)

    def texts(trajectories: list[Trajectory]) -> list[list[str]]:
        return [[turn.text for turn in t.turns] for t in trajectories]

    assert texts(one) == texts(again) != texts(other)
    assert [(t.group_id, t.member) for t in one] == [(f"random.{g}", m) for g in range(2) for m in range(4)]
    assert len({t.task for t in one}) == 2
    assert any(len({tuple(said) for said in texts(members)}) > 1 for members in (one[:4], one[4:]))


def test_where_no_actions_are_listed_the_environment_draws_them():
    speech = speech_of(tiny())
    one, again = (collected("toolbox", speech, expert=False, episodes=4, group_size=2) for _ in range(2))
    said = [[turn.text for turn in t.turns] for t in one]
    assert said == [[turn.text for turn in t.turns] for t in again]
    assert all(t.invalid is None for t in one) and all("<tool_call>" in t[0] or "<answer>" in t[0] for t in said)
    assert said[0] != said[1] and len({text for texts in said for text in texts}) > len(said)


def test_concurrency_changes_nothing():
    alone = collected("textcraft", speech_of(tiny(), max_concurrent_episodes=1))
    together = collected("textcraft", speech_of(tiny(), max_concurrent_episodes=6))
    for one, two in zip(alone, together, strict=True):
        assert one.task == two.task
        np.testing.assert_array_equal(one.segment_ids(0), two.segment_ids(0))


def test_advice_is_in_info_alone_and_only_while_the_episode_goes_on():
    env = advised(env_factory("bandit"))()
    first = env.reset("train", 0, 0)
    assert first.info[ADVICE] in (first.actions or ())
    assert ADVICE not in env.step(first.info[ADVICE]).observation.info


def test_stored_tokens_are_known_again_and_others_are_not():
    speech = speech_of(tiny())
    foreign = speech_of(chatml_tokenizer())
    for trajectory in collected("frozenlake", speech):
        assert speaks(speech, trajectory) and not speaks(foreign, trajectory)
        again = asyncio.run(retold(foreign, trajectory))
        assert speaks(foreign, again) and not speaks(speech, again)
        assert [t.text for t in again.turns] == [t.text for t in trajectory.turns]
        assert [t.reward for t in again.turns] == [t.reward for t in trajectory.turns]
        assert [t.state_key for t in again.turns] == [t.state_key for t in trajectory.turns]
        for name in ("task", "group_id", "member", "prompt", "terminated", "truncated", "success", "end_reason"):
            assert getattr(again, name) == getattr(trajectory, name), name
        assert all(t.legal_tokens is None for t in again.turns)
        back = asyncio.run(retold(speech, again))
        for old, new in zip(trajectory.turns, back.turns, strict=True):
            np.testing.assert_array_equal(old.action_ids, new.action_ids)
            np.testing.assert_array_equal(old.context_ids, new.context_ids)


def test_a_turn_that_was_sampled_otherwise_than_encoded_is_still_known():
    """A model may say "Down" in two tokens where the encoder makes one of it: what was sampled is trained."""
    tokenizer = tiny()
    speech = speech_of(tokenizer, legal_tokens=False)
    (trajectory,) = collected("bandit", speech, episodes=1)
    letters = [i for c in trajectory.turns[0].text for i in tokenizer.encode(c, add_special_tokens=False)]
    (turn,) = trajectory.turns
    ids = np.array([*letters, turn.action_ids[-1]], np.int32)
    assert len(ids) > len(turn.action_ids)
    zeros = np.zeros(len(ids), np.float32)
    spelt = type(turn)(
        turn.context_ids, ids, zeros, zeros.astype(np.int32), turn.finish_reason, 0, turn.text, turn.observation
    )
    assert speaks(speech, Trajectory(trajectory.task, "g", 0, trajectory.prompt, (spelt,), True, False, True, "x"))


def test_what_no_longer_fits_is_cut_and_not_solved():
    (trajectory,) = collected("frozenlake", speech_of(tiny()), episodes=1)
    total = len(trajectory.segment_ids(0))
    short = asyncio.run(retold(speech_of(tiny(), max_tokens_per_turn=8, max_context_tokens=total - 20), trajectory))
    assert len(short.turns) < len(trajectory.turns)
    assert short.truncated and not short.terminated and not short.success


def test_actions_that_spell_control_tokens_stay_text():
    renderer = ChatMLRenderer(tiny(), default_system=None)
    tries = ActionTries(tiny(), renderer.end_of_turn_id)
    ids = tries.encode("say <|im_end|> twice")
    assert ids.count(renderer.end_of_turn_id) == 1 and ids[-1] == renderer.end_of_turn_id


def test_the_command_stores_what_it_says(tmp_path: Path, capsys: Any):
    folder = tmp_path / "store"
    command = ["envs", "collect", "bandit", "--policy", "expert", "--episodes", "300", "--output", str(folder)]
    assert main([*command, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["episodes"], row["invalid"], row["success_rate"]) == (300, 0, 1.0)
    reader = TrajectoryReader(folder)
    stored = list(reader)
    assert len(stored) == 300 and reader.iterations == [0, 1]
    assert len({(s.trajectory.task.index, s.trajectory.task.seed) for s in stored}) == 300
    assert main([*command]) == 2
    assert "holds trajectories already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"--split": "tarin"}, "'train'"),
        ({"--episodes": "0"}, "multiple"),
        ({"--episodes": "5", "--group-size": "2"}, "multiple"),
        ({"--policy": "no/such/model"}, "no/such/model"),
        ({"--rollout": '{"max_turn": 2}'}, "max_turns"),
    ],
)
def test_bad_input_is_said(options: dict[str, str], fault: str, tmp_path: Path, capsys: Any):
    given = {"--policy": "expert", "--episodes": "2", "--output": str(tmp_path / "x")} | options
    assert main(["envs", "collect", "bandit", *[word for pair in given.items() for word in pair]]) == 2
    assert fault in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_an_environment_without_an_expert_is_named():
    from counter_env import CounterEnv

    with pytest.raises(InputError, match="CounterEnv has no expert"):
        advised(CounterEnv)()


def test_a_model_collects_too(tmp_path: Path, capsys: Any):
    command = ["envs", "collect", "bandit", "--policy", "tiny", "--episodes", "4", "--group-size", "2"]
    assert main([*command, "--output", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 4
    for stored in TrajectoryReader(tmp_path):
        assert all((turn.logprobs < 0).any() for turn in stored.trajectory.turns)


class Calculator:
    """Answers within the agent's turn, where it paused."""

    quick = True

    def schema(self) -> EnvSchema:
        return EnvSchema("calculator", "1", {"train": 4}, "0", "text", lists_actions=False, stop_strings=("=>",))

    def reset(self, split: str, index: int, seed: int) -> Observation:
        self.index, self.asked = index, False
        return Observation((Message("user", f"Double {index}."),))

    def step(self, action: str) -> StepResult:
        if action.endswith("=>"):
            self.asked = True
            return StepResult(Observation((Message("tool", f" {2 * self.index}\n", continues=True),)))
        right = action == str(2 * self.index)
        return StepResult(Observation((Message("user", "Over."),)), float(right), terminated=True, success=right)

    def expert_action(self) -> str:
        return str(2 * self.index) if self.asked else f"{self.index} * 2 =>"

    def close(self) -> None:
        pass


def calculated(speech: Speech) -> list[Trajectory]:
    found: list[Trajectory] = []
    collect(
        Spoken(speech, expert=True), advised(Calculator), Calculator().schema(), found.extend, policy="expert",
        split="train", episodes=4, group_size=1, max_turns=3, seed=0,
    )  # fmt: skip
    return found


def test_a_turn_that_pauses_has_no_end_and_goes_on_where_it_paused():
    speech = speech_of(tiny()).to(Calculator().schema())
    end = tiny().convert_tokens_to_ids("<|im_end|>")
    for trajectory in calculated(speech):
        assert trajectory.success and [t.finish_reason.value for t in trajectory.turns] == ["stop_string", "stop"]
        paused, answered = trajectory.turns
        assert end not in paused.action_ids and end not in answered.context_ids
        index = trajectory.task.index
        spoken = f"{index} * 2 => {2 * index}\n{2 * index}<|im_end|>"
        assert tiny().decode(trajectory.segment_ids(0).tolist()).endswith(f"<|im_start|>assistant\n{spoken}")
        assert speaks(speech, trajectory)
        foreign = speech_of(chatml_tokenizer()).to(Calculator().schema())
        again = asyncio.run(retold(foreign, trajectory))
        assert again.success and speaks(foreign, again) and not speaks(foreign, trajectory)


def test_what_comes_after_the_stop_string_in_its_token_is_still_known():
    """A token that holds the stop string may hold more; it is kept whole, and the text ends with the stop string."""
    (trajectory, *_) = calculated(speech_of(tiny()).to(Calculator().schema()))
    paused = trajectory.turns[0]
    longer = np.append(paused.action_ids, tiny().encode("!", add_special_tokens=False)).astype(np.int32)
    zeros = np.zeros(len(longer))
    turn = replace(
        paused, action_ids=longer, logprobs=zeros.astype(np.float32), policy_versions=zeros.astype(np.int32),
        finish_reason=FinishReason.STOP_STRING,
    )  # fmt: skip
    assert speaks(speech_of(tiny()), replace(trajectory, turns=(turn, *trajectory.turns[1:])))
    stopped = replace(turn, finish_reason=FinishReason.STOP)
    assert not speaks(speech_of(tiny()), replace(trajectory, turns=(stopped, *trajectory.turns[1:])))


def test_notes_are_the_models_own_and_never_told_anew():
    """A note that the policy wrote for itself is trained where its tokens fit, and left out where they do not."""
    speech = speech_of(tiny())
    trajectory = max(collected("frozenlake", speech), key=lambda t: len(t.turns))
    ids = np.array(tiny().encode("to the right", add_special_tokens=False), np.int32)
    zeros = np.zeros(len(ids))
    note = replace(
        trajectory.turns[0], context_ids=ids, action_ids=ids, logprobs=zeros.astype(np.float32), segment=1,
        policy_versions=zeros.astype(np.int32), text="to the right", legal_tokens=None, metrics={"note": 1.0},
    )  # fmt: skip
    rest = tuple(replace(turn, segment=2) for turn in trajectory.turns[1:])
    noted = replace(trajectory, turns=(trajectory.turns[0], note, *rest))
    assert speaks(speech, noted)
    again = asyncio.run(retold(speech_of(chatml_tokenizer()), noted))
    assert [turn.text for turn in again.turns] == [turn.text for turn in trajectory.turns]


def test_nobody_is_there_to_write_notes():
    class Asking:
        def next(self, *_: Any, **__: Any) -> Ask:
            step = Extend(np.zeros(0, np.int32))
            return Ask(step, (), 8, trained=True, by_policy=True, then=lambda _: Rewrite(np.zeros(1, np.int32)))

    speech = replace(speech_of(tiny()), make_strategy=lambda _: Asking())  # type: ignore[arg-type, return-value]
    with pytest.raises(InputError, match="Asking asks for notes"):
        collected("frozenlake", speech)
