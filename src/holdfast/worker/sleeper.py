"""The sleep of an idle worker: its row in `sleepers`, and when the next delayed job is due.

Before it waits, the worker inserts itself into `sleepers` and claims once more. An enqueue notifies only workers found
there. The row stays while the worker is idle, so an idle worker makes one query for each poll.
"""

from __future__ import annotations

import functools

from holdfast.model.clock import CLOCK, Clock
from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.store.wire.session import Session
from holdfast.worker.wakeup import Wakeup

# An enqueue that began before this worker's row in `sleepers` was committed, and commits after its last claim, sends no
# notification. So the first waits of a sleep are short.
SHORT_WAITS = (0.01, 0.1)


class Sleeper:
    """Whether this worker may have a row in `sleepers`, and how long it may sleep."""

    def __init__(self, worker: str, settings: Settings, calls: Calls, wakeup: Wakeup, clock: Clock = CLOCK) -> None:
        # A worker that does not listen cannot be notified, so it must have no row in `sleepers`.
        self._listens = settings.notify and not settings.pooler
        self._call = functools.partial(calls.workers.sleep, worker, settings.queue_list, listens=self._listens)
        self._poll = settings.poll
        self._wakeup = wakeup
        self._clock = clock
        self.registered = False
        self._row_known = True  # false after a failed call: the row may be there or not
        self._due: float | None = None  # seconds until the next delayed job
        self._due_known = False
        self._short_waits: list[float] = []

    def on_error(self) -> None:
        """Note that a call has failed: the row may be there or not."""
        self.registered, self._row_known, self._due_known = True, False, False

    def learn(self, due: float | None) -> None:
        """Take the time of the next delayed job from a claim, which spares a call after each single job."""
        if self._row_known:
            self._due, self._due_known = due, True

    def check(self, asleep: bool) -> None:
        """Register again if another process has removed this worker."""
        if self._listens and self.registered and not asleep:
            self.registered = False

    async def enter(self, session: Session) -> bool:
        """Insert the row where necessary, and read when the next job is due. Return whether the row is new: then the
        worker claims once more before its first wait."""
        if self.registered and self._due_known:
            return False
        self._due = await session.run(self._call())
        entered, self.registered, self._row_known, self._due_known = not self.registered, True, True, True
        if entered:
            self._short_waits = list(SHORT_WAITS)
        return entered

    async def sleep(self, longest: float) -> None:
        """Wait until woken, until the next job is due, or until the next poll."""
        poll = self._clock.jitter(self._poll)
        if first := bool(self._short_waits):
            poll = min(poll, self._short_waits.pop(0))
        poll = min(poll, longest)
        soon = self._due is not None and self._due <= poll
        woken = await self._wakeup.pause(max(self._due or 0, 0.001) if soon else poll)
        # A wake-up without a job may announce a delayed job, and so may a commit before the first waits: read the next
        # due time again.
        self._due_known = not woken and not soon and not first
        if self._due is not None:
            self._due -= poll
