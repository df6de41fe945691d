"""Scripted solvers, one a kind of page: each says the next action from what the page shows now."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from serve_envs.webnav.expert_sites import SITE_SOLVERS
from serve_envs.webnav.lookup import FIELDS, ORDINAL, click, fields, fill, named, quoted
from serve_envs.webnav.view import View


def next_action(page: str, view: View) -> str:
    """The next action towards what the page asks for.

    Args:
        page: its name.
        view: what it shows now.
    """
    return SOLVERS[page](view) or "scroll down"


def _click_quoted(view: View) -> str | None:
    name = quoted(view)[0] if quoted(view) else view.goal.split()[-1].strip(".")
    return click(named(view, name))


def _click_word(view: View) -> str | None:
    """A link in running text may carry the comma that follows it, and another may differ in case alone."""
    wanted = quoted(view)[0].strip(".,")
    links = [node for node in view.nodes if node.role in ("clickable", "link")]
    for alike in (str, str.lower):
        for node in links:
            if alike(node.name.strip(" .,")) == alike(wanted):
                return f"click {node.id}"
    return None


def _click_test(view: View) -> str | None:
    return click(next((node for node in view.nodes if node.role == "button"), None))


def _dialog(view: View) -> str | None:
    name = quoted(view)[0]
    return click(named(view, "Close" if name == "x" else name))


def _choose(view: View) -> str | None:
    """Tick what the goal lists, and nothing else; then submit."""
    listed = re.search(r"Select (?:words similar to )?(.*?) and click", view.goal)
    wanted = {name.strip() for name in (listed[1] if listed else "").split(",")} - {"nothing"}
    for node in view.nodes:
        if node.role in ("checkbox", "radio") and bool(node.state.get("checked")) != (node.name in wanted):
            if node.role == "radio" and node.name not in wanted:
                continue
            return f"click {node.id}"
    return click(named(view, "Submit"))


def _tab(view: View) -> str | None:
    return click(named(view, view.goal.removeprefix("Click on ").strip(".")))


def _word_behind(kinds: tuple[str, ...]) -> Callable[[View], str | None]:
    """Open one tab or section after the other until the wanted link shows."""

    def solve(view: View) -> str | None:
        if found := _click_word(view):
            return found
        closed = [node for node in view.nodes if node.role in kinds]
        opened = [number for number, node in enumerate(closed) if node.state.get("selected_tab")]
        following = closed[(opened[0] + 1) % len(closed)] if opened else closed[0] if closed else None
        return click(following)

    return solve


def _collapsible(view: View) -> str | None:
    closed = next((node for node in view.nodes if node.role == "tab" and not node.state.get("expanded")), None)
    return click(named(view, "Submit", ("button",)) if closed is None or closed.name == "Submit" else closed)


def _enter(view: View) -> str | None:
    return fill(view, [(node, quoted(view)[0]) for node in fields(view)], "Submit")


def _enter_cased(view: View) -> str | None:
    word = quoted(view)[0]
    text = word.upper() if "upper case" in view.goal else word.lower()
    return fill(view, [(node, text) for node in fields(view)], "Submit")


def _log_in(view: View) -> str | None:
    if node := named(view, "Cancel"):  # a popup asks whether to leave
        return click(node)
    last = [node.name for node in view.nodes if node.role == "button"][-1]
    return fill(view, list(zip(fields(view), quoted(view), strict=False)), last)


def _focus(view: View) -> str | None:
    position = ORDINAL.search(view.goal)
    return f"click {fields(view)[int(position[1]) - 1 if position else 0].id}"


def _from_list(view: View) -> str | None:
    wanted = view.goal.removeprefix("Select ").removesuffix(" from the list and click Submit.")
    for node in view.nodes:
        if "options" in node.state and node.state.get("selected") != [wanted]:
            return f'select {node.id} "{wanted}"'
    return click(named(view, "Submit"))


def _search(view: View) -> str | None:
    wanted = quoted(view)[0]
    position = ORDINAL.search(view.goal)
    assert position is not None
    box = fields(view)[0]
    if box.state.get("value") != wanted:
        return f'type {box.id} "{wanted}"'
    page_links = [node for node in view.nodes if node.role in ("link", "clickable") and node.name in ("1", "2", "3")]
    results = [n for n in view.nodes if n.role == "link" and n.name not in ("1", "2", "3", "<", ">", "First", "Last")]
    if not results:
        return click(named(view, "Search"))
    page, row = divmod(int(position[1]) - 1, 3)
    first = _first_of_page(view)
    if first != page:
        return click(next((node for node in page_links if node.name == str(page + 1)), None))
    return f"click {results[row].id}"


def _first_of_page(view: View) -> int:
    """Which page of results shows: the links back and on are there only where there is a page before and after."""
    has = {node.name for node in view.nodes if node.role in ("link", "clickable")}
    return 0 if "<" not in has else 2 if ">" not in has else 1


def _table(view: View) -> str | None:
    key = view.goal.removeprefix("Enter the value of ").removesuffix(" into the text field and press Submit.")
    rows = (node.name.partition(" | ") for node in view.nodes if node.role == "text")
    value = next(told for name, _, told in rows if name == key)
    return fill(view, [(fields(view)[0], value)], "Submit")


def _widget(view: View) -> str | None:
    wanted = quoted(view)[0]
    role = "textbox" if wanted in ("text", "textarea") else wanted
    found = [node for node in view.nodes if node.role == role]
    if role == "textbox":
        found = [node for node in found if bool(node.state.get("multiline")) == (wanted == "textarea")]
    return click(found[0] if found else None)


def _movies(view: View) -> str | None:
    match = re.search(r"Search for (.*) movies directed by (.*) from year (\d+)", view.goal)
    assert match is not None
    values = {"genre": match[1], "director": match[2], "year": match[3], "date": match[3]}
    boxes, labels, last = [], [], None
    for node in view.nodes:
        if node.role in FIELDS:
            boxes.append(node)
        else:
            labels += [key for key in values if key in node.name.lower()]
            last = node if node.role in ("clickable", "button") else last
    # Before its field or behind it, a label is as far from the top as its field.
    wanted = [(field, values[label]) for field, label in zip(boxes, labels, strict=False)]
    if any(node.state.get("value") != text for node, text in wanted):
        return fill(view, wanted, "")
    return click(last)


def _arithmetic(view: View) -> str | None:
    text = " ".join(node.name for node in view.nodes if node.role == "text")
    match = re.search(r"(\d+) ([-+x]) (\d+) =", text)
    assert match is not None
    one, sign, other = int(match[1]), match[2], int(match[3])
    answer = {"+": one + other, "-": one - other, "x": one * other}[sign]
    return fill(view, [(fields(view)[0], str(answer))], "Submit")


def _find_word(view: View) -> str | None:
    position = ORDINAL.search(view.goal)
    assert position is not None
    paragraph = next(node.name for node in view.nodes if node.role == "text" and " " in node.name)
    word = paragraph.split()[int(position[1]) - 1].strip(".,")
    return fill(view, [(fields(view)[0], word)], "Submit")


SOLVERS: Mapping[str, Callable[[View], str | None]] = {
    "click-test": _click_test,
    "click-test-2": _click_quoted,
    "click-button": _click_quoted,
    "click-link": _click_word,
    "click-dialog": _dialog,
    "click-dialog-2": _dialog,
    "click-checkboxes": _choose,
    "click-checkboxes-large": _choose,
    "click-checkboxes-transfer": _choose,
    "click-option": _choose,
    "click-tab": _tab,
    "click-tab-2": _word_behind(("tab",)),
    "click-collapsible": _collapsible,
    "click-collapsible-2": _word_behind(("tab",)),
    "enter-text": _enter,
    "enter-text-2": _enter_cased,
    "enter-text-dynamic": _enter,
    "enter-password": _enter,
    "login-user": _log_in,
    "login-user-popup": _log_in,
    "focus-text": _focus,
    "focus-text-2": _focus,
    "choose-list": _from_list,
    "search-engine": _search,
    "read-table": _table,
    "click-widget": _widget,
    "multi-orderings": _movies,
    "multi-layouts": _movies,
    "simple-arithmetic": _arithmetic,
    "find-word": _find_word,
    **SITE_SOLVERS,
}
"""Page to solver."""
