"""/v1/batches: jobs that are counted together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast.client.task import Enqueuer
from holdfast.model.job import BatchInfo
from holdfast.store.select import Page
from holdfast.web.context import RequestContext
from holdfast.web.fields import MOST_JOBS, Body, Name, Paged, ReasonBody
from holdfast.web.jobs import Job, enqueue_all, find_task
from holdfast.web.problems import Problem
from holdfast.web.results import ChangeCount
from holdfast.web.routing import READS, WRITES, Routes

routes = Routes("/batches", "batches")


class NewBatch(Body):
    """A new batch of jobs. The task on_done gets the batch's id, if it takes an argument. An open batch accepts more
    jobs (`batch` of a job) until it is closed."""

    name: Name
    """For people."""
    tenant: Name | None = None
    jobs: Annotated[list[Job], Meta(max_length=MOST_JOBS)] = msgspec.field(default_factory=list)
    """Its first jobs."""
    on_done: Name | None = None
    """A task to enqueue when all jobs have ended."""
    open: bool = False
    """Accepts more jobs until it is closed; otherwise it ends with the jobs given here."""


@dataclass(frozen=True, slots=True)
class AcceptedBatch:
    """A new batch, and its jobs in the order given."""

    id: str
    jobs: list[str]


@dataclass(frozen=True, slots=True)
class Batches:
    """A page of batches; `next` is the cursor of the next page."""

    items: list[BatchInfo]
    next: str | None


@routes.post("", WRITES, status=201)
async def create(ctx: RequestContext, new: NewBatch) -> AcceptedBatch:
    """Create a batch and its jobs, all or none."""
    async with ctx.transaction() as conn:
        on_done: Enqueuer[Any, Any] | None = None
        if new.on_done is not None:
            task = find_task(ctx, new.on_done)
            on_done = task.using(priority=ctx.priority(None, task.priority))
        tenant = ctx.tenant(new.tenant)
        for each in new.jobs:
            if each.tenant not in (None, tenant):
                raise Problem(422, f"the jobs of a batch have its tenant; leave out their tenant, got {each.tenant!r}")
        batch = ctx.hf.batch(new.name, tenant=tenant, on_done=on_done, conn=conn)
        await batch.__aenter__()
        ids = await enqueue_all(ctx, new.jobs, batch)
        if not new.open:
            await batch.__aexit__(None, None, None)
        return AcceptedBatch(batch.id, ids)


@routes.get("", READS)
async def list_batches(ctx: RequestContext, query: Paged) -> Batches:
    """List batches with their counters, newest first."""
    page = Page(limit=query.limit, before=await ctx.before(query.cursor))
    found = (await ctx.run(ctx.calls.batches.list(page, ctx.view))).rows
    end = found[-1].id if len(found) == query.limit else None
    return Batches(found, await ctx.service.seal(ctx.caller, end))


@routes.get("/{batch_id}", READS)
async def get(ctx: RequestContext, batch_id: UUID) -> BatchInfo:
    """Return a batch with its counters."""
    return await ctx.found(ctx.calls.batches.get(str(batch_id), ctx.view), "batch", batch_id)


@routes.post("/{batch_id}/close", WRITES)
async def close(ctx: RequestContext, batch_id: UUID) -> BatchInfo:
    """Close an open batch, which then ends with its last job. Repeating it changes nothing."""
    await get(ctx, batch_id)
    await ctx.run(ctx.calls.batches.close(str(batch_id)))
    return await get(ctx, batch_id)


@routes.post("/{batch_id}/cancel", WRITES, keyed=False, optional_body=True)
async def cancel(ctx: RequestContext, batch_id: UUID, why: ReasonBody) -> ChangeCount:
    """Cancel waiting jobs and ask running ones to stop, in small committed steps. Repeating it changes nothing."""
    await get(ctx, batch_id)
    call, jobs = ctx.calls.batches.cancel(str(batch_id), by=ctx.caller.name, reason=why.reason, view=ctx.view), 0
    while some := await ctx.run(call):
        jobs += some
    return ChangeCount(jobs)
