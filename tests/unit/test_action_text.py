from __future__ import annotations

import pytest

from serve_envs.action_text import extract_action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Up", "Up"),
        ("  get 2 oak logs.\n", "get 2 oak logs"),
        ("Thought: I need wood.\nAction: get 2 oak logs", "get 2 oak logs"),
        ("Thought: the Action: line comes next\nAction:\n\n craft 4 stick\nmore", "craft 4 stick"),
        ("Thought: a. Action: Left", "Left"),
        ("Action: Up\nObservation: edge\nAction: Down", "Down"),
        ("Action:", ""),
        ("", ""),
        ("inaction: Up", "inaction: Up"),
    ],
)
def test_action_is_found_bare_or_in_react_text(text: str, action: str) -> None:
    assert extract_action(text) == action
