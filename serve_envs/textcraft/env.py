"""TextCraft as a text environment."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.textcraft.crafting import Inventory, find_recipe
from serve_envs.textcraft.expert import next_action
from serve_envs.textcraft.recipes import recipe_book
from serve_envs.textcraft.tasks import Assignment, make_assignment, make_splits, splits_hash

_SYSTEM = (
    "You craft items from recipes. Fetch what nothing makes, craft the rest, and end with the goal.\n"
    "Actions, one at a time:\n"
    "get COUNT ITEM\n"
    "craft COUNT ITEM using COUNT ITEM, COUNT ITEM\n"
    "inventory"
)
_GET = re.compile(r"get ([0-9]{1,6}) (.+)")
_CRAFT = re.compile(r"craft (?:[0-9]{1,6} )?(.+?) using (.+)")
_COUNTED = re.compile(r"([0-9]{1,6}) (.+)")
_ALL_DEPTHS = (1, 2, 3, 4)


class _Outcome(NamedTuple):
    text: str
    crafted: str | None = None
    changed: bool = False
    invalid: bool = False
    failed: bool = False


class TextCraft:
    """Craft the goal item: fetch base items, craft what lies between.

    Args:
        depths: which goals, by the levels of crafting under them: any of 1, 2, 3, 4.
        distractors: the most recipes shown that do not help.
        max_steps: steps after which the episode is truncated.
        books: how many books of recipes there are; the task's seed draws one. The first is the package's. In the others
            every base item stands for another one, in other counts: recipes must be read, knowing them is no use.

    Raises:
        InputError: an argument is out of range.
    """

    quick = True

    def __init__(
        self, depths: Sequence[int] = _ALL_DEPTHS, distractors: int = 10, max_steps: int = 100, books: int = 1
    ) -> None:
        if not depths or not set(depths) <= set(_ALL_DEPTHS):
            raise InputError(f"textcraft: depths must be some of 1, 2, 3 and 4, got {list(depths)}")
        if distractors < 0:
            raise InputError(f"textcraft: distractors must be at least 0, got {distractors}")
        if max_steps < 1:
            raise InputError(f"textcraft: max_steps must be at least 1, got {max_steps}")
        if books < 1:
            raise InputError(f"textcraft: books must be at least 1, got {books}")
        self._splits = make_splits(tuple(sorted(set(depths))))
        self._distractors = distractors
        self._max_steps = max_steps
        self._books = books
        self._book = recipe_book()
        self._assignment: Assignment | None = None
        self._inventory = Inventory(self._book)
        self._gets: tuple[str, ...] = ()
        self._actions: tuple[str, ...] = ()
        self._steps = 0

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        return EnvSchema(
            name="textcraft",
            version="1",
            splits={split: len(goals) for split, goals in self._splits.items()},
            splits_hash=splits_hash(self._splits),
            action_format=(
                "'get COUNT ITEM', 'craft COUNT ITEM using COUNT ITEM, COUNT ITEM' or 'inventory'; bare, or after "
                "'Action:'. Example: craft 4 oak planks using 1 oak logs"
            ),
            lists_actions=True,
            reward_range=(0.0, 1.0),
            max_turns=min(self._max_steps, 30),
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Begin with empty hands. ``seed`` draws the book of recipes, and nothing where there is but one."""
        goal = self._splits[split][index]
        number = random.Random(f"textcraft {index} {seed}").randrange(self._books)
        self._assignment = make_assignment(goal, self._distractors, number)
        self._book = self._assignment.book
        self._inventory = Inventory(self._book)
        self._steps = 0
        self._gets = self._list_gets(self._assignment)
        self._actions = self._list_actions(self._assignment)
        commands = "\n".join(recipe.command for recipe in self._assignment.recipes)
        return Observation(
            messages=(
                Message("system", _SYSTEM),
                Message("user", f"Crafting commands:\n{commands}\n\nGoal: craft {goal}."),
            ),
            actions=self._actions,
            state_key=self._state_key(self._assignment),
            info={"category": f"depth {self._book.depth[goal]}", "goal": goal},
        )

    def step(self, action: str) -> StepResult:
        """Do one thing, or say why it cannot be done.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
        """
        if self._assignment is None:
            raise RuntimeError("textcraft: no episode is running; call reset")
        self._steps += 1
        outcome = self._apply(extract_action(action))
        if outcome.changed:
            self._actions = self._list_actions(self._assignment)
        success = outcome.crafted == self._assignment.goal
        truncated = not success and self._steps >= self._max_steps
        observation = Observation(
            messages=(Message("user", outcome.text),),
            actions=() if success else self._actions,
            state_key=self._state_key(self._assignment),
        )
        if success or truncated:
            self._assignment = None
        return StepResult(
            observation,
            reward=float(success),
            terminated=success,
            truncated=truncated,
            success=success,
            metrics={"invalid_action": float(outcome.invalid), "failed_action": float(outcome.failed)},
        )

    def close(self) -> None:
        """End the episode; nothing else is held."""
        self._assignment = None

    def expert_action(self) -> str:
        """The next action of a plan that reaches the goal from here."""
        if self._assignment is None:
            raise RuntimeError("textcraft: no episode is running; call reset")
        return next_action(self._book, self._assignment.goal, self._inventory)

    def _apply(self, action: str) -> _Outcome:
        if action == "inventory":
            held = ", ".join(f"{count} {item}" for item, count in self._inventory.items())
            return _Outcome(f"Inventory: {held or 'nothing'}.")
        if match := _GET.fullmatch(action):
            return self._get(match[2], int(match[1]))
        if match := _CRAFT.fullmatch(action):
            given = [_COUNTED.fullmatch(part.strip()) for part in match[2].split(",")]
            if all(given):
                return self._craft(match[1], tuple((part[2], int(part[1])) for part in given if part))
        return _Outcome(
            f"Could not understand {_short(action)}. Use get, craft ... using ..., or inventory.", invalid=True
        )

    def _get(self, item: str, count: int) -> _Outcome:
        if item not in self._book.base_items or not count:
            return _Outcome(f"Could not get {count} {_short(item)}.", failed=True)
        self._inventory.add(item, count)
        return _Outcome(f"Got {count} {item}.", changed=True)

    def _craft(self, output: str, given: tuple[tuple[str, int], ...]) -> _Outcome:
        recipe = find_recipe(self._book, output, given)
        if recipe is None:
            return _Outcome(f"Could not find a recipe for {_short(output)} from this.", failed=True)
        if any(self._inventory.count(item) < count for item, count in given):
            return _Outcome(f"Could not find enough items to craft {output}.", failed=True)
        self._inventory.craft(recipe, given)
        return _Outcome(f"Crafted {recipe.count} {output}.", crafted=output, changed=True)

    def _list_gets(self, assignment: Assignment) -> tuple[str, ...]:
        gets = {
            f"get {part.count} {part.name}": None
            for recipe in assignment.recipes
            for part in recipe.ingredients
            if part.name in self._book.base_items
        }
        return tuple(sorted(gets))

    def _list_actions(self, assignment: Assignment) -> tuple[str, ...]:
        crafts = [
            f"craft {recipe.count} {recipe.output} using {', '.join(f'{count} {item}' for item, count in way)}"
            for recipe in assignment.recipes
            for way in self._inventory.affordable(recipe)
        ]
        return ("inventory", *self._gets, *crafts)

    def _state_key(self, assignment: Assignment) -> str:
        state = repr((assignment.goal, sorted(self._inventory.items())))
        return hashlib.sha256(state.encode()).hexdigest()[:16]


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
