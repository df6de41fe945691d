"""How commands speak: results on standard output, everything else on standard error, and true exit codes."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rllib_agentic.errors import AgenticError, InputError

EXIT_FAILED, EXIT_INPUT, EXIT_INTERRUPTED = 1, 2, 130

_WIDE = 1000  # of what is no terminal: a row is a line, whatever reads it


def run_command(command: Callable[[], Any]) -> int:
    """Run a command and turn what it raises into an exit code and one clear message.

    Returns:
        what the command returns (None is 0); 2 for bad input, 1 for a failure, 130 after Ctrl-C.
    """
    try:
        return command() or 0
    except InputError as error:
        lines = str(error).splitlines()
        print(f"error: {lines[0]}" if lines else "error", *lines[1:], sep="\n", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_FAILED
    except AgenticError as error:
        print(f"failed: {error}", file=sys.stderr)
        return EXIT_FAILED
    except Exception:
        traceback.print_exc()
        print(
            "failed: this is a bug in rllib_agentic or in a component of yours; the traceback is above", file=sys.stderr
        )
        return EXIT_FAILED


def print_json(value: Any) -> None:
    """One line of JSON on standard output."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False), flush=True)


def print_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, title: str | None = None) -> None:
    """A table for people, or the same rows as one JSON array."""
    if as_json:
        print_json(list(rows))
        return
    table = Table(title=title, title_justify="left")
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_cell(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_cell(part) for part in value)
    return "" if value is None else str(value)
