"""Equations, polynomials, sequences."""

from __future__ import annotations

import random
from fractions import Fraction


def make(draw: random.Random, level: int) -> tuple[str, str, str]:
    """Question, answer and program."""
    return draw.choice(_KINDS[level])(draw)


def _linear(draw: random.Random) -> tuple[str, str, str]:
    a, x, b = draw.randint(2, 20), draw.randint(-50, 50), draw.randint(-99, 99)
    equation = f"{a}x {_signed(b)} = {a * x + b}"
    program = f"print(next(x for x in range(-1000, 1001) if {a} * x + {_bracket(b)} == {a * x + b}))"
    return f"Solve {equation} for x.", str(x), program


def _pair(draw: random.Random) -> tuple[str, str, str]:
    x, y = draw.randint(-20, 20), draw.randint(-20, 20)
    a, b, c = draw.randint(2, 12), draw.randint(2, 12), draw.randint(2, 12)
    d = draw.choice([n for n in range(2, 14) if a * n - b * c != 0])
    question = f"Let {a}x + {b}y = {a * x + b * y} and {c}x + {d}y = {c * x + d * y}. What is x * y?"
    program = (
        f"print(next(x * y for x in range(-20, 21) for y in range(-20, 21)\n"
        f"    if {a} * x + {b} * y == {a * x + b * y} and {c} * x + {d} * y == {c * x + d * y}))"
    )
    return question, str(x * y), program


def _value(draw: random.Random) -> tuple[str, str, str]:
    a, b, c, x = draw.randint(2, 9), draw.randint(-9, 9), draw.randint(-30, 30), draw.randint(-12, 12)
    value = (a * x + b) * x + c
    question = f"Let f(x) = {a}x^2 {_signed(b)}x {_signed(c)}. What is f({x})?"
    return question, str(value), f"x = {x}\nprint({a} * x**2 + {_bracket(b)} * x + {_bracket(c)})"


def _squares_of_roots(draw: random.Random) -> tuple[str, str, str]:
    p, q = draw.randint(-30, 30), draw.randint(-60, 60)
    question = f"Let r and s be the (maybe complex) roots of x^2 {_signed(p)}x {_signed(q)} = 0. What is r^2 + s^2?"
    program = (
        "from sympy import Poly, symbols, roots, simplify\nx = symbols('x')\n"
        f"found = roots(Poly(x**2 + {_bracket(p)} * x + {_bracket(q)}, x))\n"
        "print(simplify(sum(n * r**2 for r, n in found.items())))"
    )
    return question, str(p * p - 2 * q), program


def _geometric(draw: random.Random) -> tuple[str, str, str]:
    first = draw.randint(1, 9)
    ratio = Fraction(draw.randint(1, 5), draw.randint(2, 7))
    terms = draw.randint(4, 7)
    value = first * terms if ratio == 1 else first * (1 - ratio**terms) / (1 - ratio)
    question = (
        f"A geometric sequence begins with {first} and has the ratio {ratio}. What is the sum of its first {terms}"
    )
    program = (
        "from fractions import Fraction as F\n"
        f"print(sum({first} * F({ratio.numerator}, {ratio.denominator})**k for k in range({terms})))"
    )
    return f"{question} terms, as a fraction in lowest terms or an integer?", str(Fraction(value)), program


def _cubic(draw: random.Random) -> tuple[str, str, str]:
    roots = draw.sample(range(-12, 13), k=3)
    p, q, r = roots
    b, c, d = -(p + q + r), p * q + p * r + q * r, -p * q * r
    question = f"All roots of x^3 {_signed(b)}x^2 {_signed(c)}x {_signed(d)} are integers. What is the largest of them"
    program = (
        f"print(max(x for x in range(-2000, 2001)\n"
        f"    if x**3 + {_bracket(b)} * x**2 + {_bracket(c)} * x + {_bracket(d)} == 0))"
    )
    return f"{question}?", str(max(roots)), program


def _recurrence(draw: random.Random) -> tuple[str, str, str]:
    a, b, p, q = draw.randint(0, 5), draw.randint(1, 5), draw.randint(1, 3), draw.randint(1, 3)
    n = draw.randint(12, 30)
    matrix, power, exponent = (1, 0, 0, 1), (p, q, 1, 0), n  # of (f(n+1), f(n)); by squaring
    while exponent:
        if exponent & 1:
            matrix = _times(matrix, power)
        power, exponent = _times(power, power), exponent >> 1
    value = matrix[2] * b + matrix[3] * a
    question = f"Let f(0) = {a}, f(1) = {b} and f(n) = {_times_text(p, 'f(n-1)')} + {_times_text(q, 'f(n-2)')}."
    program = f"a, b = {a}, {b}\nfor _ in range({n}): a, b = b, {p} * b + {q} * a\nprint(a)"
    return f"{question} What is f({n})?", str(value), program


def _times(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    a, b, c, d = one
    e, f, g, h = other
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


def _times_text(factor: int, text: str) -> str:
    return text if factor == 1 else f"{factor} {text}"


def _signed(value: int) -> str:
    return f"- {-value}" if value < 0 else f"+ {value}"


def _bracket(value: int) -> str:
    return f"({value})" if value < 0 else str(value)


_KINDS = {
    1: (_linear,),
    2: (_pair, _value),
    3: (_squares_of_roots, _geometric),
    4: (_cubic, _recurrence),
}
