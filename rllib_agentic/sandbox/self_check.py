"""One suite that holds every isolation: what programs must not be able to do, tried."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from rllib_agentic.sandbox.sandbox import Sandbox
from rllib_agentic.sandbox.settings import SandboxSettings

_MB = 1 << 20
_WARM = "rllib_agentic.sandbox.inside.warm_parent"


class Fault(NamedTuple):
    """One thing that a program could do and should not, or could not do and should."""

    check: str
    what: str


def self_check(sandbox: Sandbox, limits: SandboxSettings) -> list[Fault]:
    """Try a sandbox from the inside. Takes some seconds.

    Every attempt is made so that it does no harm where nothing holds it: it reads a file of ours, connects to a port of
    ours, forks some processes that end by themselves.

    Args:
        sandbox: to be tried.
        limits: those that it was made with.

    Returns:
        What was wrong; empty where it holds.
    """
    return [Fault(check.__name__.removeprefix("_"), what) for check in _CHECKS for what in check(sandbox, limits)]


def _works(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    run = sandbox.run("import sys\nprint(input()[::-1], end='')\nprint('e', file=sys.stderr)", stdin="abc\n")
    if (run.stdout, run.stderr, run.exit_code, run.error) != ("cba", "e\n", 0, None):
        yield f"an honest program gave {run}"


def _network(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    for family, address, heard in _listeners():
        with heard:
            sandbox.run(f"import socket\ns = socket.socket({family})\ns.settimeout(1)\ns.connect({address!r})")
            if heard.heard:
                yield f"a program connected to {address!r}"
    run = sandbox.run("import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint('made')")
    if run.stdout:
        yield "a program could make a datagram socket"


def _files(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    secret = secrets.token_hex(8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "secret")
        path.write_text(secret)
        os.chmod(folder, 0o777)
        path.chmod(0o666)
        if secret in sandbox.run(f"print(open({str(path)!r}).read())").stdout:
            yield f"a program read {path}"
        sandbox.run(f"open({str(path)!r}, 'a').write('more')")
        sandbox.run(f"import os\nos.truncate({str(path)!r}, 0)")
        sandbox.run(f"import os\nos.open({str(path)!r}, os.O_RDONLY | os.O_TRUNC)")
        if path.read_text() != secret:
            yield f"a program changed {path}"
        sandbox.run(f"open({str(Path(folder, 'new'))!r}, 'w')")
        sandbox.run(f"import os\nos.chmod({str(path)!r}, 0)")
        sandbox.run(f"import os\nos.utime({str(path)!r}, (0, 0))")
        sandbox.run(f"import os\nos.unlink({str(path)!r})")
        if os.listdir(folder) != ["secret"]:
            yield f"a program made or removed files in {folder}"
        elif path.stat().st_mode & 0o777 != 0o666 or path.stat().st_mtime == 0:
            yield f"a program changed mode or times of {path}"
    for folder in ("/etc", "/proc/1", os.path.expanduser("~")):
        run = sandbox.run(f"import os\nfor name in os.listdir({folder!r}): print(name)")
        shown = {name for name in run.stdout.split() if not os.path.islink(os.path.join(folder, name))}
        if len(shown - {"ld.so.cache", "alternatives"}) > 3:
            yield f"a program listed {folder}"


def _private_folder(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    with sandbox.session() as one, sandbox.session() as other:
        one.run("import os\nopen('mine', 'w').write('1')\nfolder = os.getcwd()")
        seen = one.run("print(os.path.exists('mine'), folder)").stdout.split()
        if seen[:1] != ["True"]:
            yield "a session cannot write a file and find it again"
        if "True" in other.run("import os\nprint(os.path.exists('mine'))").stdout:
            yield "two sessions have one folder"
        if "1" in other.run(f"print(open({seen[-1] + '/mine'!r}).read())").stdout:
            yield "a session read a file of another"
        if "mine" in other.run(f"import os\nprint(os.listdir({seen[-1]!r}))").stdout:
            yield "a session listed the folder of another"
    if "mine" in sandbox.run("import os\nprint(os.listdir())").stdout:
        yield "a program found the files of an earlier one"


def _environment(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    name, secret = "RLLIB_SANDBOX_CHECK", secrets.token_hex(8)
    os.environ[name] = secret
    try:
        run = sandbox.run(
            "import os\nprint(dict(os.environ))\n"
            "for process in [p for p in os.listdir('/proc') if p.isdigit()]:\n"
            "    try: print(open(f'/proc/{process}/environ').read())\n"
            "    except OSError: pass"
        )
    finally:
        del os.environ[name]
    if secret in run.stdout or name in run.stdout:
        yield "a program saw an environment variable of its host"


def _wall_time(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    stubborn = "import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\n"
    for code in ("while True: pass", "import time\ntime.sleep(60)", stubborn + "while True: pass"):
        began = time.monotonic()
        run = sandbox.run(f"print('so far', flush=True)\n{code}", timeout_s=0.5)
        if run.error != "timeout" or run.stdout != "so far\n":
            yield f"a program that does not end gave {run}"
        if time.monotonic() - began > 10:
            yield "a program went on long after its time limit"


def _cpu_time(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    run = sandbox.run("while True: pass", timeout_s=limits.cpu_s + 20)
    if run.error != "timeout" or run.wall_s > limits.cpu_s + 15:
        yield f"a program spent more than {limits.cpu_s} CPU seconds: {run}"


def _memory(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    size = (limits.memory_mb + 64) * _MB
    run = sandbox.run(f"block = bytearray({size})\nprint(len(block))")
    if run.error != "resource_limit" or run.stdout:
        yield f"a program had more memory than its limit: {run}"
    half = int(limits.memory_mb * 0.6) * _MB
    family = (
        f"import os, time\nfor _ in range(2):\n    if os.fork() == 0: b = b'x' * {half}; time.sleep(3); os._exit(0)\n"
    )
    run = sandbox.run(family + "os.wait(); os.wait(); print('all')", timeout_s=10)
    if run.ok:
        yield "two processes together had more memory than the limit"


def _processes(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    run = sandbox.run(
        "import os, time\nfor n in range(200):\n"
        "    if os.fork() == 0: time.sleep(2); os._exit(0)\n    print(n + 1, flush=True)",
        timeout_s=5,
    )
    if len(run.stdout.splitlines()) > limits.processes:
        yield f"a program had {len(run.stdout.splitlines())} processes, {limits.processes} are allowed"
    run = sandbox.run(
        "import threading, time\nthreading.stack_size(65536)\nfor n in range(1000):\n"
        "    threading.Thread(target=time.sleep, args=(2,), daemon=True).start()\n    print(n + 1, flush=True)\n"
        "time.sleep(1)",
        timeout_s=10,
    )
    if run.ok:
        yield f"a program had {len(run.stdout.splitlines())} threads, {limits.processes} are allowed"
    if not sandbox.run("import threading\nt = threading.Thread(target=print)\nt.start()\nt.join()").ok:
        yield "a program could not start one thread"


def _leftovers(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    """Grandchildren in sessions of their own, which nothing but their ancestor's end connects with the program."""
    code = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        for n in range(100): time.sleep(0.1)\n    os._exit(0)\nos.wait()\nprint('x')"
    )
    before = forks_of_ours()
    if not before:
        yield "none of its processes was found, so that nothing can be said about what it leaves"
    for timeout_s in (5.0, 0.3):
        sandbox.run(code if timeout_s > 1 else code.replace("print", "time.sleep(9)\nprint"), timeout_s=timeout_s)
    with sandbox.session() as session:
        session.run(code)
        session.run("1")
    until = time.monotonic() + 5
    while (left := forks_of_ours() - before) and time.monotonic() < until:
        time.sleep(0.05)
    cells = 2  # that a pool may have made for these calls
    if len(left) > cells:
        yield f"{len(left)} processes were left"


