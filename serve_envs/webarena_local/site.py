"""The tracker's side, in the browser's process: Roundup over SQLite, a copy of a template for each session."""

from __future__ import annotations

import atexit
import datetime
import functools
import shutil
import sqlite3
import sys
import tempfile
import threading
import wsgiref.simple_server
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any

import roundup.date
from roundup import configuration, init, instance
from roundup.backends import sessions_rdbms
from roundup.cgi.wsgi_handler import RequestDispatcher
from roundup.password import Password

from serve_envs.webarena_local.world import World, make_world
from serve_envs.webnav.browser import Browser

_NOW = datetime.datetime(2026, 3, 2, 9, 0)
_ADMIN_SESSION = "theagentissignedinasadmin"
_UNCHANGING = ("html", "detectors", "extensions", "schema.py", "initial_data.py", "TEMPLATE-INFO.txt")


def one_at_a_time(call: Callable[[str], Any]) -> Callable[[str], Any]:
    """The same with a lock: in CPython 3.11 two threads in ``ast.literal_eval`` may raise ``SystemError``.

    Roundup reads every sign-in by it, and the page would be an error for no fault of the agent's.
    """
    lock = threading.Lock()

    @functools.wraps(call)
    def locked(text: str) -> Any:
        with lock:
            return call(text)

    return locked


class TrackerSite(Browser):
    """A browser with a tracker behind every session; the agent is signed in as ``admin``.

    Args:
        executable: the browser's program.
    """

    def __init__(self, executable: str) -> None:
        # The same now for ever: pages show dates, and an episode must look the same when it is played again.
        roundup.date.utcnow = lambda: _NOW
        sessions_rdbms.safe_eval = one_at_a_time(sessions_rdbms.safe_eval)
        super().__init__(executable)
        self._folder = Path(tempfile.mkdtemp(prefix="webarena_local-"))
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        self._sites: dict[str, RequestDispatcher] = {}
        self._busy: Counter[str] = Counter()
        self._change = threading.Condition()
        self._server = _Server(("127.0.0.1", 0), _QuietHandler)
        self._server.set_app(self._serve)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def begin(self, session: str, world: int) -> dict[str, Any]:
        """Give the session a tracker as nobody has touched it, and show its first page."""
        self._forget(session)
        home = self._folder / session
        home.mkdir()
        template = self._template(world)
        for name in _UNCHANGING:
            (home / name).symlink_to(template / name)
        shutil.copytree(template / "db", home / "db")
        told = (template / "config.ini").read_text(encoding="utf-8")
        base = f"http://127.0.0.1:{self._server.server_port}/{session}/"
        (home / "config.ini").write_text(told.replace("http://127.0.0.1/", base), encoding="utf-8")
        self._sites[session] = RequestDispatcher(str(home))
        page = self.page(session)
        page.context.clear_cookies()
        name = "roundup_session_Roundupissuetracker"
        page.context.add_cookies([{"name": name, "value": _ADMIN_SESSION, "domain": "127.0.0.1", "path": "/"}])
        self.enter(session, base)
        return self.look(session)

    def snapshot(self, session: str) -> dict[str, Any]:
        """What is in the session's database: issues, users and keywords with their fields."""
        return _read(self._folder / session / "db" / "db")

    def end(self, session: str) -> None:
        """Forget the session and its tracker."""
        super().end(session)
        self._forget(session)

    def _forget(self, session: str) -> None:
        with self._change:
            self._sites.pop(session, None)
            # Pages ask for more in the background; what is being answered still writes into the folder.
            self._change.wait_for(lambda: not self._busy[session])
            del self._busy[session]
        home = self._folder / session
        if home.exists():
            shutil.rmtree(home)

    def _template(self, world: int) -> Path:
        home = self._folder / f"template-{world}"
        if not home.exists():
            _build(home, make_world(world))
        return home

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        session, _, rest = environ["PATH_INFO"].lstrip("/").partition("/")
        with self._change:
            site = self._sites.get(session)
            if site is not None:
                self._busy[session] += 1
        if site is None:
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"no such tracker"]
        environ["SCRIPT_NAME"] = f"/{session}"
        environ["PATH_INFO"] = f"/{rest}"
        try:
            return site(environ, start_response)
        finally:
            with self._change:
                self._busy[session] -= 1
                self._change.notify_all()


class _Server(ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True


class _QuietHandler(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _build(home: Path, world: World) -> None:
    templates = Path(sys.prefix) / "share" / "roundup" / "templates" / "classic"
    init.install(str(home), str(templates))
    config = configuration.CoreConfig()
    config["TRACKER_WEB"] = "http://127.0.0.1/"
    config["MAIL_DOMAIN"], config["MAIL_HOST"] = "example.com", "localhost"
    config["MAIL_DEBUG"] = "/dev/null"  # what would be mailed is thrown away
    config["RDBMS_BACKEND"] = "sqlite"
    config.save(str(home / "config.ini"))
    tracker = instance.open(str(home))
    tracker.init(Password("admin", config=tracker.config), tx_Source="cli")
    database = tracker.open("admin")
    password = Password("secret", config=database.config)
    people = {
        one.login: database.user.create(
            username=one.login,
            realname=one.name,
            phone=one.phone,
            address=f"{one.login}@example.com",
            roles="User",
            password=password,
        )
        for one in world.people
    }
    keywords = {word: database.keyword.create(name=word) for word in world.keywords}
    for issue in world.issues:
        database.issue.create(
            title=issue.title,
            priority=database.priority.lookup(issue.priority),
            status=database.status.lookup(issue.status),
            assignedto=people[issue.assigned],
            keyword=[keywords[word] for word in issue.keywords],
        )
    database.getSessionManager().set(_ADMIN_SESSION, user="admin")
    database.commit()
    database.close()


def _read(file: Path) -> dict[str, Any]:
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        names = {
            table: dict(database.execute(f"select id, _{column} from _{table}"))
            for table, column in (("priority", "name"), ("status", "name"), ("user", "username"), ("keyword", "name"))
        }
        issues: dict[str, Any] = {
            str(number): {
                "title": title,
                "priority": names["priority"].get(priority),
                "status": names["status"].get(status),
                "assignedto": names["user"].get(assigned),
                "keyword": [],
                "messages": [],
            }
            for number, title, priority, status, assigned in database.execute(
                "select id, _title, _priority, _status, _assignedto from _issue where __retired__ = 0"
            )
        }
        for number, keyword in database.execute("select nodeid, linkid from issue_keyword order by nodeid, linkid"):
            if str(number) in issues:
                issues[str(number)]["keyword"].append(names["keyword"][keyword])
        texts = file.parent / "files" / "msg"
        for number, message in database.execute("select nodeid, linkid from issue_messages order by nodeid, linkid"):
            if str(number) in issues:
                content = texts / str(int(message) // 1000) / f"msg{message}"
                issues[str(number)]["messages"].append(content.read_text(encoding="utf-8").strip())
        users = {
            login: {"username": login, "realname": name, "phone": phone, "roles": roles}
            for login, name, phone, roles in database.execute(
                "select _username, _realname, _phone, _roles from _user where __retired__ = 0"
            )
        }
        keywords = {name: {"name": name} for name in sorted(names["keyword"].values())}
    database.close()
    return {"issue": issues, "user": users, "keyword": keywords}
