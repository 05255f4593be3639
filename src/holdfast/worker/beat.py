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
import inspect
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any

from holdfast.client.task import Task
from holdfast.model.job import Job
from holdfast.settings import Settings
from holdfast.telemetry import logs
from holdfast.worker.prefetch import PrefetchBuffer

log = logs.get("loop")
SLOWEST = 0.25  # seconds between beats
QUICKEST = 0.05
LEAST = 5.0  # seconds; a task's shorter timeout does not end a process, because other jobs run in it
MOST_FRAMES = 12
MOST_NAMES = 5
_BEFORE = ("holdfast.worker.", "asyncio.events")  # modules whose frames lead to the handler


class LoopMonitor(threading.Thread):
    """Requests beats from the loop. `on_beat` is called on the loop, `on_stuck` in this thread, once per block."""

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        buffer: PrefetchBuffer,
        tasks: Mapping[str, Task[Any, Any]],
        on_beat: Callable[[], None],
        on_stuck: Callable[[], None],
    ) -> None:
        super().__init__(name="holdfast-loop-monitor", daemon=True)
        self._settings = settings
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._buffer = buffer
        self._tasks = tasks
        self._on_beat = on_beat
        self._on_stuck = on_stuck
        self._every = min(SLOWEST, max(settings.loop_warning / 4, QUICKEST)) if settings.loop_warning else SLOWEST
        self._over = threading.Event()
        self._requested_at = time.monotonic()
        self._owed = False
        self._warned = False
        self.stuck = False

    def run(self) -> None:
        blocked, looked_at = 0.0, time.monotonic()
        while not self._over.wait(self._every):
            now = time.monotonic()
            if not self._owed:
                blocked = 0.0
                self._ask(now)
            else:
                # Short steps, so that a time when the process was stopped or the machine slept does not count.
                blocked += min(now - looked_at, 4 * SLOWEST)
                self._look(blocked)
            looked_at = now

    def stop(self) -> None:
        """End the thread."""
        self._over.set()

    def renewable(self) -> float:
        """Return for how many seconds leases may be renewed now; 0 means not at all."""
        lease, longest = self._settings.lease, self._settings.loop_timeout
        if self.stuck:
            return 0.0
        if not self._owed or not longest:
            return lease
        silent = time.monotonic() - self._requested_at
        return max(min(lease, max(lease, longest) - silent), 0.0)

    def _ask(self, now: float) -> None:
        self._requested_at, self._owed = now, True
        try:
            self._loop.call_soon_threadsafe(self._beat)
        except RuntimeError:  # the loop is closed
            self._over.set()

    def _beat(self) -> None:
        self._on_beat()
        self._owed = False
        if self._warned:
            self._warned = self.stuck = False
            seconds = round(time.monotonic() - self._requested_at, 1)
            logs.event(log, logging.WARNING, "event loop runs again", blocked_seconds=seconds)

    def _look(self, blocked: float) -> None:
        warning, longest = self._settings.loop_warning, self._settings.loop_timeout
        if not ((warning and blocked >= warning) or (longest and blocked >= min(longest, LEAST))):
            return
        if self.stuck or (self._warned and not longest):
            return
        frames = _frames(sys._current_frames().get(self._loop_thread))
        job = self._find_job(frames)
        if not self._warned and warning and blocked >= warning:
            self._warned = True
            self._log_block(logging.WARNING, "event loop is blocked", job, frames, blocked)
        if blocked >= self._longest(job):
            self._warned = self.stuck = True
            self._log_block(logging.ERROR, "event loop is stuck", job, frames, blocked)
            self._on_stuck()

    def _longest(self, job: Job | None) -> float:
        longest = self._settings.loop_timeout or math.inf
        task = None if job is None else self._tasks.get(job.task)
        if task is None or task.timeout is None:
            return longest
        return min(longest, max(task.timeout, LEAST))

    def _find_job(self, frames: list[FrameType]) -> Job | None:
        """Return the job whose handler blocks the loop. It is found by the running coroutine, or by the running code if
        the handler has started coroutines of its own."""
        running = dict(self._buffer.running)
        current = asyncio.current_task(self._loop)
        if current is not None and (job := running.get(current)) is not None:
            return job
        codes = {frame.f_code for frame in frames}
        candidates = [job for job in running.values() if _code(self._tasks.get(job.task)) in codes]
        return candidates[0] if len(candidates) == 1 else None

    def _log_block(self, level: int, text: str, job: Job | None, frames: list[FrameType], blocked: float) -> None:
        fields: dict[str, Any] = {"seconds": round(blocked, 1)}
        if job is not None:
            fields |= {"task": job.task, "job": job.id}
        else:
            names = sorted({each.task for each in list(self._buffer.running.values())})
            fields["running_tasks"] = ",".join(names[:MOST_NAMES])
        logs.event(log, level, text, **fields, stack=_stack(frames))


def _frames(inner: FrameType | None) -> list[FrameType]:
    """Return the handler's frames, outermost first; all frames where no handler runs."""
    frames = []
    while inner is not None:
        frames.append(inner)
        inner = inner.f_back
    frames.reverse()
    before = [n for n, frame in enumerate(frames) if str(frame.f_globals.get("__name__")).startswith(_BEFORE)]
    return frames[before[-1] + 1 :] if before and before[-1] + 1 < len(frames) else frames


def _stack(frames: list[FrameType]) -> str:
    """Format the stack on one line, without values, which may be secret."""
    return " > ".join(f"{f.f_code.co_filename}:{f.f_lineno} {f.f_code.co_name}" for f in frames[-MOST_FRAMES:])


def _code(task: Task[Any, Any] | None) -> CodeType | None:
    return None if task is None else getattr(inspect.unwrap(task.handler), "__code__", None)
