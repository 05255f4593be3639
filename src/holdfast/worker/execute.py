"""Run one attempt of a job and return its outcome. Nothing here writes to the database."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.client import Holdfast, Task
from holdfast.errors import HoldfastError, InvalidPayload, SchemaError, UnknownTask, UsageError
from holdfast.model.context import Context, Link
from holdfast.model.failure import Failure, fingerprint
from holdfast.model.job import Job
from holdfast.model.outcome import FAILURES, PARKED, SETTLED, Outcome, Verdict, describe, ending_of
from holdfast.model.resource import Resource
from holdfast.model.signature import Call
from holdfast.model.step import Parked, parked_in
from holdfast.settings import Settings
from holdfast.telemetry import logs, sentry
from holdfast.worker.link import encode_result

if TYPE_CHECKING:
    from holdfast.worker.link import JobLink, Links
    from holdfast.worker.processes import Processes
    from holdfast.worker.threads import Threads

log = logs.get("worker")
UNKNOWN_TASK_DELAY = 15.0


class Attempts:
    """Executes attempts with the tasks of one application: on the loop, in threads, or in child processes."""

    def __init__(
        self,
        hf: Holdfast,
        threads: Threads,
        processes: Processes,
        links: Links,
        settings: Settings,
        on_mismatch: Callable[[SchemaError], None],
        on_error: Callable[[Job, BaseException], None] | None = None,
    ) -> None:
        self._hf = hf
        self._tasks = hf.registry.tasks
        self._around = hf.registry.around_attempt
        self._threads = threads
        self._processes = processes
        self._links = links
        self._settings = settings
        self._judge = Judge(hf.registry.tasks, settings)
        self._resources: dict[Resource[Any], Any] = {}
        self._on_error = on_error  # the test kit re-raises a handler's exception, so it needs the object
        self._on_mismatch = on_mismatch
        self._on_failure: list[Callable[[Failure], None]] = []  # in addition to the application's

    async def open(self, stack: contextlib.AsyncExitStack) -> None:
        """Open the registered resources and those of task signatures, which may belong to another application; and
        Sentry where it is configured."""
        of_tasks = [each for task in self._tasks.values() for each in task.signature.resources.values()]
        for resource in dict.fromkeys([*self._hf.registry.resources, *of_tasks]):
            self._resources[resource] = await resource.open(stack)
        if self._settings.sentry_dsn:
            self._on_failure.append(stack.enter_context(sentry.reporting(self._settings.sentry_dsn)))

    def release_unstarted(self) -> None:
        """Release the jobs that wait for a child process, and take no more."""
        self._processes.release_unstarted()

    async def close(self, *, at_once: bool) -> None:
        """End the child processes; unless at_once, idle ones may clean up first."""
        await self._processes.close(at_once=at_once)
        await self._links.close()

    def kill(self) -> None:
        """Kill the child processes, and end each thread after its current call."""
        self._processes.kill()
        self._threads.shutdown()

    async def execute(self, job: Job) -> Outcome | None:
        """Return the outcome of one attempt; None if it succeeded and returned nothing."""
        task = self._tasks.get(job.task)
        if task is None:
            return self._judge.unknown(job)
        try:
            around = (skips := self._around.skips) is not None and not skips(job)
            if task.runner == "process":
                return await self._run_in_process(task, job, around)
            args, kwargs = task.signature.call(job)
            if task.is_plain and not around:
                result = await task.handler(*args, **kwargs)
            else:
                result = await self._call(task, job, args, kwargs, around)
            return result if result.__class__ is Outcome else self._judge.succeeded(job, result)
        except asyncio.CancelledError as error:
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise  # the worker canceled this attempt; otherwise the handler's own cancellation escaped
            return self._failed(job, error)
        except GeneratorExit:
            raise
        except FailedInChild as error:
            return self._failed_in_child(job, error)
        except BaseException as error:
            return self._failed(job, error)

    def _failed(self, job: Job, error: BaseException) -> Outcome:
        if self._on_error is not None:
            self._on_error(job, error)
        outcome = self._judge.failed(job, error)
        self._note_mismatch(outcome)
        self._report_failure(job, error, outcome)
        return outcome

    def _failed_in_child(self, job: Job, error: FailedInChild) -> Outcome:
        if self._on_error is not None:
            self._on_error(job, error)
        self._note_mismatch(error.outcome)
        self._report_failure(job, error, error.outcome)
        return error.outcome

    def _note_mismatch(self, outcome: Outcome) -> None:
        """Report a schema that does not fit this process, which Judge.failed marks as released with an error. The error
        concerns the worker, so it is removed from the job."""
        if outcome.outcome == "released" and outcome.error is not None:
            self._on_mismatch(SchemaError(str(outcome.error.get("message"))))
            outcome.error = None

    def _report_failure(self, job: Job, error: BaseException, outcome: Outcome) -> None:
        """Call the failure listeners. An exception in one is logged and does not affect the job."""
        if (ending := ending_of(job, outcome)) in FAILURES:
            for listen in (*self._hf.registry.on_failure, *self._on_failure):
                try:
                    listen(Failure(job, error, outcome.error or {}, ending))
                except Exception as broken:
                    logs.event(log, logging.WARNING, "failure not reported", job=job.id, error=repr(broken))

    async def _call(
        self, task: Task[Any, Any], job: Job, args: tuple[Any, ...], kwargs: dict[str, Any], around: bool
    ) -> Any:
        for name, resource in task.signature.resources.items():
            kwargs[name] = self._resources[resource]
        if task.signature.context_name is None and not around:
            return await self._run(task, job, args, kwargs)
        link = self._links.make(job)
        context = make_context(job, link)
        args, kwargs = with_context(task, context, args, kwargs)
        if not around:
            return await self._run_or_park(task, job, args, kwargs, link)
        async with self._around.entered(context):
            return await self._run_or_park(task, job, args, kwargs, link)

    async def _run_or_park(
        self, task: Task[Any, Any], job: Job, args: tuple[Any, ...], kwargs: dict[str, Any], link: JobLink
    ) -> Any:
        """Run the handler. If it waits for something, return that as an outcome, which is no error for middleware."""
        try:
            return await self._run(task, job, args, kwargs)
        except (Parked, BaseExceptionGroup) as error:
            return park(job, error)
        finally:
            if task.is_async:
                await link.end_steps()

    async def _run(self, task: Task[Any, Any], job: Job, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not task.is_async:
            return await self._run_in_thread(task, job, args, kwargs)
        if task.timeout is None:
            return await task.handler(*args, **kwargs)
        try:
            async with asyncio.timeout(task.timeout) as clock:
                return await task.handler(*args, **kwargs)
        except TimeoutError:
            if not clock.expired():
                raise
            raise TimedOut(task, task.timeout) from None

    async def _run_in_process(self, task: Task[Any, Any], job: Job, around: bool) -> Outcome | None:
        """Run the job in a child, which decodes the payload and judges the result itself."""
        if not around:
            return await self._call_child(task, job, None)
        async with self._around.entered(make_context(job, self._links.make(job))):
            return await self._call_child(task, job, self._around.carried())

    async def _call_child(self, task: Task[Any, Any], job: Job, carried: dict[str, str] | None) -> Outcome | None:
        result, output = await self._processes.run(task, job, self._links.report, carried)
        outcome = self._judge.failed(job, result) if isinstance(result, Exception) else result
        if outcome is not None and outcome.error is not None:
            if output:
                outcome.error["output"] = output
            raise FailedInChild(outcome)
        return outcome

    async def _run_in_thread(
        self, task: Task[Any, Any], job: Job, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the handler in a thread. A thread that outlives its attempt is left in `job.thread`, and its slot waits
        for it: there are as many threads as slots, so no job waits behind a hung thread."""
        handler = task.handler
        if self._around:  # the thread needs the middleware's context variables (a trace, for example)
            handler, args = contextvars.copy_context().run, (handler, *args)
        call = self._threads.start(handler, args, kwargs)
        try:
            await (call.future if task.timeout is None else asyncio.wait_for(call.future, task.timeout))
        except TimeoutError:  # from wait_for: a TimeoutError of the handler is in the call's result
            raise TimedOut(task, task.timeout or 0.0) from None
        finally:
            job.thread = call.left_behind()
        return call.result()


