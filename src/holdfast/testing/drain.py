"""Run due jobs with the real worker, in this process, and return the attempts.

A drain is one or more passes. Each is a Worker that stops when nothing is due; between two passes the clock may move to
the next due time. By default one job runs at a time, so that runs are reproducible.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any

import msgspec

from holdfast.client import Enqueuer, Holdfast
from holdfast.errors import JobFailed, UnknownTask, UsageError
from holdfast.model import payload
from holdfast.model.job import JobInfo, Status
from holdfast.model.outbox import PREFIX
from holdfast.model.outcome import SETTLED
from holdfast.store.dev.scratch import Scratch
from holdfast.testing.enqueued import name_of
from holdfast.testing.watched import KeptSession, RecordedAttempt, WatchedWorker
from holdfast.upkeep.timetable import Timetable

_WAY = ("holdfast.worker", "holdfast.testing", "concurrent.futures")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at one job. `outcome` is that of the attempt (succeeded, error, failed, dead, canceled, snoozed).
    `status` is that of the job after the drain, or retrying if the drain made another attempt."""

    job_id: str
    task: str
    args: dict[str, Any]
    queue: str
    tenant: str | None
    number: int
    outcome: str
    status: Status
    error: BaseException | None
    result: Any


class Drained(tuple[Attempt, ...]):
    """All attempts of a drain, in the order in which they ended."""

    __slots__ = ()

    def of(self, task: Enqueuer[Any, Any] | str) -> Drained:
        """Return the attempts at one task's jobs."""
        return Drained(each for each in self if each.task == name_of(task))

    @property
    def statuses(self) -> dict[str, int]:
        """Count the attempts by the status they left their job in."""
        return dict(Counter(str(each.status) for each in self))

    def __repr__(self) -> str:
        attempts = (f"{a.task} {a.status}" + (f" after {type(a.error).__name__}" if a.error else "") for a in self)
        return f"<drained: {', '.join(attempts) or 'nothing'}>"


@dataclass(frozen=True, kw_only=True)
class DrainPlan:
    """The options of a drain."""

    queue: str | None = None
    until: datetime | None = None
    with_retries: bool = False
    with_schedules: bool = False
    with_sleeps: bool = False
    signals: Mapping[str, Any] = field(default_factory=dict)
    raise_errors: bool = True
    max_jobs: int = 1000
    concurrency: int = 1
    timeout: float = 60.0

    @property
    def stops_at_errors(self) -> bool:
        """Return whether the first error ends the drain: it makes no retry that could succeed."""
        return self.raise_errors and not self.with_retries and self.until is None


