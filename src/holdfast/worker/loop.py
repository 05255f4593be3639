"""Worker: connects claiming, running, finishing, renewing and upkeep, and stops them in order.

wake -> claim -> execute -> outcome -> finish. Slots are long-lived tasks that take jobs from the prefetch buffer;
slots.py shows the path of one job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

from holdfast.client import Holdfast
from holdfast.client.delivery import can_deliver, serve
from holdfast.errors import ConfigurationError, SchemaError
from holdfast.model.clock import CLOCK, Clock
from holdfast.model.tick import Counts
from holdfast.model.webhook import QUEUE
from holdfast.store.call import JobDueCallback
from holdfast.store.calls import Calls
from holdfast.store.wire.session import Session
from holdfast.telemetry import logs, metrics, systemd
from holdfast.wakeups.rabbitmq import Consumer
from holdfast.worker.background import BackgroundTasks, Reports
from holdfast.worker.beat import Beat, LoopMonitor
from holdfast.worker.cancel import CancelPoll
from holdfast.worker.child import is_child
from holdfast.worker.claim import Claimer
from holdfast.worker.execute import Attempts
from holdfast.worker.finish import Finisher
from holdfast.worker.health import Health, kept
from holdfast.worker.intake import Intake
from holdfast.worker.lease import LeaseKeeper
from holdfast.worker.link import Links, Progress
from holdfast.worker.prefetch import PrefetchBuffer
from holdfast.worker.presence import Presence, warn_of_webhooks
from holdfast.worker.processes import Processes
from holdfast.worker.sleeper import Sleeper
from holdfast.worker.slots import Slots
from holdfast.worker.stepstore import StepStore
from holdfast.worker.stop import Shutdown
from holdfast.worker.supervise import Lifeline
from holdfast.worker.threads import Threads
from holdfast.worker.wakeup import Wakeup
from holdfast.worker.window import Activity, WindowRows, Windows

log = logs.get("worker")


class Worker:
    """Runs an application's jobs: `await Worker(hf).run()` until `stop()`, or until a signal with `handle_signals`."""

    line = "window"  # log event that summarizes the work done
    is_long_running = True

    def __init__(self, hf: Holdfast, *, clock: Clock = CLOCK, **settings: Any) -> None:
        requested = hf.settings.with_(**settings)
        self.settings = serve(hf, requested)
        self.id = f"{self.settings.worker_name}-{int(time.time() * 1000)}-{secrets.token_hex(4)}"
        if QUEUE in requested.queue_list and not can_deliver():
            warn_of_webhooks()
        self.buffer = PrefetchBuffer()
        self._shutdown = Shutdown(self.id)
        wakeup, progress, beat = Wakeup(), Progress(hf.database.calls), Beat(self.settings, clock)
        self.finisher = self._make_finisher(hf, progress, wakeup, clock)
        attempts = self._make_attempts(hf, progress, clock)
        self._slots = Slots(self.buffer, hf.registry.tasks, attempts, self.finisher, wakeup, self._shutdown, clock)
        keeper = self._make_keeper(hf.database.calls, beat, clock)
        sleeper = Sleeper(self.id, self.settings, hf.database.calls, wakeup, clock)
        self._presence = self._make_presence(hf, sleeper, not requested.queues.strip(" ,"), clock)
        self.claimer = self._make_claimer(hf.database.calls, sleeper, wakeup, keeper.renews, clock)
        self.consumer = Consumer(self.settings, self.id, wakeup.set) if self.settings.amqp_enabled else None
        reporting = self._session("progress")
        self.windows = self._make_windows(reporting, clock)
        self.health = Health(
            self.settings, self.claimer, keeper, self.buffer, reporting, self.consumer, self._shutdown, clock
        )
        monitor = LoopMonitor(self.settings, beat, self.buffer, hf.registry.tasks, self._shutdown.on_stuck)
        cancels = CancelPoll(reporting, hf.database.calls, self.buffer, self._slots.cancel, clock)
        reports = Reports(reporting, cancels, progress, self.windows)
        self._background_tasks = BackgroundTasks(
            self.settings, self.buffer, self._slots, keeper, monitor, reports, clock
        )

    def _session(self, purpose: str, on_job_due: JobDueCallback | None = None) -> Session:
        return Session(self.settings, f"{self.id} {purpose}", on_job_due)

    def _make_finisher(self, hf: Holdfast, progress: Progress, wakeup: Wakeup, clock: Clock) -> Finisher:
        meters = hf.registry.meters
        stats = metrics.Stats(hf.registry.tasks, meters) if self.settings.metrics_port or meters else None
        session, refuse = self._session("finish"), self._shutdown.refuse
        return Finisher(session, hf.database.calls, self.buffer, progress, wakeup, refuse, stats, clock)

    def _make_attempts(
        self, hf: Holdfast, progress: Progress, clock: Clock, make: Callable[..., Attempts] = Attempts
    ) -> Attempts:
        at_once, mark_started = self._shutdown.at_once.is_set, self.finisher.mark_started
        processes = Processes(self.settings, at_once, mark_started, clock)
        steps = StepStore(self._session("steps"), hf.database.calls)
        threads = Threads("holdfast-job", at_once)
        links = Links(hf, progress, threads, steps, self.settings.max_result)
        return make(hf, threads, processes, links, self.settings, self._shutdown.refuse)

    def _make_keeper(self, calls: Calls, beat: Beat, clock: Clock) -> LeaseKeeper:
        on_lost, refuse = self._slots.on_leases_lost, self._shutdown.refuse
        return LeaseKeeper(self.id, self.settings, calls, self.buffer, on_lost, refuse, beat.renewable, clock)

    def _make_presence(self, hf: Holdfast, sleeper: Sleeper, serves_all: bool, clock: Clock) -> Presence:
        may_miss = serves_all and not can_deliver()
        session = self._session("service", hf.database.notify)
        return Presence(self.id, self.settings, hf, session, sleeper, self._shutdown, may_miss, clock)

    def _make_claimer(
        self, calls: Calls, sleeper: Sleeper, wakeup: Wakeup, may_claim: Callable[[], bool], clock: Clock
    ) -> Claimer:
        intake = Intake(self.id, self.settings, self._session("claim"), calls, self.buffer, clock)
        return Claimer(self.settings, intake, sleeper, wakeup, self.buffer, may_claim, self.finisher.sent, clock)

    def _make_windows(self, session: Session, clock: Clock) -> Windows:
        rows = WindowRows(self.id, self.settings, session)
        activity = Activity(self.settings.concurrency, self.claimer.intake.counts, self.buffer, self.finisher)
        return Windows(self.id, self.settings, rows, activity, self.line, clock)

    @property
    def counts(self) -> Counts:
        """Return this worker's counts since it started."""
        return self.windows.activity.counts

    def stop(self) -> None:
        """Stop claiming, then finish or release the jobs held. A second call cancels what still runs."""
        self._shutdown.request()

    async def run(
        self, *, handle_signals: bool = False, until_idle: bool = False, supervisor: Lifeline | None = None
    ) -> None:
        """Run jobs until stopped. Raises SchemaError when the schema no longer fits this release.

        handle_signals: the worker owns the process. SIGTERM and SIGINT stop it, and the caller exits when this returns.
        A handler that blocks the event loop for longer than `loop_timeout` ends the process with code 75.
        until_idle: stop when no job is due, and run no upkeep. supervisor: the supervisor that receives the heartbeat.
        """
        if is_child():
            raise ConfigurationError(
                "a module that holds tasks must not run a worker when it is imported; put that "
                'under `if __name__ == "__main__":`'
            )
        self._shutdown.attach(owns_process=handle_signals)
        async with contextlib.AsyncExitStack() as stack:
            await self._slots.attempts.open(stack)
            if not until_idle:
                self._serve(stack)
            with self._supervised(supervisor):
                if await self._presence.enter(waits=self.is_long_running):
                    await self._run(until_idle, supervisor)

    @contextlib.contextmanager
    def _supervised(self, supervisor: Lifeline | None) -> Iterator[None]:
        """Announce this worker to its supervisor, which reclaims its jobs and removes its row if the process dies.
        This precedes the registration in the database, so no row is left behind."""
        if supervisor is None:
            yield
            return
        supervisor.enter(self.id, self.settings)
        try:
            yield
        finally:
            supervisor.leave(bool(self.buffer.leases), by_operator=self._shutdown.by_operator)

    def _serve(self, stack: contextlib.AsyncExitStack) -> None:
        """Open the ports for metrics and health, and the health file, where they are configured."""
        settings = self.settings
        if (stats := self.finisher.stats) is not None:
            self._show_metrics(stack, stats)
        if settings.health_port:
            from holdfast.worker import probes  # imported late: http.server takes 20 ms

            checks = self.health.pages()
            stack.enter_context(probes.served("health", settings.health_host, settings.health_port, checks))
        if settings.health_file:
            stack.enter_context(kept(settings.health_file, self.health.ready))

    def _show_metrics(self, stack: contextlib.AsyncExitStack, stats: metrics.Stats) -> None:
        settings, activity = self.settings, self.windows.activity
        counted = metrics.WorkerMetrics(stats, activity.counters, activity.gauges)
        if settings.metrics_port:
            from holdfast.worker import probes

            pages = metrics.pages(counted)
            stack.enter_context(probes.served("metrics", settings.metrics_host, settings.metrics_port, pages))
        if stats.meters:
            from holdfast.telemetry import meters

            for meter in stats.meters:
                meters.observe(meter, counted)

    async def _run(self, until_idle: bool, supervisor: Lifeline | None) -> None:
        try:
            if supervisor is None and self._shutdown.owns_process:
                self.health.notifier = systemd.notifier()
            reports = self.health.report if supervisor is None else partial(supervisor.beat, self.health)
            self._background_tasks.start([self.health.beat, reports])
            self.health.start()
            self.windows.start(stored=not until_idle)
            if supervisor is not None:
                supervisor.watch(self.settings.loop_timeout)
            await self._work(until_idle)
        finally:
            self._background_tasks.stop()
            self._slots.attempts.kill()

    async def _work(self, until_idle: bool) -> None:
        start = asyncio.get_running_loop().create_task
        claiming = start(self.claimer.run_until_idle(self.finisher) if until_idle else self.claimer.run())
        flushing = start(self.finisher.run())
        slots = self._slots.start(self.settings.concurrency)
        background = [start(each) for each in self._background(until_idle)]
        stopping = start(self._shutdown.requested.wait())
        try:
            parts = {claiming, flushing, *background, *slots}
            await asyncio.wait({*parts, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in parts:
                if task.done():
                    task.result()  # raises the error that ended the task
            if self._shutdown.mismatch is not None:
                raise self._shutdown.mismatch
        except SchemaError as error:
            self._shutdown.note_mismatch(error)
            raise
        finally:
            await self._wind_down(claiming)
            await _cancel([flushing, stopping, *slots, *background])
            await self._slots.attempts.close(at_once=self._shutdown.repeated)
            await self._leave()

    def _background(self, until_idle: bool) -> Sequence[Coroutine[Any, Any, Any]]:
        # A tick runs its claimed jobs in this pass, however long they wait for a slot.
        patience = 1 + self.settings.prefetch * 3 if self.is_long_running else math.inf
        background: list[Coroutine[Any, Any, Any]] = [
            self._background_tasks.release(patience),
            self._background_tasks.report(),
        ]
        if not until_idle:
            background.append(self._presence.upkeep().run())
            if self._presence.listens:
                background.append(self._presence.listen(self._on_notification))
            if self.consumer is not None:
                background.append(self.consumer.run())
        return background

    def _on_notification(self, payload: str) -> None:
        """Poll for cancel requests, or claim: there may be new jobs, or limits that have changed."""
        if payload == "cancel":
            self._background_tasks.look_for_cancels()
        else:
            self.claimer.wakeup.set()

    async def _wind_down(self, claiming: asyncio.Task[Any]) -> None:
        self.claimer.stop()
        self._shutdown.requested.set()
        grace = self.settings.grace
        logs.event(log, logging.INFO, "worker stopping", worker=self.id, running=len(self.buffer.running), grace=grace)
        self.health.report()
        await self._presence.mark_stopping()
        await asyncio.wait({claiming}, timeout=self.settings.call_timeout)
        self._slots.release_unstarted()
        self._slots.attempts.release_unstarted()
        await self._slots.finish(self.id, grace)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(1.0, min(grace, 10.0))):
                await self.finisher.stored()

    async def _leave(self) -> None:
        await self.windows.close()
        await self._presence.leave()
        await self.finisher.close()
        await self.claimer.intake.session.close()
        logs.event(
            log,
            logging.INFO,
            "worker stopped",
            worker=self.id,
            succeeded=self.finisher.succeeded,
            failed=self.finisher.failed,
            stale=self.finisher.stale,
        )


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait a second for them; a handler that swallows the cancellation is left behind."""
    for task in tasks:
        task.cancel()
    _, pending = await asyncio.wait(tasks, timeout=1.0)
    if pending:
        logs.event(log, logging.WARNING, "handlers ignore their cancellation", handlers=len(pending))
