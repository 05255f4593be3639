"""Sends outcomes to the database, many at a time.

Results accumulate while a flush is under way, so a busy worker writes many and an idle one writes at once,
without timers. A flush that fails because the database is away is repeated until it is back: nothing is lost, and the
leases are renewed meanwhile or run out.

A flush never waits for one job. finish() leaves out jobs whose rows other transactions hold (a caller that canceled a
job and has not committed); they are set apart and sent again until they are stored, while their leases are renewed. So
is a success that the database refuses to store.
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
from holdfast.store.session import Session
from holdfast.telemetry import logs
from holdfast.telemetry.metrics import Stats
from holdfast.telemetry.scrub import scrub
from holdfast.worker.hand import Hand
from holdfast.worker.link import Progress

log = logs.get("worker")
LARGEST = 1000
LONGEST_WAIT = 0.05  # seconds for which a claim waits for ends
MOST_KEYS = 1000  # counted of what fails
TOP = 5  # told of them
UNKNOWN_EVERY = 60.0  # seconds between warnings of a task that is not known here
_CHOICES = (RetryLater.__name__, Fail.__name__, Dead.__name__)
_CAUSE = " above exception"  # "The above exception was the direct cause", "During handling of the above exception"
LOOK_EVERY = 0.25  # seconds between looks at batches while there is always something to send
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds until outcomes of locked jobs are sent again


@dataclass(slots=True)
class Flush:
    """Outcomes to be sent together: plain successes as ids and tokens, all others in full."""

    ids: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    results: list[Outcome] = field(default_factory=list)  # of jobs that were finished in their own transaction
    freed: bool = False  # whether limits may have room once this is stored
    part: bool = False  # another part may hold a job of the same claim: the database finds out what to close

    def __bool__(self) -> bool:
        return bool(self.ids or self.outcomes or self.closed or self.results)

    def __len__(self) -> int:
        return len(self.ids) + len(self.outcomes)

    @property
    def plain(self) -> bool:
        """Whether this is one success without a result, and nothing else."""
        return len(self.ids) == 1 and not self.outcomes

    def parts(self, error: Exception) -> list[Flush]:
        """What to send in place of this flush, which was refused: its halves, and in place of a single outcome a
        failure without what it carried. Claims are closed with the last part."""
        if len(self) == 1:
            told = {"type": "UnstorableOutcome", "message": clean(str(error), 1000)}
            (it,) = self.outcomes
            if (it.error or {}).get("type") == told["type"]:
                return []  # not even that: its lease runs out, and reclaim decides
            failed = Outcome(it.id, it.token, "failed", error=told)
            return [Flush(outcomes=[failed], closed=self.closed, part=self.part)]
        return self.halves()

    def halves(self) -> list[Flush]:
        """Two flushes in place of this one, which holds more than one outcome."""
        plain, other = (len(self.ids) + 1) // 2, (len(self.outcomes) + 1) // 2
        first = Flush(self.ids[:plain], self.tokens[:plain], self.outcomes[:other], part=True)
        if len(first) == len(self):  # one of each
            first = Flush(self.ids, self.tokens, part=True)
            return [first, Flush(outcomes=self.outcomes, closed=self.closed, part=True)]
        return [first, Flush(self.ids[plain:], self.tokens[plain:], self.outcomes[other:], self.closed, part=True)]

    def only(self, ids: Set[str]) -> Flush:
        """The outcomes of these jobs."""
        plain = [(id_, token) for id_, token in zip(self.ids, self.tokens, strict=True) if id_ in ids]
        return Flush([id_ for id_, _ in plain], [token for _, token in plain],
                     [each for each in self.outcomes if each.id in ids])  # fmt: skip

    @property
    def held(self) -> dict[str, int]:
        """The token of each job."""
        return dict(zip(self.ids, self.tokens, strict=True)) | {each.id: each.token for each in self.outcomes}


class Finisher:
    """Collects outcomes from the slots and flushes them."""

    def __init__(self, session: Session, calls: Calls, hand: Hand, progress: Progress) -> None:
        self.session = session
        self._progress = progress
        self._touched: set[str] = set()  # batches that may have ended
        self._look_at = 0.0
        self._calls = calls
        self._hand = hand
        self._next = Flush()
        self._full: list[Flush] = []
        self._something = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._apart: dict[tuple[str, int], float] = {}  # jobs and tokens to be sent again, after how many seconds
        self._unstored: set[int] = set()  # claims that keep a job whose end could not be stored
        self.succeeded = 0
        self.failed = 0
        self.stale = 0
        self.failures = Failures()  # of this window
        self._warnings = logs.Seldom(log)
        self._unknown = logs.Seldom(log, UNKNOWN_EVERY)
        self.stats: Stats | None = None  # where somebody watches
        self._late_starts: list[Job] = []
        self.on_put_back: list[asyncio.Event] = []
        self.on_freed: Callable[[], None] = lambda: None
        self.on_mismatch: Callable[[SchemaError], None] = lambda error: None
        self._tells_each = log.isEnabledFor(logging.DEBUG)  # asked once: the hot path pays one comparison

    def add(self, job: Job, outcome: Outcome | None) -> None:
        """Takes one attempt's outcome; one whose lease is known to be lost is void."""
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
            if self._tells_each:
                logs.event(log, logging.DEBUG, "job succeeded", **_about(job))
        else:
            (flush.results if outcome.outcome == SETTLED else flush.outcomes).append(outcome)
            self._note(job, outcome)
            if self.stats is not None:
                self.stats.note(job.task, ending_of(job, outcome), monotonic() - job.started if job.started else None)
        if job.lane or self._hand.queue_limited:
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
        """Take a job that started long after it was claimed: its start is stored before its end."""
        self._late_starts.append(job)
        self._something.set()

    async def _store_starts(self) -> None:
        """Store late starts: figures for people, worth one try."""
        jobs, self._late_starts = [job for job in self._late_starts if not job.lease.lost], []
        if not jobs:
            return
        now = monotonic()
        try:
            await self.session.run(self._calls.mark_started(
                [job.id for job in jobs], [job.lease.token for job in jobs], [now - job.started for job in jobs]
            ))  # fmt: skip
        except HoldfastError as error:
            self._warnings.failed("starts not stored", error, jobs=len(jobs))

    async def run(self) -> None:
        """Flushes for ever; cancel it after `drained`."""
        while True:
            await self._something.wait()
            if self._late_starts:
                await self._store_starts()
            while self._full or self._next:
                if not self._full:
                    self._full, self._next = [self._next], Flush()
                if self._late_starts:
                    await self._store_starts()
                await self._progress.store(self.session)  # before the end: a report of a job that has ended is refused
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
        """Ends batches whose last job may just have ended: at once when there is nothing else to send, else now and
        then. If it fails, the upkeep leader does it."""
        touched, self._touched = self._touched, set()
        self._look_at = monotonic() + LOOK_EVERY
        try:
            await self.session.run(self._calls.complete_batches(touched))
        except HoldfastError as error:
            self._warnings.failed("batches not completed", error, batches=len(touched))

    async def _keep_results(self, flush: Flush) -> None:
        """Results of jobs whose success is committed already: worth a try, not worth waiting for."""
        for each in flush.results:
            if each.result is not None:
                try:
                    await self.session.run(self._calls.keep_result(each.id, bytes(each.result)))
                except HoldfastError as error:
                    logs.event(log, logging.WARNING, "result not kept", job=each.id, error=str(error))
                    if isinstance(error, DatabaseUnavailable):
                        return

    @property
    def idle(self) -> bool:
        """Whether everything added has been stored."""
        return self._idle.is_set() and not self._apart

    async def drained(self) -> None:
        """Waits until everything added so far has been sent; what is set apart may not be stored yet."""
        await self._idle.wait()

    async def stored(self) -> None:
        """Waits until everything added so far has been stored."""
        while not self.idle:
            await self._idle.wait()
            if self._apart:
                await asyncio.sleep(FIRST_PAUSE)

    async def sent(self) -> None:
        """Wait until everything added so far has been sent; no longer than a moment, for the database may be away."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT):
                await self._idle.wait()

    async def _send(self, flush: Flush) -> None:
        """Sends a flush until it is stored. Only data the database refuses is sent in parts, so that one outcome which
        cannot be stored holds up no other; anything else is waited out."""
        repeated, pause, locked_rows = False, 0.05, "fail"
        while True:
            try:
                refused = await self.session.run(
                    self._calls.finish(
                        flush.ids, flush.tokens, flush.outcomes, self._to_close(flush), locked=locked_rows
                    )
                )
                locked = await self._still_held(flush, refused) if refused else set()
                return self._close(flush, [each for each in refused if each not in locked], locked, repeated)
            except (UsageError, TypeError, ValueError, OverflowError) as error:  # refused there, or not to be written
                logs.event(log, logging.ERROR, "finish refused", jobs=len(flush), error=str(error))
                if flush.plain:  # it carries nothing that could be left out, and its handler has done its work
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
                # something beside the jobs' rows
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
        """The claims that end with this flush; None where the database has to find out. One that keeps a job which was
        set apart, and is not in this flush, is closed with that job. One that keeps a job which could not be stored
        stays until it expires: without it only reclaim_orphans() would find the job."""
        if flush.part or not self._unstored.isdisjoint(flush.closed):
            return None
        elsewhere = {token for _, token in self._apart.keys() - flush.held.items()}
        return [token for token in flush.closed if token not in elsewhere] if elsewhere else flush.closed

    async def _still_held(self, flush: Flush, refused: Sequence[str]) -> Set[str]:
        """Which of the jobs that were not ended are still this worker's: other transactions hold their rows."""
        held = flush.held
        still: list[str] = await self.session.run(self._calls.held_jobs(refused, [held[each] for each in refused]))
        return set(still)

    def _close(self, flush: Flush, refused: Sequence[str], locked: Set[str], repeated: bool) -> None:
        if locked or self._apart:
            self._set_apart(flush, locked)
        self._forget(flush.closed)
        # After a lost reply the first try may have been accepted, and then the second is refused: not a stale worker.
        if refused and not repeated:
            self.stale += len(refused)
            logs.event(log, logging.WARNING, "stale results refused", jobs=len(refused), first=refused[0])
        if any(each.outcome != "succeeded" for each in flush.outcomes):
            for event in self.on_put_back:
                event.set()

    def _forget(self, closed: Iterable[int]) -> None:
        """Renews these claims no longer, unless a job of theirs is set apart."""
        apart = {token for _, token in self._apart}
        for token in closed:
            if token not in apart:
                self._hand.leases.pop(token, None)
                self._unstored.discard(token)

    def _set_apart(self, flush: Flush, locked: Set[str]) -> None:
        """Sends the outcomes of locked jobs again after a pause, which grows while they stay locked. The others of this
        flush are stored, or not ours any more."""
        pauses: dict[tuple[str, int], float] = {}
        for pair in flush.held.items():
            before = self._apart.pop(pair, None)
            if pair[0] in locked:
                pauses[pair] = FIRST_PAUSE if before is None else min(before * 2, LONGEST_PAUSE)
        self._apart |= pauses
        if pauses:
            self._warnings.warn("ends of jobs are stored later: their rows are locked, or were refused",
                                jobs=len(pauses), first=min(locked))  # fmt: skip
            asyncio.get_running_loop().call_later(max(pauses.values()), self._put_back, flush.only(locked))

    def _put_back(self, apart: Flush) -> None:
        """Adds outcomes that were set apart to the next flush; those whose lease was lost meanwhile are void."""
        leases = self._hand.leases
        for pair in [pair for pair in apart.held.items() if pair[1] not in leases]:
            self._apart.pop(pair, None)
            self.stale += 1
        apart = apart.only({id_ for id_, token in apart.held.items() if token in leases})
        flush = self._next
        flush.ids += apart.ids
        flush.tokens += apart.tokens
        flush.outcomes += apart.outcomes
        flush.closed += [token for token in {*apart.held.values()} if not leases[token].open]
        if flush:
            self._idle.clear()
            self._something.set()

    def _note(self, job: Job, outcome: Outcome) -> None:
        if outcome.outcome == SETTLED and outcome.error is not None:
            logs.event(log, logging.WARNING, "handler raised after its job had succeeded", job=job.id, task=job.task,
                       error=f"{outcome.error.get('type')}: {str(outcome.error.get('message'))[:200]}")  # fmt: skip
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
        told = {**_about(job, of=job.max_attempts),
                "error": f"{error.get('type')}: {str(error.get('message'))[:200]}"}  # fmt: skip
        if self._tells_each and (trace := _unexpected(outcome)):
            told[logs.TRACEBACK] = trace
        if outcome.outcome == "snoozed" and error.get("type") == UnknownTask.__name__:
            self._unknown.warn("job snoozed", job.task, **told)
        else:
            logs.event(log, logging.WARNING, f"job {ending_of(job, outcome)}", **told)


