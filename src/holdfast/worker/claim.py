"""Claims jobs: as many as there is room for, a little ahead of need, and asleep when there is nothing.

Cursor. A claim starts after the last position this worker claimed, which spares it the index entries of finished jobs
that a long transaction elsewhere keeps alive. Jobs may land behind that position (a transaction that committed late,
a retry promoted, a job released), so now and then a scan starts from the beginning: at once when the queue seems
empty, else about once a second, and never for more than a small share of the worker's time.

Sleep. Before it waits, the worker enters itself in the sleepers table and claims once more; enqueue notifies only
those found there. While it stays idle the row stays, so an idle worker makes one query per poll.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.model.job import Job
from holdfast.settings import Settings
from holdfast.store.calls import Calls, Rows
from holdfast.store.session import Session
from holdfast.telemetry import logs
from holdfast.worker.finish import Finisher
from holdfast.worker.hand import Hand, Lease

log = logs.get("worker")
FULL_SCAN_EVERY = 1.0
FULL_SCAN_SHARE = 20  # a full scan may come again after this many times its own duration
CHEAP = 0.005  # what any claim may take, and more so on a busy machine: not a cost of where it started
LEAVE_ABOVE = 200.0  # jobs a second
LONGEST_PAUSE = 5.0
# An enqueue that began before we entered the sleepers and commits after our last look notifies nobody. So the first
# looks of a sleep are short; from then on, whoever enqueues has seen us.
LOOKS = (0.01, 0.1)


class Cursor:
    """The last claimed position for each queue and priority: a hint for the next claim."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[float, str]] = {}
        self._full_scan_at = 0.0
        self._affordable_at = 0.0
        self._near_end = True

    def hint(self, now: float) -> str | None:
        """Where to start, or None for a scan from the beginning: when one is due, or when the queue is nearly empty."""
        if now >= (self._affordable_at if self._near_end else self._full_scan_at) or not self._places:
            return None
        return msgspec.json.encode(self._places).decode()

    def scanned_all(self, began: float, ended: float) -> None:
        """Notes a scan from the beginning and what it cost."""
        self._affordable_at = ended + max(ended - began - CHEAP, 0.0) * FULL_SCAN_SHARE
        self._full_scan_at = max(ended + FULL_SCAN_EVERY * random.uniform(0.75, 1.25), self._affordable_at)

    def found(self, enough: bool, now: float) -> float:
        """Notes whether a claim found as much as it asked for; answers in how many seconds a scan from the beginning
        is affordable."""
        self._near_end = not enough
        return max(self._affordable_at - now, 0.0)

    def advance(self, rows: Rows) -> None:
        """Moves on to the last job of each queue and priority among the rows; never back."""
        ends: dict[str, tuple[Any, ...]] = {}
        for row in (rows[-1],) if rows[0][6:8] == rows[-1][6:8] else rows:
            ends[f"{row[6]}/{row[7]}"] = row
        for key, row in ends.items():
            place = (row[9], row[0])
            if key not in self._places or place > self._places[key]:
                self._places[key] = place


