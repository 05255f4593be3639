"""The pool of a worker's child processes: started on demand, reused, and replaced when they are worn out or dead.

A job waits here until a child is free. A child that returns a result gets the next job before the result is processed.
A child runs one job at a time, so its death fails that job and no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast.client.task import Task
from holdfast.model.clock import CLOCK, Clock
from holdfast.model.job import Job
from holdfast.model.outcome import SETTLED, Outcome, clean
from holdfast.settings import Settings
from holdfast.telemetry import logs
from holdfast.telemetry.scrub import scrub
from holdfast.worker.execute import TimedOut
from holdfast.worker.link import Report
from holdfast.worker.messages import JobDone, Logged, LogLine, Progressed, Run, Setup, ToWorker, pack
from holdfast.worker.output import OUTPUT_KEPT
from holdfast.worker.process import LEAVE_WITHIN, Process

log = logs.get("process")
CANCEL_GRACE = 5.0
START_WITHIN = 300.0  # seconds for imports, when the task has a timeout
STOP_WITHIN = 2.0
LATE_START = 0.05  # seconds after the claim from which the start is stored separately
Ended = tuple[Outcome | Exception | None, str]
"""The result of a job: an outcome or an error, and the output of a failed job."""


class ProcessDied(Exception):
    """The child process ended before it returned a result, or could not be started."""

    code = "PROCESS_DIED"


class ProcessCall:
    """One call of a job's handler in a child process."""

    __slots__ = ("carried", "future", "job", "number", "process", "report", "started", "task", "timer")

    def __init__(
        self,
        task: Task[Any, Any],
        job: Job,
        report: Report,
        carried: dict[str, str] | None,
        future: asyncio.Future[Ended],
    ) -> None:
        self.task = task
        self.job = job
        self.report = report
        self.carried = carried
        self.future = future
        self.number = 0
        self.process: Process | None = None
        self.started = False
        self.timer: asyncio.TimerHandle | None = None

    def again(self) -> ProcessCall:
        """Detach this call from its process, so that another can run it."""
        if self.timer is not None:
            self.timer.cancel()
        if self.process is not None:
            self.process.call = None
            self.process = None
        return self

    def settle(self, result: Outcome | Exception | None, output: str = "") -> None:
        """Complete the call with a result."""
        self.again()
        if not self.future.done():
            self.future.set_result((result, clean(scrub(output), OUTPUT_KEPT) if output else ""))


