"""Send outcomes to the database in groups.

Outcomes accumulate while a flush is running, so a busy worker writes many at a time and an idle one writes at once,
without timers. While the database is unavailable, a flush is repeated: nothing is lost, and leases are renewed or
expire.

A flush never waits for one job. finish() skips jobs whose rows are locked by other transactions (an uncommitted cancel,
for example). These are deferred and sent again until they are stored, while their leases are renewed. A success that
the database refuses is deferred too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from holdfast.errors import DatabaseUnavailable, HoldfastError, LockTimeout, SchemaError, UnknownTask, UsageError
from holdfast.model.job import Job
from holdfast.model.outcome import FAILURES, SETTLED, Dead, Fail, Outcome, RetryLater, clean, ending_of
from holdfast.store.calls import Calls
from holdfast.store.wire.session import Session
from holdfast.telemetry import logs
from holdfast.telemetry.metrics import Stats
from holdfast.telemetry.scrub import scrub
from holdfast.worker.link import Progress
from holdfast.worker.prefetch import PrefetchBuffer

log = logs.get("worker")
LARGEST = 1000
LONGEST_WAIT = 0.05  # seconds a claim waits for a flush
MOST_KEYS = 1000  # distinct failures counted per window
TOP = 5  # of them logged
UNKNOWN_EVERY = 60.0  # seconds between warnings about an unknown task
_CHOICES = (RetryLater.__name__, Fail.__name__, Dead.__name__)
_CAUSE = " above exception"  # "The above exception was the direct cause", "During handling of the above exception"
LOOK_EVERY = 0.25  # seconds between checks for completed batches while flushes follow each other
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # backoff in seconds for outcomes of locked jobs


@dataclass(slots=True)
class Flush:
    """Outcomes to be sent together: plain successes as ids and tokens, all other outcomes in full."""

    ids: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    results: list[Outcome] = field(default_factory=list)  # of jobs that were finished in their own transaction
    freed: bool = False  # whether limits may have room once this is stored
    part: bool = False  # another part may hold a job of the same claim: the database decides what to close

    def __bool__(self) -> bool:
        return bool(self.ids or self.outcomes or self.closed or self.results)

    def __len__(self) -> int:
        return len(self.ids) + len(self.outcomes)

    @property
    def plain(self) -> bool:
        """Return whether this is one success without a result, and nothing else."""
        return len(self.ids) == 1 and not self.outcomes

    def parts(self, error: Exception) -> list[Flush]:
        """Return what to send in place of this flush, which was refused: its halves, or a failure without data in place
        of a single outcome. Claims are closed with the last part."""
        if len(self) == 1:
            details = {"type": "UnstorableOutcome", "message": clean(str(error), 1000)}
            (outcome,) = self.outcomes
            if (outcome.error or {}).get("type") == details["type"]:
                return []  # the replacement was refused too: the lease expires, and reclaim decides
            failure = Outcome(outcome.id, outcome.token, "failed", error=details)
            return [Flush(outcomes=[failure], closed=self.closed, part=self.part)]
        return self.halves()

    def halves(self) -> list[Flush]:
        """Split this flush, which holds more than one outcome, in two."""
        plain, other = (len(self.ids) + 1) // 2, (len(self.outcomes) + 1) // 2
        first = Flush(self.ids[:plain], self.tokens[:plain], self.outcomes[:other], part=True)
        if len(first) == len(self):  # one of each
            first = Flush(self.ids, self.tokens, part=True)
            return [first, Flush(outcomes=self.outcomes, closed=self.closed, part=True)]
        return [first, Flush(self.ids[plain:], self.tokens[plain:], self.outcomes[other:], self.closed, part=True)]

    def only(self, ids: Set[str]) -> Flush:
        """Return the outcomes of these jobs."""
        plain = [(id_, token) for id_, token in zip(self.ids, self.tokens, strict=True) if id_ in ids]
        return Flush(
            [id_ for id_, _ in plain], [token for _, token in plain], [each for each in self.outcomes if each.id in ids]
        )

    @property
    def held(self) -> dict[str, int]:
        """Map each job to its token."""
        return dict(zip(self.ids, self.tokens, strict=True)) | {each.id: each.token for each in self.outcomes}


class Finisher:
    """Collects outcomes from the slots and flushes them."""

    def __init__(self, session: Session, calls: Calls, buffer: PrefetchBuffer, progress: Progress) -> None:
        self.session = session
        self._progress = progress
        self._touched: set[str] = set()  # batches that may have ended
        self._look_at = 0.0
        self._calls = calls
        self._buffer = buffer
        self._next = Flush()
        self._full: list[Flush] = []
        self._something = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._deferrals: dict[tuple[str, int], float] = {}  # (job, token) to be sent again: seconds until then
        self._unstored: set[int] = set()  # claims that keep a job whose outcome could not be stored
        self.succeeded = 0
        self.failed = 0
        self.stale = 0
        self.failures = Failures()  # of the current window
        self._warnings = logs.Seldom(log)
        self._unknown = logs.Seldom(log, UNKNOWN_EVERY)
        self.stats: Stats | None = None  # set where metrics are enabled
        self._late_starts: list[Job] = []
        self.on_put_back: list[asyncio.Event] = []
        self.on_freed: Callable[[], None] = lambda: None
        self.on_mismatch: Callable[[SchemaError], None] = lambda error: None
        self._logs_each = log.isEnabledFor(logging.DEBUG)  # cached: this is the hot path

    def add(self, job: Job, outcome: Outcome | None) -> None:
        """Add the outcome of one attempt; drop it if the lease is known to be lost."""
        lease = job.lease
        if lease.lost:
            self.stale += 1
            return
        flush = self._next
        if outcome is None:
            flush.ids.append(job.id)
            flush.tokens.append(lease.token)
            self.succeeded += 1
            if self.stats is not None:
                self.stats.succeeded[job.task].append(monotonic() - job.started)
            if self._logs_each:
                logs.event(log, logging.DEBUG, "job succeeded", **_about(job))
        else:
            (flush.results if outcome.outcome == SETTLED else flush.outcomes).append(outcome)
            self._note(job, outcome)
            if self.stats is not None:
                self.stats.note(job.task, ending_of(job, outcome), monotonic() - job.started if job.started else None)
        if job.lane or self._buffer.queue_limited:
            flush.freed = True
        if job.batch is not None:
            self._touched.add(job.batch)
        lease.open -= 1
        if not lease.open:
            flush.closed.append(lease.token)
        if len(flush) >= LARGEST:
            self._full.append(flush)
            self._next = Flush()
        self._idle.clear()
        self._something.set()

    def mark_started(self, job: Job) -> None:
        """Store the start of a job that started long after it was claimed, before its outcome is stored."""
        self._late_starts.append(job)
        self._something.set()

    async def _store_starts(self) -> None:
        """Store late starts; they are for display only, so a failure is not retried."""
        jobs, self._late_starts = [job for job in self._late_starts if not job.lease.lost], []
        if not jobs:
            return
        now = monotonic()
        try:
            await self.session.run(
                self._calls.jobs.mark_started(
                    [job.id for job in jobs], [job.lease.token for job in jobs], [now - job.started for job in jobs]
                )
            )
        except HoldfastError as error:
            self._warnings.failed("starts not stored", error, jobs=len(jobs))

    async def run(self) -> None:
        """Flush until canceled; cancel it after `drained`."""
        while True:
            await self._something.wait()
            if self._late_starts:
                await self._store_starts()
            while self._full or self._next:
                if not self._full:
                    self._full, self._next = [self._next], Flush()
                if self._late_starts:
                    await self._store_starts()
                await self._progress.store(self.session)  # first: reports of finished jobs are refused
                await self._send(self._full[0])
                await self._keep_results(self._full[0])
                if self._full.pop(0).freed:
                    self.on_freed()
                if self.stats is not None:
                    self.stats.settle()
                if self._touched and (monotonic() >= self._look_at or not (self._full or self._next)):
                    await self._complete_batches()
            if self._late_starts:
                continue
            self._something.clear()
            self._idle.set()

    async def _complete_batches(self) -> None:
        """Complete batches whose last job may have ended. The upkeep leader does it if this fails."""
        batches, self._touched = self._touched, set()
        self._look_at = monotonic() + LOOK_EVERY
        try:
            await self.session.run(self._calls.batches.complete(batches))
        except HoldfastError as error:
            self._warnings.failed("batches not completed", error, batches=len(batches))

    async def _keep_results(self, flush: Flush) -> None:
        """Store results of jobs whose success is already committed; failures are logged and not retried."""
        for each in flush.results:
            if each.result is not None:
                try:
                    await self.session.run(self._calls.jobs.keep_result(each.id, bytes(each.result)))
                except HoldfastError as error:
                    logs.event(log, logging.WARNING, "result not stored", job=each.id, error=str(error))
                    if isinstance(error, DatabaseUnavailable):
                        return

    @property
    def idle(self) -> bool:
        """Return whether everything added has been stored."""
        return self._idle.is_set() and not self._deferrals

    async def drained(self) -> None:
        """Wait until everything added so far has been sent; deferred outcomes may not be stored yet."""
        await self._idle.wait()

    async def stored(self) -> None:
        """Wait until everything added so far has been stored."""
        while not self.idle:
            await self._idle.wait()
            if self._deferrals:
                await asyncio.sleep(FIRST_PAUSE)

    async def sent(self) -> None:
        """Wait until everything added so far has been sent, for LONGEST_WAIT at most: the database may be down."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT):
                await self._idle.wait()

    async def _send(self, flush: Flush) -> None:
        """Send a flush until it is stored. Data that the database refuses is sent in parts, so one outcome that cannot
        be stored blocks no other. Other errors are retried."""
        repeated, pause, locked_rows = False, 0.05, "fail"
        while True:
            try:
                refused = await self.session.run(
                    self._calls.jobs.finish(
                        flush.ids, flush.tokens, flush.outcomes, self._to_close(flush), locked=locked_rows
                    )
                )
                locked = await self._still_held(flush, refused) if refused else set()
                return self._close(flush, [each for each in refused if each not in locked], locked, repeated)
            except (UsageError, TypeError, ValueError, OverflowError) as error:  # refused, or not encodable
                logs.event(log, logging.ERROR, "finish refused", jobs=len(flush), error=str(error))
                if flush.plain:  # it has no data to leave out, and its handler has succeeded
                    return self._close(flush, [], set(flush.held), repeated)
                parts = flush.parts(error)
                for part in parts:
                    await self._send(part)
                if not parts:
                    self._unstored.update(flush.held.values())
                    self._forget(flush.closed)
                return None
            except LockTimeout as error:
                if locked_rows == "fail":
                    locked_rows = "skip"
                    continue
                # The lock is not on a job's row.
                self._warnings.failed("finish waits for a lock", error, jobs=len(flush))
                if len(flush) < 2:
                    return self._close(flush, [], set(flush.held), repeated)
                for part in flush.halves():
                    await self._send(part)
                return None
            except HoldfastError as error:
                self._warnings.failed("finish waits for database", error, jobs=len(flush))
                if isinstance(error, SchemaError):
                    self.on_mismatch(error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                repeated, pause = True, min(pause * 2, 2.0)

    def _to_close(self, flush: Flush) -> list[int] | None:
        """Return the claims that end with this flush; None where the database must determine them.

        A claim with a deferred job that is not in this flush is closed with that job. A claim with a job that could not
        be stored stays until it expires: without it, only reclaim_orphans() would find the job.
        """
        if flush.part or not self._unstored.isdisjoint(flush.closed):
            return None
        elsewhere = {token for _, token in self._deferrals.keys() - flush.held.items()}
        return [token for token in flush.closed if token not in elsewhere] if elsewhere else flush.closed

    async def _still_held(self, flush: Flush, refused: Sequence[str]) -> Set[str]:
        """Return which of the refused jobs this worker still holds: other transactions lock their rows."""
        held = flush.held
        still: list[str] = await self.session.run(self._calls.jobs.held_jobs(refused, [held[each] for each in refused]))
        return set(still)

    def _close(self, flush: Flush, refused: Sequence[str], locked: Set[str], repeated: bool) -> None:
        if locked or self._deferrals:
            self._defer(flush, locked)
        self._forget(flush.closed)
        # After a lost reply the first attempt may have been stored; then the second is refused, but not as stale.
        if refused and not repeated:
            self.stale += len(refused)
            logs.event(log, logging.WARNING, "stale results refused", jobs=len(refused), first=refused[0])
        if any(each.outcome != "succeeded" for each in flush.outcomes):
            for event in self.on_put_back:
                event.set()

    def _forget(self, closed: Iterable[int]) -> None:
        """Stop renewing these claims, except those with a deferred job."""
        deferred_tokens = {token for _, token in self._deferrals}
        for token in closed:
            if token not in deferred_tokens:
                self._buffer.leases.pop(token, None)
                self._unstored.discard(token)

    def _defer(self, flush: Flush, locked: Set[str]) -> None:
        """Send the outcomes of locked jobs again, with backoff. All other outcomes of this flush are stored, or their
        leases are lost."""
        pauses: dict[tuple[str, int], float] = {}
        for pair in flush.held.items():
            before = self._deferrals.pop(pair, None)
            if pair[0] in locked:
                pauses[pair] = FIRST_PAUSE if before is None else min(before * 2, LONGEST_PAUSE)
        self._deferrals |= pauses
        if pauses:
            self._warnings.warn(
                "outcomes deferred: their jobs' rows are locked, or were refused", jobs=len(pauses), first=min(locked)
            )
            asyncio.get_running_loop().call_later(max(pauses.values()), self._put_back, flush.only(locked))

    def _put_back(self, deferral: Flush) -> None:
        """Add deferred outcomes to the next flush; drop those whose lease was lost meanwhile."""
        leases = self._buffer.leases
        for pair in [pair for pair in deferral.held.items() if pair[1] not in leases]:
            self._deferrals.pop(pair, None)
            self.stale += 1
        deferral = deferral.only({id_ for id_, token in deferral.held.items() if token in leases})
        flush = self._next
        flush.ids += deferral.ids
        flush.tokens += deferral.tokens
        flush.outcomes += deferral.outcomes
        flush.closed += [token for token in {*deferral.held.values()} if not leases[token].open]
        if flush:
            self._idle.clear()
            self._something.set()

    def _note(self, job: Job, outcome: Outcome) -> None:
        if outcome.outcome == SETTLED and outcome.error is not None:
            logs.event(
                log,
                logging.WARNING,
                "handler raised after its job had succeeded",
                job=job.id,
                task=job.task,
                error=f"{outcome.error.get('type')}: {str(outcome.error.get('message'))[:200]}",
            )
        if outcome.outcome in ("succeeded", SETTLED):
            self.succeeded += 1
            logs.event(log, logging.DEBUG, "job succeeded", **_about(job))
            return
        if outcome.outcome == "released":
            return
        error = outcome.error or {}
        if outcome.outcome in FAILURES:
            self.failed += 1
            self.failures.add(job, error)
        fields = {
            **_about(job, of=job.max_attempts),
            "error": f"{error.get('type')}: {str(error.get('message'))[:200]}",
        }
        if self._logs_each and (trace := _unexpected(outcome)):
            fields[logs.TRACEBACK] = trace
        if outcome.outcome == "snoozed" and error.get("type") == UnknownTask.__name__:
            self._unknown.warn("job snoozed", job.task, **fields)
        else:
            logs.event(log, logging.WARNING, f"job {ending_of(job, outcome)}", **fields)


class Failures:
    """Counts of failures: by key (a domain, for example), and by task and error code."""

    def __init__(self) -> None:
        self.keys: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()

    def add(self, job: Job, error: Mapping[str, Any]) -> None:
        """Count one failed attempt; keys beyond the first MOST_KEYS are not counted."""
        for key in job.keys or ():
            if key in self.keys or len(self.keys) < MOST_KEYS:
                self.keys[key] += 1
        kind = f"{job.task} {error.get('code') or error.get('type')}"
        if kind in self.kinds or len(self.kinds) < MOST_KEYS:
            self.kinds[kind] += 1

    def top(self) -> dict[str, dict[str, int]]:
        """Return log fields with the highest counts; none where nothing failed."""
        counters = {"top_failure_keys": self.keys, "top_failures": self.kinds}
        return {
            name: {scrub(each): number for each, number in counts.most_common(TOP)}
            for name, counts in counters.items()
            if counts
        }


def _unexpected(outcome: Outcome) -> str | None:
    """Return the traceback of an unexpected failure; of one that the handler chose, only if it has a cause."""
    error = outcome.error or {}
    trace = str(error.get("traceback") or "")
    if outcome.outcome not in FAILURES or (error.get("type") in _CHOICES and _CAUSE not in trace):
        return None
    return trace


def _about(job: Job, **more: Any) -> dict[str, Any]:
    """Return the log fields of an attempt that has just ended."""
    fields: dict[str, Any] = {"job": job.id, "task": job.task, "attempt": job.attempt, **more}
    if job.started:
        fields["job_duration_ms"] = round((monotonic() - job.started) * 1000, 1)
    return fields
