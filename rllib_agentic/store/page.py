"""Trajectories as one self-contained HTML page: no script, no network, masked and trained tokens in two colours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --masked: #6b7280; --trained: #047857; --line: #d1d5db; --soft: #f3f4f6; }
@media (prefers-color-scheme: dark) {
  :root { --masked: #9ca3af; --trained: #34d399; --line: #374151; --soft: #1f2937; }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
details { border: 1px solid var(--line); border-radius: 8px; margin: .6rem 0; padding: .4rem .9rem; }
summary { cursor: pointer; font-weight: 600; }
h2 { font-size: .95rem; margin: 1rem 0 .3rem; border-top: 1px solid var(--line); padding-top: .6rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .2rem 0; padding: .35rem .6rem; border-left: 4px solid; }
pre.masked { color: var(--masked); border-color: var(--line); }
pre.trained { color: var(--trained); border-color: var(--trained); background: var(--soft); }
.note { font-size: .85rem; color: var(--masked); }
"""


def as_html(views: Iterable[Mapping[str, Any]], *, title: str = "Trajectories") -> str:
    """One page of trajectories, each folded until it is clicked.

    Args:
        views: what :func:`rllib_agentic.store.view.as_dict` made.
        title: the page's title.
    """
    articles = [_article(view) for view in views]
    opened = articles[0].replace("<details>", "<details open>", 1) if articles else "<p>No trajectories.</p>"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        '<p class="note">Green text was sampled by the policy and is trained (mask 1); grey text is context '
        "(mask 0).</p>\n" + "\n".join([opened, *articles[1:]]) + "\n</body></html>\n"
    )


def _article(view: Mapping[str, Any]) -> str:
    task = view["task"]
    place = f"iteration {view['iteration']}, trajectory {view['number']}: " if "iteration" in view else ""
    solved = "solved" if view["success"] else "not solved"
    filtered = " · filtered out" if view.get("kept") is False else ""
    heading = (
        f"{place}{task['env']}/{task['split']} task {task['index']} · {solved} · {view['outcome']} "
        f"({view['end_reason']}) · reward {view['reward']:g}{filtered}"
    )
    body = "".join(_segment(segment) for segment in view["segments"])
    return f"<details><summary>{escape(heading)}</summary>{body}</details>"


def _segment(segment: Mapping[str, Any]) -> str:
    mask = segment["mask"]
    parts = [f"<h2>segment {segment['segment']}: {len(mask)} tokens, {sum(mask)} trained</h2>"]
    for turn in segment["turns"]:
        for span in turn["spans"]:
            kind = "trained" if span["trained"] else "masked"
            ids = f'<div class="note">ids {span["ids"]}</div>' if "ids" in span else ""
            parts.append(f'<pre class="{kind}">{escape(span["text"])}</pre>{ids}')
        note = f"turn {turn['turn']}: finish {turn['finish_reason']}, reward {turn['reward']:g}"
        parts.append(f'<div class="note">{escape(note)}</div>')
    for message in segment.get("unseen", ()):
        parts.append(f'<pre class="masked">{escape(message["role"])}: {escape(message["content"])}</pre>')
    return "".join(parts)
