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
import math
import threading
from collections.abc import Callable, Sequence

from holdfast.errors import HoldfastError, SchemaError
from holdfast.model.clock import CLOCK, Clock
from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.store.wire.session import ThreadSession
from holdfast.telemetry import logs
from holdfast.worker.prefetch import Lease, PrefetchBuffer

log = logs.get("lease")


class LeaseKeeper(threading.Thread):
    """Renews leases until stopped. It calls on_lost with lost tokens, from its own thread."""

    def __init__(
        self,
        worker: str,
        settings: Settings,
        calls: Calls,
        buffer: PrefetchBuffer,
        on_lost: Callable[[Sequence[int]], None],
        on_mismatch: Callable[[SchemaError], None],
        renewable: Callable[[], float],
        clock: Clock = CLOCK,
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
        self._on_mismatch = on_mismatch
        self._renewable = renewable
        self._clock = clock
        self._over = threading.Event()
        self._renewed_at = clock.monotonic()  # -inf after a failure
        self._warnings = logs.RateLimitedLog(log, clock=clock)

    @property
    def _margin(self) -> float:
        return min(self._settings.lease * 0.1, 3.0)

    def renews(self) -> bool:
        """Return whether renewals succeed; if they fail or hang, nothing more may be claimed."""
        return self._clock.monotonic() - self._renewed_at <= self._settings.renew * 1.5 + self._margin

    def run(self) -> None:
        self._renewed_at = now = self._clock.monotonic()
        due = now + self._settings.renew
        while not self._over.wait(max(due - self._clock.monotonic(), 0)):
            now = self._clock.monotonic()
            due = now + self._renew()
        self.session.close()

    def stop(self) -> None:
        """End the thread after the current call."""
        self._over.set()

    def _renew(self) -> float:
        """Renew all leases; return the seconds until the next renewal."""
        leases = list(self._buffer.leases.values())
        before = self._clock.monotonic()
        soon = max(self._settings.renew / 10, 0.05)
        if not (seconds := self._renewable()):
            self._renewed_at = -math.inf
            self._warnings.warn("leases not renewed: the event loop is stuck", leases=len(leases))
            return soon
        try:
            tokens = self.session.run(self._calls.workers.renew(self._worker, [x.token for x in leases], seconds))
        except HoldfastError as error:
            self._renewed_at = -math.inf
            self._warnings.failed("renewal failed", error, leases=len(leases))
            if isinstance(error, SchemaError):
                self._on_mismatch(error)
            return soon
        self._renewed_at = self._clock.monotonic()
        held = set(tokens)
        for lease in leases:
            if lease.token in held:
                lease.deadline = before + seconds
        self._lose([x for x in leases if x.token not in held], "reclaimed or expired in the database")
        # While the loop is blocked, leases are shorter and renewed sooner: it may recover before they expire.
        return min(self._settings.renew, max(seconds / 3, soon))

    def give_up_lapsing(self) -> None:
        """Give up leases near their deadline. The event loop calls this, because a renewal may hang the thread."""
        near = self._clock.monotonic() + self._margin
        self._lose([x for x in list(self._buffer.leases.values()) if x.deadline < near], "could not be renewed in time")

    def _lose(self, leases: Sequence[Lease], why: str) -> None:
        # A lease whose last job has just finished leaves the table first, and this worker's memory a moment later.
        lost_tokens = [x.token for x in leases if x.open and not x.lost]
        if lost_tokens:
            logs.event(log, logging.ERROR, "leases lost", claims=len(lost_tokens), why=why)
            self._on_lost(lost_tokens)
