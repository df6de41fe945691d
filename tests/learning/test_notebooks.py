"""The notebooks run from top to bottom, and what they promise comes true."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]


def run(name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Execute a notebook as a user would; return all that it printed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(ROOT / "notebooks")}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream")


@pytest.mark.slow
@pytest.mark.ray
def test_stock_ppo_learns_through_tokens(monkeypatch):
    printed = run("stock_ppo_token_env.ipynb", monkeypatch)
    found = re.search(r"mean return ([\d.]+) -> ([\d.]+)", printed)
    assert found, printed
    first, last = map(float, found.groups())
    assert first < 0.5
    assert last > first + 0.3


@pytest.mark.slow
@pytest.mark.ray
def test_the_quickstart_taken_apart_learns_too(monkeypatch):
    printed = run("quickstart.ipynb", monkeypatch)
    found = re.search(r"held-out success: ([\d.]+) -> ([\d.]+)", printed)
    assert found, printed
    before, after = map(float, found.groups())
    assert before <= 0.4
    assert after >= before + 0.2


@pytest.mark.slow
@pytest.mark.ray
def test_a_sweep_through_the_tuner_finds_the_better_rate(monkeypatch):
    printed = run("sweep.ipynb", monkeypatch)
    found = re.search(r"best success: ([\d.]+) at 1e-5, ([\d.]+) at 3e-3", printed)
    assert found, printed
    low, high = map(float, found.groups())
    assert high >= low + 0.2
    assert "1 parent, 4 children" in printed
