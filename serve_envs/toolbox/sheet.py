"""Spreadsheets: reading, writing, sorting, adding and deleting rows."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator
from typing import Any, Literal

from rllib_agentic.tools import ToolError, tool
from serve_envs.toolbox.assignment import Assignment, PlannedCall
from serve_envs.toolbox.names import words

_PLACES = ("cellar", "shop", "store", "yard")
_HEAD = ["ware", "place", "price", "quantity", "value"]
_CELL = re.compile(r"([A-Z])([1-9]\d{0,3})")

Value = str | int | float | None


class Sheet:
    """Three sheets of stock with nine to fourteen rows: ware, place, price, quantity, value (left empty).

    Args:
        draw: decides everything.
    """

    def __init__(self, draw: random.Random) -> None:
        self.sheets: dict[str, list[list[Value]]] = {}
        for name in draw.sample(("spring", "summer", "autumn", "winter", "fair", "spare"), 3):
            wares = draw.sample(words("wares"), draw.randint(9, 14))
            prices = draw.sample(range(2, 90), len(wares))
            rows: list[list[Value]] = [
                [ware, draw.choice(_PLACES), price, draw.choice((0, *range(1, 40))), None]
                for ware, price in zip(wares, prices, strict=True)
            ]
            rows[draw.randrange(len(rows))][3] = 0
            self.sheets[name] = [list(_HEAD), *rows]

    def snapshot(self) -> dict[str, Any]:
        """Every cell by sheet and place."""
        return {
            f"{name} {chr(65 + column)}{number}": value
            for name, rows in self.sheets.items()
            for number, row in enumerate(rows, 1)
            for column, value in enumerate(row)
        }

    def words(self) -> list[Any]:
        """Sheets, cells, wares and numbers."""
        wares = [row[0] for rows in self.sheets.values() for row in rows[1:]]
        return [
            *self.sheets,
            *self.sheets,
            *(f"{column}{row}" for column in "ABCDE" for row in range(1, 10)),
            *wares,
            *range(1, 20),
        ]

    @tool
    def list_sheets(self) -> dict[str, str]:
        """List all sheets: name and filled range."""
        return {name: f"A1:E{len(rows)}" for name, rows in self.sheets.items()}

    @tool
    def read_range(self, sheet: str, cells: str) -> list[list[Value]]:
        """Read a rectangle of cells, row by row.

        Args:
            sheet: the sheet's name.
            cells: upper left and lower right cell, for example A1:E5.
        """
        first, _, last = cells.partition(":")
        (top, left), (bottom, right) = _cell(first), _cell(last or first)
        rows = self._sheet(sheet)
        return [row[left : right + 1] for row in rows[top : bottom + 1]]

    @tool
    def write_cells(self, sheet: str, start: str, values: list[str | int | float]) -> str:
        """Write values into a column, one below another.

        Args:
            sheet: the sheet's name.
            start: the uppermost cell, for example E2.
            values: the values, from top to bottom.
        """
        rows = self._sheet(sheet)
        top, column = _cell(start)
        if top + len(values) > len(rows):
            raise ToolError(f"{sheet} has {len(rows)} rows; use add_row for more")
        for offset, value in enumerate(values):
            rows[top + offset][column] = value
        return "written"

    @tool
    def add_row(self, sheet: str, values: list[str | int | float | None]) -> str:
        """Add a row at the end.

        Args:
            sheet: the sheet's name.
            values: five values, null for an empty cell.
        """
        if len(values) != len(_HEAD):
            raise ToolError(f"a row has {len(_HEAD)} values, not {len(values)}")
        self._sheet(sheet).append(list(values))
        return "added"

    @tool
    def delete_row(self, sheet: str, row: int) -> str:
        """Delete a row; the rows below move up.

        Args:
            sheet: the sheet's name.
            row: its number; row 1 is the head and stays.
        """
        rows = self._sheet(sheet)
        if not 2 <= row <= len(rows):
            raise ToolError(f"row must be from 2 to {len(rows)}")
        del rows[row - 1]
        return "deleted"

    @tool
    def sort_rows(
        self, sheet: str, column: Literal["A", "B", "C", "D", "E"], order: Literal["rising", "falling"]
    ) -> str:
        """Sort all rows but the head by a column; equal ones keep their order.

        Args:
            sheet: the sheet's name.
            column: the column's letter.
            order: rising or falling.
        """
        rows = self._sheet(sheet)
        at = ord(column) - 65
        rows[1:] = sorted(rows[1:], key=lambda row: _sortable(row[at]), reverse=order == "falling")
        return "sorted"

    def assignments(self, draw: random.Random) -> Iterator[Assignment]:
        """Endless tasks in this world, all kinds in turn."""
        while True:
            yield self._correct(draw)
            yield self._ask(draw)
            yield self._sort_and_add(draw)
            yield self._delete_empty(draw)
            yield self._fill_values(draw)

    def _correct(self, draw: random.Random) -> Assignment:
        name, rows, read = self._pick(draw)
        at = draw.randrange(1, len(rows))
        field = draw.choice((2, 3))
        value = draw.randint(40, 99)
        return self._order(
            f"In the sheet {name}, the {_HEAD[field]} of {rows[at][0]} is wrong: it should be {value}. Correct it.",
            "correct a cell",
            (
                *read,
                PlannedCall("write_cells", {"sheet": name, "start": f"{chr(65 + field)}{at + 1}", "values": [value]}),
            ),
        )

    def _ask(self, draw: random.Random) -> Assignment:
        name, rows, read = self._pick(draw)
        place = draw.choice(sorted({str(row[1]) for row in rows[1:]}))
        total = sum(int(str(row[2])) * int(str(row[3])) for row in rows[1:] if row[1] == place)
        return Assignment(
            prompt=(
                f"In the sheet {name}, what is the total of price times quantity over all wares whose place is "
                f"{place}? Answer with a number."
            ),
            kind="ask",
            calls=read,
            answer=float(total),
        )

    def _sort_and_add(self, draw: random.Random) -> Assignment:
        name, rows, read = self._pick(draw)
        column, order = draw.choice((("C", "rising"), ("C", "falling"), ("A", "rising")))
        ware = draw.choice([ware for ware in words("wares") if ware not in {row[0] for row in rows}])
        values = [ware, draw.choice(_PLACES), draw.randint(2, 90), draw.randint(1, 40), None]
        return self._order(
            f"Sort the rows of the sheet {name} by {_HEAD[ord(column) - 65]}, {order}. Then add a row at the end: "
            f"{values[0]}, {values[1]}, price {values[2]}, quantity {values[3]}, value left empty.",
            "sort and add",
            (
                *read,
                PlannedCall("sort_rows", {"sheet": name, "column": column, "order": order}),
                PlannedCall("add_row", {"sheet": name, "values": values}),
            ),
        )

    def _delete_empty(self, draw: random.Random) -> Assignment:
        name, rows, read = self._pick(draw)
        empty = [number for number, row in enumerate(rows, 1) if row[3] == 0]
        return self._order(
            f"Delete every row of the sheet {name} whose quantity is 0.",
            "delete rows",
            (*read, *(PlannedCall("delete_row", {"sheet": name, "row": number}) for number in reversed(empty))),
        )

    def _fill_values(self, draw: random.Random) -> Assignment:
        name, rows, read = self._pick(draw)
        values = [int(str(row[2])) * int(str(row[3])) for row in rows[1:]]
        return self._order(
            f"Fill the column value of the sheet {name}: price times quantity of each row.",
            "fill a column",
            (*read, PlannedCall("write_cells", {"sheet": name, "start": "E2", "values": values})),
        )

    def _pick(self, draw: random.Random) -> tuple[str, list[list[Value]], tuple[PlannedCall, ...]]:
        name = draw.choice(list(self.sheets))
        rows = self.sheets[name]
        read = PlannedCall("read_range", {"sheet": name, "cells": f"A1:E{len(rows)}"})
        return name, rows, (PlannedCall("list_sheets", {}), read)

    def _order(self, prompt: str, kind: str, calls: tuple[PlannedCall, ...]) -> Assignment:
        after = copy.deepcopy(self)
        for call in calls:
            getattr(after, call.tool)(**call.arguments)
        return Assignment(prompt, kind, calls, goal=after.snapshot())

    def _sheet(self, name: str) -> list[list[Value]]:
        if name not in self.sheets:
            raise ToolError(f"there is no sheet {name!r:.60}; see list_sheets")
        return self.sheets[name]


def _cell(text: str) -> tuple[int, int]:
    match = _CELL.fullmatch(text.strip().upper())
    if not match or match[1] > "E":
        raise ToolError(f"{text!r:.40} is no cell; write a column from A to E and a row, for example B3")
    return int(match[2]) - 1, ord(match[1]) - 65


def _sortable(value: Value) -> tuple[int, float, str]:
    if value is None:
        return (2, 0.0, "")
    return (1, 0.0, value.casefold()) if isinstance(value, str) else (0, float(value), "")
