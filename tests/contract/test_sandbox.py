"""Every isolation that works here, held to one suite and to the known faults of other sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.sandbox import Execution, OutputShape, SandboxSettings, WarmSandbox
from rllib_agentic.sandbox.launch import IsolationError
from rllib_agentic.sandbox.self_check import forks_of_ours, self_check

WARM = "rllib_agentic.sandbox.inside.warm_parent"
LIMITS = SandboxSettings(cpu_s=1.0, memory_mb=128, processes=8, file_mb=4, disk_mb=16, packages=())


def started(isolation: str, limits: SandboxSettings = LIMITS) -> WarmSandbox:
    """A sandbox; the test is skipped, with the reason, where this isolation does not work."""
    try:
        return WarmSandbox(limits.model_copy(update={"isolation": isolation}))
    except IsolationError as error:
        pytest.skip(f"NOT TESTED: {error}")


@pytest.fixture(scope="module", params=["namespaces", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[WarmSandbox]:
    os.environ["HF_TOKEN"], os.environ["AWS_SECRET_ACCESS_KEY"] = "t0p", "k"
    try:
        with started(request.param) as one:
            yield one
    finally:
        del os.environ["HF_TOKEN"], os.environ["AWS_SECRET_ACCESS_KEY"]


def below(sandbox: WarmSandbox) -> list[psutil.Process]:
    """The warm parent's processes."""
    process = psutil.Process(sandbox._pool.parent._process.pid)
    return [process, *process.children(recursive=True)]


def busy_elsewhere(sandbox: WarmSandbox) -> list[int]:
    """Forks of our warm parents that compute, wherever they hang: no test has one running now."""
    forks = []
    for number in forks_of_ours():
        with contextlib.suppress(psutil.NoSuchProcess):
            forks.append(psutil.Process(number))
    known = {process.pid for process in below(sandbox)[:2]}
    for process in forks:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.cpu_percent()
    time.sleep(0.3)
    busy = []
    for process in forks:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.cpu_percent() > 5 and process.pid not in known:
                busy.append(process.pid)
    return busy


def test_nothing_gets_out(sandbox: WarmSandbox) -> None:
    assert self_check(sandbox, LIMITS) == []


def test_processes_of_another_suite_are_not_ours() -> None:
    """They hang elsewhere: the shell that started them has ended."""
    program = (
        "import sys\nfrom rllib_agentic.sandbox import SandboxSettings, WarmSandbox\n"
        "with WarmSandbox(SandboxSettings(packages=())) as other:\n"
        "    print(other._pool.parent._process.pid, flush=True)\n    sys.stdin.read()"
    )
    command = ["sh", "-c", 'exec 3<&0; "$0" -c "$1" <&3 &', sys.executable, program]
    with (
        started("auto") as sandbox,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell,
    ):
        assert shell.stdin is not None and shell.stdout is not None
        theirs = int(shell.stdout.readline())
        assert WARM in " ".join(psutil.Process(theirs).cmdline())
        ours = forks_of_ours()
        shell.stdin.close()
        assert shell.stdout.read() == ""  # it has ended
        assert {process.pid for process in below(sandbox)} <= ours
    assert theirs not in ours


# --- the cases of shared knowledge, by their names --------------------------------------------------------------------


def test_sb01_stdout_is_exact(sandbox: WarmSandbox) -> None:
    run = sandbox.run("print('42', end='')")
    assert (run.stdout, run.exit_code, run.error) == ("42", 0, None)


def test_sb02_an_empty_output_says_how_to_print(sandbox: WarmSandbox) -> None:
    assert OutputShape()(sandbox.run("x = 6*7\nx")) == "(no output; use print() to see a value)"


@pytest.mark.parametrize(
    "code",
    [
        "print('a', flush=True)\nwhile True: pass",
        "import time; time.sleep(1e6)",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass",
    ],
)
def test_sb03_what_does_not_end_is_ended(sandbox: WarmSandbox, code: str) -> None:
    run = sandbox.run(code, timeout_s=0.4)
    assert run.error == "timeout"
    assert run.stdout == ("a\n" if "print" in code else "")
    assert OutputShape()(run).splitlines()[-1].startswith("TimeoutError: stopped by the wall time limit of 0.4 s")


def test_sb05_no_zombies(sandbox: WarmSandbox) -> None:
    for _ in range(50):
        assert sandbox.run("while True: pass", timeout_s=0.02).error == "timeout"
    assert [process for process in below(sandbox) if process.status() == psutil.STATUS_ZOMBIE] == []


