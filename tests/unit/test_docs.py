"""What the documentation shows is true: YAML is valid, imports exist, commands parse, links lead somewhere."""

import ast
import re
import shlex
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from rllib_agentic.algorithms.presets import algorithm_class
from rllib_agentic.algorithms.sections import SECTIONS
from rllib_agentic.cli.experiment import ExperimentSettings, read_experiments
from rllib_agentic.cli.main import make_parser
from rllib_agentic.cli.yaml_file import _Loader, read_experiment_file

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Block(NamedTuple):
    page: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(language: str) -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            found.append(Block(page, text.count("\n", 0, match.start()) + 1, match[1]))
    return found


def alternatives(block: Block) -> list[str]:
    """The block; or, where it lists one-line alternatives under the same key, one text for each of them."""
    lines = textwrap.dedent(block.text).splitlines()
    keys = [match and match.groups() for match in (re.match(r"( *)([\w-]+):", line) for line in lines)]
    repeated = {key for key in keys if key is not None and keys.count(key) > 1}
    if not repeated:
        return ["\n".join(lines)]
    (key,) = repeated  # one list of alternatives a block
    places = [n for n, found in enumerate(keys) if found == key]
    return ["\n".join(line for n, line in enumerate(lines) if n == place or n not in places) for place in places]


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_is_an_experiment_or_a_part_of_one(block: Block, tmp_path: Path) -> None:
    for text in alternatives(block):
        loaded = yaml.load(text, Loader=_Loader)
        if set(loaded) <= {*ExperimentSettings.model_fields}:
            loaded = {"example": {"run": "GRPO", "env": "bandit", **loaded}}
        elif not all(isinstance(entry, dict) and "run" in entry for entry in loaded.values()):
            config = algorithm_class("GRPO").get_default_config().environment("bandit")
            assert set(loaded) <= {*SECTIONS, *vars(config)}, "neither an experiment nor sections of a configuration"
            loaded = {"example": {"run": "GRPO", "env": "bandit", "config": loaded}}
        file = tmp_path / "x.yaml"
        file.write_text(yaml.safe_dump(loaded))
        assert read_experiments(read_experiment_file(str(file)), str(block))


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_programs_compile_and_what_they_import_exists(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in {"rllib_agentic", "ray"}:
            module = import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name), f"{block}: {node.module} has no {name.name}"


def commands() -> list[Any]:
    found = []
    for block in blocks("bash"):
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["rllib"]:
                found.append(pytest.param(words[1:], id=f"{block}-{' '.join(words[1:4])}"))
    return found


@pytest.mark.parametrize("words", commands())
def test_commands_parse_and_their_files_exist(words: list[str]) -> None:
    make_parser().parse_args(words)
    for word in words:
        if word.startswith(("tuned_examples/", "docs/", "benchmarks/")):
            assert (ROOT / word).exists(), word


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_mentioned_files_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target
    for mentioned in re.findall(
        r"`((?:tests|docs|tuned_examples|benchmarks|rllib_agentic|serve_envs)/[\w./-]*\w)`", text
    ):
        assert (ROOT / mentioned).exists(), mentioned
