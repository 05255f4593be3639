"""A worker's presence in the database: its registration, its upkeep, and its listener."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable

from holdfast.client import Holdfast
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.model.clock import CLOCK, Clock
from holdfast.settings import VERSION, Settings
from holdfast.store.wire.connect_once import connect_once
from holdfast.store.wire.session import Session
from holdfast.store.workers import UpkeepResult
from holdfast.telemetry import logs
from holdfast.upkeep.chores import Upkeep
from holdfast.wakeups import notify
from holdfast.worker.sleeper import Sleeper
from holdfast.worker.stop import Shutdown

log = logs.get("worker")
PARTITION_TRIES = 3  # attempts to create history partitions: other workers and readers may hold the lock


class Presence:
    """Registers a worker with its tasks and schedules, and removes it again."""

    def __init__(
        self,
        worker: str,
        settings: Settings,
        hf: Holdfast,
        session: Session,
        sleeper: Sleeper,
        shutdown: Shutdown,
        may_miss_webhooks: bool,
        clock: Clock = CLOCK,
    ) -> None:
        self._worker = worker
        self._settings = settings
        self._hf = hf
        self.session = session
        self._sleeper = sleeper
        self._shutdown = shutdown
        self._may_miss_webhooks = may_miss_webhooks
        self._clock = clock
        self._unregistered = False  # whether locks of other transactions prevented part of the registration

    async def enter(self, *, waits: bool = True) -> bool:
        """Register the worker; return False if it was stopped meanwhile. Wait while the database is down, and raise at
        once if it is set up wrongly."""
        warnings, pause = logs.RateLimitedLog(log, clock=self._clock), 0.2
        while True:
            try:
                await asyncio.to_thread(connect_once, self._settings)
                waits = True
                await self._enter()
                self._log_start()
                return True
            except DatabaseUnavailable as error:
                if not waits:
                    raise
                warnings.failed("waiting for database", error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._clock.jitter(pause)):
                        await self._shutdown.requested.wait()
                        return False
                pause = min(pause * 2, 2.0)

    async def _enter(self) -> None:
        await self._make_partitions()
        if limits := self._hf.registry.limits:
            await self.session.run(self._hf.database.calls.limits.register(limits))
        await self._register()
        if self._may_miss_webhooks and await self.session.run(self._hf.webhooks.calls.wanted()):
            warn_of_webhooks()

    def _log_start(self) -> None:
        logs.event(
            log,
            logging.INFO,
            "worker started",
            worker=self._worker,
            queues=self._settings.queues,
            concurrency=self._settings.concurrency,
            tasks=sum(not name.startswith("holdfast.") for name in self._hf.registry.tasks),
        )

    async def _make_partitions(self) -> None:
        """Create history partitions before the first claim: after days without a worker there is none for today.
        If an open transaction blocks this, jobs go to the default partition until upkeep succeeds."""
        for left in reversed(range(PARTITION_TRIES)):
            try:
                await self.session.run(self._hf.database.calls.workers.make_partitions())
                return
            except DatabaseUnavailable as error:
                if not left:
                    logs.event(log, logging.WARNING, "history partitions not created", error=str(error))
                await asyncio.sleep(self._clock.uniform(0.05, 0.15))

    async def _register(self) -> None:
        """Register the worker, its tasks and schedules; rows locked by other transactions are registered later."""
        calls, settings = self._hf.database.calls, self._settings
        call = calls.workers.register(
            self._worker,
            socket.gethostname(),
            os.getpid(),
            VERSION,
            settings.queue_list,
            settings.concurrency,
            self._hf.registry.describe_tasks(),
        )
        left = await self.session.run(call)
        if schedules := self._hf.registry.schedules:
            left = left + await self.session.run(calls.schedules.register(schedules.values()))
        if left and not self._unregistered:
            logs.event(
                log,
                logging.WARNING,
                "tasks or schedules are registered later: another transaction locks them",
                names=", ".join(left[:10]),
            )
        self._unregistered = bool(left)

    async def _on_round(self, found: UpkeepResult) -> None:
        """Register what was left, and the worker itself if a long outage removed its row. A stopping worker does not:
        it would be shown as working again. Obey an operator's request to stop."""
        if found.stop is not None:
            self._shutdown.obey(found.stop)
        if (self._unregistered or not found.known) and not self._shutdown.requested.is_set():
            await self._register()
        self._sleeper.check(found.asleep)

    def upkeep(self) -> Upkeep:
        """Return the upkeep loop."""
        return Upkeep(self._worker, self._settings, self.session, self._hf.database.calls, self._on_round, self._clock)

    @property
    def listens(self) -> bool:
        """Return whether the worker can receive notifications: not behind a pooler."""
        return self._settings.notify and not self._settings.pooler

    async def listen(self, on_notification: Callable[[str], None]) -> None:
        """Receive notifications until canceled."""
        session = Session(self._settings, f"{self._worker} listen")
        await notify.listen(session, self._hf.database.calls, self._worker, on_notification)

    async def mark_stopping(self) -> None:
        """Show the worker as stopping."""
        with contextlib.suppress(HoldfastError, asyncio.CancelledError):
            await self.session.run(self._hf.database.calls.workers.unregister(self._worker, gone=False))

    async def leave(self) -> None:
        """Remove the worker's row."""
        with contextlib.suppress(HoldfastError):
            await self.session.run(self._hf.database.calls.workers.unregister(self._worker, gone=True))
        await self.session.close()


def warn_of_webhooks() -> None:
    """Warn that this process has no library for webhooks."""
    logs.event(log, logging.WARNING, "webhooks are not delivered here: pip install 'holdfast-jobs[webhooks]'")
