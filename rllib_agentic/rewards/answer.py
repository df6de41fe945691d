r"""Is it the right answer? By value, not by letters, and within a time that nothing the model writes can stretch.

Texts that are equal as they stand, and whole numbers and fractions, are compared here. Everything else is for
``math-verify``, which runs in the sandbox: it computes with what the model wrote, and a tower of powers would keep it
busy for ever.

Forms that count as equal, beside those that math-verify finds equal as expressions:

==============================  ============================================================
``\frac{1}{2}``, ``0.5``        fractions and decimals
``1,000``, ``1000``             separators between groups of three digits
``-3``                            U+2212 as a minus sign, too
``x=5``, ``5``                  an equation with a lone variable and its value
``50\%``, ``0.5``, ``50``       a percentage is both: the task's author knows which was meant
``3 \text{ cm}``, ``3``         units
``\{1, 2\}``, ``2, 1``          sets and lists without order
``0.333``, ``1/3``: **not**     a decimal is what it says, to six places
``(1, 2)``, ``(2, 1)``: **not**   pairs have an order
==============================  ============================================================
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Literal, NamedTuple

from rllib_agentic.errors import InfrastructureError
from rllib_agentic.sandbox import Execution, SandboxSettings
from rllib_agentic.sandbox.shared import shared_sandbox

Problem = Literal["timeout", "unreadable"]

_NUMBER = re.compile(r"([+-]?)(\d{1,3}(?:,\d{3})+|\d{1,40})(?:/(\d{1,40}))?")
_MOST_CHARACTERS = 10_000
_WARM_UP = r"""
from math_verify import LatexExtractionConfig, parse, verify
for given, right in (("\\frac{1}{2}", "0.5"), ("x=\\sqrt{8}", "2\\sqrt{2}"), ("\\{1, 2\\}", "(1, 2)"), ("50\\%", "5")):
    parsed = [parse(f"\\boxed{{{text}}}", [LatexExtractionConfig()], parsing_timeout=None) for text in (given, right)]
    verify(*parsed, timeout_seconds=None)
"""
_PROGRAM = r"""
import json, logging, sys
from math_verify import LatexExtractionConfig, parse, verify
logging.disable()
how = [LatexExtractionConfig(boxed_match_priority=0)]
given, right = (parse(f"\\boxed{{{text}}}", how, "no_fallback", parsing_timeout=None) for text in json.load(sys.stdin))
print(json.dumps({"readable": bool(given), "equal": bool(verify(right, given, timeout_seconds=None))}))
"""


class Verdict(NamedTuple):
    """Whether an answer is right, and what stood in the way of knowing better.

    Attributes:
        right: whether it is.
        problem: ``timeout``: comparing took too long; ``unreadable``: it is no mathematics. Then it is not right.
    """

    right: bool
    problem: Problem | None = None


class AnswerChecker:
    r"""Compares answers. For any thread and any event loop.

    Args:
        isolation: of the sandbox that math-verify runs in; it reads what a model wrote.
        cpu_s: CPU seconds that one comparison may take.

    Example:
        >>> checker = AnswerChecker()
        >>> [checker.check(given, "1/2").right for given in ("0.5", r"\frac{2}{4}", "2", None)]
        [True, True, False, False]
    """

    def __init__(
        self, isolation: Literal["auto", "namespaces", "landlock", "none"] = "auto", cpu_s: float = 2.0
    ) -> None:
        self._settings = SandboxSettings(
            isolation=isolation,
            cpu_s=cpu_s,
            timeout_s=15 * cpu_s + 15,  # for machines with other work; CPU seconds decide
            memory_mb=1024,
            packages=("math_verify",),
            warm_up=_WARM_UP,
        )

    def check(self, given: str | None, right: str) -> Verdict:
        """Whether ``given`` is ``right``.

        Args:
            given: the content of the box; None for no answer.
            right: the right answer, in the same notation.

        Raises:
            InfrastructureError: no verdict, for reasons that are not in the answer: the episode is invalid.
            InputError: the sandbox does not start here.
        """
        known = _without_mathematics(given, right)
        if known is not None:
            return known
        return _verdict(shared_sandbox(self._settings).run(_PROGRAM, stdin=json.dumps([given, right])))

    async def acheck(self, given: str | None, right: str) -> Verdict:
        """The same for an event loop."""
        known = _without_mathematics(given, right)
        if known is not None:
            return known
        return _verdict(await shared_sandbox(self._settings).arun(_PROGRAM, stdin=json.dumps([given, right])))


def _without_mathematics(given: str | None, right: str) -> Verdict | None:
    if given is None or not given.strip():
        return Verdict(False)
    given, right = _plain(given), _plain(right)
    if given == right:
        return Verdict(True)
    if len(given) > _MOST_CHARACTERS:
        return Verdict(False, "unreadable")
    numbers = _number(given), _number(right)
    if None not in numbers:
        return Verdict(numbers[0] == numbers[1])
    return None


def _plain(text: str) -> str:
    return text.replace("\N{MINUS SIGN}", "-").strip().strip("$").strip()


def _number(text: str) -> Fraction | None:
    match = _NUMBER.fullmatch(text)
    if match is None or (match[3] and int(match[3]) == 0):
        return None
    return Fraction(int(match[1] + match[2].replace(",", "")), int(match[3] or 1))


def _verdict(execution: Execution) -> Verdict:
    if execution.error is None:
        found = json.loads(execution.stdout)
        return Verdict(found["equal"], None if found["readable"] else "unreadable")
    if execution.error == "timeout" and "CPU" not in execution.detail:
        raise InfrastructureError("answer_check", "comparing an answer got no CPU: the machine is overloaded")
    if execution.error == "timeout":
        return Verdict(False, "timeout")
    if "ModuleNotFoundError" in execution.stderr or "ImportError" in execution.stderr:
        raise InfrastructureError("answer_check", f"math-verify does not load: {execution.stderr[-500:]}")
    return Verdict(False, "unreadable")
