"""What operators did: who, when, why, with the values before and after; bulk actions with their progress."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from holdfast.web.actions import get
from holdfast.web.dashboard import paging
from holdfast.web.dashboard.form import ReasonForm
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.fields import Key, Name, Paged
from holdfast.web.problems import Problem
from holdfast.web.routing import READS, WRITES, Needs

READS_LOG = Needs("jobs:read", of_all="operate")
section = Section("Audit", "/audit", key="a", needs=READS_LOG)
FRESH = 2.0  # seconds for which viewers share what runs
MOST_RUNNING = 50
STATES = ("running", "done", "aborted", "failed")


class ListActions(Paged):
    kind: Name | None = None
    target: Key | None = None
    by: Name | None = None
    state: Literal["running", "done", "aborted", "failed"] | None = None


@section.page("/audit", "audit.html", READS_LOG)
async def show(visit: Visit, query: ListActions) -> Values:
    """List what was done, newest first, below the actions that run."""
    calls, before = visit.calls.actions, await visit.before(query.cursor)
    given: Any = {name: getattr(query, name) for name in ("kind", "target", "by", "state")}
    found = await visit.run(calls.select(**given, before=before, limit=query.limit, view=visit.view))
    running = calls.select(on_jobs=True, state="running", limit=MOST_RUNNING, view=visit.view)
    return {
        "title": "Audit",
        "entries": [(each, each.changes) for each in found],
        "running": await visit.shared(running, FRESH),
        "given": paging.filters(visit, *given),
        "states": STATES,
        "newest": paging.newest(visit),
        "older": await paging.older(visit, found[-1].id if len(found) == query.limit else None),
    }


@section.page("/audit/{action_id}", "action.html", READS)
async def show_action(visit: Visit, action_id: UUID) -> Values:
    """Show one entry: an action on jobs with its progress, or a change with its values."""
    found = await get(visit, action_id)
    return {"title": f"{found.kind} {found.id[-8:]}", "action": found, "changes": found.changes}


@section.action("/audit/{action_id}/abort", WRITES)
async def abort(visit: Visit, action_id: UUID, form: ReasonForm) -> Done:
    """Stop an action; what it has changed stays changed."""
    found = await get(visit, action_id)
    stopped = await visit.run(visit.calls.actions.abort(found.id, visit.caller.name, form.reason, visit.view))
    if not stopped:
        raise Problem(409, f"action {found.id} does not run; it is {found.state}")
    visit.forget()
    return Done(f"/audit/{found.id}", "Aborted: what it has changed stays changed.")
