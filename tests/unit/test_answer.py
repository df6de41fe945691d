"""Finding and comparing answers, held to the known faults of other checkers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.rewards import answer as module
from rllib_agentic.rewards.answer import AnswerChecker, Verdict
from rllib_agentic.rewards.boxed import boxed_answer
from rllib_agentic.sandbox import Execution

pytest.importorskip("math_verify")


@pytest.fixture(scope="module")
def checker() -> AnswerChecker:
    try:
        checker = AnswerChecker()
        checker.check("x", "y")
    except InputError as error:
        pytest.skip(f"NOT TESTED: {error}")
    return checker


@pytest.mark.parametrize(
    ("given", "right", "equal"),
    [
        (r"\frac{1}{2}", "0.5", True),
        (r"\dfrac12", "1/2", True),
        ("1,000", "1000", True),
        ("-3", "\N{MINUS SIGN}3", True),
        ("x=5", "5", True),
        (r"50\%", "0.5", True),  # documented: a percentage is both
        (r"50\%", "50", True),
        ("(1,2)", "(2,1)", False),
        ("0.333", "1/3", False),
        ("0.3333333", "1/3", True),  # documented: to six places
        (r"\sqrt{8}", r"2\sqrt{2}", True),
        (r"\{1,2\}", r"\{2,1\}", True),
        (r"3\text{ cm}", "3", True),
        ("x^2+2x", "x(x+2)", True),
        ("yes", "yes", True),
        ("yes", "no", False),
        ("2/4", "1/2", True),
        ("1/0", "0", False),
        ("12,34", "1234", False),
        ("", "0", False),
        ("7", "8", False),
    ],
)
def test_rw01_by_value(checker: AnswerChecker, given: str, right: str, equal: bool) -> None:
    assert checker.check(given, right).right is equal


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{\sqrt{\frac{a}{b}}}", r"\sqrt{\frac{a}{b}}"),
        (r"first \boxed{1} then \boxed{2}", "2"),
        (r"\boxed{3", None),
        (r"\boxed{1} and \boxed{3", None),
        (r"\boxed{}", None),
        (r"\boxed 7", None),
        (r"\boxed {7}", "7"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\}}", r"\}"),
        ("", None),
        (r"<think>\boxed{4}</think> so \boxed{5}", "5"),
        (r"<think>\boxed{4}</think> hm", None),
        (r"\boxed{4}</think> so \boxed{5}", "5"),
        (r"<think>it could be \boxed{4} or", None),  # RW03
        (r"\boxed{6} <think>or \boxed{4}", "6"),
    ],
)
def test_rw02_rw03_the_last_box_outside_of_reasoning(text: str, answer: str | None) -> None:
    assert boxed_answer(text) == answer


def test_rw04_hard_limits_in_a_thread(checker: AnswerChecker) -> None:
    cases = [(r"\frac{2}{4}", "0.5"), (r"2003^{2002^{2001}}", "9"), ("(" * 3000, "1")]
    found: list[Verdict] = []
    thread = threading.Thread(target=lambda: found.extend(checker.check(*case) for case in cases))
    thread.start()
    thread.join(60)
    assert [verdict.right for verdict in found] == [True, False, False]
    assert found[0].problem is None and found[1].problem == "timeout" and found[2].problem is not None
    assert checker.check(r"\frac{2}{4}", "0.5").right


def test_many_at_once(checker: AnswerChecker) -> None:
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda n: checker.check(rf"\frac{{{n}}}{{2}}", f"{n / 2}").right, range(1, 13)))
    assert all(found)


@given(st.fractions(), st.fractions())
def test_numbers_are_compared_exactly_and_without_a_process(one: Fraction, other: Fraction) -> None:
    verdict = module._without_mathematics(str(one), str(other))
    assert verdict == Verdict(one == other)


def execution(**changed: object) -> Execution:
    whole = dict(
        stdout="", stderr="", exit_code=1, error="exception", detail="", stdout_bytes=0, stderr_bytes=0,
        truncated=False, wall_s=1.0,
    )  # fmt: skip
    return Execution(**(whole | changed))  # type: ignore[arg-type]


def test_what_fails_here_is_no_verdict() -> None:
    with pytest.raises(InfrastructureError, match="overloaded"):
        module._verdict(execution(error="timeout", detail="wall time limit of 30 s"))
    with pytest.raises(InfrastructureError, match="does not load"):
        module._verdict(execution(stderr="ModuleNotFoundError: No module named 'math_verify'"))
    assert module._verdict(execution(error="timeout", detail="CPU time limit of 1 s")) == Verdict(False, "timeout")
    assert module._verdict(execution(error="killed", exit_code=-11)) == Verdict(False, "unreadable")
