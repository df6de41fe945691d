"""A solver that walks down the recipe tree from the goal to the first thing that is missing."""

from __future__ import annotations

from functools import cache

from serve_envs.textcraft.crafting import Inventory
from serve_envs.textcraft.recipes import Ingredient, Recipe, RecipeBook, recipe_book


def next_action(book: RecipeBook, goal: str, inventory: Inventory) -> str:
    """The action that leads on to the goal, of a cheap plan, from whatever is held."""
    return _towards(book, goal, 1, inventory) or "inventory"


def _towards(book: RecipeBook, item: str, count: int, inventory: Inventory) -> str | None:
    if inventory.count(item) >= count:
        return None
    if item in book.base_items:
        return f"get {count} {item}"
    recipe = min(book.by_output[item], key=_recipe_effort)
    chosen = [(_choose(part, inventory), part.count) for part in recipe.ingredients]
    for name, wanted in chosen:
        if action := _towards(book, name, wanted, inventory):
            return action
    return f"craft {recipe.count} {recipe.output} using {', '.join(f'{wanted} {name}' for name, wanted in chosen)}"


def _choose(part: Ingredient, inventory: Inventory) -> str:
    if not part.is_tag:
        return part.name
    members = recipe_book().items_of[part.name]
    held = [item for item in members if inventory.count(item) >= part.count]
    return held[0] if held else min(members, key=_effort)


def _recipe_effort(recipe: Recipe) -> int:
    members = recipe_book().items_of
    return 1 + sum(
        min(_effort(item) for item in members[part.name]) if part.is_tag else _effort(part.name)
        for part in recipe.ingredients
    )


@cache
def _effort(item: str) -> int:
    """Actions to make one batch of an item, each ingredient counted as one batch; the same in every book."""
    book = recipe_book()
    return 1 if item in book.base_items else min(map(_recipe_effort, book.by_output[item]))
