"""Batches: how far each is, its failures and its callback; cancel."""

from __future__ import annotations

from uuid import UUID

from holdfast.store.select import Page
from holdfast.web.actions import begin
from holdfast.web.batches import get
from holdfast.web.dashboard import paging
from holdfast.web.dashboard.form import ReasonForm
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.fields import Paged
from holdfast.web.problems import Problem
from holdfast.web.routing import READS, WRITES

section = Section("Batches", "/batches", key="b", needs=READS)
FRESH = 2.0  # seconds for which viewers share a page of the list
STEPS = 4  # of a cancellation, of up to 1,000 jobs each; the action cancels the rest


@section.page("/batches", "batches.html", READS)
async def show(visit: Visit, query: Paged) -> Values:
    """List batches, newest first."""
    page = Page(limit=query.limit, before=await visit.before(query.cursor))
    rows = (await visit.shared(visit.calls.batches.list(page, visit.view), FRESH)).rows
    end = rows[-1].id if len(rows) == query.limit else None
    return {
        "title": "Batches",
        "batches": rows,
        "newest": paging.newest(visit),
        "older": await paging.older(visit, end),
    }


@section.page("/batches/{batch_id}", "batch.html", READS)
async def show_batch(visit: Visit, batch_id: UUID) -> Values:
    """Show one batch."""
    found = await get(visit, batch_id)
    return {"title": f"Batch {found.name[:60]}", "batch": found}


@section.action("/batches/{batch_id}/cancel", WRITES)
async def cancel(visit: Visit, batch_id: UUID, form: ReasonForm) -> Done:
    """Close a batch, and cancel its jobs by an action, which is recorded and continues without the browser."""
    found = await get(visit, batch_id)
    if found.ended:
        raise Problem(409, f"batch {found.id} ({found.name[:60]}) has ended: {found.status}")
    await begin(visit, "cancel", {"batch": found.id}, None, {}, form.reason)
    for _ in range(STEPS):  # the first closes it; the one that finds no job ends it
        if not await visit.run(visit.calls.batches.cancel(found.id)):
            break
    visit.forget()
    return Done(f"/batches/{found.id}", "Canceled: waiting jobs do not start, running ones are asked to stop.")
