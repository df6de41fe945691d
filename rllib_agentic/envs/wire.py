"""The session protocol, version 1: every request and answer, in JSON over HTTP and over deployment handles alike.

A session is one episode, named by its client. Steps are numbered from 1. A request that is repeated gets the
answer it got before, so that a client may send again whatever it is not sure about.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.envs.faults import EnvFault, FaultCode

PROTOCOL_VERSION = 1
MAX_BODY_BYTES = 16 * 2**20
MAX_BATCH = 4096

SessionId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]


def _require_unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"no Unicode text: a lone surrogate at position {error.start}") from None
    return text


Text = Annotated[str, AfterValidator(_require_unicode)]


def routing_key(session_id: str) -> str:
    """The part of a session id that decides which worker holds it: all up to the first dot.

    A client that writes a worker's id there puts the session on that worker, and its batches travel in one call.

    Example:
        >>> routing_key("k3x9.5f2e"), routing_key("5f2e")
        ('k3x9', '5f2e')
    """
    return session_id.partition(".")[0]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class CreateRequest(_Wire):
    """Open a session and reset it to a task."""

    op: Literal["create"] = "create"
    session_id: SessionId
    split: Text
    index: int
    seed: int = 0


class StepRequest(_Wire):
    """Apply an action. ``step`` is 1 for the first one, and one more each time."""

    op: Literal["step"] = "step"
    session_id: SessionId
    step: Annotated[int, Field(ge=1)]
    action: Text


class StateRequest(_Wire):
    """Ask where a session stands, without changing it."""

    op: Literal["state"] = "state"
    session_id: SessionId


class CloseRequest(_Wire):
    """End a session, whatever its state; may be repeated."""

    op: Literal["close"] = "close"
    session_id: SessionId


class RestartRequest(_Wire):
    """Begin an episode under an id that may have had others: for dialects whose sessions outlive their episodes.

    Whatever the session holds is closed. A session that was closed or expired stays so; one that failed begins anew.
    ``nonce`` is new for each restart: a request that is repeated with its nonce gets the answer it got before.
    """

    op: Literal["restart"] = "restart"
    session_id: SessionId
    nonce: str
    split: Text
    index: int
    seed: int = 0


class ActRequest(_Wire):
    """Apply an action as the next step, whatever its number: for dialects that do not number steps.

    ``nonce`` is new for each step: a request that is repeated with its nonce gets the answer it got before.
    """

    op: Literal["act"] = "act"
    session_id: SessionId
    nonce: str
    action: Text


Request = Annotated[
    CreateRequest | StepRequest | StateRequest | CloseRequest | RestartRequest | ActRequest, Field(discriminator="op")
]


class Patience(_Wire):
    """How long to wait before what is not ready is answered ``pending``.

    Attributes:
        wait_s: this long in all,
        linger_s: and this long after the first of the batch is ready.
    """

    wait_s: Annotated[float, Field(ge=0.0, le=60.0)]
    linger_s: Annotated[float, Field(ge=0.0, le=60.0)]


class BatchRequest(_Wire):
    """Requests of many sessions in one call.

    Attributes:
        requests: each is answered, or fails, on its own. Steps of one session run in their order; a close waits for
            nothing.
        patience: how long to wait for the slow ones; what is not ready by then is answered ``pending``, goes on, and
            is had by repeating its request.
    """

    requests: Annotated[list[Request], Field(max_length=MAX_BATCH)]
    patience: Patience = Patience(wait_s=0.01, linger_s=0.01)


class CreateAnswer(_Wire):
    """The task as asked for, and its first observation."""

    kind: Literal["created"] = "created"
    session_id: str
    split: str
    index: int
    seed: int
    observation: Observation


class StepAnswer(_Wire):
    """What the action led to, and the rewards of the episode so far, added up."""

    kind: Literal["stepped"] = "stepped"
    session_id: str
    step: int
    result: StepResult
    total_reward: float


class StateAnswer(_Wire):
    """Where a session stands: steps and rewards so far, whether its episode is over, first and last observation."""

    kind: Literal["state"] = "state"
    session_id: str
    split: str
    index: int
    seed: int
    steps: int
    total_reward: float
    over: bool
    first: Observation
    observation: Observation


class CloseAnswer(_Wire):
    """The session is closed; ``was_open`` tells whether this request closed it."""

    kind: Literal["closed"] = "closed"
    session_id: str
    was_open: bool


class PendingAnswer(_Wire):
    """Not ready within ``wait_s``: repeat the request."""

    kind: Literal["pending"] = "pending"
    session_id: str


class ErrorDetail(_Wire):
    """One failure, for programs (``code``) and for people (``message``)."""

    code: FaultCode
    message: str
    retry_after_s: float | None = None


class ErrorAnswer(_Wire):
    """The body of every failed request."""

    kind: Literal["error"] = "error"
    error: ErrorDetail

    @classmethod
    def of(cls, fault: EnvFault) -> ErrorAnswer:
        """Write a fault down."""
        return cls(error=ErrorDetail(code=fault.code, message=str(fault), retry_after_s=fault.retry_after_s))

    def to_fault(self) -> EnvFault:
        """Read it back."""
        return EnvFault(self.error.code, self.error.message, self.error.retry_after_s)


Answer = Annotated[
    CreateAnswer | StepAnswer | StateAnswer | CloseAnswer | PendingAnswer | ErrorAnswer, Field(discriminator="kind")
]


class BatchAnswer(_Wire):
    """One answer a request, in the order of the requests."""

    answers: list[Answer]


class WorkerHealth(_Wire):
    """One worker.

    Attributes:
        worker_id: a routing key that leads to it.
        sessions: live now.
        max_sessions: slots.
        stuck_calls: calls that never came back.
        address: base URL of the worker's own port, which takes ``/v1/batch`` from those who can reach it; None where
            it has none.
    """

    worker_id: str
    sessions: int
    max_sessions: int
    stuck_calls: int = 0
    address: str | None = None


class HealthAnswer(_Wire):
    """The workers that answered at once."""

    protocol: int = PROTOCOL_VERSION
    env: str
    workers: list[WorkerHealth]


class WorkerMetrics(_Wire):
    """What one worker did since it began.

    Attributes:
        worker_id: a routing key that leads to it.
        sessions: live now.
        sessions_begun: episodes begun.
        sessions_expired: closed because no request came for too long.
        steps: steps answered.
        stuck_calls: calls that never came back.
        errors: failed requests by code.
        reset_latencies: buckets and counts, see :class:`Latencies`; waiting for the session's turn included.
        step_latencies: likewise.
    """

    worker_id: str
    sessions: int
    sessions_begun: int
    sessions_expired: int
    steps: int
    stuck_calls: int
    errors: dict[str, int]
    reset_latencies: list[tuple[int, int]]
    step_latencies: list[tuple[int, int]]


class MetricsAnswer(_Wire):
    """What the workers that answered at once did."""

    env: str
    workers: list[WorkerMetrics]


class ResetAnswer(_Wire):
    """After a full reset: how many sessions it ended."""

    sessions_closed: int


class SchemaAnswer(_Wire):
    """What a client must know before the first episode, and the limits of the service."""

    protocol: int = PROTOCOL_VERSION
    env: EnvSchema
    ttl_s: float
    call_timeout_s: float
    max_body_bytes: int = MAX_BODY_BYTES
