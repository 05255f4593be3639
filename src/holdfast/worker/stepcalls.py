"""Call the function of a step where its runner wants it: on the event loop, in a thread, or in a process of its own."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.client import Task
from holdfast.client.operation import Step as Work
from holdfast.errors import UsageError
from holdfast.model.job import Job
from holdfast.model.signature import ResultType
from holdfast.model.step import StepOptions
from holdfast.worker.stepprocess import StepProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.worker.threads import ThreadCall, Threads

T = TypeVar("T")
_LONGEST_STORE = 10.0  # seconds that a canceled handler waits until its step is stored


@dataclass(slots=True)
class RunningStep:
    """A step whose function runs. `settled`: its own transaction has stored it. `canceled` is raised when it is stored;
    `ends`: the monotonic time at which the task's timeout is over."""

    job: Job
    name: str
    kind: ResultType
    options: StepOptions
    began: float
    ends: float | None = None
    result: bytes | None = None
    settled: bool = False
    canceled: asyncio.CancelledError | None = None
    turn: threading.Lock = field(default_factory=threading.Lock)  # at most one transaction of the step is open
    conn: Any = None  # of that transaction

    def opened(self, conn: Any) -> None:
        """Note the connection of the open transaction; None when it ends."""
        self.conn = conn

    @property
    def patience(self) -> float | None:
        """Return for how many seconds a thread is waited for that should have stopped; None without end."""
        timeout = self.options.timeout
        ends = [end for end in (self.ends, None if timeout is None else self.began + timeout) if end is not None]
        return max(0.0, min(ends) - time.monotonic()) if ends else None


_running: contextvars.ContextVar[RunningStep | None] = contextvars.ContextVar("holdfast_step", default=None)


def running_step(job: Job) -> RunningStep | None:
    """Return the step of this job whose function calls this."""
    step = _running.get()
    return step if step is not None and step.job is job else None


@contextmanager
def _within(step: RunningStep) -> Iterator[None]:
    token = _running.set(step)
    try:
        yield
    finally:
        _running.reset(token)


def function_call(
    step: RunningStep,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    threads: Threads | None,
) -> Work:
    """Return the call of a step's function. `threads` are for async handlers."""
    handler = function.handler if isinstance(function, Task) else function
    is_coroutine = inspect.iscoroutinefunction(handler)
    if step.options.runner == "process":
        process = StepProcess(handler, args, kwargs, step.options.timeout)
        return Work(process.run, lambda: _in_thread(step, threads, process.run, stop=process.kill))
    _check_runner(step, handler, is_coroutine, is_async=threads is not None)

    def run() -> Any:
        with _within(step):
            return handler(*args, **kwargs)

    async def arun() -> Any:
        with _within(step):
            async with asyncio.timeout(step.options.timeout):
                return await handler(*args, **kwargs)

    return Work(run, arun if is_coroutine else lambda: _in_thread(step, threads, run))


def _check_runner(step: RunningStep, handler: Any, is_coroutine: bool, *, is_async: bool) -> None:
    options = step.options
    if is_coroutine and not is_async:
        raise UsageError(f"step {step.name!r} is a coroutine function, and the handler of its job is not async")
    if options.timeout is not None and not is_async:
        raise UsageError(f"step {step.name!r} has a timeout: in a handler that is not async it needs runner='process'")
    if options.runner is not None and options.runner != ("async" if is_coroutine else "thread"):
        raise UsageError(
            f"step {step.name!r} has runner {options.runner!r}, which does not fit its function {handler!r:.80}"
        )


async def _in_thread(
    step: RunningStep, threads: Any, function: Callable[[], Any], stop: Callable[[], None] | None = None
) -> Any:
    """Call a function in a thread of its own. A thread cannot be stopped. So if the caller is canceled, wait until the
    function ends: what it has done is then stored, and can be undone. A thread that is left behind keeps its slot."""
    call = threads.start(contextvars.copy_context().run, (function,), {})
    try:
        await asyncio.wait({call.future}, timeout=None if stop is not None else step.options.timeout)
    except asyncio.CancelledError as error:
        step.canceled = error
        if stop is not None:
            stop()
        in_vain = step.job.lease.lost or threads.at_once()  # the step could not be stored, or the process ends
        await asyncio.wait({call.future}, timeout=0 if in_vain else step.patience)
    finally:
        _leave_behind(step.job, call)
    return _result(step, call)


def _result(step: RunningStep, call: ThreadCall) -> Any:
    """Return or raise what the function did; if the caller was canceled, that, unless there is a result to store."""
    try:
        if not call.ended:
            raise TimeoutError(f"step {step.name!r} took longer than {step.options.timeout:g} s; its thread runs on")
        return call.result()
    except BaseException:
        if step.canceled is not None:
            raise step.canceled from None
        raise


def _leave_behind(job: Job, call: ThreadCall) -> None:
    """Let the slot of a job wait for a thread that still runs."""
    if (thread := call.left_behind()) is not None:
        job.thread = thread if job.thread is None else asyncio.gather(job.thread, thread)


async def to_the_end(storing: Coroutine[Any, Any, T]) -> T:
    """Return the result. If the caller is canceled, wait for it before; a second cancellation is obeyed at once."""
    task = asyncio.ensure_future(storing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=_LONGEST_STORE)
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            task.exception()  # read, so that it is not logged
        raise


async def canceled_and_ended(tasks: Callable[[], set[asyncio.Task[Any]]]) -> None:
    """Cancel the tasks that a function returns, and wait for them, until it returns none."""
    while running := tasks():
        for task in running:
            task.cancel()
        await asyncio.wait(running)
