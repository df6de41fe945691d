"""Counting."""

from __future__ import annotations

import math
import random
from collections import Counter


def make(draw: random.Random, level: int) -> tuple[str, str, str]:
    """Question, answer and program."""
    return draw.choice(_KINDS[level])(draw)


def _choose(draw: random.Random) -> tuple[str, str, str]:
    n = draw.randint(5, 14)
    k = draw.randint(2, n - 2)
    program = f"from itertools import combinations\nprint(sum(1 for _ in combinations(range({n}), {k})))"
    return f"In how many ways can {k} of {n} people be chosen?", str(math.comb(n, k)), program


def _in_a_row(draw: random.Random) -> tuple[str, str, str]:
    n = draw.randint(4, 9)
    k = draw.randint(2, min(n, 5))
    program = f"from itertools import permutations\nprint(sum(1 for _ in permutations(range({n}), {k})))"
    return f"In how many orders can {k} of {n} different books stand on a shelf?", str(math.perm(n, k)), program


def _letters(draw: random.Random) -> tuple[str, str, str]:
    letters = "".join(draw.choice("ABC") * draw.randint(1, 2) for _ in range(4))[:8]
    value = math.factorial(len(letters)) // math.prod(math.factorial(n) for n in Counter(letters).values())
    program = f"from itertools import permutations\nprint(len(set(permutations('{letters}'))))"
    return f"How many different words can be written with all the letters of {letters}?", str(value), program


def _paths(draw: random.Random) -> tuple[str, str, str]:
    width, height = draw.randint(3, 9), draw.randint(3, 9)
    question = (
        f"On a grid one may go one step right or one step up. How many ways lead from (0, 0) to ({width}, {height})?"
    )
    program = (
        f"ways = [[1] * ({height} + 1) for _ in range({width} + 1)]\nfor x in range(1, {width} + 1):\n"
        f"    for y in range(1, {height} + 1): ways[x][y] = ways[x - 1][y] + ways[x][y - 1]\n"
        f"print(ways[{width}][{height}])"
    )
    return question, str(math.comb(width + height, width)), program


def _sums(draw: random.Random) -> tuple[str, str, str]:
    parts, total, most = draw.randint(3, 4), draw.randint(8, 20), draw.randint(5, 9)
    value = sum(  # inclusion and exclusion over the parts that are too large
        (-1) ** j * math.comb(parts, j) * math.comb(total - j * (most + 1) + parts - 1, parts - 1)
        for j in range(parts + 1)
        if total - j * (most + 1) >= 0
    )
    names = [f"x{n}" for n in range(1, parts + 1)]
    question = f"How many integer solutions has {' + '.join(names)} = {total} with 0 <= {', '.join(names)} <= {most}?"
    program = "from itertools import product\n"
    program += f"print(sum(sum(x) == {total} for x in product(range({most} + 1), repeat={parts})))"
    return question, str(value), program


def _around_a_hole(draw: random.Random) -> tuple[str, str, str]:
    width, height = draw.randint(4, 8), draw.randint(4, 8)
    x, y = draw.randint(1, width - 1), draw.randint(1, height - 1)
    through = math.comb(x + y, x) * math.comb(width - x + height - y, width - x)
    question = (
        f"On a grid one may go one step right or one step up, but never over ({x}, {y}). How many ways lead "
        f"from (0, 0) to ({width}, {height})?"
    )
    program = (
        "from functools import cache\n@cache\ndef ways(x, y):\n"
        f"    if x < 0 or y < 0 or (x, y) == ({x}, {y}): return 0\n"
        f"    return 1 if x == y == 0 else ways(x - 1, y) + ways(x, y - 1)\nprint(ways({width}, {height}))"
    )
    return question, str(math.comb(width + height, width) - through), program


def _out_of_place(draw: random.Random) -> tuple[str, str, str]:
    n = draw.randint(5, 8)
    k = draw.randint(0, n - 3)
    rest = n - k
    value = math.comb(n, k) * sum((-1) ** j * math.factorial(rest) // math.factorial(j) for j in range(rest + 1))
    question = (
        f"{n} people draw their {n} names from a hat. In how many outcomes does exactly this many draw their own: {k}?"
    )
    program = (
        f"from itertools import permutations\n"
        f"print(sum(sum(i == p for i, p in enumerate(order)) == {k} for order in permutations(range({n}))))"
    )
    return question, str(value), program


def _digits(draw: random.Random) -> tuple[str, str, str]:
    length, total = draw.randint(3, 5), draw.randint(9, 27)
    ways = {digit: 1 for digit in range(1, 10)}
    for _ in range(length - 1):
        more: Counter[int] = Counter()
        for value, count in ways.items():
            for digit in range(10):
                more[value + digit] += count
        ways = more
    low, high = 10 ** (length - 1), 10**length
    question = f"How many integers from {low} to {high - 1} have decimal digits that add up to {total}?"
    return (
        question,
        str(ways.get(total, 0)),
        f"print(sum(sum(map(int, str(n))) == {total} for n in range({low}, {high})))",
    )


_KINDS = {
    1: (_choose, _in_a_row),
    2: (_letters, _paths),
    3: (_sums, _around_a_hole),
    4: (_out_of_place, _digits),
}
