"""The tool ``python``: code that the model writes, run in the sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_agentic.sandbox.observation import OutputShape
from rllib_agentic.sandbox.sandbox import Execution, Session
from rllib_agentic.sandbox.settings import SandboxSettings
from rllib_agentic.sandbox.shared import shared_sandbox
from rllib_agentic.tools.tool import ToolResult

_PARAMETERS = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "Python; what it prints comes back."}},
    "required": ["code"],
    "additionalProperties": False,
}


class PythonTool:
    """Runs code, and gives back its output in the shape that is asked for. One object for one episode at a time.

    Every result has under ``metadata["metrics"]`` the numbers ``code_runs`` and ``code_ok``, and ``code_corrected`` for
    a run that succeeds after one that failed.

    Args:
        settings: of the sandbox; tools of equal settings share one, started at the first call.
        shape: how an execution becomes text.
        persist: whether calls of one episode share their variables.

    Example:
        >>> import asyncio
        >>> python = PythonTool(SandboxSettings(packages=()))
        >>> asyncio.run(python.execute({"code": "print(6 * 7)"})).text
        '42'
    """

    name = "python"
    parameters: Mapping[str, Any] = _PARAMETERS

    def __init__(
        self, settings: SandboxSettings | None = None, shape: OutputShape | None = None, persist: bool = False
    ) -> None:
        self._settings = settings or SandboxSettings()
        self._shape = shape or OutputShape()
        self._persist = persist
        self._session: Session | None = None
        self._seed = 0
        self._failed_last = False

    @property
    def description(self) -> str:
        """What the agent is told."""
        memory = "Variables stay from run to run." if self._persist else "Every run starts anew, without variables."
        return f"Runs Python. Only what is printed comes back. {memory}"

    async def execute(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run ``arguments["code"]``.

        Raises:
            InfrastructureError: the sandbox failed; the episode is invalid.
            InputError: no isolation works here.
        """
        execution = await self._run(arguments["code"])
        corrected = execution.ok and self._failed_last
        self._failed_last = not execution.ok
        metrics = {"code_runs": 1.0, "code_ok": float(execution.ok), "code_corrected": float(corrected)}
        return ToolResult(self._shape(execution), metadata={"metrics": metrics, "error": execution.error})

    def begin(self, seed: int) -> None:
        """Begin an episode: no variables, this seed for its random numbers."""
        self.end()
        self._seed = seed

    def end(self) -> None:
        """Forget the episode and free what it holds. Any number of times."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
        self._failed_last = False

    async def _run(self, code: str) -> Execution:
        sandbox = shared_sandbox(self._settings)
        if not self._persist:
            return await sandbox.arun(code, seed=self._seed)
        if self._session is None:
            self._session = sandbox.session(seed=self._seed)
        return await self._session.arun(code)
