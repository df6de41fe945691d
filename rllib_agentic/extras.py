"""How a missing extra of this package is installed, for messages."""

from __future__ import annotations

from pathlib import Path


def pip_install(extra: str = "") -> str:
    """The command: of this checkout where the package runs from one, else by the package's name.

    Example:
        >>> pip_install("smollm").startswith("pip install "), "[smollm]'" in pip_install("smollm")
        (True, True)
    """
    extras = f"[{extra}]" if extra else ""
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").is_file():
        return f"pip install -e '{checkout}{extras}'"
    return f"pip install 'rllib-agentic{extras}'"
