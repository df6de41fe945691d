"""One trajectory for people: as a conversation in the terminal, as plain text, as JSON.

In every form *mask 1 means trained*: the policy sampled the token. Mask 0 is context: prompt, observations and
what the template adds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from rllib_agentic.store.codec import message_to_json
from rllib_agentic.store.reader import StoredTrajectory
from rllib_agentic.trajectory import Trajectory

Decode = Callable[[Sequence[int]], str]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MASKED, _TRAINED, _NOTE = "dim", "bold green", "cyan"


def as_dict(shown: StoredTrajectory | Trajectory, *, decode: Decode | None = None, ids: bool = False) -> dict[str, Any]:
    """The trajectory as a JSON-able dict: outcome, ``reward``, ``prompt`` and ``segments``.

    Each segment has its ``mask`` (one 0 or 1 a token, 1 = trained) and its ``turns``; each turn has
    ``finish_reason``, ``reward`` and two ``spans`` (context, then action) with ``trained``, ``tokens`` and ``text``.

    Args:
        shown: from a reader, or straight from a rollout.
        decode: token ids to text. Without it the spans show the messages and the agent's decoded text; with it
            they show exactly what the model saw, control tokens included.
        ids: whether to add the token ids of each segment and span.
    """
    stored = shown if isinstance(shown, StoredTrajectory) else None
    trajectory = shown.trajectory if isinstance(shown, StoredTrajectory) else shown
    task = trajectory.task
    known = {"iteration": stored.iteration, "number": stored.number, "kept": stored.kept} if stored else {}
    return {
        **known,
        "task": {"env": task.env, "split": task.split, "index": task.index, "seed": task.seed},
        "group_id": trajectory.group_id,
        "member": trajectory.member,
        "outcome": _outcome(trajectory),
        "success": trajectory.success,
        "end_reason": trajectory.end_reason,
        "reward": trajectory.total_reward,
        "metrics": dict(trajectory.metrics),
        "prompt": [message_to_json(m) for m in trajectory.prompt],
        "segments": [_segment(trajectory, turns, stored, decode, ids) for turns in _segments(trajectory)],
    }


def as_text(shown: StoredTrajectory | Trajectory, *, decode: Decode | None = None, ids: bool = False) -> str:
    """The conversation as plain text: ``|`` stands before masked lines, ``>`` before trained ones."""
    return "\n".join(text.plain for _, text in _lines(as_dict(shown, decode=decode, ids=ids))) + "\n"


def as_renderable(
    shown: StoredTrajectory | Trajectory, *, decode: Decode | None = None, ids: bool = False
) -> RenderableType:
    """The conversation for ``rich.console.Console.print``: masked text dim, trained text bold and green."""
    return Group(
        *(
            Rule(text, style=_NOTE, align="left") if is_rule else text
            for is_rule, text in _lines(as_dict(shown, decode=decode, ids=ids))
        )
    )


def _outcome(trajectory: Trajectory) -> str:
    if trajectory.invalid is not None:
        return f"invalid ({trajectory.invalid})"
    return "terminated" if trajectory.terminated else "truncated" if trajectory.truncated else "stopped"


def _segments(trajectory: Trajectory) -> list[list[int]]:
    """Numbers of the turns of each segment, in order."""
    segments: dict[int, list[int]] = {}
    for i, turn in enumerate(trajectory.turns):
        segments.setdefault(turn.segment, []).append(i)
    return list(segments.values())


def _segment(
    trajectory: Trajectory, numbers: list[int], stored: StoredTrajectory | None, decode: Decode | None, ids: bool
) -> dict[str, Any]:
    turns = [trajectory.turns[i] for i in numbers]
    segment: dict[str, Any] = {
        "segment": turns[0].segment,
        "mask": [bit for t in turns for bit in [0] * len(t.context_ids) + [1] * len(t.action_ids)],
    }
    if ids:
        segment["token_ids"] = trajectory.segment_ids(turns[0].segment).tolist()
    segment["turns"] = [
        {
            "turn": i,
            "finish_reason": turn.finish_reason.value,
            "reward": turn.reward,
            "rewards": dict(turn.rewards),
            "policy_versions": sorted({int(v) for v in turn.policy_versions}),
            "metrics": dict(turn.metrics),
            "advantages": stored.advantages[i].tolist() if stored and stored.advantages else None,
            "spans": [
                _span(turn.context_ids, False, _context_text(trajectory, i, i == numbers[0]), decode, ids),
                _span(turn.action_ids, True, turn.text, decode, ids),
            ],
        }
        for i, turn in zip(numbers, turns, strict=True)
    ]
    last = numbers[-1]
    if last == len(trajectory.turns) - 1 and trajectory.turns[last].observation:
        segment["unseen"] = [message_to_json(m) for m in trajectory.turns[last].observation]
    return segment


def _span(span_ids: Any, trained: bool, text: str, decode: Decode | None, ids: bool) -> dict[str, Any]:
    plain = [int(i) for i in span_ids]
    span = {"trained": trained, "tokens": len(plain), "text": decode(plain) if decode else text}
    return {**span, "ids": plain} if ids else span


def _context_text(trajectory: Trajectory, number: int, opens: bool) -> str:
    """The messages behind a turn's context tokens, as far as the stored texts can tell."""
    if number == 0:
        return _messages_text([message_to_json(m) for m in trajectory.prompt])
    answer = [message_to_json(m) for m in trajectory.turns[number - 1].observation]
    rewritten = "(the context was written anew; decode the ids to see all of it)\n" if opens else ""
    return rewritten + _messages_text(answer)