class Drain:
    """One call of drain or run."""

    def __init__(self, hf: Holdfast, database: Scratch, plan: DrainPlan) -> None:
        self._hf = hf
        self._database = database
        self._plan = plan
        self._records: list[RecordedAttempt] = []
        self._deadline = time.monotonic() + plan.timeout

    async def run(self) -> None:
        """Run all due jobs, and those that come due within the plan."""
        if self._plan.with_schedules:  # as a worker does when it starts: slots count from now on
            self._database.run(self._hf.database.calls.schedules.register(self._hf.registry.schedules.values()))
        await self._run_due()
        while not self._ended_badly() and (self._signal() or self._move_on()):
            await self._run_due()
        if self._plan.until is not None and not self._over():
            self._move_to(self._plan.until)

    def answer(self) -> Drained:
        """Return every attempt, or raise a handler's error as if the handler had been called here."""
        __tracebackhide__ = True
        infos = self._infos() if self._records else {}
        if self._plan.raise_errors:
            for record in self._last_of_each():
                if record.went_wrong:
                    raise _raisable(record, infos[record.job.id])
        if len(self._records) >= self._plan.max_jobs and self._queues():
            raise UsageError(
                f"{self._plan.max_jobs} jobs were run and more are due: {self._tally()}. Does a job enqueue itself? If "
                "not, raise max_jobs"
            )
        last = {id(record) for record in self._last_of_each()}
        return Drained(_attempt(s, infos[s.job.id].status if id(s) in last else Status.RETRYING) for s in self._records)

    async def run_one(self, job_id: str) -> None:
        """Make one attempt at one job, even if it is not due, and run nothing else."""
        self._database.make_due(job_id)
        self._database.promote()
        queue = self._database.due_in(job_id)
        if queue is None:
            info = self._hf.database.sync_pool.run(self._hf.database.calls.jobs.get(job_id))
            raise UsageError(f"job {job_id} is not waiting: it is {info.status if info else 'unknown'}")
        await self._pass([queue], job_id)
        if [record.job.id for record in self._records] != [job_id]:
            raise UsageError(f"job {job_id} was claimed by another worker")

    async def _run_due(self) -> None:
        while not self._over():
            await self._fire_schedules()
            self._database.promote()
            before, queues = len(self._records), self._queues()
            if queues:
                await self._pass(queues)
            if len(self._records) == before:  # due jobs may not be claimable, because of limits for example
                return

    async def _fire_schedules(self) -> None:
        if self._plan.with_schedules:
            session: Any = KeptSession(self._database)
            timetable = Timetable(self._hf.settings, session, self._hf.database.calls)
            timetable.expect(0)
            await timetable.keep(time.monotonic())

    def _over(self) -> bool:
        failed = self._plan.stops_at_errors and any(record.went_wrong for record in self._records)
        return failed or len(self._records) >= self._plan.max_jobs

    def _queues(self) -> list[str]:
        """Return the queues to serve; none if nothing is due. A handler may enqueue into any task's queue."""
        due = [name for name in self._database.due_queues() if self._plan.queue in (None, name)]
        known = [task.queue for task in self._hf.registry.tasks.values()] if due and self._plan.queue is None else []
        return list(dict.fromkeys([*known, *due]))

    async def _pass(self, queues: list[str], only: str | None = None) -> None:
        self._worker = worker = WatchedWorker(
            self._hf, self._database, self._note, queues, only, concurrency=self._plan.concurrency
        )
        running = asyncio.create_task(worker.run(until_idle=True))
        try:
            done, _ = await asyncio.wait({running}, timeout=max(self._deadline - time.monotonic(), 0))
            if not done:
                raise self._too_long(worker)
        finally:
            if not running.done():
                worker.stop()
                worker.stop()
                await asyncio.wait({running})
        running.result()

    def _note(self, record: RecordedAttempt) -> None:
        if (
            record.error is None
            and record.job.task not in self._hf.registry.tasks
            and not record.job.task.startswith(PREFIX)
        ):
            record.error = UnknownTask(record.job.task, self._hf.registry.tasks)
        self._records.append(record)
        if self._over() or self._worker.only is not None:
            self._worker.halt()

    def _signal(self) -> bool:
        """Send those of the plan's signals that jobs wait for; return whether there were any."""
        if self._over():
            return False
        calls, sent = self._hf.database.calls.steps, False
        for name, tenant in self._database.awaited_signals() if self._plan.signals else ():
            if name in self._plan.signals:
                value = payload.encode(self._plan.signals[name], f"the value of signal {name!r}")
                sent = self._database.run(calls.signal(name, value, tenant or None, None)) or sent
        return sent

    def _move_on(self) -> bool:
        """Move the clock to the next time that the plan asks for; return whether there is one."""
        if (at := self._next_time()) is None:
            return False
        self._move_to(at)
        return True

    def _next_time(self) -> datetime | None:
        """Return the next time at which the plan has something to run."""
        plan, times = self._plan, []
        if self._over():
            return None
        if plan.with_retries:
            times.append(self._database.next_due(plan.queue, retries_only=True))
        if plan.with_sleeps:
            times.append(self._database.next_waking(plan.queue))
        if plan.until is not None:
            at = self._database.next_due(plan.queue, retries_only=False)
            slot = self._database.next_slot() if plan.with_schedules else None
            times += [each for each in (at, slot) if each is not None and each <= plan.until]
        return min((at for at in times if at is not None), default=None)

    def _ended_badly(self) -> bool:
        """Return whether an error to be raised has ended its job: no further attempt can succeed."""
        failures = [record.job.id for record in self._last_of_each() if record.went_wrong]
        return self._plan.raise_errors and any(self._infos()[id_].status.final for id_ in failures)

    def _move_to(self, at: datetime) -> None:
        if at > self._database.now():
            self._database.set(at)

    def _infos(self) -> dict[str, JobInfo]:
        ids = {record.job.id for record in self._records}
        return {info.id: info for info in self._database.run(self._hf.database.calls.jobs.get_many(ids))}

    def _last_of_each(self) -> list[RecordedAttempt]:
        return list({record.job.id: record for record in self._records}.values())

    def _tally(self) -> str:
        counts = Counter(record.job.task for record in self._records)
        return ", ".join(f"{number} of {task}" for task, number in counts.most_common())

    def _too_long(self, worker: WatchedWorker) -> UsageError:
        running = ", ".join(f"{job.task} ({job.id})" for job in worker.buffer.running.values())
        return UsageError(
            f"the jobs did not end within {self._plan.timeout:g} s; still running: {running or 'none'}. A handler that "
            "waits for another job needs concurrency=2; one that takes long, timeout="
        )


def _attempt(record: RecordedAttempt, status: Status) -> Attempt:
    job, outcome = record.job, record.outcome
    data = job.result if outcome is None or outcome.result is None else outcome.result
    name = "succeeded" if outcome is None or outcome.outcome == SETTLED else outcome.outcome
    return Attempt(
        job.id,
        job.task,
        msgspec.json.decode(job.payload),
        job.queue,
        job.tenant,
        job.attempt,
        name,
        status,
        record.error,
        None if data is None else msgspec.json.decode(data),
    )


def _raisable(record: RecordedAttempt, info: JobInfo) -> BaseException:
    """Return the exception to raise: the handler's own, with a note that names the job."""
    job, error = record.job, record.error
    which = f"job {job.id} of task {job.task!r}, attempt {job.attempt} of {job.max_attempts}, is now {info.status}"
    if error is None or isinstance(error, asyncio.CancelledError):  # a CancelledError would cancel the test
        last = info.last_error or {}
        return JobFailed(info, f"{which}: {last.get('type')}: {last.get('message')}\n{last.get('traceback', '')}")
    error.add_note(which)
    return error.with_traceback(_of_handler(error.__traceback__))


def _of_handler(tb: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the handler on, without the worker's frames."""
    first = tb
    while first is not None and first.tb_frame.f_globals.get("__name__", "").startswith(_WAY):
        first = first.tb_next
    return first or tb
