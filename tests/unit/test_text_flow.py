"""Text while it is sampled: nothing is shown that changes later, and all of it in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from serve_envs.inference_stream import TextFlow, event, merged


def decode(ids: Sequence[int]) -> str:
    """Ids are bytes of UTF-8, as they are for a byte-level tokenizer without merges."""
    return bytes(ids).decode(errors="replace")


@pytest.mark.parametrize("step", [1, 2, 5])
@pytest.mark.parametrize("text", ["plain words, twice", "naïve - 你好 🎈🎈!", "", "ends in half \ufffd"])
def test_pieces_add_up_to_the_text_and_none_ends_in_half_a_character(text: str, step: int) -> None:
    ids, flow, pieces = list(text.encode()), TextFlow(decode, ()), []
    for at in range(0, len(ids), step):
        pieces.append(flow.push(ids[at : at + step]))
    assert not any(piece.endswith("\ufffd") for piece in pieces)
    assert "".join([*pieces, flow.end(decode(ids))]) == text
    if "\ufffd" not in text:
        assert "".join(pieces) == text  # nothing is held back for longer than it must


def test_a_stop_string_is_never_shown_not_even_its_first_half() -> None:
    flow, shown = TextFlow(decode, ["</end>", "STOP"]), ""
    for character in "a < b </end":
        shown += flow.push(character.encode())
        assert shown in ("a", "a ", "a < b", "a < b ", "a < ")
    shown += flow.push(b">")
    assert shown == "a < b " and flow.push(b" more") == ""
    assert flow.end("a < b ") == ""
    other = TextFlow(decode, ["STOP"])
    assert other.push(b"STO") == "" and other.push(b"RY") == "STORY"  # it was none


def test_flows_are_merged_as_they_come_and_an_error_ends_all() -> None:
    async def play() -> None:
        gate, ended = asyncio.Event(), []

        async def flow(name: str, fails: bool = False) -> AsyncIterator[str]:
            try:
                yield f"{name}1"
                await gate.wait()
                if fails:
                    raise ValueError(name)
                yield f"{name}2"
                await asyncio.sleep(0 if not fails else 60)
            finally:
                ended.append(name)

        seen = []
        async for item in merged([flow("a"), flow("b")]):
            seen.append(item)
            if len(seen) == 2:
                gate.set()
        assert sorted(seen) == [(0, "a1"), (0, "a2"), (1, "b1"), (1, "b2")] and sorted(ended) == ["a", "b"]
        ended.clear()
        with pytest.raises(ValueError, match="b"):
            async for _ in merged([flow("a"), flow("b", fails=True)]):
                pass
        assert sorted(ended) == ["a", "b"]
        ended.clear()
        gate.clear()
        left = merged([flow("a"), flow("b")])
        await anext(left)
        await left.aclose()  # who stops listening ends what runs
        assert sorted(ended) == ["a", "b"]

    asyncio.run(asyncio.wait_for(play(), 20))


def test_events() -> None:
    assert event({"a": "ü\n"}) == 'data: {"a": "ü\\n"}\n\n' and event("[DONE]") == "data: [DONE]\n\n"