def _messages_text(messages: Sequence[dict[str, Any]]) -> str:
    parts = []
    for m in messages:
        speaker = f"{m['role']} {m['name']}" if "name" in m else m["role"]
        calls = "".join(f"\n{call['name']}({call['arguments']})" for call in m.get("tool_calls", ()))
        parts.append(f"{speaker}: {m.get('reasoning', '')}{m['content']}{calls}")
    return "\n".join(parts)


def _lines(view: dict[str, Any]) -> Iterator[tuple[bool, Text]]:
    """The view, line by line: whether the line is a rule, and its text."""
    task = view["task"]
    place = f"iteration {view['iteration']} trajectory {view['number']}, " if "iteration" in view else ""
    yield True, Text(f"{place}{task['env']}/{task['split']} task {task['index']} seed {task['seed']}")
    solved = "solved" if view["success"] else "not solved"
    filtered = ", filtered out: not trained" if view.get("kept") is False else ""
    yield (
        False,
        Text(
            f"{solved}, {view['outcome']} ({view['end_reason']}), reward {view['reward']:g}, "
            f"group {view['group_id']} member {view['member']}{filtered}",
            _NOTE,
        ),
    )
    if not view["segments"]:
        yield from _quoted("| ", _messages_text(view["prompt"]), _MASKED)
    for segment in view["segments"]:
        mask = segment["mask"]
        yield True, Text(f"segment {segment['segment']}: {len(mask)} tokens, {sum(mask)} trained")
        for turn in segment["turns"]:
            for span in turn["spans"]:
                yield from _span_lines(turn, span)
            components = ", ".join(f"{name} {value:g}" for name, value in turn["rewards"].items())
            yield False, Text(f"reward {turn['reward']:g}{f' ({components})' if components else ''}", _NOTE)
        if "unseen" in segment:
            yield False, Text("the environment's last answer, which the model never saw", _NOTE)
            yield from _quoted("| ", _messages_text(segment["unseen"]), _MASKED)


def _span_lines(turn: dict[str, Any], span: dict[str, Any]) -> Iterator[tuple[bool, Text]]:
    if span["trained"]:
        advantages = turn["advantages"]
        mean = f", advantage {sum(advantages) / len(advantages):+.3g}" if advantages else ""
        label = f"turn {turn['turn']}: {span['tokens']} trained tokens, finish {turn['finish_reason']}{mean}"
    else:
        label = f"turn {turn['turn']}: {span['tokens']} masked tokens"
    yield False, Text(label, _NOTE)
    if "ids" in span:
        yield False, Text(f"ids {span['ids']}", _NOTE)
    yield from _quoted("> " if span["trained"] else "| ", span["text"], _TRAINED if span["trained"] else _MASKED)


def _quoted(prefix: str, text: str, style: str) -> Iterator[tuple[bool, Text]]:
    for line in text.split("\n"):
        yield False, Text(prefix + _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", line), style)
