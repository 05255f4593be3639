"""A change of many jobs: its progress, and how it is aborted."""

from __future__ import annotations

from uuid import UUID

from holdfast.model.action import Kind, Where
from holdfast.model.job import ids
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.problems import unknown
from holdfast.web.routing import READS, WRITES

section = Section()


async def start(visit: Visit, kind: Kind, where: Where, reason: str | None) -> Done:
    """Start to change all jobs that match, and lead to the progress. A small change is done at once."""
    id_, calls = ids.make(), visit.calls.actions
    await visit.run(calls.start(id_, kind, where, None, {}, visit.caller.name, reason, visit.view))
    await visit.run(calls.work(id_))
    visit.forget()
    return Done(f"/actions/{id_}", "Started.")


@section.page("/actions/{action_id}", "progress.html", READS)
async def show(visit: Visit, action_id: UUID) -> Values:
    """Show how far an action is."""
    found = await visit.run(visit.calls.actions.get(str(action_id), visit.view))
    if found is None:
        raise unknown("action", action_id)
    return {"title": f"{found.kind.capitalize()} jobs", "action": found}


@section.action("/actions/{action_id}/abort", WRITES)
async def abort(visit: Visit, action_id: UUID) -> Done:
    """Stop an action. What it has changed stays changed."""
    stopped = await visit.run(visit.calls.actions.abort(str(action_id), visit.caller.name, None, visit.view))
    return Done(f"/actions/{action_id}", "Aborted." if stopped else "It had ended already.")
