"""Experiment files as mappings: YAML, Python, local or at a URL."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlparse
from urllib.request import urlopen

import yaml

from rllib_agentic.errors import InputError


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as everyone writes it: ``1e-6`` is a number too, and a key that comes twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} comes twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def read_experiment_file(location: str) -> dict[str, Any]:
    """The file's mapping: experiment name to its specification.

    A ``.py`` file defines ``config`` (an AgenticConfig), and may define ``stop`` and ``name``.

    Raises:
        InputError: there is no such file, it is no YAML, or no mapping.
    """
    if Path(urlparse(location).path).suffix == ".py":
        return _from_python(location)
    text = _read(location)
    try:
        loaded = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise InputError(f"{location}: this is no valid YAML: {error}") from error
    if not isinstance(loaded, dict) or not loaded:
        raise InputError(
            f"{location}: expected a mapping from an experiment's name to its specification, such as\n"
            f"  my-run:\n    run: GRPO\n    env: frozenlake\n    stop: {{training_iteration: 10}}\n"
            f"got {type(loaded).__name__}: {str(loaded)[:80]!r}"
        )
    return loaded


def _read(location: str) -> str:
    if urlparse(location).scheme in ("http", "https"):
        try:
            with urlopen(location, timeout=30) as answer:
                return answer.read().decode("utf-8")
        except (URLError, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{location}: cannot be read: {error}") from error
    path = Path(location)
    if not path.is_file():
        near = [str(p) for p in sorted(path.parent.glob("*.y*ml"))] if path.parent.is_dir() else []
        hint = f" In that folder: {', '.join(near)}." if near else " See `rllib example list`."
        raise InputError(f"{location}: no such file.{hint}")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{location}: cannot be read: {error}") from error


def _from_python(location: str) -> dict[str, Any]:
    path = Path(location)
    if not path.is_file():
        raise InputError(f"{location}: no such file")
    from rllib_agentic.algorithms.config import AgenticConfig
    from rllib_agentic.algorithms.presets import PRESETS, run_name

    defined = runpy.run_path(str(path))
    config = defined.get("config")
    if not isinstance(config, AgenticConfig):
        raise InputError(f"{location}: expected a variable `config` that is an AgenticConfig, got {config!r}")
    run = run_name(config.algo_class)
    if run not in PRESETS:
        raise InputError(f"{location}: config is for {run}, which is no preset ({', '.join(PRESETS)})")
    return {
        str(defined.get("name", path.stem)): {
            "run": run,
            "env": config.env,
            "stop": dict(defined.get("stop", {})),
            "config": config.changes(),
        }
    }
