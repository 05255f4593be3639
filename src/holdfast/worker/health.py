"""Health checks of a worker, over HTTP (probes.py) or by a file, for orchestrators and load balancers.

Both run in their own threads, so that they can report a handler that blocks the event loop.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import ConfigurationError
from holdfast.model.clock import CLOCK, Clock
from holdfast.settings import Settings
from holdfast.store.wire.session import Session
from holdfast.telemetry.systemd import Notifier
from holdfast.wakeups.rabbitmq import Consumer
from holdfast.worker.cancel import POLL_INTERVAL
from holdfast.worker.claim import Claimer
from holdfast.worker.lease import LeaseKeeper
from holdfast.worker.prefetch import PrefetchBuffer
from holdfast.worker.stop import Shutdown

if TYPE_CHECKING:
    from holdfast.worker.probes import Page

BEAT = 1.0  # seconds; the loop beats more often
PATIENCE = 5.0  # seconds for the file's thread to end
LIVE = ("loop", "claims", "lease_thread", "schema")
Checks = dict[str, str]
"""The result of each check: "ok", or what is wrong."""


class Health:
    """The state behind a worker's health checks. Its loop and threads write it, another thread reads it."""

    def __init__(
        self,
        settings: Settings,
        claimer: Claimer,
        keeper: LeaseKeeper,
        buffer: PrefetchBuffer,
        reporting: Session,
        consumer: Consumer | None,
        shutdown: Shutdown,
        clock: Clock = CLOCK,
    ) -> None:
        self._settings = settings
        self._claimer = claimer
        self._keeper = keeper
        self._buffer = buffer
        self._reporting = reporting
        self._consumer = consumer
        self._shutdown = shutdown
        self._clock = clock
        self._beat_at = self._started_at = 0.0
        self.notifier: Notifier | None = None  # to the service manager, if it watches this process

    def start(self) -> None:
        """Mark the worker as registered and started."""
        self._beat_at = self._started_at = self._clock.monotonic()

    def beat(self) -> None:
        """Record a beat; called on the event loop several times a second, at the loop monitor's request."""
        self._beat_at = self._clock.monotonic()

    @property
    def has_claimed(self) -> bool:
        """Return whether a claim has worked, with jobs or without."""
        return self._claimer.intake.counts.claims > 0

    def report(self) -> None:
        """Report to the service manager; called on the event loop several times a second, so a blocked loop reports
        nothing."""
        if self.notifier is None:
            return
        if self._shutdown.requested.is_set():
            self.notifier.stopping()
        elif self.has_claimed:
            self.notifier.ready()
        self.notifier.alive(lambda: _healthy(self.live()))

    def live(self) -> Checks:
        """Return the checks that only a restart can repair; an unavailable database is not among them."""
        checks = self.ready()
        return {name: checks[name] for name in LIVE if name in checks}

    def ready(self) -> Checks:
        """Return all checks."""
        if not self._started_at:
            return {"worker": "waits for its database"}
        stopping, mismatch = self._shutdown.requested.is_set(), self._shutdown.mismatch
        health = {
            "worker": "stopping" if stopping else "ok",
            "loop": self._recent("blocked", self._beat_at, 2 * BEAT),
            "claims": "ok" if stopping else self._recent("stalled", self._turned_at, self._longest_turn),
            "lease_thread": "ok" if self._keeper.is_alive() or stopping else "ended",
            "renewals": "ok" if self._keeper.renews() else "failing",
            "schema": "ok" if mismatch is None else str(mismatch),
            "database": self._recent("no response", self._responded_at, 2 * self._interval),
        }
        consumer = self._consumer
        if consumer is not None and (self._settings.health_require_amqp or consumer.connected):
            health["queue"] = "ok" if consumer.connected else "not connected"
        return health

    def pages(self) -> dict[str, Page]:
        """Return the pages of the health port."""
        return {"/live": lambda _: _page(self.live()), "/ready": lambda _: _page(self.ready())}

    def _recent(self, trouble: str, when: float, seconds: float) -> str:
        age = self._clock.monotonic() - when
        return "ok" if age <= seconds else f"{trouble} for {age:.1f} s"

    @property
    def _turned_at(self) -> float:
        return max(self._claimer.turned_at, self._claimer.intake.session.answered_at, self._started_at)

    @property
    def _longest_turn(self) -> float:
        """Return the seconds a claim may take. This includes the call timeout: a restart does not repair a slow
        database."""
        return 2 * self._interval + (self._settings.call_timeout if self._claimer.intake.session.asking else 0)

    @property
    def _responded_at(self) -> float:
        sessions = (self._claimer.intake.session, self._reporting, self._keeper.session)
        return max(self._started_at, *(session.answered_at for session in sessions))

    @property
    def _interval(self) -> float:
        """Return the longest time between two database calls: claims, or polls for cancels while jobs run. Only
        renewals remain where every slot waits for a thread that does not end."""
        if self._buffer.lingering and not self._buffer.running:
            return self._settings.renew
        return max(self._settings.poll * 1.25, POLL_INTERVAL)


def _page(checks: Checks) -> tuple[bytes, str, HTTPStatus]:
    from holdfast.worker.probes import json_page  # imported late: http.server takes 20 ms

    healthy = _healthy(checks)
    status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
    return json_page({"status": "ok" if healthy else "unhealthy", "checks": checks}, status)


def _healthy(checks: Checks) -> bool:
    return set(checks.values()) <= {"ok"}


class HealthFile:
    """A file that is touched while a worker is ready, and removed while it is not."""

    def __init__(self, name: str) -> None:
        self.path = Path(name.replace("{pid}", str(os.getpid())))
        try:
            self.path.unlink(missing_ok=True)
            self._touch()
            self.path.unlink()  # the worker is not ready yet
        except OSError as error:
            raise ConfigurationError(
                f"health_file: {self.path} cannot be written: {error.strerror}; set another"
            ) from error

    def update(self, ready: bool) -> None:
        """Touch or remove the file. If that fails, the file becomes old, as for a worker that is not ready."""
        with contextlib.suppress(OSError):  # a full disk, for example
            self._touch() if ready else self.path.unlink(missing_ok=True)

    def _touch(self) -> None:
        """Create the file, or update its time. A link is an error: in a folder like /tmp it could point to any file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o644)
        try:
            os.utime(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def kept(name: str, ready: Callable[[], Checks]) -> Iterator[HealthFile]:
    """Update a health file every second while a block runs."""
    file, over = HealthFile(name), threading.Event()

    def keep() -> None:
        while not over.wait(BEAT):
            file.update(_healthy(ready()))
        file.update(False)

    thread = threading.Thread(target=keep, name="holdfast-health-file", daemon=True)
    thread.start()
    try:
        yield file
    finally:
        over.set()
        thread.join(PATIENCE)
