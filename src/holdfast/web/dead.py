"""/v1/dead: failed and dead jobs, which stay until a person acts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from msgspec import Meta

from holdfast.model.job import PublicJob
from holdfast.model.view import View
from holdfast.store.call import Call
from holdfast.store.select import Page
from holdfast.web.context import RequestContext
from holdfast.web.fields import MOST_JOBS, Body, DeadStatus, Ids, Name, Paged, text
from holdfast.web.jobs import Jobs, job_filter
from holdfast.web.routing import READS, WRITES, Routes

routes = Routes("/dead", "dead")
Move = Callable[[Sequence[str], View], Call[list[str]]]


class ListDead(Paged):
    status: DeadStatus | None = None
    task: Name | None = None
    queue: Name | None = None
    tenant: Name | None = None
    batch: UUID | None = None
    error: Name | None = None
    """Type or code of the last error."""


class WhichDead(Body):
    """A selection of failed and dead jobs: by ids, or all that match, oldest first, at most `limit` after `after`."""

    ids: Ids | None = None
    """These jobs; filters are ignored."""
    all: bool = False
    """All failed and dead jobs, if there is no filter."""
    status: DeadStatus | None = None
    task: Name | None = None
    queue: Name | None = None
    tenant: Name | None = None
    error: Name | None = None
    """Type or code of the last error."""
    batch: UUID | None = None
    after: UUID | None = None
    """`next` of the previous response."""
    limit: Annotated[int, Meta(ge=1, le=MOST_JOBS)] = MOST_JOBS
    """Maximum number of jobs in one request."""

    def __post_init__(self) -> None:
        which = self.ids, self.status, self.task, self.queue, self.tenant, self.error, self.batch
        if not self.all and all(each is None for each in which):
            raise ValueError('say which jobs: ids, status, task, queue, tenant, error or batch; or "all": true for all')


@dataclass(frozen=True, slots=True)
class Moved:
    """The jobs that were retried or discarded, those left unchanged, and the `after` of the next request."""

    ids: list[str]
    left: list[str]
    next: str | None


@routes.get("", READS)
async def list_dead(ctx: RequestContext, query: ListDead) -> Jobs:
    """List the failed and dead jobs that match, newest first."""
    page = Page(limit=query.limit, before=await ctx.before(query.cursor))
    where, calls = job_filter(query), ctx.calls.dead
    found = await ctx.service.page(
        ctx.caller, lambda part: calls.list(PublicJob, where, part, ctx.view), page, dead=True
    )
    return Jobs(*found)


@routes.post("/retry", WRITES)
async def retry(ctx: RequestContext, which: WhichDead) -> Moved:
    """Put failed and dead jobs back into the queue with fresh attempts; pass `next` as `after` to go on."""
    return await _move(ctx, which, ctx.calls.dead.retry)


@routes.post("/discard", WRITES)
async def discard(ctx: RequestContext, which: WhichDead) -> Moved:
    """Discard failed and dead jobs; pass `next` as `after` to go on."""
    return await _move(ctx, which, ctx.calls.dead.discard)


async def _move(ctx: RequestContext, which: WhichDead, move: Move) -> Moved:
    ids, rest = await _select(ctx, which)
    moved = await ctx.run(move(ids, ctx.view)) if ids else []
    return Moved(moved, sorted(set(ids) - set(moved)), rest)


async def _select(ctx: RequestContext, which: WhichDead) -> tuple[list[str], str | None]:
    if which.ids is not None:
        return list(dict.fromkeys(map(str, which.ids))), None
    page = Page(limit=which.limit, after=text(which.after), order="oldest")
    ids = await ctx.run(ctx.calls.dead.ids(job_filter(which), page, ctx.view))
    return ids, ids[-1] if len(ids) == which.limit else None
