"""Stories of quantities."""

from __future__ import annotations

import math
import random
from fractions import Fraction

_NAMES = ("Ada", "Ben", "Chen", "Dora", "Emil", "Fay", "Goran", "Hana")
_THINGS = ("pencils", "apples", "stamps", "tiles", "tickets", "eggs")


def make(draw: random.Random, level: int) -> tuple[str, str, str]:
    """Question, answer and program."""
    return draw.choice(_KINDS[level])(draw)


def _shopping(draw: random.Random) -> tuple[str, str, str]:
    name, thing = draw.choice(_NAMES), draw.choice(_THINGS)
    count, price, extra = draw.randint(3, 30), draw.randint(2, 25), draw.randint(5, 60)
    question = f"{name} buys {count} {thing} at {price} coins each and a bag for {extra} coins. How many coins is that?"
    program = f"total = {extra}\nfor _ in range({count}): total += {price}\nprint(total)"
    return question, str(count * price + extra), program


def _sharing(draw: random.Random) -> tuple[str, str, str]:
    name, thing = draw.choice(_NAMES), draw.choice(_THINGS)
    total, each = draw.randint(60, 400), draw.randint(3, 12)
    question = f"{name} fills boxes of {each} with {total} {thing}. How many {thing} are left over?"
    return question, str(total % each), f"n = {total}\nwhile n >= {each}: n -= {each}\nprint(n)"


def _discount(draw: random.Random) -> tuple[str, str, str]:
    percent, count = draw.choice([5, 10, 15, 20, 25, 30, 40]), draw.randint(2, 12)
    price = 20 * draw.randint(2, 40)
    question = f"A chair costs {price} coins. With {percent}% off, what do {count} chairs cost?"
    program = f"from fractions import Fraction as F\nprint({count} * ({price} - {price} * F({percent}, 100)))"
    return question, str(count * price * (100 - percent) // 100), program


def _journey(draw: random.Random) -> tuple[str, str, str]:
    first, second = draw.randint(2, 6), draw.randint(2, 6)
    fast, slow = draw.randint(60, 110), draw.randint(20, 55)
    speed = Fraction(first * fast + second * slow, first + second)
    question = (
        f"A train runs {first} hours at {fast} km/h and then {second} hours at {slow} km/h. What is its average speed "
        f"in km/h, as a fraction in lowest terms or an integer?"
    )
    program = (
        f"from fractions import Fraction as F\nhours = [{fast}] * {first} + [{slow}] * {second}\n"
        "print(F(sum(hours), len(hours)))"
    )
    return question, str(speed), program


def _together(draw: random.Random) -> tuple[str, str, str]:
    one, other = draw.sample(range(3, 25), k=2)
    question = (
        f"One pump empties a pool in {one} hours, another in {other} hours. How many hours do both together need, as a "
        "fraction in lowest terms or an integer?"
    )
    program = f"from fractions import Fraction as F\nprint(1 / (F(1, {one}) + F(1, {other})))"
    return question, str(Fraction(one * other, one + other)), program


def _animals(draw: random.Random) -> tuple[str, str, str]:
    hens, goats = draw.randint(5, 80), draw.randint(5, 80)
    heads, legs = hens + goats, 2 * hens + 4 * goats
    question = f"A farm has hens and goats, {heads} heads and {legs} legs in all. How many goats are there?"
    return question, str(goats), f"print(next(g for g in range({heads} + 1) if 4 * g + 2 * ({heads} - g) == {legs}))"


def _savings(draw: random.Random) -> tuple[str, str, str]:
    name = draw.choice(_NAMES)
    start, monthly, goal = draw.randint(0, 200), draw.randint(20, 90), draw.randint(800, 5000)
    every, gift = draw.randint(3, 6), draw.randint(50, 150)
    months, money = 0, start
    while money < goal:
        months += 1
        money += monthly + (gift if months % every == 0 else 0)
    question = (
        f"{name} has {start} coins and saves {monthly} each month. After every {every} months an uncle adds {gift} "
        f"coins. After how many months does {name} have at least {goal} coins?"
    )
    program = f"m = 0\nwhile {start} + m * {monthly} + m // {every} * {gift} < {goal}: m += 1\nprint(m)"
    return question, str(months), program


def _meetings(draw: random.Random) -> tuple[str, str, str]:
    one, other, third = draw.randint(6, 18), draw.randint(7, 20), draw.randint(8, 24)
    days = draw.randint(400, 1500)
    value = days // math.lcm(one, other) + days // math.lcm(one, third) - 2 * (days // math.lcm(one, other, third))
    question = (
        f"Three ships are in port today. They return every {one}, {other} and {third} days. On how many of the next "
        f"{days} days is the first ship in port together with exactly one of the others?"
    )
    program = f"print(sum(d % {one} == 0 and (d % {other} == 0) != (d % {third} == 0) for d in range(1, {days} + 1)))"
    return question, str(value), program


_KINDS = {
    1: (_shopping, _sharing),
    2: (_discount, _journey),
    3: (_together, _animals),
    4: (_savings, _meetings),
}
