"""Waiting for jobs to change: one query for all waiting requests, a few times a second."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

POLL_INTERVAL = 0.05  # seconds between queries
PAUSE_FACTOR = 10  # a slow query is followed by a pause this many times as long


class Observer:
    """One request's view of a job."""

    def __init__(self) -> None:
        self._mark: object = None
        self._change = asyncio.Event()

    def update(self, mark: object) -> None:
        """Set the job's current mark. The first one counts as a change, since no earlier one is known."""
        if mark != self._mark:
            self._mark = mark
            self._change.set()

    async def changed(self, seconds: float) -> bool:
        """Wait at most `seconds` seconds; return whether the job may have changed since the last call."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._change.wait()
        changed = self._change.is_set()
        self._change.clear()
        return changed


@dataclass
class _LoopState:
    """The observers on one event loop, by job id."""

    jobs: dict[str, set[Observer]] = field(default_factory=dict)
    poller: asyncio.Task[None] | None = None


class ChangePoller:
    """For each event loop, the observers and the task that polls while there are any. `read_marks` returns a mark for
    each id, in order."""

    def __init__(self, read_marks: Callable[[Sequence[str]], Awaitable[Sequence[str]]]) -> None:
        self._read_marks = read_marks
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def watch(self, id_: str) -> Iterator[Observer]:
        """ChangePoller a job for the length of a block."""
        loop = asyncio.get_running_loop()
        state = self._loops.setdefault(loop, _LoopState())
        observer = Observer()
        state.jobs.setdefault(id_, set()).add(observer)
        if state.poller is None or state.poller.done():
            state.poller = loop.create_task(self._poll(state))
        try:
            yield observer
        finally:
            state.jobs[id_].discard(observer)
            if not state.jobs[id_]:
                del state.jobs[id_]

    async def _poll(self, state: _LoopState) -> None:
        pause = POLL_INTERVAL
        while True:
            await asyncio.sleep(pause)
            if not state.jobs:
                return
            began = time.monotonic()
            for id_, mark in (await self._marks(list(state.jobs))).items():
                for observer in state.jobs.get(id_, ()):
                    observer.update(mark)
            pause = max(POLL_INTERVAL, PAUSE_FACTOR * (time.monotonic() - began))

    async def _marks(self, ids: list[str]) -> dict[str, object]:
        try:
            return dict(zip(ids, await self._read_marks(ids), strict=True))
        except Exception:  # each request then reads its job itself, and reports the error
            return {id_: object() for id_ in ids}
