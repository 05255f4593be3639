"""Kit: run and inspect an application's jobs in a test."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from holdfast.client import Channel, Enqueuer, Handle, Holdfast
from holdfast.client.operation import Step, Steps, operation
from holdfast.errors import UsageError
from holdfast.model.context import Context
from holdfast.model.job import JobInfo, Status, ids
from holdfast.model.outbox import MessageInfo
from holdfast.store.dev.scratch import Scratch
from holdfast.store.jobs import Filter
from holdfast.store.outbox import MessageFilter
from holdfast.store.select import Page
from holdfast.testing.clock import Clock, zoned
from holdfast.testing.drain import Attempt, Drain, Drained, DrainPlan
from holdfast.testing.emitted import WantedMessage
from holdfast.testing.enqueued import ExpectedJob, describe
from holdfast.testing.pools import KitDatabase, on_loop

_ALL = 1_000_000
Info = TypeVar("Info", JobInfo, MessageInfo)


class Kit:
    """An application bound to a test database; created by `bind()` or the fixture `holdfast_kit`.

    Methods that run handlers come in pairs, such as drain and adrain: the second is for coroutines. All other methods
    only read the database or set its clock, and are plain functions.
    """

    tolerance = timedelta(seconds=1)
    """How far a job's delay or run_at may be from the expected one."""

    def __init__(self, hf: Holdfast, scratch: Scratch, database: KitDatabase) -> None:
        self.hf = self._hf = hf
        self.dsn = scratch.settings.dsn
        self.clock = Clock(scratch)
        self._database = scratch
        self._pools = database.sync_pool, database.async_pool
        self._draining = 0

    def _drain(
        self,
        queue: str | None = None,
        *,
        until: datetime | timedelta | float | None = None,
        with_retries: bool = False,
        with_schedules: bool = False,
        with_sleeps: bool = False,
        signals: Mapping[str, Any] | None = None,
        raise_errors: bool = True,
        max_jobs: int = 1000,
        concurrency: int = 1,
        timeout: float = 60.0,
    ) -> Steps[Drained]:
        """Run all due jobs with the real worker, in this process, until none is left; return every attempt.

        until: also run what comes due by then (a time, or seconds or a timedelta from now). The clock moves from one
        due time to the next, and to `until` at the end. with_retries: also run each retry, moving the clock to its due
        time. with_schedules: also run periodic jobs, at each slot from now until `until`. with_sleeps: also move the
        clock to the end of each ctx.sleep(). signals: values by name, each sent once a job waits for it.
        raise_errors: raise a handler's error, unless a later attempt succeeded; RetryLater, Snooze and Cancel are not
        errors. max_jobs and timeout (seconds) end a drain that would not end by itself. The async form runs async
        handlers on the caller's event loop.
        """
        __tracebackhide__ = True
        drain = self._plan(
            queue=queue,
            until=until,
            with_retries=with_retries,
            with_schedules=with_schedules,
            with_sleeps=with_sleeps,
            signals=signals or {},
            raise_errors=raise_errors,
            max_jobs=max_jobs,
            concurrency=concurrency,
            timeout=timeout,
        )
        yield self._work("drain", drain.run)
        return drain.answer()

    drain, adrain = operation(_drain)

    def _run(
        self, job: Handle[Any] | JobInfo | str, *, raise_errors: bool = True, timeout: float = 60.0
    ) -> Steps[Attempt]:
        """Make one attempt at one job, even if it is not due, and run nothing else."""
        __tracebackhide__ = True
        drain = self._plan(raise_errors=raise_errors, timeout=timeout)
        yield self._work("run", lambda: drain.run_one(_id_of(job)))
        return drain.answer()[0]

    run, arun = operation(_run)

    def inline(self, *, raise_errors: bool = True, max_jobs: int = 1000) -> Inline:
        """Run all due jobs before each enqueue returns, until the block ends, and once more at the end.

        The job is committed first and then run by the real worker, so only the time differs. An enqueue with conn= runs
        nothing, because its job is not visible before that transaction commits; it runs with the next enqueue or when
        the block ends. Jobs that a handler enqueues run after it, never inside it.
        """
        return Inline(self, lambda: self._plan(raise_errors=raise_errors, max_jobs=max_jobs))

    def assert_enqueued(
        self, task: Enqueuer[Any, Any] | str, /, *args: Any, count: int | None = None, **kwargs: Any
    ) -> list[JobInfo]:
        """Fail unless the test has enqueued such a job (`count` of them, if given); return the jobs that fit.

        Write it like the enqueue: `assert_enqueued(send.using(tenant="acme", delay=60), "a@b.c")`. Arguments left out
        are not compared. It counts committed jobs in any state: queued, running or done. With using(conn=...) it reads
        through that connection, in its open transaction.
        """
        __tracebackhide__ = True
        wanted, jobs = self._wanted(task, args, kwargs, count), self._jobs(task)
        hits = [job for job in jobs if wanted.fits(job)]
        if not hits if count is None else len(hits) != count:
            missing = "no job was enqueued that fits" if count is None else f"{_fit(hits)}, not {count}:"
            raise AssertionError(f"{missing} {wanted}\n{self._there_is(wanted, jobs)}")
        return hits

    def refute_enqueued(self, task: Enqueuer[Any, Any] | str | None = None, /, *args: Any, **kwargs: Any) -> None:
        """Fail if the test has enqueued such a job (without a task: any job), in any state."""
        __tracebackhide__ = True
        wanted, jobs = self._wanted(task, args, kwargs, None), self._jobs(task)
        if hits := [job for job in jobs if wanted.fits(job)]:
            some = "1 job was enqueued that fits" if len(hits) == 1 else f"{len(hits)} jobs were enqueued that fit"
            raise AssertionError(f"{some} {wanted}\n{self._there_is(wanted, jobs)}")

    def all_enqueued(self, task: Enqueuer[Any, Any] | str | None = None, /, *args: Any, **kwargs: Any) -> list[JobInfo]:
        """Return the jobs that the test has enqueued, in that order; with a task and arguments, those that fit."""
        wanted = self._wanted(task, args, kwargs, None)
        return [job for job in self._jobs(task) if wanted.fits(job)]

    def assert_emitted(
        self,
        channel: Channel[Any, Any] | str,
        payload: Any = ...,
        *,
        key: str | None = None,
        tenant: str | None = None,
        order: str | None = None,
        count: int | None = None,
        conn: Any = None,
    ) -> list[MessageInfo]:
        """Fail unless the test has emitted such a message (`count` of them, if given); return the messages that fit.

        Values left out are not compared. It counts committed messages, delivered or not; with conn= it reads through
        that connection, in its open transaction. drain() delivers messages with the channel's own handler.
        """
        __tracebackhide__ = True
        wanted, messages = WantedMessage(channel, payload, key, tenant, order), self._messages(conn)
        hits = [it for it in messages if wanted.fits(it)]
        if not hits if count is None else len(hits) != count:
            missing = "no message was emitted that fits" if count is None else f"{len(hits)} fit, not {count}:"
            raise AssertionError(f"{missing} {wanted}\n{wanted.nearest(messages)}{self._open()}")
        return hits

    def refute_emitted(
        self,
        channel: Channel[Any, Any] | str | None = None,
        payload: Any = ...,
        *,
        key: str | None = None,
        tenant: str | None = None,
        order: str | None = None,
        conn: Any = None,
    ) -> None:
        """Fail if the test has emitted such a message (without a channel: any message)."""
        __tracebackhide__ = True
        wanted, messages = WantedMessage(channel, payload, key, tenant, order), self._messages(conn)
        if hits := [it for it in messages if wanted.fits(it)]:
            raise AssertionError(f"{len(hits)} emitted that fit {wanted}\n{wanted.nearest(messages)}")

    def all_emitted(self, channel: Channel[Any, Any] | str | None = None, *, conn: Any = None) -> list[MessageInfo]:
        """Return the messages that the test has emitted, in that order; with a channel, those of that channel."""
        wanted = WantedMessage(channel, ..., None, None, None)
        return [it for it in self._messages(conn) if wanted.fits(it)]

    def waiting(self) -> list[JobInfo]:
        """Return the jobs that have not ended: queued, or waiting for their time or another attempt."""
        return [job for job in self._jobs(None) if not job.status.final]

    def context(self, task: Enqueuer[Any, Any], **facts: Any) -> Context:
        """Return a Context as the worker would pass it, to call a handler as a plain function. The facts are attempt=2,
        tenant="acme" and so on."""
        own = task._task
        usual: dict[str, Any] = {
            "job_id": ids.make(),
            "task": own.name,
            "queue": own.queue,
            "priority": own.priority,
            "max_attempts": own.retry.max_attempts,
        }
        return Context(**(usual | facts))

    def bind(self, hf: Holdfast) -> AbstractContextManager[Kit]:
        """Bind another application to the same database for the length of a block; yields its kit."""
        from holdfast.testing.bind import bind

        return bind(hf, self.dsn, empty=False)

    def _plan(self, *, until: datetime | timedelta | float | None = None, **options: Any) -> Drain:
        if isinstance(until, int | float):
            until = timedelta(seconds=until)
        at = self.clock.now() + until if isinstance(until, timedelta) else until and zoned(until)
        return Drain(self.hf, self._database, DrainPlan(until=at, **options))

    def refuse_to_wait(self, name: str, info: JobInfo | None) -> None:
        """Raise UsageError for a job that nothing runs, so that no test waits forever."""
        inline = self._pools[0].after_enqueue is not None
        if self._draining or inline or (info and info.status is Status.RUNNING):
            return
        if info is None:
            raise UsageError(f"{name} not found; commit the transaction that enqueues it, then call drain()")
        raise UsageError(
            f"{name} of task {info.task!r} is {info.status} and nothing runs it in this test; call drain() first"
        )

    def _work(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Step:
        def run() -> None:
            __tracebackhide__ = True
            if on_loop():
                raise UsageError(f"{name}() was called on a running event loop; write: await kit.a{name}(...)")
            self._on_own_loop(work)

        return Step(run, lambda: self._busy(work))

    async def _busy(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._draining += 1
        try:
            await work()
        finally:
            self._draining -= 1

    def _on_own_loop(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine on a new event loop, without changing this thread's own."""

        async def all_of_it() -> None:
            try:
                await self._busy(work)
            finally:
                await self._pools[1].close()

        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(all_of_it())

    def _wanted(
        self, task: Enqueuer[Any, Any] | str | None, args: tuple[Any, ...], kwargs: dict[str, Any], count: int | None
    ) -> ExpectedJob:
        if isinstance(task, Enqueuer) and count is not None and "count" in task._task.signature.names:
            raise UsageError(f"task {task._task.name!r} has its own parameter 'count'; count with all_enqueued()")
        return ExpectedJob(task, args, kwargs, self.tolerance)

    def _jobs(self, task: Enqueuer[Any, Any] | str | None) -> list[JobInfo]:
        every = self.hf.database.calls.jobs.list(JobInfo, Filter(), Page(limit=_ALL, order="oldest"))
        conn = task._options.conn if isinstance(task, Enqueuer) else None
        _refuse_async(conn)
        return self._database.run(every).rows if conn is None else [*map(_read, self._pools[0].run(every, conn).rows)]

    def _there_is(self, wanted: ExpectedJob, jobs: list[JobInfo]) -> str:
        return describe(wanted, jobs, self.clock.now()) + self._open()

    def _messages(self, conn: Any) -> list[MessageInfo]:
        every = self.hf.database.calls.outbox.list(MessageFilter(), Page(limit=_ALL, order="oldest"))
        _refuse_async(conn)
        return self._database.run(every).rows if conn is None else [*map(_read, self._pools[0].run(every, conn).rows)]

    def _open(self) -> str:
        if not self._database.open_transactions():
            return ""
        return "\na transaction is still open: its jobs and messages are not visible before it commits"


class Inline:
    """Inline mode for the length of a block, `with` or `async with`."""

    def __init__(self, kit: Kit, plan: Callable[[], Drain]) -> None:
        self._hf = kit.hf
        self._kit = kit
        self._plan = plan

    def _enter(self) -> Steps[None]:
        self._kit._pools[0].after_enqueue = self._run
        self._kit._pools[1].after_enqueue = self._arun
        yield from ()

    __enter__, __aenter__ = operation(_enter)

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> Steps[None]:
        __tracebackhide__ = True
        for pool in self._kit._pools:
            pool.after_enqueue = None
        if kind is None:
            yield Step(self._run, self._arun)

    __exit__, __aexit__ = operation(_leave)

    async def _arun(self) -> None:
        __tracebackhide__ = True
        if not self._kit._draining:
            drain = self._plan()
            await self._kit._busy(drain.run)
            drain.answer()

    def _run(self) -> None:
        __tracebackhide__ = True
        if not self._kit._draining:
            drain = self._plan()
            _off_loop(lambda: self._kit._on_own_loop(drain.run))
            drain.answer()


def _off_loop(work: Callable[[], None]) -> None:
    """Do the work now; if an event loop runs here, in a thread with a loop of its own."""
    if not on_loop():
        work()
        return
    with ThreadPoolExecutor(1, "holdfast-inline") as thread:
        thread.submit(work).result()


def _read(info: Info) -> Info:
    """Decode the payload of a job or message: some database libraries return JSON as text."""
    payload: Any = info.payload
    return replace(info, payload=msgspec.json.decode(payload)) if isinstance(payload, str) else info


def _refuse_async(conn: Any) -> None:
    if inspect.iscoroutinefunction(getattr(conn, "execute", None)):
        raise UsageError("conn= must not be an async connection; commit first, and leave conn= out")


def _id_of(job: Handle[Any] | JobInfo | str) -> str:
    return job if isinstance(job, str) else job.id


def _fit(jobs: list[JobInfo]) -> str:
    return "1 job fits" if len(jobs) == 1 else f"{len(jobs)} jobs fit"