def test_sb06_forks_are_few_and_leave_with_the_program(sandbox: WarmSandbox) -> None:
    assert sandbox.run("import os\nwhile True: os.fork()", timeout_s=2).error is not None
    double = "import os,time\nif os.fork()==0:\n os.setsid()\n if os.fork()==0: time.sleep(600)\nprint('x')"
    began = time.monotonic()
    sandbox.run(double, timeout_s=3)
    assert time.monotonic() - began < 30
    assert sandbox.run("print(1)").ok


def test_sb07_standard_input(sandbox: WarmSandbox) -> None:
    run = sandbox.run("x=input()")
    assert run.exit_code == 1 and "EOFError" in run.stderr
    assert sandbox.run("print(input()[::-1])", stdin="abc\n").stdout == "cba\n"


def test_sb08_a_long_output_keeps_its_ends_and_tells_its_size(sandbox: WarmSandbox) -> None:
    before = psutil.Process().memory_info().rss
    run = sandbox.run("import sys\nfor _ in range(256): sys.stdout.write('x'*2**20)", timeout_s=30)
    assert run.ok and run.truncated and str(2**28) in run.stdout
    assert len(run.stdout.encode()) <= 66000
    assert psutil.Process().memory_info().rss - before < 64 * 2**20


@pytest.mark.parametrize(
    "code",
    ["f=open('big','wb')\nfor _ in range(1024): f.write(b'0'*2**20)", "a=bytearray(10*2**30); print(len(a))"],
)
def test_sb10_disk_and_memory(sandbox: WarmSandbox, code: str) -> None:
    assert sandbox.run(code, timeout_s=20).error == "resource_limit"
    assert sandbox.run("print(1)").ok


