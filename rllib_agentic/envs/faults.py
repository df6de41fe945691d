"""What can go wrong with an environment, as a small closed set of codes, and what each means to the client."""

from __future__ import annotations

from enum import StrEnum

from rllib_agentic.errors import AgenticError, InfrastructureError, InputError


class FaultCode(StrEnum):
    """Every way in which a request can fail; part of the protocol."""

    BAD_JSON = "bad_json"  # not UTF-8, or not JSON
    NOT_FOUND = "not_found"  # no such path or method
    UNKNOWN_SESSION = "unknown_session"  # never seen here, or its replica is gone
    SESSION_CLOSED = "session_closed"  # closed, expired or lost
    SESSION_EXISTS = "session_exists"  # created before for another task
    WRONG_STEP = "wrong_step"  # not the next step, nor a repeat of the last
    EPISODE_OVER = "episode_over"  # a step after the end
    TOO_LARGE = "too_large"  # the request body
    BAD_INPUT = "bad_input"  # a field, a split or an index
    FULL = "full"  # no free slot: come back later
    ENV_FAILED = "env_failed"  # the environment's own code raised
    ENV_TIMEOUT = "env_timeout"  # the environment's own code did not come back
    ENV_LOST = "env_lost"  # what the environment ran on died under it: a JVM, a browser
    UNREACHABLE = "unreachable"  # no answer from the service, or from the worker behind it
    BAD_ANSWER = "bad_answer"  # an answer, but not of this protocol


HTTP_STATUS: dict[FaultCode, int] = {
    FaultCode.BAD_JSON: 400,
    FaultCode.NOT_FOUND: 404,
    FaultCode.UNKNOWN_SESSION: 404,
    FaultCode.SESSION_CLOSED: 410,
    FaultCode.SESSION_EXISTS: 409,
    FaultCode.WRONG_STEP: 409,
    FaultCode.EPISODE_OVER: 409,
    FaultCode.TOO_LARGE: 413,
    FaultCode.BAD_INPUT: 422,
    FaultCode.FULL: 429,
    FaultCode.ENV_FAILED: 500,
    FaultCode.ENV_LOST: 410,
    FaultCode.ENV_TIMEOUT: 504,
    FaultCode.UNREACHABLE: 503,
    FaultCode.BAD_ANSWER: 502,
}

_KINDS: dict[FaultCode, str] = {
    FaultCode.UNKNOWN_SESSION: "session_lost",
    FaultCode.SESSION_CLOSED: "session_lost",
    FaultCode.ENV_LOST: "session_lost",
    FaultCode.FULL: "env_full",
    FaultCode.ENV_FAILED: "env_error",
    FaultCode.ENV_TIMEOUT: "env_timeout",
    FaultCode.NOT_FOUND: "env_error",
    FaultCode.TOO_LARGE: "env_error",
    FaultCode.UNREACHABLE: "env_unreachable",
    FaultCode.BAD_ANSWER: "env_error",
}


class EnvFault(AgenticError):
    """A request to an environment failed in one of the known ways.

    Args:
        code: which way.
        message: what came, what was expected, what to do.
        retry_after_s: seconds after which the same request may work, where that is known.
    """

    def __init__(self, code: FaultCode, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s

    def to_client_error(self, address: str) -> AgenticError:
        """The error that the rollout sees: ours, the service's, or (wrong or late steps) a bug of the caller.

        Args:
            address: the service, for the message.
        """
        message = f"environment {address}: {self}"
        if self.code is FaultCode.BAD_INPUT:
            return InputError(message)
        if kind := _KINDS.get(self.code):
            return InfrastructureError(kind, message)
        return self
