"""webnav in real Chromium: what pages show, what actions do, and that every page is solved by its expert."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from installed import require_env

require_env("webnav")

from rllib_agentic.envs.baselines import expert_policy, play  # noqa: E402
from rllib_agentic.envs.local import LocalClient  # noqa: E402
from rllib_agentic.envs.registry import make_env  # noqa: E402
from rllib_agentic.envs.replay import ReplayingClient  # noqa: E402
from rllib_agentic.errors import InfrastructureError, InputError  # noqa: E402
from rllib_agentic.trajectory.trajectory import Task  # noqa: E402
from serve_envs import child_env  # noqa: E402
from serve_envs.child_env import children_of  # noqa: E402
from serve_envs.webnav import browser as browser_module  # noqa: E402
from serve_envs.webnav.browser import Browser  # noqa: E402
from serve_envs.webnav.browser_env import browser_program  # noqa: E402
from serve_envs.webnav.env import WebNav  # noqa: E402
from serve_envs.webnav.expert import SOLVERS  # noqa: E402
from serve_envs.webnav.tasks import listed, make_splits  # noqa: E402
from serve_envs.webnav.view import View  # noqa: E402

CARD = Path(browser_module.__file__).with_name("README.md")
PAGE = """<!doctype html><title>Orders</title>
<h1>Orders</h1>
<label><input type="checkbox" id="gift">Gift</label>
<label for="note">Note</label><input id="note" placeholder="Note">
<select multiple id="sizes"><option>Small</option><option selected>Large</option></select>
<span class="icon trash-can" style="cursor: pointer; display: inline-block; width: 9px; height: 9px"
  onclick="document.querySelector('h1').innerText = 'Thrown away'"></span>
<p style="visibility: hidden">unseen</p><p style="opacity: 0">faint</p>
<button disabled>Ship</button>
<a href="#more">More</a> <a href="second.html">Second</a> <a href="second.html" target="_blank">Window</a>
<button onclick="alert('Sure?'); this.innerText = 'Asked'">Ask</button>
<div style="height: 3000px"></div>
<script>addEventListener("scroll", () => document.querySelector("h1").innerText = "Far down")</script>
"""


def running(pool_of: str) -> set[int]:
    """The processes of the browsers of one kind."""
    return {pid for pool in children_of(pool_of) for pid in pool.process_ids}


@pytest.fixture(scope="module", autouse=True)
def _no_browser_is_left() -> Iterator[None]:
    yield
    WebNav.release()
    assert not any("chrom" in one.name() for one in psutil.Process().children(recursive=True))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, str]]:
    """A browser of this process, and the address of a page."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "first.html").write_text(PAGE, encoding="utf-8")
    (folder / "second.html").write_text("<!doctype html><h1>Second</h1>", encoding="utf-8")
    browser = Browser(browser_program())
    yield browser, (folder / "first.html").as_uri()
    browser.stop()


def shown(browser: Browser, session: str) -> list[str]:
    return View.of(browser.look(session)).text().splitlines()


def do(browser: Browser, session: str, verb: str, line: str, text: str = "") -> tuple[bool, list[str]]:
    """Act on the line that holds ``line``; whether it could be done, and what shows then."""
    nodes = View.of(browser.look(session)).nodes
    target = next((node.id for node in nodes if line and line in node.line()), 0)
    seen = browser.act(session, verb, target, text)
    return seen["acted"], View.of(seen).text().splitlines()


def test_a_page_shows_what_can_be_used_with_its_state(site: tuple[Browser, str]) -> None:
    browser, address = site
    browser.enter("a", address)
    assert shown(browser, "a") == [
        '[1] text "Orders"',
        '[2] checkbox "Gift"',
        '[3] text "Note"',
        '[4] textbox "Note" value ""',
        '[5] listbox "" options Small, Large, selected Large',
        '[6] icon "icon trash can"',
        '[7] button "Ship" disabled',
        '[8] link "More"',
        '[9] link "Second"',
        '[10] link "Window"',
        '[11] button "Ask"',
    ]
    listed_actions = View.of(browser.look("a")).actions(quoting='Write "Hi".')
    assert {"click 2", 'type 4 "Hi"', 'select 5 "Small"', "click 6", "scroll down"} <= set(listed_actions)
    assert not {"click 1", "click 7"} & set(listed_actions)


