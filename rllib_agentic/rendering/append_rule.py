"""What a chat template does to earlier turns when messages are appended: found by trying, per sequence of roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Entry = dict[str, Any]

USER: Entry = {"role": "user", "content": "qzuser"}
ANSWER = "qzanswer"
THOUGHT = "qzthought"
PLAIN: Entry = {"role": "assistant", "content": ANSWER}
THOUGHT_FIELD: Entry = PLAIN | {"reasoning": THOUGHT, "reasoning_content": THOUGHT}
THOUGHT_INLINE: Entry = {"role": "assistant", "content": f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"}
SYSTEM: Entry = {"role": "system", "content": "qzsystem"}
TOOLS: list[Entry] = [
    {
        "type": "function",
        "function": {
            "name": "qztool",
            "description": "qz",
            "parameters": {"type": "object", "properties": {"x": {"type": "string", "description": "qz"}}},
        },
    }
]


class RenderText(Protocol):
    """Runs the template over plain dicts; raises InputError where the template refuses them."""

    def __call__(self, entries: Sequence[Entry], *, tools: Sequence[Entry] = (), prompt: bool = True) -> str:
        """The rendered text, with the generation prompt unless ``prompt`` is false."""
        ...


@dataclass(frozen=True, slots=True)
class AppendRule:
    """How messages of certain roles follow an assistant turn.

    Attributes:
        history: entries after which new messages are rendered, to read the bridge off; the last is the answer.
        prefix: what every such rendering must begin with, up to the end of the answer.
        broken: why the earlier context does not stay a prefix; None where it does.
        broken_with_tools: the same for contexts with tool definitions.
        keeps_reasoning: whether reasoning of earlier turns survives the new messages.
    """

    history: tuple[Entry, ...]
    prefix: str
    broken: str | None
    broken_with_tools: str | None
    keeps_reasoning: bool


def find_append_rule(
    render: RenderText, roles: Sequence[str], *, thoughtful: Entry, with_system: bool, with_tools: bool
) -> AppendRule:
    """Try out what appending messages of these roles does.

    Earlier context must stay as it was, and the tail must not depend on what came before: with and without a system
    message and tools, after one exchange and after two, after answers with and without reasoning.

    Args:
        render: runs the template.
        roles: of the new messages, in order.
        thoughtful: an answer with reasoning, in the form that the template shows.
        with_system: whether the template takes a system message.
        with_tools: whether it shows tool definitions.

    Raises:
        InputError: the template refuses such messages.
    """
    new = [{"role": role, "content": f"qznew{number}"} for number, role in enumerate(roles)]
    head = render([USER])
    after = render([USER, thoughtful, *new])
    keeps_reasoning = after.startswith(head) and THOUGHT in after and ANSWER in after
    kept = thoughtful if keeps_reasoning else PLAIN
    after = render([USER, kept, *new])
    prefix, found, tail = after.rpartition(ANSWER)
    prefix += found
    answers = [PLAIN, thoughtful] if keeps_reasoning else [PLAIN]

    def broken(tools: Sequence[Entry]) -> str | None:
        starts: list[list[Entry]] = [[USER], [SYSTEM, USER]] if with_system else [[USER]]
        for start in starts:
            for first in answers:
                fault = _fault(render, start, first, new, tail, tools)
                for second in answers if new else ():
                    fault = fault or _fault(render, [*start, first, *new], second, new, tail, tools)
                if fault:
                    return fault
        return None

    without_tools = broken(())
    return AppendRule(
        history=(USER, kept),
        prefix=prefix,
        broken=without_tools,
        broken_with_tools=broken(TOOLS) if with_tools else without_tools,
        keeps_reasoning=keeps_reasoning,
    )


def _fault(
    render: RenderText, before: Sequence[Entry], answer: Entry, new: Sequence[Entry], tail: str, tools: Sequence[Entry]
) -> str | None:
    context = render(before, tools=tools)
    after = render([*before, answer, *new], tools=tools)
    roles = " ".join(entry["role"] for entry in before)
    if not after.startswith(context):
        return f"the context of the turn after '{roles}' changes"
    said, found, rest = after[len(context) :].partition(ANSWER)
    if not found or (answer is PLAIN and said):
        return f"the answer after '{roles}' does not follow the generation prompt"
    if rest != tail:
        return f"what follows an answer depends on the turns before it ('{roles}')"
    return None
