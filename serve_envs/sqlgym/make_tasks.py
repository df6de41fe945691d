"""Write ``tasks.json``: templates filled in by chance, kept where the answer is worth asking for.

``python -m serve_envs.sqlgym.make_tasks``. A question is kept if it has 1 to 30 rows, not all of them NULL or 0, and if
no other question has its SQL or, beyond one row, its answer. Then 70 / 10 / 20 % of each template go to train,
validation and test.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from string import Formatter

from rllib_agentic.tools import ToolError
from serve_envs.sqlgym.database import database_path
from serve_envs.sqlgym.queries import Reader
from serve_envs.sqlgym.tasks import Question
from serve_envs.sqlgym.templates import MONTHS, PLACES, Template, templates

PER_TEMPLATE = {"train": 21, "validation": 3, "test": 6}
_DRAWS = 1000


def questions_of(template: Template, reader: Reader, draw: random.Random) -> list[Question]:
    """As many questions of one kind as the splits want together."""
    names = sorted({name for _, name, _, _ in Formatter().parse(template.text + template.sql) if name} - {"month_name"})
    found: dict[str, Question] = {}
    answers: set[object] = set()
    for _ in range(_DRAWS):
        filled = {name: draw.choice(PLACES[name]) for name in names}
        if "month" in filled:
            filled["month_name"] = MONTHS[int(str(filled["month"])) - 1]
        sql = template.sql.format(**filled)
        if sql in found:
            continue
        rows = _worth_asking(reader, sql)
        if rows and (len(rows) == 1 or rows not in answers):
            answers.add(rows)
            found[sql] = Question(template.text.format(**filled), sql, template.ordered, template.category)
        if len(found) == sum(PER_TEMPLATE.values()):
            break
    return list(found.values())


def main() -> None:
    """Write the file beside this module."""
    reader = Reader(database_path())
    splits: dict[str, list[Question]] = {split: [] for split in PER_TEMPLATE}
    for number, template in enumerate(templates()):
        questions = questions_of(template, reader, random.Random(f"sqlgym {number}"))
        wanted = sum(PER_TEMPLATE.values())
        if len(questions) < wanted:
            raise RuntimeError(f"template {number} gave {len(questions)} questions, {wanted} wanted: {template.text}")
        for split, count in PER_TEMPLATE.items():
            splits[split] += questions[:count]
            del questions[:count]
    for split, questions in splits.items():
        random.Random(f"sqlgym {split}").shuffle(questions)
    lines = [
        f'"{split}": [\n' + ",\n".join(json.dumps(list(question)) for question in questions) + "\n]"
        for split, questions in splits.items()
    ]
    Path(__file__).with_name("tasks.json").write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


def _worth_asking(reader: Reader, sql: str) -> tuple[tuple[object, ...], ...]:
    try:
        rows = reader.run(sql).rows
    except ToolError:
        return ()
    return rows if len(rows) <= 30 and any(value not in (None, 0, 0.0) for row in rows for value in row) else ()


if __name__ == "__main__":
    main()
