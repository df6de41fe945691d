"""Why env runners died, for the message that stops a run: on which node, for what reason, and where the logs are."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

from ray._private import worker
from ray.exceptions import OutOfMemoryError

_NODE = re.compile(r"\bip: ?([0-9a-fA-F.:]+)", re.IGNORECASE)
_PID = re.compile(r"\bpid[:=] ?(\d+)")
_DETAILS = re.compile(r"^\s*(?:class_name|actor_id|pid|name|namespace|ip|node_id|job_id|repr)\s*[:=].*$", re.MULTILINE)
_MOST_REASON = 700


class RunnerDeaths:
    """The latest deaths of runners."""

    def __init__(self, most: int = 3) -> None:
        self._latest: deque[str] = deque(maxlen=most)

    def add(self, runner: int, error: Exception) -> None:
        """Take in what Ray said when a runner did not answer."""
        self._latest.append(f"env runner {runner}: {describe_death(error)}")

    def __str__(self) -> str:
        if not self._latest:
            return f"their logs name the cause: {_logs_of(None)}"
        return "\n".join(("the latest:", *(f"  {death}" for death in self._latest)))


def describe_death(error: Exception) -> str:
    r"""Node, reason and log of an actor's death, in a sentence each.

    Example:
        >>> text = "The actor died unexpectedly.\n\tpid: 7\n\tip: 10.0.0.1\nWorker exit type: SYSTEM_ERROR"
        >>> describe_death(RuntimeError(text))  # doctest: +ELLIPSIS
        'node 10.0.0.1; reason: The actor died unexpectedly. Worker exit type: SYSTEM_ERROR; log: .../worker-*-7.err'
    """
    text = str(error)
    node, pid = _NODE.search(text), _PID.search(text)
    reason = " ".join(_DETAILS.sub("", text).split())
    if len(reason) > _MOST_REASON:
        reason = f"{reason[:_MOST_REASON]}..."
    advice = ""
    if isinstance(error, OutOfMemoryError):
        advice = "; lower rollout.max_concurrent_episodes or engine.max_cached_tokens, or give the runners more memory"
    where = node[1].rstrip(".:") if node else "unknown"
    return f"node {where}; reason: {reason}; log: {_logs_of(pid and pid[1])}{advice}"


def _logs_of(pid: str | None) -> str:
    node = worker.global_worker.node
    folder = Path(node.get_logs_dir_path() if node is not None else "/tmp/ray/session_latest/logs")
    return str(folder if pid is None else folder / f"worker-*-{pid}.err")
