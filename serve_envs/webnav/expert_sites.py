"""Solvers of the pages that are small applications: mail, social media, flights, calendars, trees, longer forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from serve_envs.webnav.lookup import ORDINAL, click, fields, fill, named, quoted
from serve_envs.webnav.view import Node, View

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip


def _icon(view: View, name: str) -> str | None:
    return click(named(view, name, ("icon",)))


def _email(view: View) -> str | None:
    sender = re.search(r"Find the email by (\w+) and", view.goal)
    assert sender is not None
    if _icon(view, "send reply"):
        return fill(view, [(fields(view)[0], quoted(view)[0])], "") or _icon(view, "send reply")
    if _icon(view, "send forward"):
        receiver = view.goal.split()[-1].strip(".")
        return fill(view, [(fields(view)[0], receiver)], "") or _icon(view, "send forward")
    if not _icon(view, "close email"):
        return click(named(view, sender[1]))
    for word, control in (("trash", "trash"), ("star", "star")):
        if f"{word} icon" in view.goal:
            return _icon(view, control)
    return click(named(view, "Reply" if "reply" in view.goal else "Forward"))


def _posts(view: View) -> list[tuple[str, list[Node]]]:
    """Each post's author and the icons below it."""
    posts: list[tuple[str, list[Node]]] = []
    for node in view.nodes:
        if node.role == "text" and node.name.startswith("@"):
            posts.append((node.name, []))
        elif posts and node.role != "text":
            posts[-1][1].append(node)
    return posts


def _social(view: View) -> str | None:
    author = re.search(r"For the user (@\w+),", view.goal)
    assert author is not None
    wanted = quoted(view)[0]
    icons = next(nodes for name, nodes in _posts(view) if name == author[1])
    if direct := next((node for node in icons if node.role == "icon" and node.name == wanted.lower()), None):
        return click(direct)
    items = (node for node in view.nodes if node.role != "icon" and node.name.startswith(wanted))
    return click(next(items, None)) or click(next(node for node in icons if node.name == "more"))


def _social_many(view: View) -> str | None:
    goal = re.search(r'Click the "(\w+)" button on (\w+) posts? by (@\w+)', view.goal)
    assert goal is not None
    kind, author = goal[1].lower(), goal[3]
    icons = [node for name, nodes in _posts(view) if name == author for node in nodes if node.name.split()[0] == kind]
    pressed = [node for node in icons if "active" in node.name]
    wanted = len(icons) if goal[2] == "all" else int(goal[2])
    if len(pressed) < wanted:
        return click(next(node for node in icons if node not in pressed))
    return click(named(view, "Submit"))


def _tree(view: View) -> str | None:
    """Open what is closed, from the top, until the wanted name shows."""
    if found := named(view, quoted(view)[0]):
        return click(found)
    return click(next((node for node in view.nodes if node.role == "icon" and "expandable" in node.name), None))


def _autocomplete(view: View) -> str | None:
    begins, *ends = quoted(view)
    box = fields(view)[0]
    typed = str(box.state.get("value"))
    if typed.startswith(begins) and (not ends or typed.endswith(ends[0])):
        return click(named(view, "Submit"))
    offered = (node for node in view.nodes if node.role == "clickable" and node.name.startswith(begins))
    fitting = next((node for node in offered if not ends or node.name.endswith(ends[0])), None)
    return click(fitting) or f'type {box.id} "{begins}"'


def _pick_date(view: View, box: Node, date: str) -> str | None:
    """Open the calendar of a field, leaf to the month, choose the day; None where the field has the date."""
    if box.state.get("value") == date:
        return None
    month, day, year = (int(part) for part in date.split("/"))
    at = next((at for at, node in enumerate(view.nodes) if node.name in _MONTHS), None)
    if at is None:
        return click(box)
    shown = int(view.nodes[at + 1].name), _MONTHS.index(view.nodes[at].name) + 1
    if shown != (year, month):
        return click(named(view, "Prev" if shown > (year, month) else "Next"))
    return click(named(view, str(day), ("link",)))


def _date(view: View) -> str | None:
    date = re.search(r"\d+/\d+/\d+", view.goal)
    assert date is not None
    return _pick_date(view, fields(view)[0], date[0]) or click(named(view, "Submit"))


def _flight(view: View) -> str | None:
    goal = re.search(r"Book the (\w+) one-way flight from: (.+) to: (.+) on (\S+)\.$", view.goal)
    assert goal is not None
    if not named(view, "Search"):
        return _best_offer(view, "duration" if goal[1] == "shortest" else "price", 1)
    boxes = fields(view)
    for box, place in zip(boxes, goal.groups()[1:3], strict=False):
        typed = str(box.state.get("value"))
        if place in typed and "(" in typed:
            continue
        offered = (node for node in view.nodes if node.role == "clickable" and place in node.name)
        return click(next(offered, None)) or f'type {box.id} "{place}"'
    return _pick_date(view, boxes[2], goal[4]) or click(named(view, "Search"))


