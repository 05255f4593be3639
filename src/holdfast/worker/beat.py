"""Monitor a worker's event loop from a separate thread, and detect handlers that block it.

The protocol: the monitor requests a beat from the loop several times a second. While a beat is outstanding, the loop is
blocked: no coroutine runs, no timeout fires, no result is stored. After `loop_warning` seconds the log names the
handler and shows its stack. After `loop_timeout` seconds (or a shorter timeout of the handler's task) the worker is
stuck. Then its leases are no longer renewed. A process that the worker owns exits, and its supervisor starts another.
During a block, renewals count from the last beat (`renewable`), so the leases of a stuck worker expire on time even if
its process stays.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

from holdfast.client.task import Task
from holdfast.model.clock import CLOCK, Clock
from holdfast.model.job import Job
from holdfast.settings import Settings
from holdfast.telemetry import logs
from holdfast.worker.block import find_job, frames_of, stack_of
from holdfast.worker.prefetch import PrefetchBuffer

log = logs.get("loop")
SLOWEST = 0.25  # seconds between beats
QUICKEST = 0.05
IDLE = 0.5  # seconds between beats while no job runs
LEAST = 5.0  # seconds; a task's shorter timeout does not end a process, because other jobs run in it
MOST_NAMES = 5


class Beat:
    """The beat that was requested from the event loop. `stuck` is set while the loop counts as stuck."""

    def __init__(self, settings: Settings, clock: Clock = CLOCK) -> None:
        self._lease = settings.lease
        self._longest = settings.loop_timeout
        self._clock = clock
        self._requested_at = clock.monotonic()
        self._blocked = 0.0
        self._looked_at = self._requested_at
        self.owed = False
        self.stuck = False

    def request(self) -> None:
        """Note that a beat is outstanding."""
        self._requested_at, self.owed = self._clock.monotonic(), True

    @property
    def silent(self) -> float:
        """Return the seconds since the last request."""
        return self._clock.monotonic() - self._requested_at

    def blocked(self) -> float:
        """Return for how long the loop has been blocked; 0 while no beat is outstanding. Called at short intervals, so
        that a time when the process was stopped or the machine slept does not count."""
        now = self._clock.monotonic()
        passed, self._looked_at = min(now - self._looked_at, 4 * SLOWEST), now
        self._blocked = self._blocked + passed if self.owed else 0.0
        return self._blocked

    def renewable(self) -> float:
        """Return for how many seconds leases may be renewed now; 0 means not at all."""
        if self.stuck:
            return 0.0
        if not self.owed or not self._longest:
            return self._lease
        return max(min(self._lease, max(self._lease, self._longest) - self.silent), 0.0)


class LoopMonitor:
    """Requests beats from the loop, in its own thread. `on_stuck` is called in that thread, once per block."""

    def __init__(
        self,
        settings: Settings,
        beat: Beat,
        buffer: PrefetchBuffer,
        tasks: Mapping[str, Task[Any, Any]],
        on_stuck: Callable[[], None],
    ) -> None:
        self._warn_after = settings.loop_warning
        self._longest = settings.loop_timeout
        self._beat = beat
        self._buffer = buffer
        self._tasks = tasks
        self._on_stuck = on_stuck
        self._over = threading.Event()
        self._warned = False

    def start(self, on_beat: Iterable[Callable[[], None]]) -> None:
        """Monitor the running event loop, which calls `on_beat` at each beat."""
        arguments = (asyncio.get_running_loop(), threading.get_ident(), tuple(on_beat))
        threading.Thread(target=self._run, args=arguments, name="holdfast-loop-monitor", daemon=True).start()

    def stop(self) -> None:
        """End the thread."""
        self._over.set()

    def _run(self, loop: asyncio.AbstractEventLoop, loop_thread: int, on_beat: tuple[Callable[[], None], ...]) -> None:
        every = min(SLOWEST, max(self._warn_after / 4, QUICKEST)) if self._warn_after else SLOWEST
        idle = min(IDLE, self._longest / 4 or IDLE) if every == SLOWEST else every
        while not self._over.wait(every if self._buffer.running or self._beat.owed else idle):
            if (blocked := self._beat.blocked()) or self._beat.owed:
                self._look(blocked, loop, loop_thread)
                continue
            self._beat.request()
            try:
                loop.call_soon_threadsafe(self._on_beat, on_beat)
            except RuntimeError:  # the loop is closed
                return

    def _on_beat(self, on_beat: tuple[Callable[[], None], ...]) -> None:
        for each in on_beat:
            each()
        self._beat.owed = False
        if self._warned:
            self._warned = self._beat.stuck = False
            logs.event(log, logging.WARNING, "event loop runs again", blocked_seconds=round(self._beat.silent, 1))

    def _look(self, blocked: float, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        warning, longest = self._warn_after, self._longest
        if not ((warning and blocked >= warning) or (longest and blocked >= min(longest, LEAST))):
            return
        if self._beat.stuck or (self._warned and not longest):
            return
        frames = frames_of(sys._current_frames().get(loop_thread))
        job = find_job(self._buffer.running, self._tasks, asyncio.current_task(loop), frames)
        if not self._warned and warning and blocked >= warning:
            self._warned = True
            self._log_block(logging.WARNING, "event loop is blocked", job, frames, blocked)
        if blocked >= longest_block(longest, None if job is None else self._tasks.get(job.task)):
            self._warned = self._beat.stuck = True
            self._log_block(logging.ERROR, "event loop is stuck", job, frames, blocked)
            self._on_stuck()

    def _log_block(self, level: int, text: str, job: Job | None, frames: list[FrameType], blocked: float) -> None:
        fields: dict[str, Any] = {"seconds": round(blocked, 1)}
        if job is not None:
            fields |= {"task": job.task, "job": job.id}
        else:
            names = sorted({each.task for each in list(self._buffer.running.values())})
            fields["running_tasks"] = ",".join(names[:MOST_NAMES])
        logs.event(log, level, text, **fields, stack=stack_of(frames))


def longest_block(loop_timeout: float, task: Task[Any, Any] | None) -> float:
    """Return the seconds for which a task's handler may block the loop."""
    longest = loop_timeout or math.inf
    if task is None or task.timeout is None:
        return longest
    return min(longest, max(task.timeout, LEAST))
