"""Dead letters by error group: what broke, since when, how often, an example; retry or discard a group."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from msgspec import Meta

from holdfast.model.failure import ErrorGroup
from holdfast.model.job import JobRow
from holdfast.store.jobs import Filter
from holdfast.store.select import Page
from holdfast.web.dashboard import actions
from holdfast.web.dashboard.form import ReasonForm
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.errors import get as find_group
from holdfast.web.fields import Name, Paged, Query
from holdfast.web.routing import READS, WRITES

section = Section("Dead letters", "/dead", key="d", needs=READS)
MOST = 100  # groups on the page
HOURS = 24
Fingerprint = Annotated[str, Meta(pattern="^[0-9a-z]{1,32}$")]


class ListGroups(Query):
    task: Name | None = None


@section.page("/dead", "dead.html", READS)
async def show(visit: Visit, query: ListGroups) -> Values:
    """List the error groups, those with the latest failures first."""
    groups = await visit.shared(visit.calls.errors.list(task=query.task, limit=MOST, view=visit.view), 2.0)
    shown = {"groups": groups, "dead": sum(each.dead for each in groups), "most": MOST, "trends": trends(groups)}
    return {"title": "Dead letters", "task": query.task, **shown}


def trends(groups: list[ErrorGroup]) -> dict[str, list[float | None]]:
    """Return the failures of each of the last hours, by group."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    hours = [now - timedelta(hours=HOURS - 1 - place) for place in range(HOURS)]
    return {each.fingerprint: [each.trend.get(hour, 0) for hour in hours] for each in groups}


@section.page("/dead/{fingerprint}", "group.html", READS)
async def show_group(visit: Visit, fingerprint: Fingerprint, query: Paged) -> Values:
    """Show one group with an example and its dead jobs, newest first."""
    page = Page(limit=query.limit, before=await visit.before(query.cursor))
    where = Filter(error_group=fingerprint)
    group, part = await asyncio.gather(
        find_group(visit, fingerprint), visit.run(visit.calls.dead.list(JobRow, where, page, visit.view))
    )
    more = len(part.rows) == query.limit
    following = await visit.service.seal(visit.caller, part.rows[-1].id) if more else None
    older = visit.url(f"/dead/{fingerprint}", cursor=following) if following else None
    shown = {"group": group, "jobs": part.rows, "older": older, "trend": trends([group])[fingerprint]}
    return {"title": (group.type or "Error").rpartition(".")[2], **shown, "first": query.cursor is None}


@section.action("/dead/{fingerprint}/{kind}", WRITES)
async def act(visit: Visit, fingerprint: Fingerprint, kind: Literal["retry", "discard"], form: ReasonForm) -> Done:
    """Retry or discard the dead jobs of a group."""
    return await actions.start(visit, kind, {"error_group": fingerprint}, form.reason)
