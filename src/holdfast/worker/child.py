"""The main loop of a worker's child process: read a job, call its handler in the main thread, return the result.

The child gets two descriptors: a socket for jobs and results, and the pipe by which it notices that its worker is gone
(parent.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import faulthandler
import importlib
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from holdfast.client import Channel, Holdfast, Task
from holdfast.client.database import Database
from holdfast.errors import ConfigurationError
from holdfast.model.job import Job
from holdfast.model.outcome import Outcome, clean, describe
from holdfast.model.resource import Resource
from holdfast.model.signature import Call
from holdfast.model.step import Parked
from holdfast.settings import Settings
from holdfast.telemetry import logs
from holdfast.worker.execute import Judge, make_context, park, with_context
from holdfast.worker.link import JobLink, Report
from holdfast.worker.messages import (
    JobDone,
    Leave,
    Logged,
    LogLine,
    Progressed,
    Run,
    Setup,
    Started,
    Stream,
    ToChild,
    ToWorker,
    in_child,
    pack,
)
from holdfast.worker.parent import die_with
from holdfast.worker.prefetch import Lease
from holdfast.worker.threads import Threads

MB = 1 << 20
_serving = False


def is_child() -> bool:
    """Return whether this process is the child of a worker."""
    return _serving


def main(worker: int, jobs: int, lifeline: int) -> None:
    """Run jobs for the worker with that process id, over these descriptors, until a Leave message."""
    global _serving  # noqa: PLW0603 - a property of the whole process
    _serving = True
    for number in (jobs, lifeline):
        os.set_inheritable(number, False)  # programs that a handler starts must not keep them open
    die_with(worker, lifeline)
    _take_signals()
    Child(Line(socket.socket(fileno=jobs))).serve()


def _take_signals() -> None:
    """Restore the default signal handling, whatever the worker's parent blocked or ignored. Fatal signals write a stack
    to a copy of standard error, because a handler may close the original."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    faulthandler.enable(os.dup(2))


class Line:
    """The child's end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._stream = Stream(in_child)
        self._lock = threading.Lock()

    def say(self, message: ToWorker) -> None:
        """Send a message; safe to call from any thread."""
        data = pack(message)
        with self._lock:
            self._socket.sendall(data)

    def messages(self) -> Iterator[ToChild]:
        """Yield the worker's messages until it closes the connection."""
        while data := self._socket.recv(1 << 16):
            yield from self._stream.feed(data)


class Child:
    """Runs the jobs that the worker sends, one at a time."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._pid = os.getpid()
        self._spare = os.dup(2)
        self._tasks: dict[str, Task[Any, Any]] = {}
        self._served = self._number = 0

    def serve(self) -> None:
        """Run jobs until a Leave message, or until the child has a reason to leave."""
        with contextlib.ExitStack() as stack:
            loop = stack.enter_context(contextlib.closing(asyncio.Runner()))
            for message in self._line.messages():
                if isinstance(message, Setup):
                    self._settings = Settings(**message.settings)
                    _send_log(LogLines(self._line, lambda: self._number), message.log_level)
                    self._handlers = Handlers(self._tasks, self._settings, loop)
                    stack.callback(self._handlers.close)
                    _limit_memory(self._settings.process_memory)
                elif isinstance(message, Leave) or self._serve(message):
                    return

    def _serve(self, run: Run) -> bool:
        """Run one job; return whether it was the last."""
        outcome = self._attempt(run)
        if os.getpid() != self._pid:  # the handler forked, and returned in the copy too
            os._exit(0)
        self._served += 1
        _flush_output()
        _mend_output(self._spare)
        leaving = self._why_leave()
        self._line.say(JobDone.of(run.number, outcome, leaving))
        return leaving is not None

    def _attempt(self, run: Run) -> Outcome | None:
        if run.task not in self._tasks:
            try:
                self._tasks[run.task] = find_task(run.module, run.task, self._settings)
            except BaseException as error:
                return Outcome(run.job_id, run.token, "error", error=describe(error, self._settings.max_error))
        self._number = run.number
        if run.tell_start:
            self._line.say(Started(run.number))
        row = (run.job_id, run.token, run.task, run.payload, run.attempt, run.max_attempts, run.queue, run.priority,
               run.tenant, 0.0, run.batch, run.headers, 0, None, None)  # fmt: skip
        job = Job(row, Lease(run.token, 1, 0.0, 0.0))
        return self._handlers.execute(job, self._report(run.number), run.carried or job.headers)

    def _report(self, number: int) -> Report:
        """Return a function that sends progress and log lines to the worker."""

        def send(_: Job, message: Progressed | LogLine) -> None:
            message.number = number
            self._line.say(message)

        return send

    def _why_leave(self) -> str | None:
        settings = self._settings
        if self._handlers.out_of_memory:
            return "it ran out of memory"
        if self._served == settings.process_max_jobs:
            return f"it has run {self._served} jobs"
        if settings.process_max_rss and (rss := _resident()) > settings.process_max_rss * MB:
            return f"it holds {rss // MB} MB"
        return None


class LogLines(logging.Handler):
    """Sends Holdfast's log records to the worker, so ctx.log works the same wherever a handler runs."""

    def __init__(self, line: Line, number: Callable[[], int]) -> None:
        super().__init__()
        self._line = line
        self._number = number

    def emit(self, record: logging.LogRecord) -> None:
        fields = json.dumps(getattr(record, "fields", {}), default=str)
        self._line.say(Logged(self._number(), record.name, record.levelno, clean(record.getMessage(), 10_000), fields))


