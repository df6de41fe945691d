"""What commands print: tables that keep their text, and the doctor's advice."""

import json
from pathlib import Path
from typing import Any

from rllib_agentic.cli import doctor
from rllib_agentic.cli.console import print_rows
from rllib_agentic.cli.main import main


def test_tables_show_brackets_and_give_each_row_one_line(capsys: Any) -> None:
    long = "pip install 'rllib-agentic[vllm]' " + "x" * 300
    print_rows([{"part": "vllm", "mend": long}, {"part": "[b]", "mend": ""}], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [sum(text in line for line in lines) for text in (long, "[b]")] == [1, 1]


def test_the_doctor_names_the_command_that_installs_what_is_missing(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(doctor.OPTIONAL, "LoRA", (("no_such_module",), doctor.OPTIONAL["LoRA"][1]))
    assert main(["doctor", "--json"]) == 0
    rows = {row["part"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["python"]["state"] == "ok" and rows["ray"]["found"]
    assert rows["LoRA"]["state"] == "not installed"
    folder, _, extra = rows["LoRA"]["mend"].split("'")[1].partition("[")
    assert extra == "lora]" and Path(folder, "pyproject.toml").is_file()
    assert 'lora = ["peft' in Path(folder, "pyproject.toml").read_text()


def test_the_doctor_ends_with_1_where_something_needed_is_missing(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(doctor, "REQUIRED", ("ray", "no-such-package"))
    assert main(["doctor"]) == 1
    assert "no-such-package" in capsys.readouterr().out
