"""Renew the worker's leases from a separate thread and connection.

The protocol: a claim is valid for `lease` seconds and is renewed every `renew` seconds. Each lease has a deadline,
counted from before the last successful renewal was sent. Shortly before a deadline that no renewal has moved, the lease
is treated as lost: its handlers are canceled, and nothing is claimed until the database responds again. While the event
loop is blocked, renewals count from its last beat (beat.py), so the leases of a stuck worker expire although this
thread runs. So no other worker can start a job while this one still believes it holds the lease. The exception is a
process that was stopped as a whole: its token is old, and every write it attempts is refused.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from holdfast.errors import HoldfastError, SchemaError
from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.store.wire.session import ThreadSession
from holdfast.telemetry import logs
from holdfast.worker.prefetch import Lease, PrefetchBuffer

log = logs.get("lease")
LOOK_EVERY = 2.0  # seconds between checks for cancel requests


class LeaseKeeper(threading.Thread):
    """Renews leases until stopped. It calls on_lost with lost tokens, from its own thread."""

    def __init__(
        self,
        worker: str,
        settings: Settings,
        calls: Calls,
        buffer: PrefetchBuffer,
        on_lost: Callable[[Sequence[int]], None],
        on_cancel: Callable[[Sequence[str]], None],
        on_mismatch: Callable[[SchemaError], None],
        renewable: Callable[[], float],
    ) -> None:
        super().__init__(name="holdfast-lease", daemon=True)
        # A renewal that hangs is as bad as one that fails, so its timeout is shorter than that of other calls.
        short = settings.with_(call_timeout=min(settings.call_timeout, max(settings.renew, 1.0)))
        self.session = ThreadSession(short, "renew")
        self._worker = worker
        self._settings = settings
        self._calls = calls
        self._buffer = buffer
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._on_mismatch = on_mismatch
        self._renewable = renewable
        self._stir = threading.Event()
        self._stopping = False
        self._margin = min(settings.lease * 0.1, 3.0)
        self._renewed_at = time.monotonic()
        self._failing = False
        self._warnings = logs.Seldom(log)

    @property
    def failing(self) -> bool:
        """Return whether renewals fail or hang, so that nothing more may be claimed."""
        late = time.monotonic() - self._renewed_at > self._settings.renew * 1.5 + self._margin
        return self._failing or late

    def run(self) -> None:
        self._renewed_at = time.monotonic()
        due = self._renewed_at + self._settings.renew
        while not self._stopping:
            self._stir.wait(max(min(due - time.monotonic(), LOOK_EVERY), 0))
            self._stir.clear()
            if (now := time.monotonic()) >= due:
                due = now + self._renew()
            if self._buffer.running and not self._failing and not self._stopping:
                self._look_for_cancels()
        self.session.close()

    def _look_for_cancels(self) -> None:
        """Read which jobs are to be canceled. A notification is only a hint, because any database client may send one.
        It may also be lost, or there is no listener, so this runs periodically too."""
        try:
            ids = self.session.run(self._calls.jobs.wanted_cancels(list(self._buffer.leases)))
        except HoldfastError as error:
            self._warnings.failed("cancel requests not read", error)
            return
        if ids:
            self._on_cancel(ids)

    def look_soon(self) -> None:
        """Check for cancel requests at once; safe to call from any thread."""
        self._stir.set()

    def stop(self) -> None:
        """End the thread after the current call."""
        self._stopping = True
        self._stir.set()

    def _renew(self) -> float:
        """Renew all leases; return the seconds until the next renewal."""
        leases = list(self._buffer.leases.values())
        before = time.monotonic()
        soon = max(self._settings.renew / 10, 0.05)
        if not (seconds := self._renewable()):
            self._failing = True
            self._warnings.warn("leases not renewed: the event loop is stuck", leases=len(leases))
            return soon
        try:
            tokens = self.session.run(self._calls.workers.renew(self._worker, [x.token for x in leases], seconds))
        except HoldfastError as error:
            self._failing = True
            self._warnings.failed("renewal failed", error, leases=len(leases))
            if isinstance(error, SchemaError):
                self._on_mismatch(error)
            return soon
        self._failing = False
        self._renewed_at = time.monotonic()
        held = set(tokens)
        for lease in leases:
            if lease.token in held:
                lease.deadline = before + seconds
        self._lose([x for x in leases if x.token not in held], "reclaimed or expired in the database")
        # While the loop is blocked, leases are shorter and renewed sooner: it may recover before they expire.
        return min(self._settings.renew, max(seconds / 3, soon))

    def give_up_lapsing(self) -> None:
        """Give up leases near their deadline. The event loop calls this, because a renewal may hang the thread."""
        near = time.monotonic() + self._margin
        self._lose([x for x in list(self._buffer.leases.values()) if x.deadline < near], "could not be renewed in time")

    def _lose(self, leases: Sequence[Lease], why: str) -> None:
        # A lease whose last job has just finished leaves the table first, and this worker's memory a moment later.
        lost_tokens = [x.token for x in leases if x.open and not x.lost]
        if lost_tokens:
            logs.event(log, logging.ERROR, "leases lost", claims=len(lost_tokens), why=why)
            self._on_lost(lost_tokens)