def _send_log(handler: logging.Handler, level: int) -> None:
    logger = logging.getLogger(logs.ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False


class Handlers:
    """Calls handlers in this thread; async ones on an event loop of its own."""

    def __init__(self, tasks: dict[str, Task[Any, Any]], settings: Settings, loop: asyncio.Runner) -> None:
        self._tasks = tasks
        self._judge = Judge(tasks, settings)
        self._max_result = settings.max_result
        self._resources: dict[Resource[Any], Any] = {}
        self._opened = contextlib.AsyncExitStack()
        self._limit = _limit(settings)
        self._loop = loop
        self._threads = Threads("holdfast-step")
        self.out_of_memory = False

    def execute(self, job: Job, report: Report, carried: Any) -> Outcome | None:
        """Return the outcome of one attempt; None if it succeeded and returned nothing. carried: the context of the
        worker's middleware, or the job's headers."""
        task = self._tasks[job.task]
        link = JobLink(task.hf, job, report, self._max_result, self._threads)
        try:
            args, kwargs = self._arguments(task, job, link)
            with task.hf.registry.around_attempt.resumed(carried):
                result = task.handler(*args, **kwargs)
                if task.is_async:  # a copy of the context: the runner's own lacks the middleware's variables
                    result = self._loop.run(_run(result, link), context=contextvars.copy_context())
            return self._judge.succeeded(job, result)
        except (Parked, BaseExceptionGroup) as error:
            try:
                return park(job, error)
            except BaseException as failure:
                return self._judge.failed(job, failure)
        except MemoryError as error:
            self.out_of_memory = True
            return self._failed_by_memory(job, error)
        except BaseException as error:
            return self._judge.failed(job, error)

    def _arguments(self, task: Task[Any, Any], job: Job, link: JobLink) -> Call:
        args, kwargs = task.signature.call(job)
        for name, resource in task.signature.resources.items():
            kwargs[name] = self._resource(resource)
        if task.signature.context_name is None:
            return args, kwargs
        return with_context(task, make_context(job, link), args, kwargs)

    def _resource(self, resource: Resource[Any]) -> Any:
        """Return the resource, opened on first use and kept until the process ends."""
        if resource not in self._resources:
            self._resources[resource] = self._loop.run(resource.open(self._opened))
        return self._resources[resource]

    def close(self) -> None:
        """Close the resources that were opened, and end the threads of steps."""
        self._threads.shutdown()
        self._loop.run(self._opened.aclose())

    def _failed_by_memory(self, job: Job, error: MemoryError) -> Outcome:
        outcome = self._judge.failed(job, error)
        if outcome.error is not None:
            outcome.error["message"] = (outcome.error["message"] or "out of memory") + self._limit
        return outcome


async def _run(handling: Coroutine[Any, Any, Any], link: JobLink) -> Any:
    try:
        return await handling
    finally:
        await link.end_steps()


def find_task(module: str, name: str, settings: Settings) -> Task[Any, Any]:
    """Import the module and return its task, with the worker's settings applied to its application."""
    if os.getcwd() not in sys.path:  # a program that was started as a file is importable from there
        sys.path.append(os.getcwd())
    try:
        members = vars(importlib.import_module(module)).values()
    except BaseException as error:
        limit = _limit(settings) if isinstance(error, MemoryError) else ""
        raise ConfigurationError(
            f"the child process cannot import {module!r}: {type(error).__name__}: {error}{limit}"
        ) from error
    apps = [each for each in members if isinstance(each, Holdfast)]
    tasks = [each.task if isinstance(each, Channel) else each for each in members if isinstance(each, Task | Channel)]
    for task in (*tasks, *(app.registry.tasks[name] for app in apps if name in app.registry.tasks)):
        if task.name == name:
            if task.hf.settings != settings:
                task.hf.database = Database(settings)
            return task
    raise ConfigurationError(
        f"{module!r} has no task {name!r} when a child process imports it; a task with runner='process' must be "
        "registered by the module that holds its handler, outside of any condition"
    )


def _limit(settings: Settings) -> str:
    return f"; its process may use {settings.process_memory} MB (process_memory)" if settings.process_memory else ""


def _limit_memory(megabytes: int) -> None:
    if megabytes:
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        limit = megabytes * MB if most == resource.RLIM_INFINITY else min(megabytes * MB, most)
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))


def _resident() -> int:
    """Return the resident memory of this process in bytes; its peak where there is no /proc."""
    import resource  # missing on some platforms, where the worker still imports this module

    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _flush_output() -> None:
    """Flush the handler's output before its result is sent, so it is not taken for the next job's."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the handler may have replaced the stream
            stream.flush()


def _mend_output(spare: int) -> None:
    """Reopen standard output and error if a handler has closed them."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(spare, number)
        if getattr(getattr(sys, name), "closed", False):
            setattr(sys, name, open(number, "w", buffering=1, closefd=False))  # noqa: SIM115 - stays open