def _ticket(view: View) -> str | None:
    sign = -1 if re.search("longest|expensive", view.goal) else 1
    return _best_offer(view, "duration" if "duration" in view.goal else "price", sign)


def _best_offer(view: View, by: str, sign: int) -> str | None:
    """The offer of least duration or price, or of the most."""
    offers, lasts = [], 0
    for node in view.nodes:
        if took := re.fullmatch(r"(?:(\d+)h)? ?(?:(\d+)m)?", node.name):
            lasts = 60 * int(took[1] or 0) + int(took[2] or 0)
        if price := re.search(r"for \$(\d+)", node.name):
            offers.append((sign * (lasts if by == "duration" else int(price[1])), node.id))
    return f"click {min(offers)[1]}"


def _radio_and_number(view: View) -> str | None:
    which, place = ORDINAL.findall(view.goal)
    radio = [node for node in view.nodes if node.role in ("radio", "checkbox")][int(which) - 1]
    if not radio.state.get("checked"):
        return click(radio)
    return fill(view, [(fields(view)[int(place) - 1], quoted(view)[0])], "Submit")


def _list_and_button(view: View) -> str | None:
    wanted = re.search(r"Choose (.+) from the dropdown", view.goal)
    assert wanted is not None
    box = next(node for node in view.nodes if "options" in node.state)
    if box.state["selected"] != [wanted[1]]:
        return f'select {box.id} "{wanted[1]}"'
    return click(named(view, quoted(view)[0]))


def _scroll_list(view: View) -> str | None:
    wanted = re.search(r"Select (.+) from the scroll list", view.goal)
    assert wanted is not None
    box = next(node for node in view.nodes if "options" in node.state)
    missing = [name for name in wanted[1].split(", ") if name not in box.state["selected"]]
    return f'select {box.id} "{missing[0]}"' if missing else click(named(view, "Submit"))


def _copy(view: View) -> str | None:
    position = ORDINAL.search(view.goal)
    texts = [node for node in fields(view) if node.state.get("multiline")]
    line = next(node for node in fields(view) if not node.state.get("multiline"))
    return fill(view, [(line, str(texts[int(position[1]) - 1 if position else 0].state["value"]))], "Submit")


def _last_word(view: View) -> str | None:
    text, line = fields(view)
    return fill(view, [(line, str(text.state["value"]).split()[-1].strip("."))], "Submit")


def _letters(view: View) -> str | None:
    shown = "".join(node.name for node in view.nodes if node.role == "text")
    return fill(view, [(fields(view)[0], shown)], "Submit")


def _algebra(view: View) -> str | None:
    term = re.search(r"(x|\d+) ([-+]) (x|\d+) = (\d+)", view.nodes[0].name)
    assert term is not None
    known, total = int(term[3] if term[1] == "x" else term[1]), int(term[4])
    answer = total - known if term[2] == "+" else total + known if term[1] == "x" else known - total
    return fill(view, [(fields(view)[0], str(answer))], "Submit")


def _labelled(view: View) -> str | None:
    told = dict(node.name.split(" | ", 1) for node in view.nodes if node.role == "text" and " | " in node.name)
    wanted, label = [], ""
    for node in view.nodes:
        if node.role == "text":
            label = node.name.strip(":")
        elif node in fields(view):
            wanted.append((node, told[label]))
    return fill(view, wanted, "Submit")


def _button(view: View) -> str | None:
    return click(named(view, quoted(view)[0]))


SITE_SOLVERS: Mapping[str, Callable[[View], str | None]] = {
    "email-inbox": _email,
    "social-media": _social,
    "social-media-some": _social_many,
    "social-media-all": _social_many,
    "navigate-tree": _tree,
    "use-autocomplete-nodelay": _autocomplete,
    "book-flight-nodelay": _flight,
    "choose-date-nodelay": _date,
    "buy-ticket": _ticket,
    "form-sequence-2": _radio_and_number,
    "form-sequence-3": _list_and_button,
    "click-scroll-list": _scroll_list,
    "copy-paste": _copy,
    "copy-paste-2": _copy,
    "scroll-text": _last_word,
    "text-transform": _letters,
    "simple-algebra": _algebra,
    "read-table-2": _labelled,
    "unicode-test": _button,
}
"""Page to solver."""
