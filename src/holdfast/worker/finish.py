"""Sends outcomes to the database in batches.

Results accumulate while a flush is under way, so a busy worker writes large batches and an idle one writes at once,
without timers. A flush that fails because the database is away is repeated until it is back: nothing is lost, and the
leases are renewed meanwhile or run out.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field

from holdfast.errors import HoldfastError, UsageError
from holdfast.model.job import Job
from holdfast.model.outcome import Outcome, clean
from holdfast.store.calls import Calls
from holdfast.store.session import Session
from holdfast.telemetry import logs
from holdfast.worker.hand import Hand

log = logs.get("worker")
LARGEST = 1000


@dataclass(slots=True)
class Batch:
    """Outcomes to be sent together: plain successes as ids and tokens, all others in full."""

    ids: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids) + len(self.outcomes)

    def parts(self, error: Exception) -> list[Batch]:
        """What to send in place of this batch, which was refused: its halves, and in place of a single outcome a
        failure without what it carried. Claims are closed with the last part."""
        if len(self) == 1:
            told = {"type": "UnstorableOutcome", "message": clean(str(error), 1000)}
            id_, token = (self.ids[0], self.tokens[0]) if self.ids else (self.outcomes[0].id, self.outcomes[0].token)
            if self.outcomes and (self.outcomes[0].error or {}).get("type") == told["type"]:
                return []  # not even that: its lease runs out, and reclaim decides
            return [Batch(outcomes=[Outcome(id_, token, "failed", error=told)], closed=self.closed)]
        plain, other = (len(self.ids) + 1) // 2, (len(self.outcomes) + 1) // 2
        first = Batch(self.ids[:plain], self.tokens[:plain], self.outcomes[:other])
        if len(first) == len(self):  # one of each
            first = Batch(self.ids, self.tokens)
            return [first, Batch(outcomes=self.outcomes, closed=self.closed)]
        return [first, Batch(self.ids[plain:], self.tokens[plain:], self.outcomes[other:], self.closed)]


class Finisher:
    """Collects outcomes from the slots and flushes them."""

    def __init__(self, session: Session, calls: Calls, hand: Hand) -> None:
        self.session = session
        self._calls = calls
        self._hand = hand
        self._batch = Batch()
        self._full: list[Batch] = []
        self._something = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.succeeded = 0
        self.failed = 0
        self.stale = 0
        self.on_put_back: list[asyncio.Event] = []
        self._tells_each = log.isEnabledFor(logging.DEBUG)  # asked once: the hot path pays one comparison

    def add(self, job: Job, outcome: Outcome | None) -> None:
        """Takes one attempt's outcome; one whose lease is known to be lost is void."""
        lease = job.lease
        if lease.lost:
            self.stale += 1
            return
        batch = self._batch
        if outcome is None:
            batch.ids.append(job.id)
            batch.tokens.append(lease.token)
            self.succeeded += 1
            if self._tells_each:
                logs.event(log, logging.DEBUG, "job succeeded", job=job.id, task=job.task, attempt=job.attempt)
        else:
            batch.outcomes.append(outcome)
            self._note(job, outcome)
        lease.open -= 1
        if not lease.open:
            batch.closed.append(lease.token)
        if len(batch) >= LARGEST:
            self._full.append(batch)
            self._batch = Batch()
        self._idle.clear()
        self._something.set()

    async def run(self) -> None:
        """Flushes for ever; cancel it after `drained`."""
        while True:
            await self._something.wait()
            while self._full or len(self._batch):
                if not self._full:
                    self._full, self._batch = [self._batch], Batch()
                await self._send(self._full[0])
                self._full.pop(0)
            self._something.clear()
            self._idle.set()

    async def drained(self) -> None:
        """Waits until everything added so far has been sent."""
        await self._idle.wait()

    async def _send(self, batch: Batch) -> None:
        """Sends a batch until it is stored. Only data the database refuses is sent in parts, so that one outcome which
        cannot be stored holds up no other; anything else is waited out."""
        repeated, pause = False, 0.05
        while True:
            try:
                refused = await self.session.run(
                    self._calls.finish(batch.ids, batch.tokens, batch.outcomes, batch.closed)
                )
                return self._close(batch, refused, repeated)
            except (UsageError, TypeError, ValueError, OverflowError) as error:  # refused there, or not to be written
                logs.event(log, logging.ERROR, "finish refused", jobs=len(batch), error=str(error))
                for part in batch.parts(error):
                    await self._send(part)
                return None
            except HoldfastError as error:
                logs.event(log, logging.WARNING, "finish waits for database", jobs=len(batch), error=str(error))
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                repeated, pause = True, min(pause * 2, 2.0)

    def _close(self, batch: Batch, refused: list[str], repeated: bool) -> None:
        for token in batch.closed:
            self._hand.leases.pop(token, None)
        # After a lost reply the first try may have been accepted, and then the second is refused: not a stale worker.
        if refused and not repeated:
            self.stale += len(refused)
            logs.event(log, logging.WARNING, "stale results refused", jobs=len(refused), first=refused[0])
        if any(each.outcome != "succeeded" for each in batch.outcomes):
            for event in self.on_put_back:
                event.set()

    def _note(self, job: Job, outcome: Outcome) -> None:
        if outcome.outcome == "succeeded":
            self.succeeded += 1
            logs.event(log, logging.DEBUG, "job succeeded", job=job.id, task=job.task, attempt=job.attempt)
            return
        if outcome.outcome == "released":
            return
        self.failed += outcome.outcome in ("error", "failed", "dead")
        error = outcome.error or {}
        spent = outcome.outcome == "error" and job.attempt >= job.max_attempts
        event = "job dead" if spent else f"job {outcome.outcome}"
        logs.event(
            log, logging.WARNING, event, job=job.id, task=job.task, attempt=job.attempt,
            of=job.max_attempts, error=f"{error.get('type')}: {str(error.get('message'))[:200]}",
        )  # fmt: skip
