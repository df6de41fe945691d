r"""Finding the answer in what a model wrote: the last ``\boxed{...}`` outside of reasoning."""

from __future__ import annotations

_BOX = r"\boxed"


def boxed_answer(text: str, think_start: str = "<think>", think_end: str = "</think>") -> str | None:
    r"""The content of the last box, or None where there is no answer.

    Reasoning is no answer: only what follows its end is looked at, and nothing where it has no end. Braces are counted,
    escaped ones apart. The last box decides, even where it is empty or not closed: then there is no answer. A box
    without braces (``\boxed 7``) is none.

    Args:
        text: the final turn of the model.
        think_start: what opens reasoning.
        think_end: what closes it.

    Example:
        >>> boxed_answer(r"First \boxed{1}, but then \boxed{\sqrt{\frac{a}{b}}}.")
        '\\sqrt{\\frac{a}{b}}'
        >>> print(boxed_answer(r"\boxed{1} or \boxed{3"), boxed_answer(r"<think>\boxed{4} or"))
        None None
    """
    if think_end in text:
        text = text[text.rindex(think_end) + len(think_end) :]
    if think_start in text:
        text = text[: text.index(think_start)]
    start = text.rfind(_BOX)
    if start < 0:
        return None
    content = _braced(text, start + len(_BOX))
    return content.strip() or None if content is not None else None


def _braced(text: str, at: int) -> str | None:
    opening = at + len(text[at:]) - len(text[at:].lstrip())
    if text[opening : opening + 1] != "{":
        return None
    depth, position = 0, opening
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
            continue
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[opening + 1 : position]
        position += 1
    return None