class Claimer:
    """One worker's claim loop."""

    def __init__(
        self,
        worker: str,
        settings: Settings,
        session: Session,
        calls: Calls,
        hand: Hand,
        may_claim: Callable[[], bool],
    ) -> None:
        self._worker = worker
        self._settings = settings
        self._queues = settings.queue_list
        self.session = session
        self._calls = calls
        self._hand = hand
        self.may_claim = may_claim
        self._cursor = Cursor()
        self._rate = Rate()
        self._registered = False  # whether our row may be among the sleepers
        self._due: float | None = None
        self._due_known = False
        self._looks: list[float] = []
        self._scanned_all = False
        self._stopping = False
        self.stir = asyncio.Event()
        self.wants_room: int | None = None  # stir when so few are held
        self.claimed = 0

    async def run(self) -> None:
        """Claims until stopped; the call under way is finished first, so that nothing claimed is forgotten."""
        pause = 0.05
        while not self._stopping:
            try:
                await self._step()
                pause = 0.05
            except ConfigurationError:
                raise
            except HoldfastError as error:
                self._registered, self._due_known = True, False
                logs.event(log, logging.WARNING, "claim failed", error=str(error))
                await self._wait(pause * random.uniform(0.75, 1.25))
                pause = min(pause * 2, LONGEST_PAUSE)

    async def run_until_idle(self, finisher: Finisher) -> None:
        """Claims until nothing is due, nor under way that could make more of it. It waits with each claim until the
        outcomes of ended jobs are stored, so that one job at a time runs in the same order every time."""
        self.wants_room = self._settings.concurrency  # every job that ends stirs
        while not self._stopping:
            await finisher.drained()
            quiet = not self._hand.held and finisher.idle
            room = self._room() if self.may_claim() and not self._stopping else 0
            if room and (await self._claim(room) or await self._claim_behind(room)):
                continue
            if room and quiet:
                return
            await self._wait(self._settings.poll)

    def stop(self) -> None:
        """Claims nothing more."""
        self._stopping = True
        self.stir.set()

    async def _step(self) -> None:
        room = self._room()
        if not room:
            await self._wait_for_room()
        elif not self.may_claim():
            await self._wait(self._settings.poll)
        elif await self._claim(room) < room and not self._stopping:
            await self._found_less()
        else:
            self._cursor.found(True, 0)

    def _room(self) -> int:
        """How many to claim now; 0 when what is in hand lasts."""
        self._rate.update(self._hand.started)
        ahead = self._ahead()
        room = self._settings.concurrency + ahead - self._hand.held
        enough = self._enough(ahead) if self._hand.ready else 1
        return min(room, self._settings.claim_size) if room >= enough else 0

    def _ahead(self) -> int:
        """Jobs to hold beyond the slots: so many that they last for the prefetch time at the present rate."""
        return min(int(self._rate.value * self._settings.prefetch), 4 * self._settings.claim_size)

    def _enough(self, ahead: int) -> int:
        """The smallest claim worth a round trip while there is still something to start."""
        return max(1, min(ahead // 2, self._settings.claim_size))

    async def _claim_behind(self, limit: int) -> int:
        """What may have landed behind the cursor; nothing when the last claim had none."""
        return 0 if self._scanned_all else await self._claim(limit, from_start=True)

    async def _claim(self, limit: int, *, from_start: bool = False) -> int:
        began = time.monotonic()
        hint = None if from_start else self._cursor.hint(began)
        # At a low rate the row among the sleepers stays: entering and leaving for each job would cost more than the
        # notifications it spares.
        leaving = self._registered and self._rate.value > LEAVE_ABOVE
        rows = await self.session.run(
            self._calls.claim(self._worker, self._queues, limit, self._settings.lease, hint, leaving)
        )
        if hint is None:
            self._cursor.scanned_all(began, time.monotonic())
        if rows:
            self._registered = self._registered and not leaving
            self._take_up(rows, began)
        self._scanned_all = hint is None
        return len(rows)

    def _take_up(self, rows: Rows, began: float) -> None:
        lease = Lease(rows[0][1], len(rows), began, self._settings.lease)
        self._hand.add(lease, [Job(row, lease) for row in rows])
        self._cursor.advance(rows)
        self.claimed += len(rows)

    async def _found_less(self) -> None:
        """Nothing more from here: look from the beginning, then sleep."""
        affordable = self._cursor.found(False, time.monotonic())
        if not self._scanned_all and not affordable:
            return  # the next claim looks from the beginning
        if not self._registered or not self._due_known:
            self._due = await self.session.run(self._calls.sleep(self._worker, self._queues))
            entered, self._registered, self._due_known = not self._registered, True, True
            if entered:  # claim once more before waiting
                self._looks = list(LOOKS)
            else:
                await self._sleep(affordable)
        else:
            await self._sleep(affordable)

    async def _sleep(self, affordable: float) -> None:
        poll = self._settings.poll * random.uniform(0.75, 1.25)
        if self._looks:
            poll = min(poll, self._looks.pop(0))
        if not self._scanned_all:
            poll = min(poll, affordable)
        soon = self._due is not None and self._due <= poll
        woken = await self._wait(max(self._due or 0, 0.001) if soon else poll)
        # A wake-up that brings no job may announce a delayed one, so ask again when the next is due.
        self._due_known = not woken and not soon
        if self._due is not None:
            self._due -= poll

    async def _wait_for_room(self) -> None:
        ahead = self._ahead()
        self.wants_room = self._settings.concurrency + ahead - self._enough(ahead)
        try:
            await self._wait(1.0)
        finally:
            self.wants_room = None

    async def _wait(self, seconds: float) -> bool:
        """Waits for a stir; answers whether one came."""
        try:
            async with asyncio.timeout(seconds):
                await self.stir.wait()
            return True
        except TimeoutError:
            return False
        finally:
            self.stir.clear()


class Rate:
    """Jobs started per second, smoothed over about a tenth of one."""

    def __init__(self) -> None:
        self.value = 0.0
        self._count = 0
        self._since = time.monotonic()

    def update(self, count: int) -> None:
        """Takes the running count."""
        now = time.monotonic()
        if (passed := now - self._since) >= 0.02:
            self.value += (min(passed / 0.1, 1.0)) * ((count - self._count) / passed - self.value)
            self._count, self._since = count, now
