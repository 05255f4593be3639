"""The worker of a drain: a regular worker that also reports each attempt with its exception."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from holdfast.client import Holdfast
from holdfast.model.clock import Clock
from holdfast.model.job import Job
from holdfast.model.outcome import Cancel, Outcome, RetryLater, Snooze
from holdfast.store.call import Call, JobDueCallback
from holdfast.store.dev.scratch import Scratch
from holdfast.store.wire.session import Session
from holdfast.worker import Worker
from holdfast.worker.execute import Attempts, FailedInChild
from holdfast.worker.link import Progress
from holdfast.worker.slots import cancellation

T = TypeVar("T")
# A lease longer than any test, however far it moves the clock. It is renewed by real time, that is, never.
_ALONE: dict[str, Any] = {
    "lease": 315_360_000.0,
    "renew": 86_400.0,
    "prefetch": 0.0,
    "notify": False,
    "poll": 0.02,
    "grace": 5.0,
}
_CHOSEN = (RetryLater, Snooze, Cancel)  # a handler raises these on purpose, so they are not errors


@dataclass(slots=True)
class RecordedAttempt:
    """One attempt, as the worker reports it."""

    job: Job
    outcome: Outcome | None
    error: BaseException | None

    @property
    def went_wrong(self) -> bool:
        if self.error is not None:
            return not isinstance(self.error, _CHOSEN)
        outcome = self.outcome  # a child process returns an outcome, not the exception
        return outcome is not None and outcome.outcome in ("error", "failed", "dead") and outcome.delay is None


class WatchedWorker(Worker):
    """A worker that reports each attempt with its exception, and may be limited to one job."""

    def __init__(
        self,
        hf: Holdfast,
        database: Scratch,
        on_attempt: Callable[[RecordedAttempt], None],
        queues: Sequence[str],
        only: str | None,
        *,
        concurrency: int,
    ) -> None:
        self._database = database
        self._on_attempt = on_attempt
        self.only = only
        self._keeps_connection = concurrency == 1
        super().__init__(hf, queues=",".join(queues), concurrency=concurrency, **_ALONE)

    def halt(self) -> None:
        """Stop claiming; running jobs may end."""
        self.claimer.stop()
        if not self._shutdown.requested.is_set():
            self.stop()

    def _session(self, purpose: str, on_job_due: JobDueCallback | None = None) -> Session:
        session: Any = super()._session(purpose, on_job_due)
        if self._keeps_connection and purpose in ("service", "finish", "claim", "steps"):
            session = KeptSession(self._database)
        if self.only is not None and purpose == "claim":
            session = FirstSession(session, self._database, self.only)
        return cast("Session", session)

    def _make_attempts(
        self, hf: Holdfast, progress: Progress, clock: Clock, make: Callable[..., Attempts] = Attempts
    ) -> Attempts:
        return super()._make_attempts(hf, progress, clock, partial(WatchedAttempts, self._on_attempt))


class WatchedAttempts(Attempts):
    """Attempts that are reported as they end."""

    def __init__(self, on_attempt: Callable[[RecordedAttempt], None], *parts: Any) -> None:
        arguments = (*parts, self._keep_error)
        super().__init__(*arguments)
        self._on_attempt = on_attempt
        self._errors: dict[str, BaseException] = {}

    def _keep_error(self, job: Job, error: BaseException) -> None:
        if not isinstance(error, FailedInChild):  # its outcome has all details
            self._errors[job.id] = error

    async def execute(self, job: Job) -> Outcome | None:
        try:
            outcome = await super().execute(job)
        except asyncio.CancelledError:
            if job.canceled:
                self._on_attempt(RecordedAttempt(job, cancellation(job), None))
            raise
        self._on_attempt(RecordedAttempt(job, outcome, self._errors.pop(job.id, None)))
        return outcome


class KeptSession:
    """A connection that outlives the worker and its event loop, because the first call on a new one takes ten times as
    long as later ones. A call blocks the loop, which is harmless where one job runs at a time."""

    def __init__(self, database: Scratch) -> None:
        self._database = database

    async def run(self, call: Call[T]) -> T:
        """Run one call."""
        return self._database.run(call)

    async def close(self) -> None: ...


class FirstSession:
    """A connection whose claims find only one job, whatever else is due."""

    def __init__(self, session: Any, database: Scratch, job_id: str) -> None:
        self._session = session
        self._database = database
        self._job_id = job_id

    async def run(self, call: Call[T]) -> T:
        """Run one call."""
        with self._database.others_held(self._job_id):
            return cast("T", await self._session.run(call))

    async def close(self) -> None:
        await self._session.close()
