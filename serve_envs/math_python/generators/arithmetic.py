"""Sums, products, fractions, powers."""

from __future__ import annotations

import random
from fractions import Fraction


def make(draw: random.Random, level: int) -> tuple[str, str, str]:
    """Question, answer and program."""
    return draw.choice(_KINDS[level])(draw)


def _two_numbers(draw: random.Random) -> tuple[str, str, str]:
    a, b = draw.randint(2, 99), draw.randint(2, 99)
    sign, value = draw.choice([("+", a + b), ("-", a - b), ("*", a * b)])
    return f"What is {a} {sign} {b}?", str(value), f"print({a} {sign} {b})"


def _brackets(draw: random.Random) -> tuple[str, str, str]:
    a, b, c, d = (draw.randint(11, 199) for _ in range(4))
    value = (a + b) * (c - d)
    return f"What is ({a} + {b}) * ({c} - {d})?", str(value), f"print(({a} + {b}) * ({c} - {d}))"


def _remainder(draw: random.Random) -> tuple[str, str, str]:
    a, b = draw.randint(1000, 99999), draw.randint(7, 97)
    return f"What is the remainder of {a} divided by {b}?", str(a % b), f"n = {a}\nwhile n >= {b}: n -= {b}\nprint(n)"


def _fractions(draw: random.Random) -> tuple[str, str, str]:
    a, b, c = (Fraction(draw.randint(1, 30), draw.randint(2, 30)) for _ in range(3))
    program = "from fractions import Fraction as F\n" + f"print({_code(a)} + {_code(b)} * {_code(c)})"
    return f"Compute {a} + {b} * {c} as a fraction in lowest terms.", str(a + b * c), program


def _power_remainder(draw: random.Random) -> tuple[str, str, str]:
    base, exponent, modulus = draw.randint(2, 50), draw.randint(50, 999), draw.randint(11, 999)
    program = f"r = 1\nfor _ in range({exponent}): r = r * {base} % {modulus}\nprint(r)"
    return (
        f"What is the remainder of {base}^{exponent} divided by {modulus}?",
        str(pow(base, exponent, modulus)),
        program,
    )


def _digit_sum(draw: random.Random) -> tuple[str, str, str]:
    base, exponent = draw.randint(2, 19), draw.randint(20, 90)
    number, total = base**exponent, 0
    while number:
        number, digit = divmod(number, 10)
        total += digit
    return (
        f"What is the sum of the decimal digits of {base}^{exponent}?",
        str(total),
        f"print(sum(map(int, str({base} ** {exponent}))))",
    )


def _alternating_sum(draw: random.Random) -> tuple[str, str, str]:
    last, step = draw.randint(200, 999), draw.randint(2, 9)
    terms = len(range(step, last + 1, step))
    pairs, odd = divmod(terms, 2)
    value = -pairs * step + (terms * step if odd else 0)
    question = f"Let the multiples of {step} from {step} up to {last} be added with alternating signs, the first one"
    program = f"print(sum(n if i % 2 == 0 else -n for i, n in enumerate(range({step}, {last} + 1, {step}))))"
    return f"{question} positive: {step} - {2 * step} + {3 * step} - ... What is the result?", str(value), program


def _code(value: Fraction) -> str:
    return f"F({value.numerator}, {value.denominator})"


_KINDS = {
    1: (_two_numbers,),
    2: (_brackets, _remainder),
    3: (_fractions, _power_remainder),
    4: (_digit_sum, _alternating_sum),
}
