"""Health checks of a worker, over HTTP or by a file, for orchestrators and load balancers.

Both run in their own threads, so that they can report a handler that blocks the event loop.
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
from holdfast.worker.lease import LOOK_EVERY, LeaseKeeper
from holdfast.worker.prefetch import PrefetchBuffer

log = logs.get("health")
PORTS = 16  # ports to try, from the configured one on: each worker process of a machine needs its own
BEAT = 1.0  # seconds; the loop beats more often
PATIENCE = 5.0  # seconds a client may take for its request
MOST_ASKING = 100  # open connections: each takes a file descriptor, which the worker needs elsewhere
LONGEST_LINE = 1000
LIVE = ("loop", "claims", "lease_thread", "schema")
Health = dict[str, str]
"""The result of each check: "ok", or what is wrong."""


class Vital:
    """The state behind a worker's health checks. Its loop and threads write it, another thread reads it."""

    def __init__(
        self, settings: Settings, claimer: Claimer, keeper: LeaseKeeper, buffer: PrefetchBuffer, hears: Consumer | None
    ) -> None:
        self._settings = settings
        self._claimer = claimer
        self._keeper = keeper
        self._buffer = buffer
        self._hears = hears
        self._beat_at = self._started_at = 0.0
        self.stopping = False
        self.schema = "ok"  # or the reason why this release cannot work with it

    def start(self) -> None:
        """Mark the worker as registered and started."""
        self._beat_at = self._started_at = time.monotonic()

    def beat(self) -> None:
        """Record a beat; called on the event loop several times a second, at the loop monitor's request."""
        self._beat_at = time.monotonic()

    def live(self) -> Health:
        """Return the checks that only a restart can repair; an unavailable database is not among them."""
        checks = self.ready()
        return {name: checks[name] for name in LIVE if name in checks}

    def ready(self) -> Health:
        """Return all checks."""
        if not self._started_at:
            return {"worker": "waits for its database"}
        health = {
            "worker": "stopping" if self.stopping else "ok",
            "loop": _recent("blocked", self._beat_at, 2 * BEAT),
            "claims": "ok" if self.stopping else _recent("stalled", self._turned_at, self._longest_turn),
            "lease_thread": "ok" if self._keeper.is_alive() or self.stopping else "ended",
            "renewals": "failing" if self._keeper.failing else "ok",
            "schema": self.schema,
            "database": _recent("no response", self._responded_at, 2 * self._interval),
        }
        if self._hears is not None and (self._settings.health_require_amqp or self._hears.connected):
            health["queue"] = "ok" if self._hears.connected else "not connected"
        return health

    @property
    def _turned_at(self) -> float:
        return max(self._claimer.turned_at, self._claimer.session.answered_at, self._started_at)

    @property
    def _longest_turn(self) -> float:
        """Return the seconds a claim may take. This includes the call timeout: a restart does not repair a slow
        database."""
        return 2 * self._interval + (self._settings.call_timeout if self._claimer.session.asking else 0)

    @property
    def _responded_at(self) -> float:
        return max(self._claimer.session.answered_at, self._keeper.session.answered_at, self._started_at)

    @property
    def _interval(self) -> float:
        """Return the longest time between two database calls: claims, or checks for cancels while jobs run. Only
        renewals remain where every slot waits for a thread that does not end."""
        if self._buffer.lingering and not self._buffer.running:
            return self._settings.renew
        return max(self._settings.poll * 1.25, LOOK_EVERY)


def _recent(trouble: str, when: float, seconds: float) -> str:
    age = time.monotonic() - when
    return "ok" if age <= seconds else f"{trouble} for {age:.1f} s"


@contextlib.contextmanager
def served(host: str, port: int, vital: Vital) -> Iterator[int]:
    """Serve health checks on this port, or the next free one, while a block runs. Yields the port."""
    server = Server(vital)
    server.start()
    try:
        yield server.open(host, port)
    finally:
        server.stop()


@contextlib.contextmanager
def kept(name: str, vital: Vital) -> Iterator[Path]:
    """Touch a file every second while a block runs and the worker is ready. Yields the file."""
    file, over = Path(name.replace("{pid}", str(os.getpid()))), threading.Event()
    try:
        file.unlink(missing_ok=True)
        _touch(file)
        file.unlink()  # the worker is not ready yet
    except OSError as error:
        raise ConfigurationError(f"health_file: {file} cannot be written: {error.strerror}; set another") from error
    thread = threading.Thread(target=_keep, args=(file, vital, over), name="holdfast-health-file", daemon=True)
    thread.start()
    try:
        yield file
    finally:
        over.set()
        thread.join(PATIENCE)


def _keep(file: Path, vital: Vital, over: threading.Event) -> None:
    while not over.wait(BEAT):
        with contextlib.suppress(OSError):  # a full disk, for example: the file becomes old, as for an unready worker
            _touch(file) if _healthy(vital.ready()) else file.unlink(missing_ok=True)
    file.unlink(missing_ok=True)


def _touch(file: Path) -> None:
    """Create the file, or update its time. A link is an error: in a folder like /tmp it could point to any file."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)


def _healthy(health: Health) -> bool:
    return set(health.values()) <= {"ok"}


class Server(threading.Thread):
    """A thread with an event loop that serves GET /live and GET /ready, and nothing else."""

    def __init__(self, vital: Vital) -> None:
        super().__init__(name="holdfast-health", daemon=True)
        self._pages: dict[str, Callable[[], Health]] = {"/live": vital.live, "/ready": vital.ready}
        self._loop = asyncio.new_event_loop()
        self._clients: dict[asyncio.StreamWriter, None] = {}  # oldest first

    def run(self) -> None:
        self._loop.run_forever()
        for writer in list(self._clients):
            self._hang_up(writer)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def open(self, host: str, port: int) -> int:
        """Open the port, or one of the next; return its number."""
        number: int = asyncio.run_coroutine_threadsafe(self._open(host, port), self._loop).result()
        logs.event(log, logging.INFO, "health shown", host=host, port=number)
        return number

    def stop(self) -> None:
        """Close the port and end the thread."""
        self._loop.call_soon_threadsafe(self._close)
        self.join(PATIENCE)

    async def _open(self, host: str, port: int) -> int:
        for number in range(port, port + PORTS):
            try:
                self._server = await asyncio.start_server(self._serve, host, number, limit=LONGEST_LINE)
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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients[writer] = None
        if len(self._clients) > MOST_ASKING:  # drop the oldest, so that fast clients are served
            self._hang_up(next(iter(self._clients)))
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(PATIENCE):
                request_line = await reader.readline()
                while (await reader.readline()).strip():  # skip the headers
                    pass
                writer.write(_response(*self._respond(request_line)))
                await writer.drain()
        writer.close()
        self._clients.pop(writer, None)

    def _hang_up(self, writer: asyncio.StreamWriter) -> None:
        del self._clients[writer]
        writer.transport.abort()

    def _respond(self, request_line: bytes) -> tuple[HTTPStatus, dict[str, Any]]:
        method, _, rest = request_line.decode("latin-1").partition(" ")
        page = self._pages.get(rest.partition(" ")[0].partition("?")[0])
        if page is None:
            return HTTPStatus.NOT_FOUND, {"error": "not found; use /live or /ready"}
        if method != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, {"error": "method not allowed; use GET"}
        health = page()
        healthy = _healthy(health)
        status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
        return status, {"status": "ok" if healthy else "unhealthy", "checks": health}


def _response(status: HTTPStatus, content: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(content) + b"\n"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\ncache-control: no-store\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