class Judge:
    """Turns what handlers return and raise into outcomes, in a worker and in its child processes."""

    def __init__(self, tasks: Mapping[str, Task[Any, Any]], settings: Settings) -> None:
        self._tasks = tasks
        self._settings = settings
        self._max_error = settings.max_error
        self._max_result = settings.max_result

    def succeeded(self, job: Job, result: Any) -> Outcome | None:
        """Return the outcome of a handler that returned; None if there is no result to store. A job that finished in
        its own transaction may have stored its result there."""
        data = job.result
        if data is None and result is not None:
            data = encode_result(self._tasks[job.task], result, self._max_result)
        if job.settled and data is job.kept:
            return Outcome(job.id, job.lease.token, SETTLED)
        if data is None:
            return None
        return Outcome(job.id, job.lease.token, SETTLED if job.settled else "succeeded", result=msgspec.Raw(data))

    def failed(self, job: Job, error: BaseException) -> Outcome:
        """Return the outcome of a handler that raised or did not end."""
        details = describe(error, self._max_error)
        if job.settled:  # its success is already committed
            return Outcome(job.id, job.lease.token, SETTLED, error=details)
        if (mismatch := self._mismatch(error)) is not None:  # not the job's fault: the attempt is refunded
            return Outcome(job.id, job.lease.token, "released", error=describe(mismatch, self._max_error))
        details["fingerprint"] = fingerprint(job.task, details)
        counts = self._counts(job, error, details.get("code"))
        if isinstance(error, Verdict):
            return Outcome(job.id, job.lease.token, error.outcome, error=details, delay=error.after, counts=counts)
        if isinstance(error, InvalidPayload):  # a retry would get the same payload
            return Outcome(job.id, job.lease.token, "failed", error=details, counts=counts)
        outcome = self._tasks[job.task].outcome_of(error, details.get("code"))
        return Outcome(job.id, job.lease.token, outcome, error=details, counts=counts)

    def _mismatch(self, error: BaseException) -> SchemaError | None:
        """Return the error if this worker's own schema was refused. On a handler's own connection the schema is
        unknown; then this worker's schema is checked, which is rare."""
        refusal = find_schema_error(error, self._settings.database)
        if refusal is None or refusal.database is not None:
            return refusal
        from holdfast.store.wire.connect_once import connect_once  # imported late: most child processes do not need it

        try:
            connect_once(self._settings.with_(connect_timeout=2.0))
        except SchemaError as current:
            return current
        except HoldfastError:
            pass
        return None

    def _counts(self, job: Job, error: BaseException, code: str | None) -> list[str] | None:
        """Return the keys whose breaker counts this error; None for all keys. The keys of a payload that cannot be read
        are unknown, so then all count."""
        task = self._tasks[job.task]
        if task.limits is None or not task.limits.picky:
            return None
        try:
            arguments = task.signature.arguments(job.payload)
            return task.limits.counts(arguments, job.tenant, job.queue, error, code)
        except Exception:  # str() of an argument may run application code
            return None

    def unknown(self, job: Job) -> Outcome:
        """Snooze a job whose task is unknown, without counting an attempt, until a worker knows the task."""
        details = describe(UnknownTask(job.task, self._tasks), self._max_error)
        return Outcome(job.id, job.lease.token, "snoozed", error=details, delay=UNKNOWN_TASK_DELAY)