def _parent(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    with sandbox.session() as session:
        session.run("kept = 1")
        session.run(
            "import os, signal\nfor s in (15, 19, 9):\n    try: os.kill(os.getppid(), s)\n    except OSError: pass"
        )
        if session.run("print(kept)").stdout != "1\n":
            yield "a program killed or stopped what watches it"
    lowered = (
        "import os, resource\nfor kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU):\n"
        "    try: resource.prlimit(os.getppid(), kind, (1, 1)); print('done')\n    except OSError: pass"
    )
    if sys.platform == "linux" and sandbox.run(lowered).stdout:
        yield "a program changed the limits of what watches it"


def _file_size(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    run = sandbox.run(
        f"with open('big', 'wb') as file:\n    for _ in range({limits.file_mb + 16}): file.write(bytes(1 << 20))"
    )
    if run.error != "resource_limit":
        yield f"a file grew beyond its limit: {run}"
    run = sandbox.run(
        f"for n in range({2 * limits.disk_mb // limits.file_mb + 8}):\n"
        f"    open(str(n), 'wb').write(bytes({limits.file_mb} << 20))\nimport time\ntime.sleep(1)",
        timeout_s=20,
    )
    if run.error != "resource_limit":
        yield f"many files grew beyond the limit of the folder: {run}"


def _output(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    process = psutil.Process()
    before = process.memory_info().rss
    run = sandbox.run("import sys\nfor _ in range(256): sys.stdout.write('x' * 2**20)\nprint('end')", timeout_s=30)
    if not run.ok or run.stdout_bytes != 256 * _MB + 4:
        yield f"a program with much output was not read to its end: {run.error}, {run.stdout_bytes} bytes"
    if len(run.stdout) > limits.output_bytes + 200 or not run.truncated:
        yield f"{len(run.stdout)} bytes of output were kept, {limits.output_bytes} is the limit"
    if not run.stdout.endswith("end\n") or str(run.stdout_bytes) not in run.stdout:
        yield "a long output has lost its end, or does not tell its size"
    if process.memory_info().rss - before > 64 * _MB:
        yield "much output took much memory of the host"


def _apart(sandbox: Sandbox, limits: SandboxSettings) -> Iterator[str]:
    """Many at once, from threads, each with its own answer."""
    wrong: list[str] = []

    def call(number: int) -> None:
        run = sandbox.run(f"import time\ntime.sleep(0.05)\nprint({number})")
        if run.stdout != f"{number}\n":
            wrong.append(f"call {number} gave {run}")

    threads = [threading.Thread(target=call, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield from wrong[:1]


_CHECKS: tuple[Callable[[Sandbox, SandboxSettings], Iterator[str]], ...] = (
    _works, _network, _files, _private_folder, _environment, _wall_time, _cpu_time, _memory, _processes, _leftovers,
    _parent, _file_size, _output, _apart,
)  # fmt: skip


class _Listener:
    """A socket that says whether anybody came."""

    def __init__(self, family: int, address: str | tuple[str, int]) -> None:
        self._socket = socket.socket(family)
        self._socket.bind(address)
        self._socket.listen()
        self.address = self._socket.getsockname()

    def __enter__(self) -> None:
        self._socket.setblocking(False)

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def heard(self) -> bool:
        try:
            self._socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True


def _listeners() -> Iterator[tuple[int, object, _Listener]]:
    listener = _Listener(socket.AF_INET, ("127.0.0.1", 0))
    yield int(socket.AF_INET), listener.address, listener
    if sys.platform == "linux":
        abstract = f"\0rllib-{secrets.token_hex(8)}"
        yield int(socket.AF_UNIX), abstract, _Listener(socket.AF_UNIX, abstract)


def forks_of_ours() -> set[int]:
    """Warm parents below this process and all that was forked from them, wherever it hangs now.

    A fork has the command line of its warm parent, and each warm parent one of its own. So other suites on this machine
    are not seen.
    """
    ours = {line for process in psutil.Process().children(recursive=True) if _WARM in (line := _command_line(process))}
    return {process.pid for process in psutil.process_iter() if _command_line(process) in ours}


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return ""
