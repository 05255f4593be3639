"""Waiting for jobs to change: one query for all who wait, a few times a second, however many they are."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

EVERY = 0.05  # seconds between looks
SHARE = 10  # a look that took longer than usual is followed by a pause so many times as long


class Seen:
    """What one who waits knows of a job."""

    def __init__(self) -> None:
        self._mark: object = None
        self._news = asyncio.Event()

    def tell(self, mark: object) -> None:
        """The job's mark is this now. The first is always news: nobody knows what was before it."""
        if mark != self._mark:
            self._mark = mark
            self._news.set()

    async def changed(self, seconds: float) -> bool:
        """Returns when the job may have changed since the last time, or after so many seconds: whether it may have."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        news = self._news.is_set()
        self._news.clear()
        return news


@dataclass
class _Watched:
    """Who waits on one event loop, by the job's id."""

    jobs: dict[str, set[Seen]] = field(default_factory=dict)
    looking: asyncio.Task[None] | None = None


class Watch:
    """For each event loop, those who wait and the task that looks for them while there are any. `ask` answers a mark
    for each id, in order."""

    def __init__(self, ask: Callable[[Sequence[str]], Awaitable[Sequence[str]]]) -> None:
        self._ask = ask
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Watched] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def on(self, id_: str) -> Iterator[Seen]:
        """Watches a job for the length of a block."""
        loop = asyncio.get_running_loop()
        watched = self._loops.setdefault(loop, _Watched())
        seen = Seen()
        watched.jobs.setdefault(id_, set()).add(seen)
        if watched.looking is None or watched.looking.done():
            watched.looking = loop.create_task(self._look(watched))
        try:
            yield seen
        finally:
            watched.jobs[id_].discard(seen)
            if not watched.jobs[id_]:
                del watched.jobs[id_]

    async def _look(self, watched: _Watched) -> None:
        pause = EVERY
        while True:
            await asyncio.sleep(pause)
            if not watched.jobs:
                return
            began = time.monotonic()
            for id_, mark in (await self._marks(list(watched.jobs))).items():
                for seen in watched.jobs.get(id_, ()):
                    seen.tell(mark)
            pause = max(EVERY, SHARE * (time.monotonic() - began))

    async def _marks(self, ids: list[str]) -> dict[str, object]:
        try:
            return dict(zip(ids, await self._ask(ids), strict=True))
        except Exception:  # those who wait look for themselves, and tell their callers what is wrong
            return {id_: object() for id_ in ids}
