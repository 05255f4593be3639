"""Worker: connects claiming, running, finishing, renewing and upkeep, and stops them in order.

wake -> claim -> execute -> outcome -> finish. Slots are long-lived tasks that take jobs from the prefetch buffer;
`_slot` shows the path of one job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence, Set
from typing import Any, cast

from holdfast.client import Holdfast
from holdfast.client.delivery import can_deliver, serve
from holdfast.errors import ConfigurationError, DatabaseUnavailable, HoldfastError, SchemaError
from holdfast.model.job import Job
from holdfast.model.outcome import SETTLED, WANTED_CANCELED, Outcome
from holdfast.model.resource import Resource
from holdfast.model.tick import Counts
from holdfast.model.webhook import QUEUE
from holdfast.settings import VERSION
from holdfast.store.wire.pools import first_look
from holdfast.store.wire.session import Session
from holdfast.store.workers import Upkept
from holdfast.telemetry import logs, metrics, sentry
from holdfast.upkeep.chores import Upkeep
from holdfast.wakeups import notify
from holdfast.wakeups.rabbitmq import Consumer
from holdfast.worker.beat import LoopMonitor
from holdfast.worker.child import is_child
from holdfast.worker.claim import Claimer
from holdfast.worker.execute import Attempts
from holdfast.worker.finish import Finisher
from holdfast.worker.health import Vital, kept, served
from holdfast.worker.lease import LeaseKeeper
from holdfast.worker.link import Progress
from holdfast.worker.prefetch import PrefetchBuffer
from holdfast.worker.processes import Processes
from holdfast.worker.supervise import Lifeline
from holdfast.worker.threads import Threads
from holdfast.worker.window import Windows

log = logs.get("worker")
YIELD_AFTER = 32  # jobs a slot runs before it yields to the event loop
REPORT_EVERY = 0.5
PARTITION_TRIES = 3  # attempts to create history partitions: other workers and readers may hold the lock
STUCK = 75  # exit code of a process whose event loop is stuck (EX_TEMPFAIL): a restart may help
KEPT = Outcome("", 0, "kept")  # placeholder for no outcome: a thread that cannot be stopped keeps the job


class Worker:
    """Runs an application's jobs: `await Worker(hf).run()` until `stop()`, or until a signal with `handle_signals`."""

    line = "window"  # log event that summarizes the work done

    def __init__(self, hf: Holdfast, **settings: Any) -> None:
        requested = hf.settings.with_(**settings)
        self.settings = serve(hf, requested)
        self.id = f"{self.settings.worker_name}-{int(time.time() * 1000)}-{secrets.token_hex(4)}"
        self._hf = hf
        self._may_miss_webhooks = not requested.queues.strip(" ,") and not can_deliver()
        if QUEUE in requested.queue_list and not can_deliver():
            self._warn_of_webhooks()
        self.buffer = PrefetchBuffer()
        self._threads = Threads("holdfast-job")
        self._progress = Progress(hf.database.calls)
        self._stop_requests = 0
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()
        self._processes = Processes(self.settings, self._at_once.is_set)
        self._attempts = Attempts(hf, self._threads, self._processes, self._progress, self.settings)
        self._owns_process = False
        self._supervisor: Lifeline | None = None
        self._mismatch: SchemaError | None = None
        self._unregistered = False  # whether locks of other transactions prevented part of the registration
        self._patience = 1 + self.settings.prefetch * 3  # seconds a claimed job may wait for a slot

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
        self._loop = asyncio.get_running_loop()
        self._until_idle = until_idle
        self._owns_process = handle_signals
        self._supervisor = supervisor
        if handle_signals:
            self._catch_signals()
        self._build()
        async with contextlib.AsyncExitStack() as stack:
            for resource in self._resources():
                self._attempts.resources[resource] = await resource.open(stack)
            if self.settings.metrics_port and not self._until_idle:
                self._show_metrics(stack)
            if self.settings.sentry_dsn:
                self._attempts.on_failure = [stack.enter_context(sentry.reporting(self.settings.sentry_dsn))]
            if self.settings.health_port and not self._until_idle:
                stack.enter_context(served(self.settings.health_host, self.settings.health_port, self._vital))
            if self.settings.health_file and not self._until_idle:
                stack.enter_context(kept(self.settings.health_file, self._vital))
            with self._supervised():
                if await self._enter():
                    await self._run()

    @contextlib.contextmanager
    def _supervised(self) -> Iterator[None]:
        """Announce this worker to its supervisor, which reclaims its jobs and removes its row if the process dies.
        This precedes the registration in the database, so no row is left behind."""
        if self._supervisor is None:
            yield
            return
        self._supervisor.enter(self.id, self.settings)
        try:
            yield
        finally:
            self._supervisor.leave(bool(self.buffer.leases))

    def _show_metrics(self, stack: contextlib.AsyncExitStack) -> None:
        self.finisher.stats = metrics.Stats(self._hf.registry.tasks)
        collector = metrics.WorkerMetrics(self.finisher.stats, self._counters, self._gauges)
        stack.enter_context(metrics.served(self.settings.metrics_host, self.settings.metrics_port, collector))

    def _counters(self) -> dict[str, float]:
        counts = self.counts
        return {
            "jobs_claimed": counts.claimed,
            "jobs_throttled": counts.throttled,
            "lock_contentions": counts.contention,
            "results_refused": self.finisher.stale,
        }

    def _gauges(self) -> dict[str, float]:
        return {
            "jobs_running": len(self.buffer.running),
            "jobs_ready": len(self.buffer.ready),
            "worker_slots": self.settings.concurrency,
        }

    def _resources(self) -> Iterable[Resource[Any]]:
        """Return the registered resources and those of task signatures, which may belong to another application."""
        of_tasks = [each for task in self._hf.registry.tasks.values() for each in task.signature.resources.values()]
        return dict.fromkeys([*self._hf.registry.resources, *of_tasks])

    async def _run(self) -> None:
        logs.event(
            log,
            logging.INFO,
            "worker started",
            worker=self.id,
            queues=self.settings.queues,
            concurrency=self.settings.concurrency,
            tasks=len(self._hf.registry.tasks),
        )
        try:
            await self._work()
        finally:
            self._keeper.stop()
            self._monitor.stop()
            self._processes.kill()
            self._threads.shutdown()

    def stop(self) -> None:
        """Stop claiming, then finish or release the jobs held. A second call cancels what still runs."""
        self._stop_requests += 1
        self._stopping.set()
        if self._stop_requests > 1:
            self._at_once.set()

    def _build(self) -> None:
        settings, calls = self.settings, self._hf.database.calls
        self._service = Session(settings, f"{self.id} service", self._hf.database.notify)
        self._reporting = Session(settings, f"{self.id} progress")
        self.finisher = Finisher(Session(settings, f"{self.id} finish"), calls, self.buffer, self._progress)
        self._monitor = LoopMonitor(
            settings, self._loop, self.buffer, self._hf.registry.tasks, self._on_beat, self._on_stuck
        )
        self._keeper = LeaseKeeper(
            self.id,
            settings,
            calls,
            self.buffer,
            self._on_lost,
            self._on_cancel,
            self._on_mismatch,
            self._monitor.renewable,
        )
        self.claimer = Claimer(
            self.id,
            settings,
            Session(settings, f"{self.id} claim"),
            calls,
            self.buffer,
            lambda: not self._keeper.failing,
            self.finisher.sent,
        )
        self.windows = Windows(self, self._reporting, stored=not self._until_idle)
        self.hears = Consumer(settings, self.id, self.claimer.stir.set) if settings.amqp_enabled else None
        self._vital = Vital(settings, self.claimer, self._keeper, self.buffer, self.hears)
        self._processes.on_late_start = self.finisher.mark_started
        self.finisher.on_mismatch = self._attempts.on_mismatch = self._on_mismatch
        self.finisher.on_put_back.append(self.claimer.stir)
        self.finisher.on_freed = self.claimer.freed

    async def _work(self) -> None:
        self._keeper.start()
        self._vital.start()
        self._monitor.start()
        if self._supervisor is not None:
            self._supervisor.watch(self.settings.loop_timeout)
        claims = self.claimer.run_until_idle(self.finisher) if self._until_idle else self.claimer.run()
        claiming = self._start(claims)
        flushing = self._start(self.finisher.run())
        slots = [self._start(self._slot()) for _ in range(self.settings.concurrency)]
        background = [self._start(each) for each in self._background()]
        stopping = self._start(self._stopping.wait())
        try:
            parts = {claiming, flushing, *background, *slots}
            await asyncio.wait({*parts, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in parts:
                if task.done():
                    task.result()  # raises the error that ended the task
            if self._mismatch is not None:
                raise self._mismatch
        except SchemaError as error:
            self._refuse(error)
            raise
        finally:
            await self._wind_down(claiming, slots)
            await _cancel([flushing, stopping, *slots, *background])
            await self._processes.close(at_once=self._stop_requests > 1)
            await self._leave()

    def _background(self) -> Sequence[Coroutine[Any, Any, Any]]:
        settings, calls = self.settings, self._hf.database.calls
        if self._until_idle:
            return [self._watch(), self._report()]
        background: list[Coroutine[Any, Any, Any]] = [
            Upkeep(self.id, settings, self._service, calls, self._on_round).run(),
            self._watch(),
            self._report(),
        ]
        if settings.notify and not settings.pooler:
            listener = Session(settings, f"{self.id} listen")
            background.append(notify.listen(listener, calls, self.id, self._on_notification))
        if self.hears is not None:
            background.append(self.hears.run())
        return background

    async def _slot(self) -> None:
        buffer, claimer, finisher = self.buffer, self.claimer, self.finisher
        me = cast("asyncio.Task[None]", asyncio.current_task())
        monotonic, streak, direct = time.monotonic, 0, False
        while True:
            ready = buffer.ready
            if not ready or ((buffer.direct_waiting or direct) and not ready[0].direct and buffer.keep_slot()):
                streak, direct = 0, False
                if buffer.kept:
                    claimer.stir.set()
                await buffer.wait()
                continue
            job = ready.popleft()
            buffer.started += 1
            buffer.running[me] = job
            job.started = monotonic()
            direct = job.direct
            try:
                outcome = await self._attempts.execute(job)
            except asyncio.CancelledError:
                if not (job.lease.lost or job.canceled or self._at_once.is_set()):
                    raise
                outcome = self._stopped(job)
            del buffer.running[me]
            while me.cancelling():  # the handler swallowed a cancellation, which was meant for that job alone
                me.uncancel()
            if outcome is not KEPT:
                finisher.add(job, outcome)
            if job.thread is not None:
                await self._outlast(job.thread)
            if claimer.wants_room is not None and buffer.held <= claimer.wants_room:
                claimer.stir.set()
            streak += 1
            if streak >= YIELD_AFTER:
                streak = 0
                await asyncio.sleep(0)

    def _stopped(self, job: Job) -> Outcome:
        """Return the outcome of an attempt that this worker has stopped."""
        if job.settled:
            return Outcome(job.id, job.lease.token, SETTLED)
        if job.canceled:
            return _canceled(job)
        if not self._may_release(job):
            return KEPT
        task = self._hf.registry.tasks.get(job.task)
        return Outcome(job.id, job.lease.token, "released") if task is None or task.refunds else _interrupted(job)

    async def _outlast(self, thread: asyncio.Future[Any]) -> None:
        """Wait for a thread whose attempt is over: until it ends, this slot has no thread for another job."""
        self.buffer.lingering += 1
        try:
            await asyncio.wait({thread})
        finally:
            self.buffer.lingering -= 1

    async def _report(self) -> None:
        """Store progress and window counts while jobs run."""
        while True:
            await asyncio.sleep(REPORT_EVERY)
            await self._progress.store(self._reporting)
            await self.windows.look()

    async def _watch(self) -> None:
        """Release prefetched jobs that cannot start soon."""
        while True:
            await asyncio.sleep(min(0.5, self.settings.poll / 2, self.settings.lease / 20))
            self._keeper.give_up_lapsing()
            if self.buffer.ready and time.monotonic() - self.buffer.ready[0].lease.taken_at > self._patience:
                self._give_back(self.buffer.take_ready())

    @property
    def counts(self) -> Counts:
        """Return this worker's counts since it started."""
        return Counts(
            self.claimer.claimed,
            self.buffer.started,
            self.finisher.succeeded,
            self.finisher.failed,
            self.claimer.throttled,
            self.claimer.contention,
        )

    def _give_back(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.finisher.add(job, Outcome(job.id, job.lease.token, "released"))

    def _may_release(self, job: Job) -> bool:
        """Return whether the handler is sure to end: a thread that outlives the worker keeps its job until the lease
        expires."""
        return self._can_be_stopped(job) or self._owns_process

    def _can_be_stopped(self, job: Job) -> bool:
        """Return whether the handler can be stopped, which holds for all but threads."""
        task = self._hf.registry.tasks.get(job.task)
        return task is None or task.runner != "thread"

    def _on_notification(self, payload: str) -> None:
        """Look for cancel requests, or claim: there may be new jobs, or limits that have changed."""
        if payload == "cancel":
            self._keeper.look_soon()
        else:
            self.claimer.stir.set()

    def _on_cancel(self, ids: Sequence[str]) -> None:
        """Cancel jobs; called by the lease thread."""
        self._call_on_loop(self._cancel_jobs, set(ids))

    def _cancel_jobs(self, ids: Set[str]) -> None:
        """Cancel jobs on request. Jobs not started are finished as canceled, a coroutine is canceled at its next await
        and a process is ended. A thread cannot be stopped; its handler can check ctx.canceled."""
        for job in self.buffer.take_out(ids):
            self.finisher.add(job, _canceled(job))
        for slot, job in list(self.buffer.running.items()):
            if job.id in ids and not job.canceled:
                job.canceled = True
                logs.event(log, logging.INFO, "canceling job", job=job.id, task=job.task, attempt=job.attempt)
                if self._can_be_stopped(job):
                    slot.cancel()

    def _on_beat(self) -> None:
        self._vital.beat()
        if self._supervisor is not None:
            self._supervisor.beat()

    def _on_stuck(self) -> None:
        """Exit if the process is the worker's own; called by the loop monitor. With a stuck loop no handler can be
        stopped and no outcome stored."""
        if self._owns_process:
            logs.event(log, logging.ERROR, "process ends: its event loop is stuck", worker=self.id, code=STUCK)
            logging.shutdown()
            os._exit(STUCK)
        logs.event(
            log, logging.ERROR, "leases are not renewed: the event loop is stuck; restart this process", worker=self.id
        )

    def _on_mismatch(self, error: SchemaError) -> None:
        """Stop because of a schema mismatch; called on the loop and by the lease thread."""
        self._call_on_loop(self._refuse, error)

    def _refuse(self, error: SchemaError) -> None:
        """Stop, because this release cannot work with the current schema. No job counts this as a failure."""
        if self._mismatch is None:
            self._mismatch = error
            self._vital.schema = str(error)
            logs.event(log, logging.ERROR, "worker stops: the schema does not fit", worker=self.id, error=str(error))
            self.claimer.stop()
            self._stopping.set()

    def _on_lost(self, tokens: Sequence[int]) -> None:
        """Cancel the jobs of lost leases; called by the lease thread."""
        self._call_on_loop(self._lose, tokens)

    def _call_on_loop(self, function: Callable[..., None], argument: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no job runs
            self._loop.call_soon_threadsafe(function, argument)

    def _lose(self, tokens: Sequence[int]) -> None:
        lost_jobs = {id(job) for job in self.buffer.lose(tokens)}
        for task, job in list(self.buffer.running.items()):
            if id(job) in lost_jobs:
                task.cancel()

    async def _wind_down(self, claiming: asyncio.Task[Any], slots: Sequence[asyncio.Task[Any]]) -> None:
        self.claimer.stop()
        self._vital.stopping = True
        logs.event(
            log,
            logging.INFO,
            "worker stopping",
            worker=self.id,
            running=len(self.buffer.running),
            grace=self.settings.grace,
        )
        with contextlib.suppress(HoldfastError, asyncio.CancelledError):
            await self._service.run(self._hf.database.calls.workers.unregister(self.id, gone=False))
        await asyncio.wait({claiming}, timeout=self.settings.call_timeout)
        self._give_back(self.buffer.take_ready())
        self._processes.give_back()
        await self._let_finish()
        self._at_once.set()
        for task in list(self.buffer.running):
            task.cancel()
        await asyncio.wait(slots, timeout=0.1) if self.buffer.running else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(1.0, min(self.settings.grace, 10.0))):
                await self.finisher.stored()

    async def _let_finish(self) -> None:
        """Wait for running handlers until the grace time is over or a second stop is requested."""
        try:
            async with asyncio.timeout(self.settings.grace):
                while self.buffer.running and not self._at_once.is_set():  # noqa: ASYNC110 - only while stopping
                    await asyncio.sleep(0.01)
        except TimeoutError:
            logs.event(log, logging.WARNING, "grace time is over", worker=self.id, given_back=len(self.buffer.running))

    async def _leave(self) -> None:
        await self.windows.close()
        with contextlib.suppress(HoldfastError):
            await self._service.run(self._hf.database.calls.workers.unregister(self.id, gone=True))
        for session in (self._service, self._reporting, self.finisher.session, self.claimer.session):
            await session.close()
        logs.event(
            log,
            logging.INFO,
            "worker stopped",
            worker=self.id,
            succeeded=self.finisher.succeeded,
            failed=self.finisher.failed,
            stale=self.finisher.stale,
        )

    async def _enter(self) -> bool:
        """Register the worker; return False if it was stopped meanwhile. Wait while the database is down, and raise at
        once if it is set up wrongly."""
        warnings, pause = logs.Seldom(log), 0.2
        while True:
            try:
                await asyncio.to_thread(first_look, self.settings)
                await self._make_partitions()
                if limits := self._hf.registry.limits:
                    await self._service.run(self._hf.database.calls.limits.register(limits))
                await self._register()
                if self._may_miss_webhooks and await self._service.run(self._hf.webhooks.calls.wanted()):
                    self._warn_of_webhooks()
                return True
            except DatabaseUnavailable as error:
                warnings.failed("waiting for database", error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause * random.uniform(0.75, 1.25)):
                        await self._stopping.wait()
                        return False
                pause = min(pause * 2, 5.0)

    async def _make_partitions(self) -> None:
        """Create history partitions before the first claim: after days without a worker there is none for today.
        If an open transaction blocks this, jobs go to the default partition until upkeep succeeds."""
        for left in reversed(range(PARTITION_TRIES)):
            try:
                await self._service.run(self._hf.database.calls.workers.make_partitions())
                return
            except DatabaseUnavailable as error:
                if not left:
                    logs.event(log, logging.WARNING, "history partitions not created", error=str(error))
                await asyncio.sleep(random.uniform(0.05, 0.15))

    async def _register(self) -> None:
        """Register the worker, its tasks and schedules; rows locked by other transactions are registered later."""
        calls = self._hf.database.calls
        left = await self._service.run(
            calls.workers.register(
                self.id,
                socket.gethostname(),
                os.getpid(),
                VERSION,
                self.settings.queue_list,
                self.settings.concurrency,
                self._hf.registry.describe_tasks(),
            )
        )
        if schedules := self._hf.registry.schedules:
            left = left + await self._service.run(calls.schedules.register(schedules.values()))
        if left and not self._unregistered:
            logs.event(
                log,
                logging.WARNING,
                "tasks or schedules are registered later: another transaction locks them",
                names=", ".join(left[:10]),
            )
        self._unregistered = bool(left)

    async def _on_round(self, found: Upkept) -> None:
        """Register what was left, and the worker itself if a long outage removed its row. A stopping worker does not:
        it would be shown as working again."""
        if (self._unregistered or not found.known) and not self._stopping.is_set():
            await self._register()
        self.claimer.check_asleep(found.asleep)

    def _warn_of_webhooks(self) -> None:
        logs.event(log, logging.WARNING, "webhooks are not delivered here: pip install 'holdfast[webhooks]'")

    def _catch_signals(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self.stop)

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self._loop.create_task(work)


def _canceled(job: Job) -> Outcome:
    error = {"type": "Cancel", "code": "CANCELED", "message": WANTED_CANCELED}
    return Outcome(job.id, job.lease.token, "canceled", error=error)


def _interrupted(job: Job) -> Outcome:
    """Return an error that is retried at once. The attempt counts, because its message may have been sent."""
    error = {"type": "Interrupted", "code": "INTERRUPTED", "message": "worker stopped while the job was running"}
    return Outcome(job.id, job.lease.token, "error", error=error, delay=0.0, counts=[])


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait a second for them; a handler that swallows the cancellation is left behind."""
    for task in tasks:
        task.cancel()
    _, pending = await asyncio.wait(tasks, timeout=1.0)
    if pending:
        logs.event(log, logging.WARNING, "handlers ignore their cancellation", handlers=len(pending))
