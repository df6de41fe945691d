"""Imports run one way, and Ray appears only in the Ray shells."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Room to the rooms of ours that it must never import, directly.
FORBIDDEN = {
    "trajectory": {"*"},
    "rendering": {"engines", "rollout", "algorithms", "learner", "envs", "store", "rl_module", "tracking", "cli"},
    "context": {"engines", "rollout", "algorithms", "learner", "envs", "store", "rl_module", "tracking", "cli"},
    "engines": {"rollout", "algorithms", "learner", "envs", "store", "tracking", "cli", "rendering"},
    "envs": {"rollout", "algorithms", "learner", "store", "tracking", "cli", "advantages", "losses"},
    "tools": {
        "rendering",
        "context",
        "engines",
        "rollout",
        "algorithms",
        "learner",
        "store",
        "rl_module",
        "tracking",
        "cli",
    },
    "losses": {"engines", "rollout", "algorithms", "learner", "envs", "rl_module", "store", "tracking", "cli"},
    "advantages": {"engines", "rollout", "algorithms", "learner", "envs", "rl_module", "store", "tracking", "cli"},
    "filters": {"engines", "rollout", "algorithms", "learner", "envs", "rl_module", "store", "tracking", "cli"},
    "rewards": {"engines", "rollout", "algorithms", "learner", "envs", "rl_module", "store", "tracking", "cli"},
    "diagnostics": {"engines", "rollout", "algorithms", "learner", "envs", "rl_module", "store", "tracking", "cli"},
    "curriculum": {"engines", "algorithms", "learner", "envs", "rl_module", "store", "tracking", "cli"},
    "rollout": {"algorithms", "learner", "store", "tracking", "cli", "losses", "advantages"},
    "offline": {"algorithms", "learner", "losses", "advantages", "tracking", "cli"},
    "learner": {"algorithms", "rollout", "store", "tracking", "cli", "envs", "engines"},
    "store": {"algorithms", "rollout", "learner", "tracking", "cli", "envs", "engines"},
    "tracking": {"algorithms", "rollout", "learner", "cli", "envs", "engines"},
    "evaluation": {"algorithms", "rollout", "learner", "cli", "envs", "engines"},
    "algorithms": {"cli", "tracking"},
}
RAY_SHELLS = (
    "rollout/env_runner.py", "rollout/callbacks.py", "rl_module/", "learner/", "algorithms/", "engines/vllm",
    "tracking/", "cli/", "envs/serve_transport.py", "envs/token_env.py",
)  # fmt: skip
NUMPY_AND_TORCH_ONLY = ("losses/", "advantages/")
ALLOWED_THERE = {"numpy", "torch", "pydantic", "rllib_agentic", "scipy"}


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "rllib_agentic" and len(parts) > 1 else None


@pytest.mark.parametrize("file", modules("rllib_agentic"), ids=lambda f: str(f.relative_to(ROOT)))
def test_rooms_import_one_way(file: Path) -> None:
    inside = file.relative_to(ROOT / "rllib_agentic")
    room = inside.parts[0]
    for module in imports(file):
        target = room_of(module)
        if target is not None and target != room and room in FORBIDDEN and target not in ("errors", "components"):
            assert target not in FORBIDDEN[room] and "*" not in FORBIDDEN[room], f"{inside} imports {module}"
        top = module.split(".")[0]
        if top in ("ray", "mlflow"):
            assert str(inside).startswith(RAY_SHELLS) or str(inside) == "components.py", f"{inside} imports {module}"
        if str(inside).startswith(NUMPY_AND_TORCH_ONLY):
            known = top in ALLOWED_THERE or top in __import__("sys").stdlib_module_names
            assert known, f"{inside} imports {module}"
        if room != "algorithms" and room != "cli":
            assert top != "serve_envs" or room == "rl_module", f"{inside}: a client never imports a server ({module})"


@pytest.mark.parametrize("file", modules("serve_envs"), ids=lambda f: str(f.relative_to(ROOT)))
def test_the_service_never_imports_the_training_side(file: Path) -> None:
    allowed = {None, "errors", "components", "trajectory", "envs", "tools", "sandbox", "rewards"}
    if file.name.startswith("inference"):  # what it serves is an engine over a model
        allowed |= {"engines", "rl_module"}
    for module in imports(file):
        if module.split(".")[0] == "rllib_agentic":
            assert room_of(module) in allowed, f"{file.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("file", [*modules("rllib_agentic"), *modules("serve_envs")], ids=lambda f: f.stem)
def test_modules_stay_small(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 400