@pytest.mark.parametrize(
    ("code", "exit_code", "stdout"),
    [
        ("raise SystemExit(0)", 0, ""),
        ("import sys; print('a'); sys.exit('bye')", 1, "a\n"),
        ("import os; print('a'); os._exit(3)", 3, ""),
        ("raise KeyboardInterrupt", -2, ""),
        ("import os,signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
        ("exit()", 0, ""),
        ("print('b'); quit(2)", 2, "b\n"),
    ],
)
def test_sb11_every_way_out(sandbox: WarmSandbox, code: str, exit_code: int, stdout: str) -> None:
    run = sandbox.run(code)
    assert (run.exit_code, run.stdout) == (exit_code, stdout)
    assert run.ok == (exit_code == 0)
    if "bye" in code:
        assert run.stderr == "bye\n"


def test_sb12_bytes_that_are_no_text(sandbox: WarmSandbox) -> None:
    assert sandbox.run("import sys; sys.stdout.buffer.write(b'ok\\xff\\xfe')").stdout == "ok\ufffd\ufffd"
    run = sandbox.run("print('\\ud800')")
    assert run.exit_code == 1 and "UnicodeEncodeError" in run.stderr


def test_sb13_control_characters(sandbox: WarmSandbox) -> None:
    run = sandbox.run("print('a\\0b\\x1b[31mc\\r<|im_end|>')")
    assert json.loads(json.dumps(run.stdout)) == run.stdout == "a\0b\x1b[31mc\r<|im_end|>\n"
    assert OutputShape()(run) == "a\ufffdbc\n<|im_end|>"


def test_sb15_a_clean_environment(sandbox: WarmSandbox) -> None:
    names = sandbox.run("import os; print(*sorted(os.environ))").stdout.split()
    assert "HF_TOKEN" not in names and "AWS_SECRET_ACCESS_KEY" not in names
    assert "PATH" in names


def test_sb16_no_network_no_files_of_others(sandbox: WarmSandbox) -> None:
    assert not sandbox.run("import urllib.request as u; u.urlopen('http://127.0.0.1:80',timeout=2)").ok
    assert not sandbox.run("print(open('/etc/shadow').read())").ok
    sandbox.run("open('/tmp/x_shared','w').write('1')")
    assert sandbox.run("import os; print(os.path.exists('/tmp/x_shared'))").stdout == "False\n"
    assert not os.path.exists("/tmp/x_shared")


def test_nothing_is_left_in_a_folder_that_was_locked(sandbox: WarmSandbox) -> None:
    sandbox.run(
        "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w').write('1')\nos.mkdir('d', 0)\nos.symlink('/', 'a/e')"
    )
    sandbox.run("import os\nos.makedirs('a/b')\nos.chmod('a/b', 0)\nos.chmod('a', 0)\nos.chmod('.', 0)")
    run = sandbox.run("import os\nprint(os.listdir())\nopen('x', 'w').write('1')")
    assert (run.stdout, run.error) == ("[]\n", None)


CALLS = ["if __name__=='__main__': print('m')", "x=5", "print(x)"]


def test_sb17_state_is_as_asked_for(sandbox: WarmSandbox) -> None:
    alone = [sandbox.run(code) for code in CALLS]
    assert [run.stdout for run in alone] == ["m\n", "", ""]
    assert "NameError" in alone[2].stderr
    with sandbox.session() as session:
        assert [session.run(code).stdout for code in CALLS] == ["m\n", "", "5\n"]


def test_sb18_a_thread_prints_late(sandbox: WarmSandbox) -> None:
    code = "import threading,time\nlate = lambda:(time.sleep(.3),print('late'))\n"
    code += "threading.Thread(target=late).start()\nprint('main')"
    assert sandbox.run(code).stdout == "main\nlate\n"
    with sandbox.session() as session:
        assert session.run(code).stdout == "main\nlate\n"


@pytest.mark.parametrize(
    ("code", "stdout"),
    [
        ("```python\nprint(1)\n```", "1\n"),
        ("\ufeffprint(1)", "1\n"),
        ("print(1)\r\nprint(2)\r\n", "1\n2\n"),
        ("    print(1)\n    print(2)", "1\n2\n"),
        ("~~~\n\tprint(1)\n\tprint(2)\n~~~\n", "1\n2\n"),
    ],
)
def test_sb19_code_is_cleaned(sandbox: WarmSandbox, code: str, stdout: str) -> None:
    assert sandbox.run(code).stdout == stdout


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_call_that_is_stopped_keeps_the_variables_if_it_listens(sandbox: WarmSandbox) -> None:
    with sandbox.session() as session:
        session.run("x = 5")
        run = session.run("while True: pass", timeout_s=0.3)
        assert run.error == "timeout" and not run.variables_lost
        assert session.run("print(x)").stdout == "5\n"
        deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
        run = session.run(deaf, timeout_s=0.3)
        assert run.error == "timeout" and run.variables_lost
        assert OutputShape()(run).endswith("(the interpreter was restarted; its variables are gone)")
        assert "NameError" in session.run("print(x)").stderr


def test_exits_and_errors_within_a_session(sandbox: WarmSandbox) -> None:
    with sandbox.session() as session:
        assert session.run("x = 5\nimport sys; sys.exit(3)").exit_code == 3
        assert session.run("print(x); 1/0").stdout == "5\n"
        assert session.run("print(x)").stdout == "5\n"
        assert session.run("import os; os._exit(2)").variables_lost


def test_nothing_of_a_session_runs_between_its_calls(sandbox: WarmSandbox) -> None:
    code = (
        "import threading, time\nn = 0\ndef count():\n    global n\n"
        "    while True: n += 1; time.sleep(0.001)\nthreading.Thread(target=count, daemon=True).start()"
    )
    with sandbox.session() as session:
        session.run(code)
        first = int(session.run("print(n)").stdout)
        time.sleep(0.5)
        assert int(session.run("print(n)").stdout) - first < 100


def test_input_of_each_call(sandbox: WarmSandbox) -> None:
    with sandbox.session() as session:
        assert [session.run("print(input())", stdin=text).stdout for text in ("a", "b")] == ["a\n", "b\n"]
        assert "EOFError" in session.run("input()").stderr


# --- behaviour as a script --------------------------------------------------------------------------------------------


def test_tracebacks_show_the_program_alone(sandbox: WarmSandbox) -> None:
    run = sandbox.run("def f():\n    return 1 / 0\nf()")
    lines = run.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "ZeroDivisionError: division by zero"
    assert [line.strip() for line in lines if "File" in line] == [
        'File "main.py", line 3, in <module>',
        'File "main.py", line 2, in f',
    ]
    assert "return 1 / 0" in run.stderr
    assert sandbox.run("f(:").stderr.startswith('  File "main.py", line 1\n    f(:\n')


@pytest.mark.parametrize("code", ["a\0b", "(" * 3000, "\ud800"])
def test_code_that_is_no_code(sandbox: WarmSandbox, code: str) -> None:
    assert sandbox.run(code).exit_code != 0
    assert sandbox.run("print(1)").stdout == "1\n"


def test_equal_seeds_give_equal_output(sandbox: WarmSandbox) -> None:
    code = "import random\nprint(random.random(), {'a', 'b', 'c', 'd'})"
    assert sandbox.run(code, seed=1).stdout == sandbox.run(code, seed=1).stdout
    assert sandbox.run(code, seed=1).stdout != sandbox.run(code, seed=2).stdout


def test_event_loops_and_data_classes_work(sandbox: WarmSandbox) -> None:
    code = (
        "import asyncio, dataclasses, pickle\n@dataclasses.dataclass\nclass A:\n    x: int\n"
        "async def f(): return pickle.loads(pickle.dumps(A(3)))\nprint(asyncio.run(f()))"
    )
    assert sandbox.run(code).stdout == "A(x=3)\n"


def test_a_forged_report_changes_nothing_but_ones_own_result(sandbox: WarmSandbox) -> None:
    for text in (b"\xff" * 64, b"\0\0\0\2\0\0\0\0[]", b"\0\0\0\4\0\0\0\0null", b"\xff\xff\xff\xff" * 2):
        run = sandbox.run(f"import os\nos.write(3, {text!r})\nprint('on')")
        assert run.stdout == "on\n"
    assert sandbox.run("print(1)").ok


# --- callers ----------------------------------------------------------------------------------------------------------


def test_many_at_once_in_an_event_loop(sandbox: WarmSandbox) -> None:
    async def many() -> list[Execution]:
        return await asyncio.gather(*(sandbox.arun(f"print({n})") for n in range(20)))

    assert [run.stdout for run in asyncio.run(many())] == [f"{n}\n" for n in range(20)]


def test_a_cancelled_call_is_gone(sandbox: WarmSandbox) -> None:
    async def cancel() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await sandbox.arun("while True: pass", timeout_s=60)

    asyncio.run(cancel())
    until = time.monotonic() + 10
    while (busy := busy_elsewhere(sandbox)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not busy
    assert sandbox.run("print(1)").ok


def test_more_callers_than_cells_wait_their_turn() -> None:
    limits = LIMITS.model_copy(update={"most_cells": 2})
    with started("auto", limits) as few, ThreadPoolExecutor(8) as threads:
        runs = list(threads.map(lambda n: few.run(f"import time\ntime.sleep(0.05)\nprint({n})"), range(8)))
        assert [run.stdout for run in runs] == [f"{n}\n" for n in range(8)]
        assert len(few._pool._idle) <= 2


def test_who_waits_for_a_cell_and_gives_up_keeps_none() -> None:
    async def waits(few: WarmSandbox) -> str:
        first = asyncio.create_task(few.arun("import time\ntime.sleep(0.5)"))
        await asyncio.sleep(0.2)
        others = [asyncio.create_task(few.arun("1")) for _ in range(3)]
        await asyncio.sleep(0.1)
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await first
        return (await asyncio.wait_for(few.arun("print('mine')"), 20)).stdout

    with started("auto", LIMITS.model_copy(update={"most_cells": 1})) as few:
        assert asyncio.run(waits(few)) == "mine\n"


def test_a_dead_warm_parent_is_replaced() -> None:
    with started("auto") as sandbox:
        assert sandbox.run("print(1)").ok
        for process in below(sandbox):
            process.kill()
        sandbox._pool.parent._process.wait(10)
        assert sandbox.run("print(2)").stdout == "2\n"


def test_a_closed_sandbox_says_so_and_leaves_no_process() -> None:
    sandbox = started("auto")
    session = sandbox.session()
    session.run("x = 1")
    family = below(sandbox)
    assert family
    sandbox.close()
    sandbox.close()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    with pytest.raises(InfrastructureError, match="closed"):
        sandbox.run("print(1)")
    with pytest.raises(InfrastructureError):
        session.run("print(x)")


def test_a_thread_that_started_it_may_end() -> None:
    made: list[WarmSandbox] = []
    thread = threading.Thread(target=lambda: made.append(started("auto")))
    thread.start()
    thread.join()
    with made[0] as sandbox:
        time.sleep(0.2)
        assert sandbox.run("print(1)").ok


def test_no_isolation_is_only_on_demand_and_warns() -> None:
    """Only harmless programs here: nothing holds them."""
    with pytest.warns(UserWarning, match="isolation is 'none'"), started("none") as sandbox:
        assert sandbox.isolation == "none"
        assert sandbox.run("print(1)").stdout == "1\n"
        assert sandbox.run("while True: pass", timeout_s=0.2).error == "timeout"
        open_ports = [fault for fault in _harmless_check(sandbox) if fault.check == "network"]
        assert open_ports, "the self check must find what is open"


def _harmless_check(sandbox: WarmSandbox) -> list:
    from rllib_agentic.sandbox import self_check as module

    return [module.Fault("network", what) for what in module._network(sandbox, LIMITS)]


def test_with_isolation_there_is_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        started("auto").close()


def test_a_package_that_is_not_there_stops_the_start() -> None:
    with pytest.raises(InputError, match="no_such_package"):
        WarmSandbox(LIMITS.model_copy(update={"packages": ("no_such_package",)}))


def test_nothing_runs_where_nothing_isolates(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(settings: SandboxSettings, isolation: str) -> None:
        raise IsolationError(f"sandbox: {isolation}: not here")

    monkeypatch.setattr("rllib_agentic.sandbox.warm.WarmParent", fails)
    with pytest.raises(InputError, match=r"namespaces: not here.*landlock: not here.*docs/security\.md"):
        WarmSandbox(LIMITS)
