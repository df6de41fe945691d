"""TokenEnv, token by token, over a scripted environment."""

import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.envs.token_env import TokenEnv
from rllib_agentic.errors import InputError
from rllib_agentic.rendering import renderer_for
from rllib_agentic.rl_module.model_loading import load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import FinishReason

TOKENIZER = load_tokenizer(ModelSettings(preset="tiny"))
END = TOKENIZER.eos_token_id


class Script:
    """Answers with what the action's text says: ``Up`` goes on, ``Down`` wins, ``Left`` hits a limit."""

    def __init__(self, actions=("Up", "Down", "Left"), answer="again", both=False):
        self.actions, self.answer, self.both = actions, answer, both
        self.heard, self.closed = [], False

    def schema(self):
        return EnvSchema("script", "1", {"train": 3, "test": 0}, "0", "Up", self.actions is not None, max_turns=4)

    def reset(self, split, index, seed):
        self.heard = []
        self.begun = (split, index, seed)
        return Observation((Message("system", "Play."), Message("user", f"task {index}")), self.actions)

    def step(self, action):
        self.heard.append(action)
        return StepResult(
            Observation((Message("user", self.answer),), self.actions),
            reward=0.25 if action == "Up" else 1.0,
            terminated=action == "Down" or (self.both and action == "Left"),
            truncated=action == "Left",
            success=action == "Down",
        )

    def close(self):
        self.closed = True


def make(**config):
    script = config.pop("script", None) or Script()
    env = TokenEnv({"env": lambda: script, "max_context_tokens": 120, **config})
    return env, script


def context(observation):
    return observation["observations"][: observation["length"][0]].tolist()


def legal(observation):
    return set(np.flatnonzero(observation["action_mask"]).tolist())


def word(text):
    (token,) = TOKENIZER.encode(text, add_special_tokens=False)
    return token


UP, DOWN, LEFT = word("Up"), word("Down"), word("Left")


def test_the_first_context_is_the_rendered_prompt_and_the_mask_the_first_tokens():
    env, script = make()
    observation, info = env.reset(seed=0)
    rendered = renderer_for(TOKENIZER).render([Message("system", "Play."), Message("user", f"task {info['task']}")])
    assert context(observation) == rendered.tolist()
    assert not observation["observations"][len(rendered) :].any()
    assert legal(observation) == {UP, DOWN, LEFT}
    assert script.begun[:2] == ("train", info["task"])


def test_a_turn_token_by_token():
    env, script = make()
    before = context(env.reset(seed=0)[0])
    observation, reward, terminated, truncated, info = env.step(UP)
    assert context(observation) == [*before, UP]
    assert legal(observation) == {END} and (reward, terminated, truncated, script.heard) == (0.0, False, False, [])
    observation, reward, terminated, truncated, info = env.step(END)
    assert (reward, terminated, truncated, script.heard) == (0.25, False, False, ["Up"])
    bridge = env.renderer.bridge(np.array([*before, UP, END]), FinishReason.STOP, [Message("user", "again")])
    assert context(observation) == [*before, UP, END, *bridge.tolist()]
    assert legal(observation) == {UP, DOWN, LEFT}
    assert info == {"text": "Up", "success": False, "turns": 1}


@pytest.mark.parametrize(
    ("script", "token", "expected"),
    [
        (Script(), DOWN, (1.0, True, False, "terminated", True)),
        (Script(), LEFT, (1.0, False, True, "env_truncated", False)),
        (Script(both=True), LEFT, (1.0, True, False, "terminated", False)),  # terminated wins
    ],
)
def test_the_environments_end_is_the_episodes_end(script, token, expected):
    env, _ = make(script=script)
    env.reset(seed=0)
    env.step(token)
    observation, reward, terminated, truncated, info = env.step(END)
    assert (reward, terminated, truncated, info["end_reason"], info["success"]) == expected
    assert env.observation_space.contains(observation)


def play(env, tokens):
    for token in tokens:
        observation, reward, terminated, truncated, info = env.step(token)
    return observation, reward, terminated, truncated, info


def test_the_interaction_budget_truncates_after_its_last_answer():
    env, script = make(max_turns=2)
    env.reset(seed=0)
    assert play(env, [UP, END])[2:4] == (False, False)
    _, reward, terminated, truncated, info = play(env, [UP, END])
    assert (reward, terminated, truncated, info["end_reason"]) == (0.25, False, True, "max_turns")
    assert len(script.heard) == 2


def test_the_environments_own_budget_is_the_default():
    env, _ = make()
    env.reset(seed=0)
    assert [play(env, [UP, END])[3] for _ in range(4)] == [False, False, False, True]


def test_winning_in_the_last_turn_of_the_budget_is_no_truncation():
    env, _ = make(max_turns=1)
    env.reset(seed=0)
    assert play(env, [DOWN, END])[2:4] == (True, False)


def test_an_unfinished_turn_is_cut_and_the_environment_never_hears_it():
    env, script = make(script=Script(actions=None), max_tokens_per_turn=3)
    env.reset(seed=0)
    assert play(env, [UP, UP])[3] is False
    _, reward, terminated, truncated, info = env.step(UP)
    assert (reward, terminated, truncated, info["end_reason"], script.heard) == (0.0, False, True, "max_tokens", [])


