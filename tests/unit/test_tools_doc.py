"""docs/tools.md: its code runs, its YAML is valid, and its tables list what there is."""

import re
from pathlib import Path
from typing import Any

import yaml
from tool_desk import Desk, outputs

from rllib_agentic.components import parse_settings
from rllib_agentic.tools import ToolError, ToolUse
from rllib_agentic.tools.calling import CALLING
from rllib_agentic.tools.mcp_settings import McpServer

DOC = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", DOC, re.DOTALL | re.MULTILINE)


def table(heading: str) -> set[str]:
    """The names in backquotes in the first column of the first table after a heading."""
    rows = DOC.partition(heading)[2].partition("|---")[2].partition("\n\n")[0]
    return {
        name
        for row in rows.splitlines()
        if row.startswith("| ")
        for name in re.findall(r"`(\w+)`", row.split(" | ")[0])
    }


def test_the_code_runs_as_written() -> None:
    space: dict[str, Any] = {"DICTIONARY": {"cat": ["a pet", "a whip"]}, "QUESTIONS": [("Purrs?", "cat")] * 100}
    for code in blocks("python"):
        exec(code, space)
    env = space["Dictionary"]()
    assert [message.content for message in env.reset("train", 3, 0).messages][-1] == "Purrs?"
    result = env.step('<tool_call>{"name": "lookup", "arguments": {"word": "cat"}}</tool_call>')
    assert outputs(result.observation.messages) == ['["a pet", "a whip"]']
    assert env.step("cat").success and env.schema().splits == {"train": 100}
    try:
        space["lookup"]("dog")
    except ToolError as error:
        assert str(error) == "there is no 'dog'"
    assert space["lookup"].parameters["properties"]["limit"]["description"] == "the most entries."


def test_the_yaml_is_valid() -> None:
    parsed = [yaml.safe_load(block) for block in blocks("yaml")]
    uses = [block["env_config"]["args"]["use"] for block in parsed if "use" in block["env_config"]["args"]]
    servers = [block["env_config"]["args"]["server"] for block in parsed if "server" in block["env_config"]["args"]]
    assert [parse_settings(ToolUse, use, "use").observation for use in uses] == ["continue"]
    assert [parse_settings(McpServer, server, "server").command for server in servers] == ["npx"]
    other = re.search(r"# server: (.*?}})", DOC)
    assert other and parse_settings(McpServer, yaml.safe_load(other[1]), "server").headers


def test_the_tables_list_what_there_is() -> None:
    assert table("## How tools are used") == set(ToolUse.model_fields)
    assert table("## Call formats") == set(CALLING)
    env = Desk()
    env.reset("train", 0, 0)
    assert table("## Metrics") == set(env.step("7").metrics)
