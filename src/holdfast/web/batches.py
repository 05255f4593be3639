"""/v1/batches: jobs that are counted together."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter
from starlette.responses import Response

from holdfast.client.task import Enqueuer
from holdfast.model.job import BatchInfo
from holdfast.store.seen import Page
from holdfast.web import jobs, shapes
from holdfast.web.body import BodyRoute
from holdfast.web.problems import FOR_CHANGES, FOR_ONE, Problem, unknown
from holdfast.web.service import Asked, Reads, Writes, answer

router = APIRouter(prefix="/batches", tags=["batches"], route_class=BodyRoute)


@router.post("", status_code=201, response_model=shapes.MadeBatch, responses=FOR_CHANGES)
async def create(new: shapes.NewBatch, asked: Writes) -> Response:
    """Makes a batch and its jobs, all or none."""

    async def act(conn: Any) -> Response:
        if conn is None:
            async with asked.service.transaction(asked.caller) as own:
                return await _make(new, asked, own)
        return await _make(new, asked, conn)

    return await asked.once(act)


async def _make(new: shapes.NewBatch, asked: Asked, conn: Any) -> Response:
    told: Enqueuer[Any, Any] | None = None
    if new.on_done is not None:
        task = jobs.find_task(asked, new.on_done)
        told = task.using(priority=asked.priority(None, task.priority))
    tenant = asked.tenant(new.tenant)
    for each in new.jobs:
        if each.tenant not in (None, tenant):
            raise Problem(422, f"a batch's jobs are its tenant's; leave out their tenant, got {each.tenant!r}")
    batch = asked.hf.batch(new.name, tenant=tenant, on_done=told, conn=conn)
    await batch.__aenter__()
    ids = await jobs.enqueue_all(asked, new.jobs, conn, batch)
    if not new.open:
        await batch.__aexit__(None, None, None)
    return answer(shapes.MadeBatch(batch.id, ids), 201)


@router.get("", response_model=shapes.Batches)
async def list_batches(asked: Reads, cursor: shapes.Cursor = None, limit: shapes.Limit = 50) -> Response:
    """The newest batches with their counters."""
    page = Page(limit=limit, before=await asked.before(cursor))
    found = await asked.run(asked.service.seen.list_batches(asked.caller, page))
    end = found[-1].id if len(found) == limit else None
    return answer(shapes.Batches(found, await asked.service.seal(asked.caller, end)))


@router.get("/{batch_id}", response_model=BatchInfo, responses=FOR_ONE)
async def get(batch_id: UUID, asked: Reads) -> Response:
    """A batch with its counters."""
    return answer(await _look(asked, batch_id))


@router.post("/{batch_id}/close", response_model=BatchInfo, responses=FOR_CHANGES)
async def close(batch_id: UUID, asked: Writes) -> Response:
    """Lets an open batch end when its jobs have; repeating it changes nothing."""

    async def act(conn: Any) -> Response:
        await _look(asked, batch_id, conn)
        await asked.run(asked.hf.calls.close_batch(str(batch_id)), conn)
        return answer(await _look(asked, batch_id, conn))

    return await asked.once(act)


@router.post("/{batch_id}/cancel", response_model=shapes.Done, responses=FOR_CHANGES)
async def cancel(batch_id: UUID, asked: Writes) -> Response:
    """Cancels what waits and asks what runs to stop, in small committed steps; repeating it changes nothing."""
    await _look(asked, batch_id)
    return answer(shapes.Done(await asked.hf.acancel_batch(str(batch_id))))


async def _look(asked: Asked, batch_id: UUID, conn: Any = None) -> BatchInfo:
    found = await asked.run(asked.service.seen.batch(asked.caller, str(batch_id)), conn)
    if found is None:
        raise unknown("batch", batch_id)
    return found