class Failures:
    """What fails most: the keys that failed jobs were under (domains, say), and their tasks with the error's code."""

    def __init__(self) -> None:
        self.keys: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()

    def add(self, job: Job, error: Mapping[str, Any]) -> None:
        """Takes one failed attempt. Of very many keys the first are counted."""
        for key in job.keys or ():
            if key in self.keys or len(self.keys) < MOST_KEYS:
                self.keys[key] += 1
        kind = f"{job.task} {error.get('code') or error.get('type')}"
        if kind in self.kinds or len(self.kinds) < MOST_KEYS:
            self.kinds[kind] += 1

    def top(self) -> dict[str, dict[str, int]]:
        """Log fields with the largest of each, none where nothing failed."""
        named = {"top_failure_keys": self.keys, "top_failures": self.kinds}
        return {
            name: {scrub(each): number for each, number in counts.most_common(TOP)}
            for name, counts in named.items()
            if counts
        }


def _unexpected(outcome: Outcome) -> str | None:
    """The traceback of a failure that the handler did not choose; of one that it chose, only where it has a cause."""
    error = outcome.error or {}
    trace = str(error.get("traceback") or "")
    if outcome.outcome not in FAILURES or (error.get("type") in _CHOICES and _CAUSE not in trace):
        return None
    return trace


def _about(job: Job, **more: Any) -> dict[str, Any]:
    """Log fields of an attempt that has just ended."""
    about: dict[str, Any] = {"job": job.id, "task": job.task, "attempt": job.attempt, **more}
    if job.started:
        about["job_duration_ms"] = round((monotonic() - job.started) * 1000, 1)
    return about
