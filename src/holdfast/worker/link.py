"""The connection of a handler's context to its worker: progress, cancel requests, and transactions that end the job."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.client import Holdfast, Task
from holdfast.errors import DatabaseUnavailable, HoldfastError, UsageError
from holdfast.model import payload
from holdfast.model.context import Link
from holdfast.model.job import Job
from holdfast.model.outcome import Outcome, clean
from holdfast.store.call import Call
from holdfast.store.calls import Calls
from holdfast.telemetry import logs
from holdfast.worker.joblogs import JobLogs
from holdfast.worker.messages import LogLine, Progressed

if TYPE_CHECKING:
    from holdfast.model.outbox import Emitted
    from holdfast.store.wire.session import Session
    from holdfast.store.wire.transaction import Transaction
    from holdfast.worker.stepcalls import RunningStep
    from holdfast.worker.steps import Steps
    from holdfast.worker.stepstore import StepStore
    from holdfast.worker.threads import Threads

log = logs.get("worker")
Report = Callable[[Job, Progressed | LogLine], None]
"""Receives a job's progress and the lines of its log."""


class Progress:
    """The newest report of each job and the new lines of its log, until they are stored. Threads report too, so each
    step is one dict operation."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._reports: dict[str, dict[str, Any]] = {}
        self._logs = JobLogs(calls)
        self._turn = asyncio.Lock()

    def report(self, job: Job, message: Progressed | LogLine) -> None:
        """Replace the job's last report, or add a line to its log."""
        if isinstance(message, LogLine):
            self._logs.add(job, message)
            return
        report = {"done": message.done, "total": message.total, "message": message.message}
        self._reports[job.id] = {"id": job.id, "token": job.lease.token, **report}

    async def store(self, session: Session) -> None:
        """Store new reports and lines; if the database is unavailable, they are stored with the next. It also waits for
        a concurrent call, because a job's last report must be stored before its outcome."""
        if self._reports or self._logs.jobs or self._turn.locked():
            async with self._turn:
                await self._store(session)
                await self._logs.store(session)

    async def _store(self, session: Session) -> None:
        reports = {id_: self._reports.pop(id_) for id_ in list(self._reports)}
        if not reports:
            return
        try:
            await session.run(self._calls.jobs.report_progress(list(reports.values())))
        except DatabaseUnavailable:
            for id_, report in reports.items():
                self._reports.setdefault(id_, report)
        except HoldfastError as error:
            logs.event(log, logging.ERROR, "progress refused", reports=len(reports), error=str(error))


def _number(value: Any) -> float:
    try:
        if isinstance(value, int | float) and math.isfinite(number := float(value)):
            return number
    except OverflowError:
        pass
    raise UsageError(f"progress must be a finite number, got {value!r:.60}")


def encode_result(task: Task[Any, Any], value: Any, max_size: int) -> bytes:
    """Return a result as JSON, or raise an error if it cannot be stored."""
    what = f"the result of task {task.name!r}"
    data = task.signature.result.write(value, what)
    payload.check_limits(data, what, max_size, 1000, "HOLDFAST_MAX_RESULT")
    return data


