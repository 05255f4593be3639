"""/v1/batches: jobs that are counted together."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter
from starlette.responses import Response

from holdfast.client.task import Enqueuer
from holdfast.model.job import BatchInfo
from holdfast.store.select import Page
from holdfast.web import jobs, shapes
from holdfast.web.body import BodyRoute
from holdfast.web.problems import FOR_CHANGES, FOR_ONE, Problem, unknown
from holdfast.web.service import Reads, RequestContext, Writes, respond

router = APIRouter(prefix="/batches", tags=["batches"], route_class=BodyRoute)


@router.post("", status_code=201, response_model=shapes.MadeBatch, responses=FOR_CHANGES)
async def create(new: shapes.NewBatch, ctx: Writes) -> Response:
    """Create a batch and its jobs, all or none."""

    async def act(conn: Any) -> Response:
        if conn is None:
            async with ctx.service.transaction(ctx.caller) as own:
                return await _make(new, ctx, own)
        return await _make(new, ctx, conn)

    return await ctx.once(act)


async def _make(new: shapes.NewBatch, ctx: RequestContext, conn: Any) -> Response:
    on_done: Enqueuer[Any, Any] | None = None
    if new.on_done is not None:
        task = jobs.find_task(ctx, new.on_done)
        on_done = task.using(priority=ctx.priority(None, task.priority))
    tenant = ctx.tenant(new.tenant)
    for each in new.jobs:
        if each.tenant not in (None, tenant):
            raise Problem(422, f"the jobs of a batch have its tenant; leave out their tenant, got {each.tenant!r}")
    batch = ctx.hf.batch(new.name, tenant=tenant, on_done=on_done, conn=conn)
    await batch.__aenter__()
    ids = await jobs.enqueue_all(ctx, new.jobs, conn, batch)
    if not new.open:
        await batch.__aexit__(None, None, None)
    return respond(shapes.MadeBatch(batch.id, ids), 201)


@router.get("", response_model=shapes.Batches)
async def list_batches(ctx: Reads, cursor: shapes.Cursor = None, limit: shapes.Limit = 50) -> Response:
    """List batches with their counters, newest first."""
    page = Page(limit=limit, before=await ctx.before(cursor))
    found = (await ctx.run(ctx.hf.database.calls.batches.list(page, ctx.caller.view))).rows
    end = found[-1].id if len(found) == limit else None
    return respond(shapes.Batches(found, await ctx.service.seal(ctx.caller, end)))


@router.get("/{batch_id}", response_model=BatchInfo, responses=FOR_ONE)
async def get(batch_id: UUID, ctx: Reads) -> Response:
    """Return a batch with its counters."""
    return respond(await _look(ctx, batch_id))


@router.post("/{batch_id}/close", response_model=BatchInfo, responses=FOR_CHANGES)
async def close(batch_id: UUID, ctx: Writes) -> Response:
    """Close an open batch, which then ends with its last job. Repeating it changes nothing."""

    async def act(conn: Any) -> Response:
        await _look(ctx, batch_id, conn)
        await ctx.run(ctx.hf.database.calls.batches.close(str(batch_id)), conn)
        return respond(await _look(ctx, batch_id, conn))

    return await ctx.once(act)


@router.post("/{batch_id}/cancel", response_model=shapes.Done, responses=FOR_CHANGES)
async def cancel(batch_id: UUID, ctx: Writes) -> Response:
    """Cancel waiting jobs and ask running ones to stop, in small committed steps. Repeating it changes nothing."""
    await _look(ctx, batch_id)
    return respond(shapes.Done(await ctx.hf.batches.acancel(str(batch_id))))


async def _look(ctx: RequestContext, batch_id: UUID, conn: Any = None) -> BatchInfo:
    found = await ctx.run(ctx.hf.database.calls.batches.get(str(batch_id), ctx.caller.view), conn)
    if found is None:
        raise unknown("batch", batch_id)
    return found
