"""The browser's side, in a process of its own: one Chromium, a context a session, real mouse and key events."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Error, Page, sync_playwright

from rllib_agentic.errors import InfrastructureError

_FLAGS = (
    "--no-sandbox",  # as root there is no other way; the pages are ours, and nothing else can be reached
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-blink-features=ComputedAccessibilityInfo",
    "--allow-file-access-from-files",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # nothing beyond this machine
)
_LOOK = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")
_LOAD_TIMEOUT_S = 15.0
_WATCH = """() => {
  window.__leaving = false;
  if (window.__watched) return;
  window.__watched = true;
  navigation.addEventListener("navigate", (event) => { if (!event.hashChange) window.__leaving = true; });
}"""
# A form is sent some tasks after the click on its button: first let those run.
_ARRIVED = """() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => setTimeout(() => done(
  window.__leaving === false || (window.__leaving === undefined && document.readyState === "complete")), 0), 0)))"""
_PLACE = """(id) => {
  const node = (window.__shown || [])[id - 1];
  if (!node || !node.isConnected) return null;
  const element = node.nodeType === Node.TEXT_NODE ? node.parentElement : node;
  element.scrollIntoView({ block: "nearest", inline: "nearest" });
  let box = element.getBoundingClientRect();
  if (node.nodeType === Node.TEXT_NODE) {
    const range = document.createRange();
    range.selectNodeContents(node);
    box = range.getClientRects()[0] || box;
  }
  return [box.x + box.width / 2, box.y + box.height / 2];
}"""
_SELECT = """([id, wanted]) => {
  const element = (window.__shown || [])[id - 1];
  if (!element || element.tagName !== "SELECT") return false;
  const option = Array.from(element.options).find((one) => one.text.trim() === wanted);
  if (!option) return false;
  if (!element.multiple) element.value = option.value;
  option.selected = true;
  element.dispatchEvent(new Event("input", { bubbles: true }));
  element.dispatchEvent(new Event("change", { bubbles: true }));
  return true;
}"""


class Browser:
    """One Chromium with the sessions that are on it.

    Args:
        executable: the browser's program.
    """

    def __init__(self, executable: str) -> None:
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=executable, args=list(_FLAGS))
        self._open: dict[str, tuple[Page, CDPSession]] = {}
        self._downloaded: set[str] = set()

    def page(self, session: str) -> Page:
        """The page of a session, in a context of its own."""
        if session not in self._open:
            context = self._browser.new_context(
                viewport={"width": 900, "height": 700}, locale="en-US", timezone_id="UTC", accept_downloads=False
            )
            page = context.new_page()
            context.on("page", lambda other: other.close())  # one page a session: windows that open are closed
            page.on("dialog", lambda dialog: dialog.accept())
            page.on("download", lambda _: self._downloaded.add(session))  # the page that was to be left stays
            devtools = context.new_cdp_session(page)
            # Without it the browser builds the tree of a page anew for every role and name that it is asked for.
            devtools.send("Accessibility.enable")
            self._open[session] = page, devtools
        return self._open[session][0]

    def enter(self, session: str, url: str) -> Page:
        """Load an address as the session's first page: ``back`` leads to nothing from before."""
        page = self.page(session)
        page.goto(url)
        self._open[session][1].send("Page.resetNavigationHistory")
        return page

    def look(self, session: str) -> dict[str, Any]:
        """What the session's page shows, once it is there."""
        page = self.page(session)
        deadline = time.monotonic() + _LOAD_TIMEOUT_S
        while True:
            try:
                arrived = session in self._downloaded or page.evaluate(_ARRIVED)
                if arrived or time.monotonic() > deadline:
                    return page.evaluate(_LOOK)
            except Error:  # the page went away under the question
                if time.monotonic() > deadline:
                    raise
            page.wait_for_timeout(2)

    def act(self, session: str, verb: str, target: int, text: str) -> dict[str, Any]:
        """Do something; gives what the page shows then, with ``acted``: whether it could be done."""
        page = self.page(session)
        self._downloaded.discard(session)
        try:
            page.evaluate(_WATCH)
            acted = self._do(session, verb, target, text)
            return self.look(session) | {"acted": acted}
        except Error as error:
            raise InfrastructureError("session_lost", f"the browser failed: {error.message.splitlines()[0]}") from error

    def end(self, session: str) -> None:
        """Forget a session."""
        page, _ = self._open.pop(session, (None, None))
        if page is not None:
            page.context.close()

    def stop(self) -> None:
        """Close the browser."""
        self._browser.close()
        self._playwright.stop()

    def _do(self, session: str, verb: str, target: int, text: str) -> bool:
        page, devtools = self._open[session]
        if verb == "back":
            if not devtools.send("Page.getNavigationHistory")["currentIndex"]:
                return False
            page.go_back(wait_until="commit")
            return True
        if verb == "scroll":
            page.mouse.wheel(0, 150 if text == "down" else -150)
            return True
        if verb == "press":
            page.keyboard.press(text)
            return True
        if verb == "select":
            return bool(page.evaluate(_SELECT, [target, text]))
        place = page.evaluate(_PLACE, target)
        if place is None:
            return False
        page.mouse.click(place[0], place[1])
        if verb == "type":
            page.keyboard.press("Control+A")
            page.keyboard.press("Delete")
            page.keyboard.type(text)
        return True