def test_actions_are_those_of_a_mouse_and_a_keyboard(site: tuple[Browser, str]) -> None:
    browser, address = site
    browser.enter("a", address)
    assert '[2] checkbox "Gift" checked, focused' in do(browser, "a", "click", "checkbox")[1]
    assert '[4] textbox "Note" value "Hi", focused' in do(browser, "a", "type", "textbox", "Hi")[1]
    assert '[4] textbox "Note" value "Bye", focused' in do(browser, "a", "type", "textbox", "Bye")[1]
    assert do(browser, "a", "select", "listbox", "Small")[1][4].endswith("selected Small, Large")
    assert do(browser, "a", "select", "listbox", "Huge")[0] is False
    assert '[1] text "Thrown away"' in do(browser, "a", "click", "icon")[1]
    assert any('button "Asked"' in line for line in do(browser, "a", "click", "Ask")[1])  # what it asked was accepted
    assert do(browser, "a", "click", "no such line")[0] is False
    browser.act("a", "scroll", 0, "down")
    browser.page("a").wait_for_timeout(300)
    assert '[1] text "Far down"' in shown(browser, "a")


def test_back_leads_to_what_the_episode_saw_and_no_further(site: tuple[Browser, str]) -> None:
    browser, address = site
    browser.enter("a", address)
    assert do(browser, "a", "back", "")[0] is False
    do(browser, "a", "click", "More")
    assert browser.page("a").url.endswith("#more")
    assert do(browser, "a", "back", "")[0] is True
    assert browser.page("a").url == address
    assert do(browser, "a", "click", "Second")[1] == ['[1] text "Second"']
    assert do(browser, "a", "back", "")[1][0] == '[1] text "Orders"'
    do(browser, "a", "click", "Second")
    browser.enter("a", address)  # a new episode in the same context
    assert do(browser, "a", "back", "")[0] is False


def test_a_session_is_one_page_of_its_own(site: tuple[Browser, str]) -> None:
    browser, address = site
    for session in ("a", "b"):
        browser.enter(session, address)
    browser.page("a").evaluate("localStorage.setItem('seen', 'a')")
    assert browser.page("b").evaluate("localStorage.getItem('seen')") is None
    do(browser, "a", "click", "Window")
    browser.page("a").wait_for_timeout(200)
    assert len(browser.page("a").context.pages) == 1  # the window that opened is gone
    do(browser, "a", "type", "textbox", "mine")
    assert '[4] textbox "Note" value ""' in shown(browser, "b")
    before = len(browser._browser.contexts)
    browser.end("b")
    assert len(browser._browser.contexts) == before - 1


