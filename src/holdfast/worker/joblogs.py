"""The lines that handlers write with ctx.log, until they are stored with their jobs."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from time import monotonic
from typing import Any

from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.model.job import Job
from holdfast.store.calls import Calls
from holdfast.store.wire.session import Session
from holdfast.telemetry import logs
from holdfast.worker.messages import LogLine

log = logs.get("worker")
MOST_LINES = 200  # of an attempt; the last ones are kept
MOST_JOBS = 20  # in one call, so that it stays below a few megabytes


class Lines:
    """The lines of one attempt that are not stored yet, the last 200."""

    __slots__ = ("_lines", "_numbers", "_sent")

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lines: deque[dict[str, Any]] = deque(maxlen=MOST_LINES)
        self._sent: list[dict[str, Any]] = []  # but perhaps not stored; sent again, each line is stored once

    def add(self, at: float, line: LogLine) -> None:
        self._lines.append({"n": next(self._numbers), "at": round(at, 3), "level": line.level, "text": line.text})

    def take(self) -> list[dict[str, Any]]:
        """Return the lines to send; handlers may write more meanwhile."""
        for _ in range(len(self._lines)):
            self._sent.append(self._lines.popleft())
        self._sent = self._sent[-MOST_LINES:]
        return self._sent

    def stored(self) -> None:
        self._sent = []


class JobLogs:
    """The lines of all running attempts. Threads write too, so each step is one dict or deque operation."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.jobs: dict[tuple[str, int], Job] = {}  # by id and token: those with lines to store

    def add(self, job: Job, line: LogLine) -> None:
        """Add a line to the attempt's log."""
        if job.log is None:
            job.log = Lines()
        job.log.add(_elapsed(job), line)
        self.jobs[job.id, job.lease.token] = job

    async def store(self, session: Session) -> None:
        """Store new lines; if the database is unavailable, they are stored with the next."""
        jobs = [self.jobs.pop(pair) for pair in list(self.jobs)]
        for start in range(0, len(jobs), MOST_JOBS):
            await self._store(session, jobs[start : start + MOST_JOBS])

    async def _store(self, session: Session, jobs: list[Job]) -> None:
        try:
            await session.run(self._calls.jobs.report_log([_report(job) for job in jobs]))
        except DatabaseUnavailable:
            self.jobs.update(((job.id, job.lease.token), job) for job in jobs)
            return
        except HoldfastError as error:
            logs.event(log, logging.ERROR, "log lines refused", jobs=len(jobs), error=str(error))
        for job in jobs:
            job.log.stored()


def _report(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "token": job.lease.token,
        "attempt": job.attempt,
        "seconds": _elapsed(job),
        "lines": job.log.take(),
    }


def _elapsed(job: Job) -> float:
    return monotonic() - job.started if job.started else 0.0
