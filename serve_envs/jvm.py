"""Java under an environment: a few warm virtual machines a process, each shared by many sessions."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from rllib_agentic.errors import InfrastructureError
from serve_envs.warm_pool import WarmPool

T = TypeVar("T")
# It writes a stack trace for every Java object that is freed after its machine has ended.
logging.getLogger("py4j").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class JvmSettings:
    """How to start a virtual machine.

    Attributes:
        jar: the program.
        folder: the working directory that it wants.
        main: the Java class of a session, with a constructor that takes nothing.
        options: of the virtual machine.
        serial: one call at a time on one virtual machine, for programs whose sessions are not safe from one another.
        call_timeout_s: a call that takes longer means that the machine hangs: it is killed.
    """

    jar: str
    folder: str
    main: str
    options: tuple[str, ...] = ()
    serial: bool = False
    call_timeout_s: float = 120.0


class Jvm:
    """One virtual machine; it starts at its first use and ends by itself when this process does, however that ends.

    Args:
        settings: how to start it.
    """

    def __init__(self, settings: JvmSettings) -> None:
        self._settings = settings
        self._state = threading.Lock()
        self._turns: contextlib.AbstractContextManager[Any] = (
            threading.Lock() if settings.serial else contextlib.nullcontext()
        )
        self._dead = False
        self._process: Any = None
        self._gateway: JavaGateway | None = None
        self._spare: list[Any] = []

    @property
    def dead(self) -> bool:
        """Whether it was killed, hung or died."""
        process = self._process
        return self._dead or (process is not None and process.poll() is not None)

    @property
    def process_id(self) -> int | None:
        """Of the virtual machine, while it runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    @contextlib.contextmanager
    def turn(self) -> Iterator[JavaGateway]:
        """Talk to it.

        Raises:
            InfrastructureError: ``session_lost``: it died, hung, or did not start.
        """
        with self._turns:
            try:
                yield self._started()
            except Py4JJavaError:
                raise  # the program itself complained: the machine is well
            except (Py4JError, OSError, ValueError) as error:
                if isinstance(error, ValueError) and self._gateway is not None:
                    raise  # not the number of a port that a machine never wrote
                self.kill()
                name = self._settings.main
                raise InfrastructureError("session_lost", f"the virtual machine of {name} is gone: {error}") from error

    def take(self) -> Any:
        """A session's object, within a turn: one that was used before, or a new one."""
        try:
            return self._spare.pop()
        except IndexError:
            maker: Any = self._started().jvm
            for name in self._settings.main.split("."):
                maker = getattr(maker, name)
            return maker()

    def put_back(self, used: Any) -> None:
        """The object may be used for another session."""
        if not self.dead:
            self._spare.append(used)

    def kill(self) -> None:
        """End it at once, and reap it."""
        self._dead = True
        with self._state:
            process, gateway = self._process, self._gateway
            self._process = self._gateway = None
            self._spare.clear()
        if gateway is not None:
            gateway.close()
        if process is not None:
            process.kill()
            process.wait()
            process.stdin.close()

    def _started(self) -> JavaGateway:
        with self._state:
            if self._dead:
                raise OSError("it was stopped")
            if self._gateway is None:
                settings = self._settings
                # die_on_exit: it ends once its standard input closes, also where this process is killed.
                # UsePerfData: its figures would be a file among the temporary ones, which a killed machine leaves.
                port, token, self._process = launch_gateway(
                    classpath=settings.jar,
                    cwd=settings.folder,
                    javaopts=["-XX:-UsePerfData", *settings.options],
                    die_on_exit=True,
                    enable_auth=True,
                    return_proc=True,
                )
                parameters = GatewayParameters(port=port, auth_token=token, read_timeout=settings.call_timeout_s)
                self._gateway = JavaGateway(gateway_parameters=parameters)
            return self._gateway


class JvmSession:
    """One session's object in a virtual machine; used by one thread at a time.

    Args:
        pool: where the machine comes from.
    """

    def __init__(self, pool: WarmPool[Jvm]) -> None:
        self._pool = pool
        self._machine: Jvm | None = pool.lease()
        self._object: Any = None

    @property
    def lost(self) -> bool:
        """Whether its virtual machine is gone, so that nothing can be done with it any more."""
        return self._machine is None or self._machine.dead

    def call(self, work: Callable[[Any], T]) -> T:
        """Do something with the object.

        Args:
            work: takes the object; may call it many times.

        Raises:
            InfrastructureError: ``session_lost``: the virtual machine died or hung.
        """
        if self._machine is None:
            raise InfrastructureError("session_lost", "the session's virtual machine was given back")
        with self._machine.turn():
            if self._object is None:
                self._object = self._machine.take()
            return work(self._object)

    def close(self) -> None:
        """Give the object back for another session; may be called more than once."""
        machine, self._machine = self._machine, None
        if machine is not None:
            if self._object is not None:
                machine.put_back(self._object)
            self._pool.give_back(machine)