class JobLink(Link):
    """The link of one job, in its worker or in a child process."""

    __slots__ = ("_conn", "_hf", "_job", "_max_result", "_report", "_steps", "_store", "_threads", "_turn")

    def __init__(
        self, hf: Holdfast, job: Job, report: Report, max_result: int, threads: Threads, store: StepStore | None = None
    ) -> None:
        self._hf = hf
        self._job = job
        self._report = report
        self._max_result = max_result
        self._threads = threads
        self._store = store
        self._steps: Steps | None = None
        self._turn = threading.Lock()  # at most one transaction is open
        self._conn: Any = None  # of the open transaction

    @property
    def canceled(self) -> bool:
        return bool(self._job.canceled or self._job.lease.lost)

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Report progress. Values are validated here, because reports of several jobs are stored together."""
        text = None if message is None else clean(str(message), 1000)
        self._report(self._job, Progressed(0, _number(done), None if total is None else _number(total), text))

    def log(self, level: str, text: str) -> None:
        self._report(self._job, LogLine(0, level, clean(text, 1000)))

    def durable(self, operation: str, *args: Any) -> Any:
        """Run an operation on the job's steps; in an async handler, return its coroutine."""
        steps = self.steps()
        if operation == "batch":
            return steps.batch(*args)
        return steps.run(getattr(steps, operation)(*args))

    def steps(self) -> Steps:
        """Return the job's durable steps."""
        if self._steps is None:
            from holdfast.worker.steps import Steps  # imported late: most jobs have no steps

            self._steps = Steps(self._hf, self._job, self._threads, self._store, self._max_result)
        return self._steps

    async def end_steps(self) -> None:
        """Cancel the steps that an async handler has left running, and wait for them."""
        if self._steps is not None:
            await self._steps.end()

    @property
    def _step(self) -> RunningStep | None:
        """Return the step whose function calls this."""
        if self._steps is None:
            return None
        from holdfast.worker.stepcalls import running_step

        return running_step(self._job)

    @property
    def step_key(self) -> str:
        if (step := self._step) is None:
            raise UsageError("ctx.step_key is the key of a running step; it is read by the step's function")
        return f"{self._job.id}:{step.name}"

    def set_result(self, value: Any) -> None:
        if (step := self._step) is not None:
            step.result = self.steps().encode(step, value)
            return
        self._job.result = encode_result(self._hf.registry.tasks[self._job.task], value, self._max_result)

    def transaction(self) -> Transaction:
        from holdfast.store.wire.transaction import Transaction  # imported late: most child processes do not need it

        job = self._job
        if (step := self._step) is not None:
            return self._step_transaction(step)
        if job.settled:
            raise UsageError(f"job {job.id} has already been finished by a ctx.transaction(); use one for all its work")
        return Transaction(
            self._hf.database.sync_pool,
            self._hf.database.async_pool,
            self._finish,
            self._settle,
            job.id,
            self._turn,
            self._opened,
        )

    def _step_transaction(self, step: RunningStep) -> Transaction:
        """Return a transaction that stores the step with the rows of its function."""
        from holdfast.store.wire.transaction import Transaction
        from holdfast.worker.steps import Commit

        if self._turn.locked():
            raise UsageError(f"job {self._job.id} has a transaction open already; do all its work in that one")
        if step.settled:
            raise UsageError(
                f"step {step.name!r} has already been stored by a ctx.transaction(); use one for all its work"
            )

        def settle() -> None:
            step.settled = True

        return Transaction(
            self._hf.database.sync_pool,
            self._hf.database.async_pool,
            lambda: self.steps().refusal(step),
            settle,
            self._job.id,
            step.turn,
            step.opened,
            Commit(step).check,
        )

    def emit(self, channel: Any, payload: Any, key: str, order: str | None) -> Emitted:
        conn = self._open_one("emit", is_async=False)
        return self._hf.outbox.emit(conn, channel, payload, key=key, tenant=self._job.tenant, order=order)

    async def aemit(self, channel: Any, payload: Any, key: str, order: str | None) -> Emitted:
        conn = self._open_one("aemit", is_async=True)
        return await self._hf.outbox.aemit(conn, channel, payload, key=key, tenant=self._job.tenant, order=order)

    def _opened(self, conn: Any) -> None:
        self._conn = conn

    def _open_one(self, name: str, *, is_async: bool) -> Any:
        step = self._step
        conn = self._conn if step is None or step.conn is None else step.conn
        if conn is None:
            raise UsageError(
                f"ctx.{name}() was called outside of an open ctx.transaction(), which commits the message with the "
                f"job's changes; to emit it by itself, call hf.outbox.{name}(None, ...)"
            )
        if inspect.iscoroutinefunction(conn.execute) != is_async:
            kind, twin = ("not async", "ctx.emit") if is_async else ("async", "await ctx.aemit")
            raise UsageError(f"this job's transaction is {kind}: use {twin}(...)")
        return conn

    def _finish(self) -> Call[list[str]]:
        job, calls = self._job, self._hf.database.calls
        if job.result is None:
            return calls.jobs.finish([job.id], [job.lease.token], [], [])
        outcome = Outcome(job.id, job.lease.token, "succeeded", result=msgspec.Raw(job.result))
        return calls.jobs.finish([], [], [outcome], [])

    def _settle(self) -> None:
        self._job.settled, self._job.kept = True, self._job.result


class Links:
    """Makes the links of a worker's jobs."""

    def __init__(self, hf: Holdfast, progress: Progress, threads: Threads, steps: StepStore, max_result: int) -> None:
        self.report = progress.report
        self._hf = hf
        self._threads = threads
        self._steps = steps
        self._max_result = max_result

    def make(self, job: Job) -> JobLink:
        """Return the link of a job."""
        return JobLink(self._hf, job, self.report, self._max_result, self._threads, self._steps)

    async def close(self) -> None:
        """Close the connection for steps."""
        await self._steps.close()
