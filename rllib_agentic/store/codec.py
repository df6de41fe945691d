"""Trajectories to Arrow columns and back, exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rllib_agentic.store.schema import SCHEMA, SCHEMA_VERSION
from rllib_agentic.trajectory import FinishReason, LegalTokens, Message, Task, ToolCall, Trajectory, Turn

Advantages = Sequence["np.ndarray | float"]

_SURROGATE = re.compile("[\ud800-\udfff]")


def encode(
    trajectories: Sequence[Trajectory],
    *,
    attempt: int,
    kept: Sequence[bool] | None,
    advantages: Sequence[Advantages | None] | None,
) -> pa.Table:
    """One Arrow row a turn, in :data:`~rllib_agentic.store.schema.SCHEMA`; one row where there is no turn."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for number, trajectory in enumerate(trajectories):
        shared = {
            "schema_version": SCHEMA_VERSION,
            "attempt": attempt,
            "trajectory": number,
            "env": trajectory.task.env,
            "split": trajectory.task.split,
            "task_index": trajectory.task.index,
            "task_seed": trajectory.task.seed,
            "group_id": trajectory.group_id,
            "member": trajectory.member,
            "terminated": trajectory.terminated,
            "truncated": trajectory.truncated,
            "success": trajectory.success,
            "end_reason": trajectory.end_reason,
            "invalid": trajectory.invalid,
            "num_turns": len(trajectory.turns),
            "total_reward": trajectory.total_reward,
            "kept": None if kept is None else bool(kept[number]),
        }
        trained = None if advantages is None else advantages[number]
        for i, turn in enumerate(trajectory.turns or (None,)):
            row = dict(shared)
            if i == 0:
                row["prompt"] = _dump([message_to_json(m) for m in trajectory.prompt])
                row["trajectory_metrics"] = _dump(dict(trajectory.metrics))
            if turn is not None:
                row |= _turn_to_row(i, turn, None if trained is None else trained[i])
            for name, column in columns.items():
                column.append(row.get(name))
    return pa.table({field.name: _column(columns[field.name], field.type) for field in SCHEMA}, schema=SCHEMA)


def decode_trajectory(rows: Sequence[Mapping[str, Any]]) -> Trajectory:
    """The trajectory whose rows these are, in order; list columns are numpy arrays of the stored type."""
    first = rows[0]
    return Trajectory(
        task=Task(first["env"], first["split"], first["task_index"], first["task_seed"]),
        group_id=first["group_id"],
        member=first["member"],
        prompt=_load_messages(first["prompt"]),
        turns=tuple(_row_to_turn(row) for row in rows if row["turn"] is not None),
        terminated=first["terminated"],
        truncated=first["truncated"],
        success=first["success"],
        end_reason=first["end_reason"],
        invalid=first["invalid"],
        metrics=json.loads(first["trajectory_metrics"]),
    )


def _turn_to_row(number: int, turn: Turn, advantages: np.ndarray | float | None) -> dict[str, Any]:
    legal = turn.legal_tokens
    return {
        "turn": number,
        "segment": turn.segment,
        "context_ids": turn.context_ids,
        "action_ids": turn.action_ids,
        "logprobs": turn.logprobs,
        "policy_versions": turn.policy_versions,
        "finish_reason": turn.finish_reason.value,
        "text": _SURROGATE.sub("\ufffd", turn.text),
        "observation": _dump([message_to_json(m) for m in turn.observation]),
        "reward": float(turn.reward),
        "rewards": list(turn.rewards.items()),
        "legal_offsets": None if legal is None else legal.offsets,
        "legal_ids": None if legal is None else legal.ids,
        "state_key": turn.state_key,
        "turn_metrics": _dump(dict(turn.metrics)),
        "advantages": None
        if advantages is None
        else np.broadcast_to(np.asarray(advantages, np.float32), len(turn.action_ids)),
    }


def _row_to_turn(row: Mapping[str, Any]) -> Turn:
    offsets = row["legal_offsets"]
    return Turn(
        context_ids=row["context_ids"],
        action_ids=row["action_ids"],
        logprobs=row["logprobs"],
        policy_versions=row["policy_versions"],
        finish_reason=FinishReason(row["finish_reason"]),
        segment=row["segment"],
        text=row["text"],
        observation=_load_messages(row["observation"]),
        reward=row["reward"],
        rewards=dict(row["rewards"]),
        legal_tokens=None if offsets is None else LegalTokens(offsets, row["legal_ids"]),
        state_key=row["state_key"],
        metrics=json.loads(row["turn_metrics"]),
    )


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """A column; numeric lists go through one flat numpy buffer, which keeps float32 bits and is fast."""
    if not (pa.types.is_list(kind) and not isinstance(kind, pa.MapType)):
        return pa.array(values, kind)
    dtype = kind.value_type.to_pandas_dtype()
    present = [np.asarray(v, dtype) for v in values if v is not None]
    flat = pa.array(np.concatenate(present) if present else np.zeros(0, dtype), kind.value_type)
    offsets = np.concatenate([[0], np.cumsum([0 if v is None else len(v) for v in values])])
    null = np.array([v is None for v in values], bool)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, type=kind, mask=pa.array(null))


def message_to_json(message: Message) -> dict[str, Any]:
    """The stored form of a message; empty fields are left out."""
    entry: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        entry["reasoning"] = message.reasoning
    if message.tool_calls:
        entry["tool_calls"] = [{"name": c.name, "arguments": dict(c.arguments)} for c in message.tool_calls]
    if message.name is not None:
        entry["name"] = message.name
    if message.continues:
        entry["continues"] = True
    return entry


def _load_messages(text: str) -> tuple[Message, ...]:
    return tuple(
        Message(
            role=entry["role"],
            content=entry["content"],
            reasoning=entry.get("reasoning"),
            tool_calls=tuple(ToolCall(c["name"], c["arguments"]) for c in entry.get("tool_calls", ())),
            name=entry.get("name"),
            continues=entry.get("continues", False),
        )
        for entry in json.loads(text)
    )


def _dump(value: Any) -> str:
    """JSON with real characters; lone surrogates, which UTF-8 cannot hold, stay escapes."""
    text = json.dumps(value, ensure_ascii=False, default=_plain)
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _plain(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
