"""What `ctx.step`, `ctx.sleep` and their like do. Each is written once, as the steps of an operation (operation.py),
for async handlers and for those in threads and processes.

The first use of any of them reads the stored steps. A step that is stored returns its result. A wait that is not over
raises Parked, which ends the run; the job runs again, from its start, when the wait is over.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.client import Enqueuer, Holdfast, Task
from holdfast.client.children import ChildBatch, Gathered
from holdfast.client.operation import Step as Work
from holdfast.client.operation import Steps as Does
from holdfast.client.operation import arun_steps, run_steps, sleep
from holdfast.errors import DatabaseUnavailable, LeaseLost, LockTimeout, UsageError
from holdfast.model import payload
from holdfast.model.job import Job, ids
from holdfast.model.signature import ResultType, hints_of
from holdfast.model.step import ChildFailed, GatherFailed, Parked, StepOptions, StoredStep
from holdfast.store.bulk import Bulk
from holdfast.store.call import Call
from holdfast.store.enqueue import job_fields
from holdfast.store.steps import NewStep
from holdfast.worker.stepcalls import RunningStep, canceled_and_ended, function_call, to_the_end

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from holdfast.worker.stepstore import StepStore
    from holdfast.worker.threads import Threads

_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds, while another transaction holds the job's row
_LOCKED_FOR = 3.0  # seconds that the transaction of a step waits for it
T = TypeVar("T")
COUNTS = ("total", "succeeded", "failed", "canceled")
_decode = msgspec.json.decode


class AlreadyStored(BaseException):
    """Rolls back the transaction of a step that is stored already, by another run or by a call whose reply was lost."""


class Steps:
    """The steps of one attempt."""

    def __init__(self, hf: Holdfast, job: Job, threads: Threads, store: StepStore | None, max_result: int) -> None:
        self._hf = hf
        self._job = job
        self._store = store
        self._max_result = max_result
        self._used: set[str] = set()
        self._known: dict[str, StoredStep] | None = None
        self._turn = asyncio.Lock()  # so that steps which run in parallel read what is stored once
        task = hf.registry.tasks.get(job.task)
        timeout = None if task is None else task.timeout
        self._ends = None if timeout is None else time.monotonic() + timeout
        self._threads = threads if task is None or task.is_async else None
        self._tasks: list[
            asyncio.Task[Any] | None
        ] = []  # those whose operations run; a nested step adds its task again
        self._ended = False

    def run(self, steps: Does[Any]) -> Any:
        """Return the result, or in an async handler its coroutine."""
        return run_steps(steps, self._hf.database) if self._threads is None else self._arun(steps)

    async def _arun(self, steps: Does[T]) -> T:
        task = asyncio.current_task()
        self._tasks.append(task)
        try:
            return await arun_steps(steps, self._hf.database)
        finally:
            self._tasks.remove(task)

    async def end(self) -> None:
        """Cancel the steps that an async handler has left running in other tasks, and wait for them: what they have
        done is stored before the job's outcome, so that it can be undone."""
        self._ended, own = True, asyncio.current_task()
        await canceled_and_ended(lambda: {each for each in self._tasks if each is not None and each is not own})

    # The operations

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: StepOptions,
    ) -> Does[Any]:
        """Return the result of a step, from the function or from an earlier run."""
        known, kind = (yield from self._known_step(name, "step")), result_type(function)
        if known is not None:
            return _read(kind, known)
        step = RunningStep(self._job, name, kind, options, time.monotonic(), self._ends)
        try:
            value = yield from self._call(step, function, args, kwargs)
        except AlreadyStored:
            return _read(kind, (yield from self._read_again(name)))
        kept, database = self._keep(step, value), self._hf.database
        result = yield Work(lambda: run_steps(kept, database), lambda: to_the_end(arun_steps(kept, database)))
        if step.canceled is not None:
            raise step.canceled
        return result

    def sleep(self, name: str, seconds: float) -> Does[None]:
        """Return when the sleep is over."""
        if not seconds >= 0:
            raise UsageError(f"a sleep must be 0 seconds or more, got {seconds!r}")
        known = yield from self._known_step(name, "sleep")
        if known is None or not known.finished:
            raise Parked("sleep", name, seconds)

    def wait_for(self, name: str, timeout: float | None, type_: Any) -> Does[Any]:
        """Return the value of a signal, or raise TimeoutError."""
        if timeout is not None and not timeout >= 0:
            raise UsageError(f"the timeout of a wait must be 0 seconds or more, got {timeout!r}")
        known = yield from self._known_step(name, "signal")
        if known is None or not known.finished:
            raise Parked("signal", name, timeout)
        if known.timed_out:
            raise TimeoutError(f"signal {name!r} did not come in time")
        return _read(ResultType(f"signal {name}", type_), known)

    def gather(self, batch: ChildBatch, failures: float) -> Does[Gathered]:
        """Return how the children of a batch ended."""
        if not isinstance(batch, ChildBatch):
            raise UsageError(f"ctx.gather() takes a batch made by ctx.batch(), got {batch!r:.60}")
        if not batch.enqueued:
            raise UsageError(
                f"batch {batch.name!r} is not enqueued: it is when its `with ctx.batch(...)` block ends; gather it "
                "after that"
            )
        known = (yield from self._all()).get(batch.name)
        if known is None or not known.finished:
            raise Parked("batch", batch.name)
        counts, ends = _decode(known.result or "{}"), _decode(known.detail or "{}")
        total, well, failed, canceled = (int(counts.get(each, 0)) for each in COUNTS)
        if failed + canceled > failures * total:
            raise GatherFailed(batch.name, failed + canceled, total, failures)
        first, last = ends.get("first"), ends.get("last")
        return Gathered(batch.id, total, well, failed, canceled, self._hf, first, last)

    def call(self, name: str, task: Enqueuer[Any, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Does[Any]:
        """Return the result of a child job, or raise ChildFailed."""
        if not isinstance(task, Enqueuer):
            raise UsageError(f"ctx.call() takes a task, or task.using(...), got {task!r:.60}")
        known = yield from self._known_step(name, "call")
        if known is None:
            known = yield from self._start_child(name, task, args, kwargs)
        if known is None or not known.finished:
            raise Parked("call", name)
        ended = _decode(known.result or "{}")
        if ended.get("status") != "succeeded":
            raise ChildFailed(name, known.ref, ended.get("status", "unknown"), ended.get("error"))
        return task.result_type.read(ended.get("result"))

    def batch(self, name: str) -> ChildBatch:
        """Return the batch, which enqueues its jobs unless an earlier run has."""
        return ChildBatch(self._hf, name, self._job.tenant, self._begin_batch, self._end_batch)

    # Their parts

    def _known_step(self, name: str, kind: str) -> Does[StoredStep | None]:
        """Return a stored step; its name is then used up for this run."""
        payload.check_text(name, "the name of a step", 200)
        if name in self._used:
            raise UsageError(
                f"the name {name!r} was used twice in one run of job {self._job.id}: a step is found by its name, so "
                'give each its own, such as f"charge {number}"'
            )
        self._used.add(name)
        known = (yield from self._all()).get(name)
        if known is not None and known.kind != kind:
            raise UsageError(f"{name!r} is a {known.kind} of job {self._job.id}, and now used for a {kind}; rename one")
        return known

    def _all(self) -> Does[dict[str, StoredStep]]:
        if self._job.settled:
            raise UsageError(
                f"job {self._job.id} has already been finished by a ctx.transaction(); it has no more steps"
            )
        if self._ended:
            raise UsageError(f"the handler of job {self._job.id} has ended; it must await the steps that it starts")
        if self._known is None:
            locked: bool = yield Work(lambda: False, self._turn.acquire)  # only coroutines share a thread
            try:
                if self._known is None:
                    self._known = {each.name: each for each in (yield from self._read_stored())}
            finally:
                if locked:
                    self._turn.release()
        return self._known or {}

    def _read_stored(self) -> Does[list[StoredStep]]:
        calls, job = self._hf.database.calls.steps, self._job
        return self._grouped(lambda: calls.read([job.id], [job.lease.token]), lambda store: store.read(job))

    def _store_step(self, step: NewStep) -> Does[str]:
        calls = self._hf.database.calls.steps
        return self._grouped(lambda: calls.store([step]), lambda store: store.store(step))

    def _grouped(self, make: Callable[[], Call[list[T]]], request: Callable[[StepStore], Awaitable[T]]) -> Does[T]:
        """Run a call for this job alone, or on a worker's event loop in a group with the calls for other jobs."""
        database, store = self._hf.database, self._store
        if store is None:
            result: T = (yield make())[0]
        else:
            result = yield Work(lambda: database.sync_pool.run(make())[0], lambda: request(store))
        return result

    def _read_again(self, name: str) -> Does[StoredStep]:
        """Return a step that another run has stored."""
        self._known = None
        known = (yield from self._all()).get(name)
        if known is None:
            raise LeaseLost(f"job {self._job.id} no longer belongs to this worker")
        return known

    def _call(
        self, step: RunningStep, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Does[Any]:
        """Call the function of a step, by its own retry policy."""
        options, tries = step.options, 0
        while True:
            tries += 1
            try:
                return (yield function_call(step, function, args, kwargs, self._threads))
            except Exception as error:
                if step.settled or options.retry is None or tries >= options.retry.max_attempts:
                    raise
                if options.retry.outcome(error, getattr(error, "code", None)) not in (None, "error"):
                    raise
            yield sleep(options.retry.delay(tries))

    def _keep(self, step: RunningStep, value: Any) -> Does[Any]:
        """Store what the function returned, and return it as later runs will read it."""
        if step.settled:
            return (yield from self._keep_late(step, value))
        data = self.encode(step, value)
        new, pause = self.new_step(step, data), _PAUSE
        while (outcome := (yield from self._store_step(new))) == "locked":
            yield sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        if outcome == "lost":
            raise LeaseLost(
                f"job {self._job.id} no longer belongs to this worker; its step {step.name!r} is not stored"
            )
        if outcome == "existing":
            return _read(step.kind, (yield from self._read_again(step.name)))
        return step.kind.read(_decode(data))

    def _keep_late(self, step: RunningStep, value: Any) -> Does[Any]:
        """Store the result of a step whose own transaction has stored the step."""
        if step.result is None and value is not None:
            step.result = self.encode(step, value)
            yield self._hf.database.calls.steps.keep_result(self.new_step(step, step.result))
        return None if step.result is None else step.kind.read(_decode(step.result))

    def encode(self, step: RunningStep, value: Any) -> bytes:
        """Return a result as JSON, or raise an error if it cannot be stored."""
        what = f"the result of step {step.name!r}"
        data = step.kind.write(value, what)
        payload.check_limits(data, what, self._max_result, 1000, "HOLDFAST_MAX_RESULT")
        return data

    def new_step(self, step: RunningStep, data: bytes | None) -> NewStep:
        """Return a step as it is stored."""
        undo, job = step.options.undo, self._job
        return NewStep(
            job.id,
            job.lease.token,
            step.name,
            None if data is None else msgspec.Raw(data),
            None if undo is None else msgspec.Raw(undo_job(undo, data or b"null", job.tenant)),
            job.attempt,
            round(time.monotonic() - step.began, 3),
        )

    def refusal(self, step: RunningStep) -> Call[list[str]]:
        """Return the call that stores a step within its function's transaction; it returns why it is refused."""
        return self._hf.database.calls.steps.refusal(self.new_step(step, step.result))

    def _start_child(
        self, name: str, task: Enqueuer[Any, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Does[StoredStep | None]:
        """Enqueue a child. The pool repeats a call whose reply was lost, and then finds its step: return that."""
        own = task if task.tenant is not None or self._job.tenant is None else task.using(tenant=self._job.tenant)
        job = own.new_job(args, kwargs)
        calls = self._hf.database.calls.steps
        outcome: str = yield calls.start_child(self._job.id, self._job.lease.token, name, job_fields(job))
        if outcome == "existing":
            return (yield from self._read_again(name))
        self._check(outcome, name)
        return None

    def _begin_batch(self, batch: ChildBatch) -> Does[str]:
        known = yield from self._known_step(batch.name, "batch")
        batch.stored = known is not None
        return ids.make() if known is None or known.ref is None else known.ref

    def _end_batch(self, batch: ChildBatch) -> Does[None]:
        """Enqueue the children, open and close their batch and store the step: all in one transaction."""
        parts, database = self._batch_parts(batch), self._hf.database
        together = Work(lambda: database.sync_pool.run_together(parts), lambda: database.async_pool.run_together(parts))
        try:
            try:
                yield together
            except DatabaseUnavailable:  # it may be committed: then its step is there
                yield together
        except AlreadyStored:
            if (yield from self._read_again(batch.name)).ref != batch.id:
                self._check("existing", batch.name)

    def _batch_parts(self, batch: ChildBatch) -> list[Call[Any] | Bulk]:
        calls, job = self._hf.database.calls, self._job
        for each in batch.jobs:
            each.batch = batch.id
        made = [each.id for each in batch.jobs]
        detail = {"first": min(made), "last": max(made)} if made else {}
        begin = calls.steps.start_batch(job.id, job.lease.token, batch.name, batch.id, batch.tenant, detail)
        checked = Call(
            begin.sql, begin.params, lambda rows: self._check_begun(begin.read(rows), batch.name), prepare=begin.prepare
        )
        special = [each for each in batch.jobs if not each.plain]
        rest = [calls.jobs.enqueue_many(special, "existing")] if special else []
        bulks = Bulk.of([each for each in batch.jobs if each.plain])
        return [checked, *bulks, *rest, calls.batches.close(batch.id)]

    def _check_begun(self, outcome: str, name: str) -> None:
        """Raise for a step that was not begun; AlreadyStored if it is there."""
        if outcome == "existing":
            raise AlreadyStored
        self._check(outcome, name)

    def _check(self, outcome: str, name: str) -> None:
        """Raise for a step that was not begun, because the job belongs to another worker by now."""
        if outcome != "started":
            raise LeaseLost(f"job {self._job.id} no longer belongs to this worker; its step {name!r} was not begun")


class Commit:
    """Decides whether a step's own transaction may commit, from what the call that stores the step returned."""

    def __init__(self, step: RunningStep) -> None:
        self._step = step
        self._until: float | None = None

    def check(self, refused: Sequence[str]) -> bool:
        """Return whether the step is stored. Return False to store it again while the job's row is locked: a parallel
        step may be about to commit. Raise if it is refused; then the transaction is rolled back."""
        if "existing" in refused:
            raise AlreadyStored
        job, name, now = self._step.job, self._step.name, time.monotonic()
        if "locked" in refused:
            self._until = self._until or now + _LOCKED_FOR
            if now < self._until:
                return False
            raise LockTimeout(
                f"another transaction holds job {job.id}; step {name!r} was rolled back and may succeed later"
            )
        if refused:
            raise LeaseLost(
                f"job {job.id} no longer belongs to this worker; everything in step {name!r} was rolled back"
            )
        return True


def undo_job(undo: Enqueuer[Any, Any], data: bytes, tenant: str | None) -> bytes:
    """Return the job that undoes a step, in the form of enqueue_many. Its first argument is the step's result, if it
    takes any. It is not checked: the step has ended, and a job that does not fit its task is a dead letter."""
    if tenant is not None and undo.tenant is None:
        undo = undo.using(tenant=tenant)  # before the job is made, whose dedupe key has the tenant
    names = undo.argument_names
    job = undo.job_of(b"{" + msgspec.json.encode(names[0]) + b":" + data + b"}" if names else b"{}")
    fields = job_fields(job)
    fields.pop("id")
    return msgspec.json.encode(fields)


@functools.lru_cache(maxsize=1000)
def result_type(function: Callable[..., Any]) -> ResultType:
    """Return the type of a step's result: the return annotation of its function."""
    if isinstance(function, Task):
        return function.result_type
    name = getattr(function, "__qualname__", repr(function))
    plain = function.func if isinstance(function, functools.partial) else function
    return ResultType(name, hints_of(name, plain).get("return", Any))


def _read(kind: ResultType, known: StoredStep) -> Any:
    return kind.read(None if known.result is None else _decode(known.result))
