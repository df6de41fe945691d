"""What the agent reads of an execution."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from rllib_agentic.components import Settings
from rllib_agentic.sandbox.sandbox import Execution

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NO_OUTPUT = "(no output; use print() to see a value)"
_LOST = "(the interpreter was restarted; its variables are gone)"


class OutputShape(Settings):
    r"""The rules by which an execution becomes text. The defaults are those of ToRL (arXiv:2503.23383).

    Terminal sequences are removed, line ends are newlines, all other control characters become U+FFFD. What looks like
    a chat marker stays text: the renderer sees to that.

    Attributes:
        error: how much of an error: its ``last_line``, or ``all`` of it.
        most_chars: a longer output is cut to its first and last half of this; None keeps all. ToRL's is 256.

    Example:
        >>> run = Execution("1\n", "Traceback:\n  ...\nValueError: x\n", 1, "exception", "", 2, 30, False, 0.1)
        >>> OutputShape()(run)
        '1\nValueError: x'
    """

    error: Literal["last_line", "all"] = "last_line"
    most_chars: int | None = Field(default=256, ge=2)

    def __call__(self, execution: Execution) -> str:
        """The text: output, then the error if there is one, or a line that says that there was none of both."""
        output = clean_output(execution.stdout).rstrip("\n")
        error = "" if execution.error is None else self._error_of(execution)
        parts = [self._cut(part) for part in (output, error) if part]
        if execution.variables_lost:
            parts.append(_LOST)
        return "\n".join(parts) or _NO_OUTPUT

    def _error_of(self, execution: Execution) -> str:
        if execution.error == "timeout":
            return f"TimeoutError: stopped by the {execution.detail}"
        told = clean_output(execution.stderr).strip("\n")
        if self.error == "last_line":
            told = told.rpartition("\n")[2]
        if execution.error == "resource_limit" and execution.detail:
            return f"MemoryError: stopped ({execution.detail})"
        return told or f"the process ended with exit code {execution.exit_code}"

    def _cut(self, text: str) -> str:
        if self.most_chars is None or len(text) <= self.most_chars:
            return text
        return f"{text[: self.most_chars - self.most_chars // 2]}...{text[len(text) - self.most_chars // 2 :]}"


def clean_output(text: str) -> str:
    r"""Text without terminal sequences and control characters.

    Example:
        >>> clean_output("a\0b\x1b[31mc\r\nd\re")
        'a\ufffdbc\nd\ne'
    """
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("\ufffd", text)
