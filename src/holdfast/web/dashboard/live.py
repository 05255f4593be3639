"""What changed: one stream of server-sent events for each viewer, and one query a second while there are viewers.

An event names topics: `figures` (a new snapshot) and `job` (the job of this viewer's page). The page then fetches those
of its fragments that show them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from uuid import UUID

from starlette.responses import Response

from holdfast.errors import HoldfastError
from holdfast.store.call import Row
from holdfast.web.dashboard.section import SIGNED_IN, Section
from holdfast.web.dashboard.visit import Visit
from holdfast.web.fields import Query
from holdfast.web.problems import Problem
from holdfast.web.routing import READS
from holdfast.web.waiting import EventStream

section = Section()
POLL_INTERVAL = 1.25  # seconds between queries; snapshots are not taken more often
PAUSE_FACTOR = 10  # a slow query is followed by a pause this many times as long
MOST_VIEWERS = 500
MOST_OF_ONE = 250  # of them, of one tenant
STILL_HERE = 15.0  # seconds between comments, so that proxies keep the connection and gone viewers are noticed
CHECK = 15.0  # seconds between checks that the viewer still has access
LONGEST = 600.0  # seconds; then the browser connects again
REMEDY = "reload the page to update it"
AGAIN = {"Retry-After": "5"}
NO_BUFFER = {"X-Accel-Buffering": "no"}  # or nginx would hold events back
Marks = tuple[Row, Sequence[str]]


class Follower:
    """One viewer's stream: its job, and the topics that have changed since it last looked. Its block ends it."""

    def __init__(self, job: str | None, tenant: str | None, end: Callable[[Follower], None]) -> None:
        self.job = job
        self.tenant = tenant
        self._end = end
        self._marks = {"job": "?"}  # no job's mark: the job may have changed since its page was made, or ended
        self._topics: set[str] = set()
        self._changed = asyncio.Event()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._end(self)

    def update(self, topic: str, mark: str) -> None:
        """Note the mark of a topic. The first one of a job is a change, that of the figures is shown already."""
        before = self._marks.get(topic)
        self._marks[topic] = mark
        if before is not None and before != mark:
            self._topics.add(topic)
            self._changed.set()

    async def topics(self, seconds: float) -> list[str]:
        """Wait at most `seconds` seconds; return the topics that have changed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()
        found, self._topics = sorted(self._topics), set()
        return found


class Broadcaster:
    """The followers of a process, and the task that polls for changes while there are any."""

    def __init__(self, read: Callable[[Sequence[str]], Awaitable[Marks]]) -> None:
        self._read = read
        self._followers: set[Follower] = set()
        self._task: asyncio.Task[None] | None = None
        self._snapshot: tuple[float, Row] | None = None

    def snapshot(self) -> Row | None:
        """Return the newest snapshot if it was just read."""
        if self._snapshot is None or time.monotonic() - self._snapshot[0] > 2 * POLL_INTERVAL:
            return None
        return self._snapshot[1]

    def follow(self, job: str | None, tenant: str | None = None) -> Follower:
        """Return a new follower, or raise a 429 or 503 if there are too many."""
        if len(self._followers) >= MOST_VIEWERS:
            raise Problem(503, f"too many viewers ({MOST_VIEWERS}); {REMEDY}", "full", headers=AGAIN)
        if tenant is not None and sum(each.tenant == tenant for each in self._followers) >= MOST_OF_ONE:
            raise Problem(429, f"too many viewers of your tenant ({MOST_OF_ONE}); {REMEDY}", headers=AGAIN)
        follower = Follower(job, tenant, self._followers.discard)
        self._followers.add(follower)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        return follower

    async def _run(self) -> None:
        while self._followers:
            began = time.monotonic()
            with contextlib.suppress(HoldfastError):  # the database is away: the pages say so
                await self._look()
            await asyncio.sleep(max(POLL_INTERVAL, PAUSE_FACTOR * (time.monotonic() - began)))

    async def _look(self) -> None:
        jobs = sorted({each.job for each in self._followers if each.job is not None})
        figures, marks = await self._read(jobs)
        self._snapshot = time.monotonic(), figures
        by_job = dict(zip(jobs, marks, strict=True))
        for each in self._followers:
            each.update("figures", figures["at"])
            if each.job is not None:
                each.update("job", by_job.get(each.job, ""))


class Following(Query):
    job: UUID | None = None
    """The job whose changes are followed, too."""


@section.page("/live", "", SIGNED_IN)
async def live(visit: Visit, query: Following) -> Response:
    """Stream the names of what changed."""
    job = None if query.job is None else str(query.job)
    if job is not None:
        READS.check(visit.caller)
    if job is not None and await visit.service.look(visit.caller, job) is None:
        raise Problem(404, f"there is no job {job}")
    visit.begin_wait()
    follower = visit.dashboard.broadcaster.follow(job, visit.caller.tenant)
    return EventStream(_events(visit, follower), follower, NO_BUFFER)


async def _events(visit: Visit, follower: Follower) -> AsyncIterator[bytes]:
    began = checked = sent = time.monotonic()
    yield b"retry: 3000\n\n"
    while (now := time.monotonic()) - began < LONGEST:
        if topics := await follower.topics(POLL_INTERVAL):
            yield f"event: changed\ndata: {' '.join(topics)}\n\n".encode()
            sent = now
        elif now - sent >= STILL_HERE:
            yield b": still here\n\n"
            sent = now
        if visit.dashboard.stops() or (now - checked >= CHECK and not await visit.may_continue()):
            return
        checked = now if now - checked >= CHECK else checked