class Processes:
    """The pool. `at_once` returns whether the worker has stopped waiting for running jobs. `on_late_start` receives a
    job that waited for a child."""

    def __init__(
        self,
        settings: Settings,
        at_once: Callable[[], bool],
        on_late_start: Callable[[Job], None] = lambda job: None,
        clock: Clock = CLOCK,
    ) -> None:
        self._settings = settings
        self._at_once = at_once
        self._on_late_start = on_late_start
        self._clock = clock
        level = logging.getLogger(logs.ROOT).getEffectiveLevel()
        self._setup = pack(Setup(dataclasses.asdict(settings), level))
        self._places = settings.child_processes or _cpus()
        self._all: set[Process] = set()
        self._idle: list[Process] = []
        self._waiting: deque[ProcessCall] = deque()
        self._numbers = 0
        self._stopped = False
        self._gone = asyncio.Event()

    async def run(self, task: Task[Any, Any], job: Job, report: Report, carried: dict[str, str] | None = None) -> Ended:
        """Run one job in a child process and return its result. `report` receives progress, `carried` is passed to
        middleware in the child. Cancellation ends the child: at once if the lease is lost or the worker stops at once,
        otherwise with a grace time."""
        if self._stopped:
            return Outcome(job.id, job.lease.token, "released"), ""
        call = ProcessCall(task, job, report, carried, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        self._assign()
        try:
            return await call.future
        except asyncio.CancelledError:
            if job.canceled and call.process is not None and not (job.lease.lost or self._at_once()):
                return await self._terminate(call, call.process)
            self._abandon(call)
            raise

    async def _terminate(self, call: ProcessCall, process: Process) -> Ended:
        """Terminate the child of a canceled job and wait for its end. Until then no other job of the same key may
        start, and a result that the child still returns counts."""
        call.future = asyncio.get_running_loop().create_future()  # the previous one was canceled with its waiter
        process.terminate(CANCEL_GRACE)
        try:
            result = await call.future
        except asyncio.CancelledError:
            self._abandon(call)
            raise
        if isinstance(result[0], Exception):
            raise asyncio.CancelledError
        return result

    def release_unstarted(self) -> None:
        """Release the jobs that have not started, and take no more."""
        self._stopped = True
        while self._waiting:
            call = self._waiting.popleft()
            call.settle(Outcome(call.job.id, call.job.lease.token, "released"))

    async def close(self, *, at_once: bool) -> None:
        """End every child; unless at_once, idle children may clean up first."""
        self.release_unstarted()
        for process in list(self._all):
            if process in self._idle and not at_once:
                process.leave()
            elif at_once or not process.leaving:
                process.kill()
        await self._wait_for_end(STOP_WITHIN)
        self.kill()
        await self._wait_for_end(STOP_WITHIN)

    def kill(self) -> None:
        """Kill every child."""
        for process in list(self._all):
            process.kill()

    async def _wait_for_end(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._all:
                    self._gone.clear()
                    await self._gone.wait()

    def _assign(self) -> None:
        """Assign waiting jobs to idle children, and to new ones while the pool has places."""
        while self._waiting and (self._idle or self._places > 0):
            call = self._waiting.popleft()
            if self._idle:
                self._give(self._take_idle(call.job.tenant), call)
            else:
                self._start(call)

    def _take_idle(self, tenant: str | None) -> Process:
        """Take an idle child, preferably one that has run jobs of this tenant only: its output can be kept."""
        for place in reversed(range(len(self._idle))):
            if self._idle[place].output.runs_only(tenant):
                return self._idle.pop(place)
        return self._idle.pop()

    def _start(self, call: ProcessCall) -> None:
        try:
            process = Process(self._setup, self._on_message, self._ended)
        except (OSError, RuntimeError) as error:
            call.settle(ProcessDied(f"a child process for task {call.task.name!r} could not be started: {error}"))
            return
        self._places -= 1
        self._all.add(process)
        logs.event(log, logging.DEBUG, "process started", pid=process.pid)
        self._give(process, call)

    def _give(self, process: Process, call: ProcessCall) -> None:
        task, job = call.task, call.job
        self._numbers += 1
        call.number = self._numbers
        tell_start = task.timeout is not None or task.name not in process.known
        process.output.begin(job.tenant)
        process.line.send(pack(Run(
            call.number, task.module, task.name, job.payload, job.id, job.queue, job.tenant, job.priority,
            job.attempt, job.max_attempts, job.lease.token, tell_start, job.batch,
            job.sent, call.carried,
        )))  # fmt: skip
        call.process, process.call, call.started = process, call, not tell_start
        if not tell_start:
            self._note_start(call)
        if task.timeout is not None:
            self._set_timer(call, START_WITHIN)

    def _note_start(self, call: ProcessCall) -> None:
        """Count the run from now: waiting for a child and for imports is no part of it."""
        now = self._clock.monotonic()
        waited, call.job.started = now - call.job.started, now
        if waited > LATE_START:
            self._on_late_start(call.job)

    def _on_message(self, process: Process, message: ToWorker) -> None:
        call = process.call
        if isinstance(message, JobDone):
            if call is not None and message.number == call.number:
                self._done(process, call, message)
            elif process.ending and not process.leaving:  # it outlived its cancellation
                self._retire(process, "its job was abandoned")
                process.leave()
        elif call is None or message.number != call.number:
            return
        elif isinstance(message, Logged):
            _log_again(message)
        elif isinstance(message, Progressed | LogLine):
            call.report(call.job, message)
        else:
            call.started = True
            self._note_start(call)
            process.known.add(call.task.name)
            if call.task.timeout is not None:
                self._set_timer(call, call.task.timeout)

    def _done(self, process: Process, call: ProcessCall, done: JobDone) -> None:
        process.answered = True
        outcome = done.outcome_of()
        if outcome is not None:
            outcome.id, outcome.token = call.job.id, call.job.lease.token
            call.job.settled = outcome.outcome == SETTLED
        call.settle(outcome, process.output.text() if outcome is not None and outcome.error is not None else "")
        if process.ending:
            self._retire(process, "its job was canceled")
            process.leave()
        elif done.leaving is None:
            self._idle.append(process)
        else:
            self._retire(process, done.leaving)
        self._assign()

    def _retire(self, process: Process, why: str) -> None:
        """Free the child's place in the pool while it ends by itself."""
        logs.event(log, logging.INFO, "process replaced", pid=process.pid, why=why)
        process.leaving = True
        process.end_within(LEAVE_WITHIN)
        self._places += 1

    def _set_timer(self, call: ProcessCall, seconds: float) -> None:
        if call.timer is not None:
            call.timer.cancel()
        call.timer = asyncio.get_running_loop().call_later(seconds, self._expire, call, seconds)

    def _expire(self, call: ProcessCall, seconds: float) -> None:
        if (process := call.process) is not None:
            process.kill()
            late = ProcessDied(f"{_whose(call)} did not start the job within {seconds:g} s and was killed")
            call.settle(TimedOut(call.task, seconds) if call.started else late, process.output.text())

    def _abandon(self, call: ProcessCall) -> None:
        process = call.process
        if process is None:
            with contextlib.suppress(ValueError):
                self._waiting.remove(call)
        elif call.job.lease.lost or self._at_once():
            process.kill()
        else:
            process.terminate(CANCEL_GRACE)
        call.settle(None)

    def _ended(self, process: Process, output: str) -> None:
        self._all.discard(process)
        if process in self._idle:
            self._idle.remove(process)
        if not process.leaving:
            self._places += 1
        if (call := process.call) is None:
            if not (process.leaving or process.ending):
                logs.event(log, logging.WARNING, "idle process ended", pid=process.pid, how=process.how_it_ended())
        elif not process.ending and process.answered and process.line.has_unread():  # the job never reached it
            self._waiting.appendleft(call.again())
        else:
            self._died(process, call, output)
        self._gone.set()
        self._assign()

    def _died(self, process: Process, call: ProcessCall, output: str) -> None:
        where = "while running the job"
        if not call.started:
            where = f"before the job started, while importing {call.task.module!r}"
        memory = self._settings.process_memory
        limit = f"; it may use {memory} MB (process_memory)" if memory else ""
        # The cause comes first: lists truncate the message.
        call.settle(ProcessDied(f"{process.how_it_ended()} {where} ({_whose(call)}){limit}"), output)


def _log_again(line: Logged) -> None:
    """Log a line of a child in the worker's log."""
    logs.event(logging.getLogger(line.name), line.level, line.text, **json.loads(line.fields))


def _whose(call: ProcessCall) -> str:
    return f"the process of task {call.task.name!r}"


def _cpus() -> int:
    """Return the number of CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
