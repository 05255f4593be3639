"""/v1/dead: failed and dead jobs, which stay until a person acts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.responses import Response

from holdfast.model.job import PublicJob
from holdfast.model.view import View
from holdfast.store.call import Call
from holdfast.store.jobs import Filter
from holdfast.store.select import Page
from holdfast.web import shapes
from holdfast.web.body import BodyRoute
from holdfast.web.problems import FOR_CHANGES
from holdfast.web.service import Reads, RequestContext, Writes, respond

router = APIRouter(prefix="/dead", tags=["dead"], route_class=BodyRoute)
Move = Callable[[Sequence[str], View], Call[list[str]]]


@router.get("", response_model=shapes.Jobs)
async def list_dead(
    ctx: Reads,
    status: shapes.DeadStatus | None = None,
    task: shapes.Name | None = None,
    queue: shapes.Name | None = None,
    tenant: shapes.Name | None = None,
    batch: UUID | None = None,
    error: Annotated[shapes.Name | None, Query(description="type or code of the last error")] = None,
    cursor: shapes.Cursor = None,
    limit: shapes.Limit = 50,
) -> Response:
    """List the failed and dead jobs that match, newest first."""
    where = Filter(status=status, task=task, queue=queue, tenant=tenant, error=error, batch=shapes.text(batch))
    page = Page(limit=limit, before=await ctx.before(cursor))
    calls, view = ctx.hf.database.calls.dead, ctx.caller.view
    found = await ctx.service.page(ctx.caller, lambda part: calls.list(PublicJob, where, part, view), page, dead=True)
    return respond(shapes.Jobs(*found))


@router.post("/retry", response_model=shapes.Moved, responses=FOR_CHANGES)
async def retry(which: shapes.WhichDead, ctx: Writes) -> Response:
    """Put failed and dead jobs back into the queue with fresh attempts; pass `next` as `after` to go on."""
    return await _move(which, ctx, ctx.hf.database.calls.dead.retry)


@router.post("/discard", response_model=shapes.Moved, responses=FOR_CHANGES)
async def discard(which: shapes.WhichDead, ctx: Writes) -> Response:
    """Discard failed and dead jobs; pass `next` as `after` to go on."""
    return await _move(which, ctx, ctx.hf.database.calls.dead.discard)


async def _move(which: shapes.WhichDead, ctx: RequestContext, move: Move) -> Response:
    async def act(conn: Any) -> Response:
        ids, rest = await _select(which, ctx, conn)
        moved = await ctx.run(move(ids, ctx.caller.view), conn) if ids else []
        return respond(shapes.Moved(moved, sorted(set(ids) - set(moved)), rest))

    return await ctx.once(act)


async def _select(which: shapes.WhichDead, ctx: RequestContext, conn: Any) -> tuple[list[str], str | None]:
    if which.ids is not None:
        return list(dict.fromkeys(map(str, which.ids))), None
    same = {name: getattr(which, name) for name in ("status", "task", "queue", "tenant", "error")}
    where = Filter(**same, batch=shapes.text(which.batch))
    after = shapes.text(which.after)
    page = Page(limit=which.limit, after=after, order="oldest")
    ids = await ctx.run(ctx.hf.database.calls.dead.ids(where, page, ctx.caller.view), conn)
    return ids, ids[-1] if len(ids) == which.limit else None