def test_a_stop_token_as_the_last_token_of_the_budget_finishes_the_turn():  # TM09
    env, script = make(script=Script(actions=None), max_tokens_per_turn=3)
    env.reset(seed=0)
    assert play(env, [UP, UP, END])[2:4] == (False, False)
    assert script.heard == ["UpUp"]


def test_a_context_that_fills_up_while_the_agent_speaks():  # TM18
    length = len(context(make()[0].reset(seed=0)[0]))
    env, script = make(script=Script(actions=None), max_context_tokens=length + 2)
    env.reset(seed=0)
    assert env.step(UP)[3] is False
    observation, _, terminated, truncated, info = env.step(UP)
    assert (terminated, truncated, info["end_reason"], script.heard) == (False, True, "max_context", [])
    assert observation["length"][0] == length + 2


def test_an_answer_that_does_not_fit_truncates_and_the_observation_stays_in_its_space():  # TM18
    env, script = make(script=Script(answer="far " * 100))
    env.reset(seed=0)
    observation, reward, terminated, truncated, info = play(env, [UP, END])
    assert (reward, terminated, truncated, info["end_reason"]) == (0.25, False, True, "max_context")
    assert env.observation_space.contains(observation) and script.heard == ["Up"]


def test_a_prompt_without_room_for_one_token_is_refused():
    env, _ = make(max_context_tokens=5)
    with pytest.raises(InputError, match="raise max_context_tokens"):
        env.reset(seed=0)


def test_a_token_outside_the_mask_makes_a_malformed_action_and_no_error():
    env, script = make()
    env.reset(seed=0)
    observation, *_ = env.step(word("user"))
    assert observation["action_mask"].all()
    env.step(END)
    assert script.heard == ["user"]


def test_without_listed_actions_every_token_is_legal():
    env, _ = make(script=Script(actions=None))
    observation, _ = env.reset(seed=0)
    assert observation["action_mask"].all()


def test_forced_tokens_are_appended_without_asking_but_a_turn_is_never_played_unasked():
    env, script = make(skip_forced=True)
    env.reset(seed=0)
    observation, reward, *_ = env.step(UP)  # the end of the turn is the only way on
    assert (reward, script.heard) == (0.25, ["Up"])
    assert legal(observation) == {UP, DOWN, LEFT}
    asked, script = make(script=Script(actions=("Up",)), skip_forced=True)
    observation, _ = asked.reset(seed=0)
    assert legal(observation) == {UP} and script.heard == []


def test_skipping_changes_the_steps_and_not_the_episode():
    def last_choices(skip_forced):
        env = gym.make("agentic/textcraft-v0", max_context_tokens=4000, max_turns=3, skip_forced=skip_forced)
        observation, _ = env.reset(seed=3)
        steps, done = 0, False
        while not done:
            observation, _, terminated, truncated, _ = env.step(np.flatnonzero(observation["action_mask"])[-1])
            steps, done = steps + 1, terminated or truncated
        return context(observation), steps

    (asked, many), (skipped, few) = last_choices(False), last_choices(True)
    assert asked == skipped and few < many


def test_the_task_and_the_chance_can_be_named():
    env, script = make()
    _, info = env.reset(seed=0, options={"index": 2, "seed": 77})
    assert info == {"task": 2} and script.begun == ("train", 2, 77)
    with pytest.raises(InputError, match="there are 0 to 2"):
        env.reset(options={"index": 3})


def test_seeds_draw_the_same_tasks():
    env, script = make()

    def draws():
        env.reset(seed=5)
        begun = [script.begun]
        for _ in range(10):
            env.reset()
            begun.append(script.begun)
        return begun

    first = draws()
    assert draws() == first and len({task for _, task, _ in first}) == 3


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"split": "test"}, "no task in 'test'"),
        ({"split": "trian"}, "Did you mean 'train'"),
        ({"max_turn": 3}, "Did you mean 'max_turns'"),
        ({"env": "frozenlak"}, "Did you mean 'frozenlake'"),
        ({"model": {"preset": "tiny", "path": "x"}}, "exactly one of 'preset'"),
    ],
)
def test_wrong_settings(config, said):
    with pytest.raises(InputError, match=said):
        make(**config)


@pytest.mark.parametrize("name", ["frozenlake", "textcraft"])
def test_registered_environments_pass_gymnasiums_checker(name, recwarn):
    env = gym.make(f"rllib_agentic.envs.token_env:agentic/{name}-v0", max_context_tokens=4000, render_mode="ansi")
    check_env(env.unwrapped)
    assert "<|im_start|>assistant" in env.unwrapped.render()
    env.close()


def test_close_closes_the_environment():
    env, script = make()
    env.close()
    assert script.closed


def test_observations_are_plain_arrays_that_travel():
    env, _ = make()
    observation, _ = env.reset(seed=0)
    assert pickle.loads(pickle.dumps(observation))["observations"].dtype == np.int32
