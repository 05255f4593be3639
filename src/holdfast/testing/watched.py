"""The worker as a drain uses it: nothing is different but that each attempt can be seen, exception and all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from holdfast.client import Holdfast
from holdfast.model.job import Job
from holdfast.model.outcome import Cancel, Outcome, RetryLater, Snooze
from holdfast.store.calls import Call, Rows
from holdfast.store.scratch import Scratch
from holdfast.worker import Worker
from holdfast.worker.execute import FailedInChild
from holdfast.worker.lanes import Lanes

T = TypeVar("T")
# A lease that no test outlasts, however far it moves the clock; renewed by real time, that is never.
_ALONE = {"lease": 315_360_000.0, "renew": 86_400.0, "prefetch": 0.0, "notify": False, "poll": 0.02, "grace": 5.0}
_CHOSEN = (RetryLater, Snooze, Cancel)  # a handler's way to say what it wants: nothing went wrong


@dataclass(slots=True)
class Seen:
    """What the worker let us see of one attempt."""

    job: Job
    outcome: Outcome | None
    error: BaseException | None

    @property
    def went_wrong(self) -> bool:
        if self.error is not None:
            return not isinstance(self.error, _CHOSEN)
        told = self.outcome  # of a child process we have the word, not the exception
        return told is not None and told.outcome in ("error", "failed", "dead") and told.delay is None


class WatchedWorker(Worker):
    """A worker that shows each attempt with the exception itself, and may start at one place of its queue."""

    def __init__(
        self,
        hf: Holdfast,
        database: Scratch,
        on_attempt: Callable[[Seen], None],
        queues: Sequence[str],
        start: dict[str, Any] | None,
        *,
        concurrency: int,
    ) -> None:
        super().__init__(hf, queues=",".join(queues), concurrency=concurrency, **_ALONE)
        self._database = database
        self._on_attempt = on_attempt
        self.starts_somewhere = start is not None
        self._start_at = start
        self._errors: dict[str, BaseException] = {}
        self._execute = self._attempts.execute
        self._attempts.on_error = self._keep_error
        self._attempts.execute = self._watch_attempt  # type: ignore[method-assign]

    def halt(self) -> None:
        """Claims nothing more, from now on; what runs may end."""
        self.claimer.stop()
        if not self._stopping.is_set():
            self.stop()

    def _build(self) -> None:
        super()._build()
        if self.settings.concurrency == 1:
            kept: Any = KeptSession(self._database)
            self._service = self.finisher.session = self.claimer.session = kept
        if self._start_at is not None:
            self.claimer.lanes = Place(self._start_at)

    def _keep_error(self, job: Job, error: BaseException) -> None:
        if not isinstance(error, FailedInChild):  # of that one the outcome says all there is
            self._errors[job.id] = error

    async def _watch_attempt(self, job: Job) -> Outcome | None:
        try:
            outcome = await self._execute(job)
        except asyncio.CancelledError:
            if job.canceled:
                self._on_attempt(Seen(job, self._stopped(job), None))
            raise
        self._on_attempt(Seen(job, outcome, self._errors.pop(job.id, None)))
        return outcome


class KeptSession:
    """A worker's connection that outlives it, and its event loop: the first call on a new one takes ten times as long
    as all others. A call blocks the loop; where one job runs at a time, nothing is held up by that."""

    def __init__(self, database: Scratch) -> None:
        self._database = database

    async def run(self, call: Call[T]) -> T:
        """Runs one call."""
        return self._database.run(call)

    async def close(self) -> None: ...


class Place(Lanes):
    """Lanes of which one place is known, whatever was found there."""

    def __init__(self, places: dict[str, Any]) -> None:
        super().__init__([])
        self._text = msgspec.json.encode(places).decode()

    def hint(self, now: float, limit: int, *, careful: bool = False) -> str:
        return self._text

    def learn(self, rows: Rows, info: str | None, enough: bool, began: float, now: float) -> None: ...
