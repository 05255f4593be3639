"""Whether a worker is alive and at work, told over HTTP, or by a file, to whoever restarts it or sends it work.

Both have a thread of their own: a handler that blocks the event loop is what one wants to hear of.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import ConfigurationError
from holdfast.settings import Settings
from holdfast.telemetry import logs
from holdfast.wakeups.rabbitmq import Consumer
from holdfast.worker.claim import Claimer
from holdfast.worker.hand import Hand
from holdfast.worker.lease import LOOK_EVERY, LeaseKeeper

log = logs.get("health")
PORTS = 16  # tried, from the one that is set: worker processes of one machine have one each
BEAT = 1.0  # seconds; the loop beats more often
PATIENCE = 5.0  # seconds that somebody who asks may take
MOST_ASKING = 100  # at once: each costs a file, and the worker has other use for those
LONGEST_LINE = 1000
LIVE = ("loop", "claims", "lease_thread", "schema")
Health = dict[str, str]
"""By what is looked at: "ok", or what is wrong with it."""


class Vital:
    """The signs of life of one worker. Its loop and threads leave them, another thread reads."""

    def __init__(
        self, settings: Settings, claimer: Claimer, keeper: LeaseKeeper, hand: Hand, hears: Consumer | None
    ) -> None:
        self._settings = settings
        self._claimer = claimer
        self._keeper = keeper
        self._hand = hand
        self._hears = hears
        self._beat_at = self._started_at = 0.0
        self.stopping = False
        self.schema = "ok"  # or why this release cannot work with it

    def start(self) -> None:
        """The worker is known to the database and goes to work."""
        self._beat_at = self._started_at = time.monotonic()

    def beat(self) -> None:
        """Called on the event loop, several times a second, when the loop monitor asks for it."""
        self._beat_at = time.monotonic()

    def live(self) -> Health:
        """What only a new process would mend. A database that is away is none of it."""
        every = self.ready()
        return {name: every[name] for name in LIVE if name in every}

    def ready(self) -> Health:
        """Everything that is looked at."""
        if not self._started_at:
            return {"worker": "waits for its database"}
        health = {
            "worker": "stopping" if self.stopping else "ok",
            "loop": _recent("blocked", self._beat_at, 2 * BEAT),
            "claims": "ok" if self.stopping else _recent("stalled", self._turned_at, self._longest_turn),
            "lease_thread": "ok" if self._keeper.is_alive() or self.stopping else "ended",
            "renewals": "failing" if self._keeper.failing else "ok",
            "schema": self.schema,
            "database": _recent("no answer", self._answered_at, 2 * self._interval),
        }
        if self._hears is not None and (self._settings.health_require_queue or self._hears.connected):
            health["queue"] = "ok" if self._hears.connected else "not connected"
        return health

    @property
    def _turned_at(self) -> float:
        return max(self._claimer.turned_at, self._claimer.session.answered_at, self._started_at)

    @property
    def _longest_turn(self) -> float:
        """A claim may take as long as a call may; a slow database is not mended by a new worker."""
        return 2 * self._interval + (self._settings.call_timeout if self._claimer.session.asking else 0)

    @property
    def _answered_at(self) -> float:
        return max(self._claimer.session.answered_at, self._keeper.session.answered_at, self._started_at)

    @property
    def _interval(self) -> float:
        """Seconds in which the database is asked something at the least: by claims, by looks for cancels while jobs
        run; and by renewals alone where every slot waits for a thread that does not end."""
        if self._hand.lingering and not self._hand.running:
            return self._settings.renew
        return max(self._settings.poll * 1.25, LOOK_EVERY)


def _recent(trouble: str, when: float, seconds: float) -> str:
    age = time.monotonic() - when
    return "ok" if age <= seconds else f"{trouble} for {age:.1f} s"


@contextlib.contextmanager
def served(host: str, port: int, vital: Vital) -> Iterator[int]:
    """Answers on a port while a block runs; on the next free one where it is taken. Yields which."""
    server = Server(vital)
    server.start()
    try:
        yield server.open(host, port)
    finally:
        server.stop()


@contextlib.contextmanager
def kept(name: str, vital: Vital) -> Iterator[Path]:
    """Keeps a file fresh while a block runs and the worker is ready. Yields which."""
    file, over = Path(name.replace("{pid}", str(os.getpid()))), threading.Event()
    try:
        file.unlink(missing_ok=True)
        _touch(file)
        file.unlink()  # not ready yet
    except OSError as error:
        raise ConfigurationError(f"health_file: {file} cannot be written: {error.strerror}; set another") from error
    keeping = threading.Thread(target=_keep, args=(file, vital, over), name="holdfast-health-file", daemon=True)
    keeping.start()
    try:
        yield file
    finally:
        over.set()
        keeping.join(PATIENCE)


def _keep(file: Path, vital: Vital, over: threading.Event) -> None:
    while not over.wait(BEAT):
        with contextlib.suppress(OSError):  # a disk that is full: the file grows old, which says enough
            _touch(file) if _well(vital.ready()) else file.unlink(missing_ok=True)
    file.unlink(missing_ok=True)


def _touch(file: Path) -> None:
    """Make the file, or make it newer. A link is an error: in a folder like /tmp it could lead to any file."""
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    try:
        os.utime(opened)
    finally:
        os.close(opened)


def _well(health: Health) -> bool:
    return set(health.values()) <= {"ok"}


class Server(threading.Thread):
    """A thread with an event loop that answers GET /live and GET /ready, and nothing else."""

    def __init__(self, vital: Vital) -> None:
        super().__init__(name="holdfast-health", daemon=True)
        self._pages: dict[str, Callable[[], Health]] = {"/live": vital.live, "/ready": vital.ready}
        self._loop = asyncio.new_event_loop()
        self._asking: dict[asyncio.StreamWriter, None] = {}  # the oldest first

    def run(self) -> None:
        self._loop.run_forever()
        for writer in list(self._asking):
            self._hang_up(writer)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def open(self, host: str, port: int) -> int:
        """Opens the port, or one of the next; answers which."""
        number: int = asyncio.run_coroutine_threadsafe(self._open(host, port), self._loop).result()
        logs.event(log, logging.INFO, "health shown", host=host, port=number)
        return number

    def stop(self) -> None:
        """Closes the port and ends the thread."""
        self._loop.call_soon_threadsafe(self._close)
        self.join(PATIENCE)

    async def _open(self, host: str, port: int) -> int:
        for number in range(port, port + PORTS):
            try:
                self._server = await asyncio.start_server(self._answer, host, number, limit=LONGEST_LINE)
                return number
            except (OSError, OverflowError) as error:
                problem = error
        raise ConfigurationError(
            f"health_port: none of {port} to {port + PORTS - 1} can be opened on {host}: {problem}; set another"
        )

    def _close(self) -> None:
        if (server := getattr(self, "_server", None)) is not None:
            server.close()
        self._loop.stop()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._asking[writer] = None
        if len(self._asking) > MOST_ASKING:  # whoever is quick is answered, in any crowd
            self._hang_up(next(iter(self._asking)))
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(PATIENCE):
                asked = await reader.readline()
                while (await reader.readline()).strip():  # headers, of which none matters
                    pass
                writer.write(_response(*self._told(asked)))
                await writer.drain()
        writer.close()
        self._asking.pop(writer, None)

    def _hang_up(self, writer: asyncio.StreamWriter) -> None:
        del self._asking[writer]
        writer.transport.abort()

    def _told(self, asked: bytes) -> tuple[HTTPStatus, dict[str, Any]]:
        method, _, rest = asked.decode("latin-1").partition(" ")
        page = self._pages.get(rest.partition(" ")[0].partition("?")[0])
        if page is None:
            return HTTPStatus.NOT_FOUND, {"error": "there is /live and /ready"}
        if method != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, {"error": "only GET"}
        health = page()
        well = _well(health)
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        return status, {"status": "ok" if well else "unhealthy", "checks": health}


def _response(status: HTTPStatus, told: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(told) + b"\n"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\ncache-control: no-store\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
