from __future__ import annotations

import random
from itertools import product

import pytest

from rllib_agentic.envs.baselines import expert_policy, play, random_policy, score
from rllib_agentic.errors import InputError
from serve_envs.wordle.env import Wordle
from serve_envs.wordle.expert import Solver, _code, _letters, _marks_of
from serve_envs.wordle.marks import fits, mark, obeys
from serve_envs.wordle.words import TIERS, all_guesses, answers_by_tier, make_splits


@pytest.mark.parametrize(
    ("guess", "answer", "marks"),
    [
        ("crane", "crane", "GGGGG"),
        ("crane", "moist", "-----"),
        ("speed", "abide", "--Y-Y"),  # one e in the answer: the first is elsewhere, the second absent
        ("speed", "erase", "Y-YY-"),
        ("speed", "steal", "G-G--"),  # the e in its place uses up the only one
        ("allee", "eagle", "YY-YG"),
        ("geese", "these", "--GGG"),  # the e in second place is absent: both of the answer are used up
        ("mamma", "maxim", "GGY--"),
    ],
)
def test_marks_by_hand(guess: str, answer: str, marks: str) -> None:
    assert mark(guess, answer) == marks


def test_marks_agree_with_a_count_of_letters() -> None:
    """Oracle: per letter, greens are matches, and greens and yellows together are min of the counts, leftmost first."""
    for guess in product("abc", repeat=4):
        for answer in product("abc", repeat=4):
            marks = mark("".join(guess), "".join(answer))
            for letter in "abc":
                at = [place for place, one in enumerate(guess) if one == letter]
                green = [place for place in at if answer[place] == letter]
                assert [place for place in at if marks[place] == "G"] == green
                told = min(len(at), answer.count(letter))
                rest = [place for place in at if place not in green]
                assert [place for place in rest if marks[place] == "Y"] == rest[: told - len(green)]


def test_array_marks_agree_with_the_rule() -> None:
    draw = random.Random(0)
    answers = draw.sample(all_guesses(), 300)
    for guess in [*draw.sample(all_guesses(), 30), "eerie", "mamma", "geese"]:
        codes = _marks_of(guess, _letters(answers))
        assert [int(code) for code in codes] == [_code(mark(guess, answer)) for answer in answers]


def test_hard_mode_by_hand() -> None:
    hints = [("crane", mark("crane", "three"))]  # -Y--G
    assert obeys("three", hints) and obeys("regal", hints) is False and obeys("shale", hints) is False
    assert obeys("eerie", hints) and not fits("eerie", [*hints, ("eerie", mark("eerie", "three"))])


def test_words_are_what_the_card_says() -> None:
    assert {tier: len(words) for tier, words in answers_by_tier().items()} == {
        "very common": 427,
        "common": 471,
        "less common": 1178,
    }
    guesses = all_guesses()
    assert len(guesses) == len(set(guesses)) == 6369
    assert all(len(word) == 5 and word.isalpha() and word.islower() and word.isascii() for word in guesses)


def test_splits_share_no_answer_and_a_word_stays_in_its_split() -> None:
    splits = make_splits(TIERS)
    words = [word for split in splits.values() for word in split]
    assert len(words) == len(set(words)) == 2076
    for split, some in make_splits(("common",)).items():
        assert set(some) <= set(splits[split])


def test_published_hash_of_the_splits() -> None:
    # Results name this hash. If it changes, old and new results cannot be compared: raise the version.
    schema = Wordle().schema()
    assert (schema.version, schema.splits_hash) == ("1", "2c25105cc4c13ea1")


def test_expert_choice_is_the_best_by_brute_force() -> None:
    answers = tuple(sorted(random.Random(1).sample(answers_by_tier()["common"], 60)))
    solver = Solver(answers)

    def parts(guess: str, possible: list[str]) -> list[int]:
        marks = [mark(guess, answer) for answer in possible]
        return sorted(marks.count(one) for one in set(marks))

    import math

    def entropy(guess: str, possible: list[str]) -> float:
        return -sum(n / len(possible) * math.log(n / len(possible)) for n in parts(guess, possible))

    possible = list(answers)
    first = solver.choose([], hard=False)
    assert entropy(first, possible) == pytest.approx(max(entropy(guess, possible) for guess in answers))
    hints = [(first, mark(first, answers[7]))]
    possible = [word for word in answers if fits(word, hints)]
    second = solver.choose(hints, hard=False)
    assert entropy(second, possible) == pytest.approx(max(entropy(guess, possible) for guess in answers))


@pytest.mark.parametrize("hard", [False, True])
def test_expert_finds_nearly_every_word(hard: bool) -> None:
    env = Wordle(tiers=["very common"], hard=hard)
    assert score(env, expert_policy, "test", max_turns=6).success >= 0.97


def test_random_guesses_find_nearly_nothing() -> None:
    env = Wordle(list_actions=True)
    assert score(env, random_policy(0), "test", max_turns=6, episodes=200).success < 0.03


def test_the_answer_is_not_told_before_the_end() -> None:
    env = Wordle(list_actions=False)
    draw = random.Random(0)
    for index in range(40):
        observation = env.reset("train", index, 0)
        answer = make_splits(TIERS)["train"][index]
        while True:
            shown = repr((observation.messages, observation.info, observation.state_key))
            assert answer not in shown
            guess = draw.choice(all_guesses())
            if guess == answer:
                break
            result = env.step(guess)
            observation = result.observation
            if result.terminated:
                assert f"The word was {answer}." in observation.messages[0].content
                break


def test_texts_by_hand() -> None:
    env = Wordle(guesses=2)
    env._splits = {"train": ("abide",)}
    assert env.reset("train", 0, 0).messages[1].content == "2 guesses left."
    first = env.step("Thought: hm.\nAction: Speed.")
    assert first.observation.messages[0].content == "s - / p - / e Y / e - / d Y. 1 guess left."
    odd = env.step("zzzzz")
    assert odd.observation.messages[0].content == "zzzzz is not in the list of words. 1 guess left."
    assert (odd.metrics["invalid_action"], odd.terminated) == (1.0, False)
    last = env.step("crane")
    assert last.observation.messages[0].content.endswith("The word was abide.")
    assert (last.terminated, last.success, last.reward) == (True, False, 0.0)
    with pytest.raises(RuntimeError, match="reset"):
        env.step("abide")


def test_hard_mode_refuses_without_using_up_a_guess() -> None:
    env = Wordle(hard=True)
    env._splits = {"train": ("abide",)}
    env.reset("train", 0, 0)
    env.step("speed")
    refused = env.step("crane")
    assert refused.observation.messages[0].content == "crane does not use every marked letter. 5 guesses left."
    assert env.step("abide").success


def test_turns_end_even_when_guesses_do_not() -> None:
    results = play(Wordle(max_steps=3), lambda env, observation: "?", "train", 0, 0, max_turns=9)
    assert [result.truncated for result in results] == [False, False, True]


def test_reward_per_guess_and_its_range() -> None:
    env = Wordle(reward_per_guess=-0.1)
    env._splits = {"train": ("abide",)}
    assert env.schema().reward_range == (pytest.approx(-0.6), 1.0)
    env.reset("train", 0, 0)
    assert [env.step(guess).reward for guess in ("crane", "nonsense", "abide")] == [-0.1, 0.0, 1.0]


@pytest.mark.parametrize("arguments", [{"tiers": []}, {"guesses": 0}, {"max_steps": 0}])
def test_bad_arguments_name_themselves(arguments: dict) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        Wordle(**arguments)