def park(job: Job, error: BaseException) -> Outcome:
    """Return the outcome of a handler that waits for something, or raise the error of one that does not."""
    if (parked := parked_in(error)) is None:
        raise error
    if job.settled:
        raise UsageError(f"job {job.id} was finished by its ctx.transaction() and cannot wait for {parked.name!r}")
    wait = {"kind": parked.kind, "name": parked.name, "seconds": parked.seconds}
    return Outcome(job.id, job.lease.token, PARKED, wait=wait)


def find_schema_error(error: BaseException | None, database: tuple[str, str], depth: int = 20) -> SchemaError | None:
    """Return the SchemaError of this database, or of an unknown one, from an exception and its causes."""
    if error is None or not depth:
        return None
    if isinstance(error, SchemaError) and error.database in (database, None):
        return error
    inside = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for each in (*inside[:depth], error.__cause__ or error.__context__):
        if (found := find_schema_error(each, database, depth - 1)) is not None:
            return found
    return None


def make_context(job: Job, link: Link) -> Context:
    """Return the context that a handler and its middleware receive."""
    return Context(
        job.id,
        job.task,
        job.queue,
        job.tenant,
        job.priority,
        job.attempt,
        job.max_attempts,
        job.lease.token,
        job.batch,
        job.headers,
        link,
    )


def with_context(task: Task[Any, Any], context: Context, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Return the arguments, with the context added where the handler takes one."""
    if task.signature.context_first:
        return (context, *args), kwargs
    if task.signature.context_name is not None:
        kwargs[task.signature.context_name] = context
    return args, kwargs


class FailedInChild(Exception):
    """Represents, for middleware, an attempt that failed in a child process; the original exception stays there."""

    def __init__(self, outcome: Outcome) -> None:
        error = outcome.error or {}
        super().__init__(f"{error.get('type')}: {error.get('message')}")
        self.outcome = outcome
        self.code = error.get("code")


class TimedOut(Exception):
    """The handler ran longer than its task's timeout."""

    code = "TIMEOUT"

    def __init__(self, task: Task[Any, Any], seconds: float) -> None:
        suffixes = {
            "async": "",
            "thread": "; its thread cannot be stopped and runs on",
            "process": "; its process was killed",
        }
        super().__init__(f"task {task.name!r} ran longer than its timeout of {seconds:g} s{suffixes[task.runner]}")
