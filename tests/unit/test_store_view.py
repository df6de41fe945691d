"""A stored trajectory for people (UX05): segments, mask, reward, finish reason; 1 means trained, in every form."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import numpy as np
from rich.console import Console

from rllib_agentic.store import StoredTrajectory, as_dict, as_html, as_renderable, as_text
from rllib_agentic.trajectory import FinishReason, Message, Task, Trajectory, Turn


def turn(context: list[int], action: list[int], segment: int, text: str, answer: str, reward: float) -> Turn:
    return Turn(
        np.array(context, np.int32),
        np.array(action, np.int32),
        np.zeros(len(action), np.float32),
        np.full(len(action), 3, np.int32),
        FinishReason.LENGTH if segment else FinishReason.STOP,
        segment,
        text,
        (Message("user", answer),),
        reward,
        {"format": reward},
    )


def episode() -> Trajectory:
    turns = (
        turn([1, 2, 3], [4, 5], 0, "go [red]left[/red]", "wall \x1b[31m", 0.0),
        turn([6], [7], 0, "go up", "you <b>won</b>", 0.5),
        turn([8, 9], [10, 11, 12], 1, "done", "bye", 1.0),
    )
    prompt = (Message("system", "rules"), Message("user", "карта"))
    return Trajectory(Task("maze", "train", 4), "g", 2, prompt, turns, True, False, True, "terminated")


def words(ids: Sequence[int]) -> str:
    return " ".join(f"<{i}>" for i in ids)


def test_dict_has_mask_segments_reward_and_finish_reason() -> None:
    view = json.loads(json.dumps(as_dict(episode(), decode=words, ids=True)))
    assert view["reward"] == 1.5 and view["outcome"] == "terminated" and view["success"] is True
    assert [s["mask"] for s in view["segments"]] == [[0, 0, 0, 1, 1, 0, 1], [0, 0, 1, 1, 1]]
    assert [s["token_ids"] for s in view["segments"]] == [[1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12]]
    turns = [t for s in view["segments"] for t in s["turns"]]
    assert [t["finish_reason"] for t in turns] == ["stop", "stop", "length"]
    assert [t["reward"] for t in turns] == [0.0, 0.5, 1.0]
    assert turns[0]["spans"] == [
        {"trained": False, "tokens": 3, "text": "<1> <2> <3>", "ids": [1, 2, 3]},
        {"trained": True, "tokens": 2, "text": "<4> <5>", "ids": [4, 5]},
    ]


def test_without_a_tokenizer_the_texts_are_shown_where_they_were_read() -> None:
    segments = as_dict(episode())["segments"]
    shown = [[span["text"] for span in t["spans"]] for s in segments for t in s["turns"]]
    assert shown[0] == ["system: rules\nuser: карта", "go [red]left[/red]"]
    assert shown[1] == ["user: wall \x1b[31m", "go up"]
    assert shown[2][0].endswith("\nuser: you <b>won</b>") and "written anew" in shown[2][0]
    assert segments[1]["unseen"] == [{"role": "user", "content": "bye"}]
    assert "ids" not in segments[0]["turns"][0]["spans"][0]


def test_plain_text_marks_every_line_and_defuses_control_characters() -> None:
    text = as_text(StoredTrajectory(12, 5, 1, episode(), kept=False))
    assert "iteration 12 trajectory 5" in text and "filtered out: not trained" in text
    lines = text.split("\n")
    assert "> go [red]left[/red]" in lines and "| user: карта" in lines
    assert "\x1b" not in text and "| user: wall \\x1b[31m" in lines
    assert "segment 0: 7 tokens, 3 trained" in text and "finish length" in text


def test_terminal_colours_differ_and_markup_stays_text() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=100)
    console.print(as_renderable(episode()))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[1;32m> go [red]left[/red]\x1b[0m" in shown  # bold green: trained
    assert "\x1b[2m| user: карта\x1b[0m" in shown  # dim: masked


def test_advantages_are_shown_as_trained() -> None:
    advantages = (np.array([1.0, 2.0], np.float32), np.array([-1.0], np.float32), np.zeros(3, np.float32))
    stored = StoredTrajectory(1, 0, 1, episode(), True, advantages)
    assert as_dict(stored)["segments"][0]["turns"][0]["advantages"] == [1.0, 2.0]
    assert "advantage +1.5" in as_text(stored)


def test_an_invalid_trajectory_without_turns_shows_its_prompt() -> None:
    lost = Trajectory(Task("m", "t", 0), "g", 0, (Message("user", "hi"),), (), False, False, False, "lost", "lost")
    assert as_dict(lost)["segments"] == []
    assert "invalid (lost)" in as_text(lost) and "| user: hi" in as_text(lost)


def test_page_is_self_contained_and_escapes_what_environments_say() -> None:
    page = as_html([as_dict(episode()), as_dict(episode())], title="a & b")
    assert page.startswith("<!doctype html>") and page.count("<details") == 2 and page.count("<details open>") == 1
    assert "you &lt;b&gt;won&lt;/b&gt;" in page and "<b>won" not in page and "a &amp; b" in page
    assert "http" not in page and "<script" not in page
    assert '<pre class="trained">go up</pre>' in page and '<pre class="masked">system: rules' in page
