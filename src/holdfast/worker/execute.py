"""Runs one attempt of one job and says what came of it. It returns a value; it never touches the database."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

import msgspec

from holdfast.client.task import Task
from holdfast.errors import InvalidPayload, UnknownTask
from holdfast.model import payload
from holdfast.model.context import Context
from holdfast.model.job import Job
from holdfast.model.outcome import Outcome, Verdict, describe

UNKNOWN_TASK_DELAY = 15.0


class Attempts:
    """Executes attempts with the tasks of one application: async handlers on the loop, sync ones in threads."""

    def __init__(
        self, tasks: Mapping[str, Task[Any, Any]], threads: Executor, *, max_error: int, max_result: int
    ) -> None:
        self._tasks = tasks
        self._threads = threads
        self._max_error = max_error
        self._max_result = max_result

    async def execute(self, job: Job) -> Outcome | None:
        """The outcome of one attempt; None is the common one: it succeeded and returned nothing."""
        task = self._tasks.get(job.task)
        if task is None:
            return self._unknown(job)
        try:
            args, kwargs = task.signature.decode(job.payload)
            if task.is_plain:
                result = await task.handler(*args, **kwargs)
            else:
                result = await self._call(task, job, args, kwargs)
            return None if result is None else self._succeeded(job, result)
        except asyncio.CancelledError as error:
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise  # the worker ends this attempt; else the handler let a cancellation of its own escape
            return self._failed(job, error)
        except GeneratorExit:
            raise
        except BaseException as error:
            return self._failed(job, error)

    async def _call(self, task: Task[Any, Any], job: Job, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if task.signature.context_name is not None:
            context = Context(job.id, job.task, job.queue, job.tenant, job.priority, job.attempt, job.max_attempts,
                              job.lease.token)  # fmt: skip
            if task.signature.context_first:
                args = (context, *args)
            else:
                kwargs[task.signature.context_name] = context
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

    async def _run_in_thread(
        self, task: Task[Any, Any], job: Job, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A thread cannot be stopped. It is left in `job.thread`, and the slot takes no other job before it has ended:
        there are as many threads as slots, so nobody waits behind a hung one with the clock running."""
        loop = asyncio.get_running_loop()
        job.thread = loop.run_in_executor(self._threads, lambda: task.handler(*args, **kwargs))
        done, _ = await asyncio.wait({job.thread}, timeout=task.timeout)
        if not done and task.timeout is not None:
            raise TimedOut(task, task.timeout)
        thread, job.thread = job.thread, None
        return thread.result()

    def _succeeded(self, job: Job, result: Any) -> Outcome:
        what = f"the result of task {job.task!r}"
        data = payload.encode(result, what)
        payload.check_limits(data, what, self._max_result, 1000)
        return Outcome(job.id, job.lease.token, "succeeded", result=msgspec.Raw(data))

    def _failed(self, job: Job, error: BaseException) -> Outcome:
        told = describe(error, self._max_error)
        if isinstance(error, Verdict):
            return Outcome(job.id, job.lease.token, error.outcome, error=told, delay=error.after)
        if isinstance(error, InvalidPayload):  # what does not fit the handler will not fit it next time either
            return Outcome(job.id, job.lease.token, "failed", error=told)
        outcome = self._tasks[job.task].retry.outcome(error, told.get("code"))
        return Outcome(job.id, job.lease.token, outcome, error=told)

    def _unknown(self, job: Job) -> Outcome:
        """Not this job's fault: it waits for a worker that knows its task, and no attempt is counted."""
        told = describe(UnknownTask(job.task, self._tasks), self._max_error)
        return Outcome(job.id, job.lease.token, "snoozed", error=told, delay=UNKNOWN_TASK_DELAY)


class TimedOut(Exception):
    """The handler ran longer than its task's timeout."""

    code = "TIMEOUT"

    def __init__(self, task: Task[Any, Any], seconds: float) -> None:
        left = "" if task.is_async else "; its thread cannot be stopped and runs on"
        super().__init__(f"task {task.name!r} ran longer than its timeout of {seconds:g} s{left}")
