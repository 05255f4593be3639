"""Requests that wait for a job, and streams of its changes."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, suppress
from uuid import UUID

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.errors import DatabaseUnavailable
from holdfast.model.job import PublicJob
from holdfast.model.token import Caller
from holdfast.web.context import RequestContext
from holdfast.web.problems import Problem, unknown

LONGEST_STREAM = 300.0  # seconds; then the client reconnects, and its token is checked again
STILL_HERE = 15.0  # seconds between keep-alive comments of a stream
LOOK_UP = 0.5  # seconds between checks that a waiting request may keep waiting
MOST_WAITING = 1000
MOST_OF_ONE = 250  # of them, of one tenant
_waiting: Counter[str | None] = Counter()  # by tenant, for all applications of this process


async def look(ctx: RequestContext, job_id: UUID) -> PublicJob:
    """Return a job that the caller may see, or raise a 404."""
    found = await ctx.service.look(ctx.caller, str(job_id))
    if found is None:
        raise unknown("job", job_id)
    return found


async def look_for_change(ctx: RequestContext, job_id: UUID) -> PublicJob:
    """Return a job that the caller may change, or raise a 404."""
    found = (await ctx.run(ctx.calls.jobs.look([(str(job_id), ctx.view.for_changes)]))).get(0)
    if found is None:
        raise unknown("job", job_id)
    return found


async def ended(ctx: RequestContext, found: PublicJob, until: float) -> PublicJob:
    """Return a job when it has ended or the time is over."""
    ctx.begin_wait()
    with _Place(ctx.caller), ctx.service.changes.watch(found.id) as observer:
        while not found.ended and (left := until - time.monotonic()) > 0:
            changed = await observer.changed(min(left, LOOK_UP))
            if not await ctx.may_continue():
                break
            if changed:
                found = await look(ctx, UUID(found.id))
    return found


def stream(ctx: RequestContext, found: PublicJob) -> Response:
    """Return a stream of a job's changes, which waits from now on."""
    place = _Place(ctx.caller)
    ctx.begin_wait()
    return EventStream(_events(ctx, found), place)


async def _events(ctx: RequestContext, found: PublicJob) -> AsyncIterator[bytes]:
    last, sent_at = None, time.monotonic()
    ends = sent_at + LONGEST_STREAM
    # A client that reconnects gets the 503.
    with suppress(DatabaseUnavailable), ctx.service.changes.watch(found.id) as observer:
        while True:
            body = msgspec.json.encode(found)
            if body != last:
                yield b"event: job\nid: %b\ndata: %b\n\n" % (tag(body).strip('"').encode(), body)
                last, sent_at = body, time.monotonic()
            elif time.monotonic() - sent_at >= STILL_HERE:
                yield b": still here\n\n"  # proxies close idle connections
                sent_at = time.monotonic()
            if found.ended or time.monotonic() >= ends:
                return
            changed = await observer.changed(LOOK_UP)
            if not await ctx.may_continue():
                return
            if not changed:
                continue
            if (now := await ctx.service.look(ctx.caller, found.id)) is None:
                return
            found = now


def tag(body: bytes) -> str:
    """Return the ETag of a job."""
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


class _Place:
    """A slot for a waiting request, taken at once or refused with 429. No tenant can use all slots."""

    def __init__(self, caller: Caller) -> None:
        self._tenant = caller.tenant
        mine, every = _waiting[self._tenant], _waiting.total()
        if every >= MOST_WAITING or (mine >= MOST_OF_ONE and not caller.everyone):
            raise Problem(429, f"{mine} of your requests wait already; try again later", headers={"Retry-After": "5"})
        _waiting[self._tenant] += 1

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        _waiting[self._tenant] -= 1
        if not _waiting[self._tenant]:
            del _waiting[self._tenant]


class EventStream(StreamingResponse):
    """Server-sent events, and the place that they take: it is released even if the stream never begins."""

    def __init__(
        self,
        events: AsyncIterator[bytes],
        place: AbstractContextManager[object],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await super().__call__(scope, receive, send)


def waiting() -> int:
    """Return how many requests wait for a job."""
    return _waiting.total()