class _Attachment(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        file = self.path.endswith("file")
        body = b"1,2" if file else b"<a href='/file'>Download</a>"
        self.send_response(200)
        self.send_header("Content-Type", "text/csv" if file else "text/html")
        self.send_header("Content-Length", str(len(body)))
        if file:
            self.send_header("Content-Disposition", "attachment; filename=orders.csv")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


def test_a_download_leaves_the_page_where_it_is(site: tuple[Browser, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_module, "_LOAD_TIMEOUT_S", float("inf"))  # to wait for it to be left would be for ever
    browser, _ = site
    with ThreadingHTTPServer(("127.0.0.1", 0), _Attachment) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            browser.enter("a", f"http://127.0.0.1:{server.server_port}/")
            assert do(browser, "a", "click", "Download") == (True, ['[1] link "Download" focused'])
            assert browser.act("a", "scroll", 0, "down")["acted"]
        finally:
            server.shutdown()
            thread.join()


def test_nothing_beyond_this_machine_is_reached(site: tuple[Browser, str]) -> None:
    browser, address = site
    browser.enter("a", address)
    answer = "async (url) => { try { await fetch(url); return 'reached' } catch { return 'not reached' } }"
    assert browser.page("a").evaluate(answer, "http://example.com/") == "not reached"


@pytest.mark.slow
def test_the_expert_solves_every_page() -> None:
    env = WebNav(browsers=1)
    tasks = make_splits(tuple(listed()))["train"][: len(listed())]
    failed = []
    for index, task in enumerate(tasks):
        results = play(env, expert_policy, "train", index, 0, 20)
        if not results[-1].success:
            failed.append((task, len(results)))
    env.close()
    assert {task.page for task in tasks} == set(SOLVERS)
    assert failed == []


def test_every_page_has_its_tasks_and_no_split_shares_one() -> None:
    assert set(listed()) == set(SOLVERS)
    splits = make_splits(tuple(listed()))
    tasks = [task for split in splits.values() for task in split]
    assert len(set(tasks)) == len(tasks)
    assert all(len({task.page for task in split}) > 30 for split in splits.values())


def test_the_card_tells_counts_and_hash() -> None:
    schema = WebNav().schema()
    told = CARD.read_text(encoding="utf-8")
    assert f"`{schema.splits_hash}`" in told
    assert all(f"`{split}` {count}" in told for split, count in schema.splits.items())


def test_many_sessions_share_a_few_browsers() -> None:
    pages = ("login-user", "click-checkboxes", "email-inbox")
    envs = [WebNav(pages=pages, browsers=2, sessions_per_browser=5) for _ in range(11)]
    first = [env.reset("train", number, 0) for number, env in enumerate(envs)]
    pool = child_env._POOLS[envs[0]._pool_key]
    assert len(pool.process_ids) == 3  # two, and one more where both are full
    alone = WebNav(pages=pages, browsers=1)
    for number, env in enumerate(envs):
        assert alone.reset("train", number, 0) == first[number]
        assert env.step(env.expert_action()) == alone.step(alone.expert_action())
    for env in (*envs, alone):
        env.close()


def test_a_browser_that_dies_is_replaced_and_the_episode_goes_on() -> None:
    async def run() -> None:
        client = ReplayingClient(LocalClient(partial(WebNav, pages=("login-user", "enter-text"), browsers=1)))
        task = Task("webnav", "train", 0, 0)
        one, other = await client.create(task), await client.create(task)
        seen = await one.step('type 2 "Bo"')
        before = running(WebNav.target)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        assert (await other.step('type 2 "Bo"')).observation == seen.observation
        assert (await one.step("scroll down")).observation.messages
        after = running(WebNav.target)
        assert after and not after & before
        await client.aclose()

    with ThreadPoolExecutor(1) as apart:  # the browser of this module's fixture holds this thread's event loop
        apart.submit(asyncio.run, run()).result()


def test_without_replay_the_session_is_lost() -> None:
    env = WebNav(pages=("login-user",), browsers=1)
    env.reset("train", 0, 0)
    WebNav.release()
    with pytest.raises(InfrastructureError) as lost:
        env.step("click 1")
    assert lost.value.kind == "session_lost"
    env.reset("train", 0, 0)
    env.close()


def test_without_chromium_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="apt-get install chromium-headless-shell"):
        make_env("webnav")
    with pytest.raises(InputError, match="apt-get install chromium-headless-shell"):
        browser_program()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"pages": ("login-usr",)}, "Did you mean 'login-user'"),
        ({"pages": ()}, "one or more"),
        ({"pages": ("click-test",)}, "too few different tasks"),
        ({"browsers": 0}, "start at 1"),
    ],
)
def test_arguments_that_cannot_work(arguments: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        WebNav(**arguments)
