"""What a worker does at intervals beside its jobs: renew leases, poll for cancels, monitor its event loop, store
progress and windows, and release jobs that cannot start soon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from holdfast.model.clock import CLOCK, Clock
from holdfast.settings import Settings
from holdfast.store.wire.session import Session
from holdfast.worker.beat import LoopMonitor
from holdfast.worker.cancel import CancelPoll
from holdfast.worker.lease import LeaseKeeper
from holdfast.worker.link import Progress
from holdfast.worker.prefetch import PrefetchBuffer
from holdfast.worker.slots import Slots
from holdfast.worker.window import Windows

REPORT_EVERY = 0.5


class Reports:
    """The calls on the connection for reports: cancel requests are read, progress and window counts are stored."""

    def __init__(self, session: Session, cancels: CancelPoll, progress: Progress, windows: Windows) -> None:
        self._session = session
        self._cancels = cancels
        self._progress = progress
        self._windows = windows

    def look_for_cancels(self) -> None:
        """Poll for requests to cancel jobs at once."""
        self._cancels.poll_soon()

    async def run(self) -> None:
        """Report until canceled."""
        while True:
            await self._cancels.wait(REPORT_EVERY)
            await self._cancels.look()
            await self._progress.store(self._session)
            await self._windows.look()


class BackgroundTasks:
    """The threads and coroutines that look after a worker's jobs."""

    def __init__(
        self,
        settings: Settings,
        buffer: PrefetchBuffer,
        slots: Slots,
        keeper: LeaseKeeper,
        monitor: LoopMonitor,
        reports: Reports,
        clock: Clock = CLOCK,
    ) -> None:
        self._settings = settings
        self._buffer = buffer
        self._slots = slots
        self._keeper = keeper
        self._monitor = monitor
        self._reports = reports
        self._clock = clock

    def start(self, on_beat: Iterable[Callable[[], None]]) -> None:
        """Start the threads."""
        self._keeper.start()
        self._monitor.start(on_beat)

    def stop(self) -> None:
        """End the threads."""
        self._keeper.stop()
        self._monitor.stop()

    def look_for_cancels(self) -> None:
        """Poll for requests to cancel jobs at once."""
        self._reports.look_for_cancels()

    async def report(self) -> None:
        """Report until canceled."""
        await self._reports.run()

    async def release(self, patience: float) -> None:
        """Give up leases near their deadline, and release prefetched jobs that cannot start soon: `patience` seconds
        after their claim."""
        settings = self._settings
        while True:
            await asyncio.sleep(min(0.5, settings.poll / 2, settings.lease / 20))
            self._keeper.give_up_lapsing()
            ready = self._buffer.ready
            if ready and self._clock.monotonic() - ready[0].lease.taken_at > patience:
                self._slots.release_unstarted()
