"""Divisors, primes, congruences."""

from __future__ import annotations

import math
import random


def make(draw: random.Random, level: int) -> tuple[str, str, str]:
    """Question, answer and program."""
    return draw.choice(_KINDS[level])(draw)


def _gcd(draw: random.Random) -> tuple[str, str, str]:
    common = draw.randint(2, 30)
    a, b = common * draw.randint(2, 40), common * draw.randint(2, 40)
    program = f"print(max(d for d in range(1, {a} + 1) if {a} % d == 0 and {b} % d == 0))"
    return f"What is the greatest common divisor of {a} and {b}?", str(math.gcd(a, b)), program


def _lcm(draw: random.Random) -> tuple[str, str, str]:
    a, b = draw.randint(4, 60), draw.randint(4, 60)
    program = f"n = {a}\nwhile n % {b}: n += {a}\nprint(n)"
    return f"What is the least common multiple of {a} and {b}?", str(math.lcm(a, b)), program


def _divisors(draw: random.Random) -> tuple[str, str, str]:
    primes = draw.sample([2, 3, 5, 7, 11], k=3)
    powers = [draw.randint(1, 3) for _ in primes]
    number = math.prod(prime**power for prime, power in zip(primes, powers, strict=True))
    count = math.prod(power + 1 for power in powers)
    return (
        f"How many positive divisors does {number} have?",
        str(count),
        f"print(sum({number} % d == 0 for d in range(1, {number} + 1)))",
    )


def _primes_between(draw: random.Random) -> tuple[str, str, str]:
    low = draw.randint(10, 400)
    high = low + draw.randint(40, 200)
    primes = [n for n in range(low, high + 1) if all(n % d for d in range(2, math.isqrt(n) + 1))]
    program = f"from sympy import primerange\nprint(len(list(primerange({low}, {high} + 1))))"
    return f"How many primes p are there with {low} <= p <= {high}?", str(len(primes)), program


def _totient(draw: random.Random) -> tuple[str, str, str]:
    number = draw.randint(100, 2000)
    rest, value, prime = number, number, 2
    while prime * prime <= rest:
        if rest % prime == 0:
            value -= value // prime
            while rest % prime == 0:
                rest //= prime
        prime += 1
    if rest > 1:
        value -= value // rest
    question = f"How many of the numbers 1, 2, ..., {number} have no divisor above 1 in common with {number}?"
    return question, str(value), f"import math\nprint(sum(math.gcd(k, {number}) == 1 for k in range(1, {number} + 1)))"


def _inverse(draw: random.Random) -> tuple[str, str, str]:
    modulus = draw.randint(50, 999)
    number = draw.choice([n for n in range(2, modulus) if math.gcd(n, modulus) == 1])
    question = f"Which x with 0 < x < {modulus} satisfies {number} * x = 1 modulo {modulus}?"
    program = f"print(next(x for x in range(1, {modulus}) if {number} * x % {modulus} == 1))"
    return question, str(pow(number, -1, modulus)), program


def _congruences(draw: random.Random) -> tuple[str, str, str]:
    moduli = draw.choice([(5, 7, 9), (7, 8, 11), (9, 11, 13), (8, 9, 17), (11, 13, 17)])
    hidden = draw.randrange(math.prod(moduli))
    rests = [hidden % modulus for modulus in moduli]
    told = ", ".join(f"{rest} when divided by {modulus}" for rest, modulus in zip(rests, moduli, strict=True))
    conditions = " and ".join(f"n % {modulus} == {rest}" for rest, modulus in zip(rests, moduli, strict=True))
    program = f"n = 0\nwhile not ({conditions}): n += 1\nprint(n)"
    return f"What is the smallest integer n >= 0 that leaves the remainders {told}?", str(hidden), program


def _order(draw: random.Random) -> tuple[str, str, str]:
    modulus = draw.choice([101, 127, 151, 199, 211, 257, 307, 401, 499])
    number = draw.randint(2, modulus - 1)
    order = next(d for d in range(1, modulus) if (modulus - 1) % d == 0 and pow(number, d, modulus) == 1)
    question = f"What is the smallest positive k such that {number}^k leaves the remainder 1 when divided by {modulus}?"
    program = f"k, r = 1, {number}\nwhile r != 1: k, r = k + 1, r * {number} % {modulus}\nprint(k)"
    return question, str(order), program


_KINDS = {
    1: (_gcd, _lcm),
    2: (_divisors, _primes_between),
    3: (_totient, _inverse),
    4: (_congruences, _order),
}
