"""/v1/dead: failed and dead jobs, which stay until a person acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.client.actions import change_dead
from holdfast.model.job import PublicJob
from holdfast.store.select import DEAD_ONLY, Page
from holdfast.web.context import RequestContext
from holdfast.web.fields import Body, DeadStatus, Ids, Reason
from holdfast.web.jobs import Jobs, PlacedJobs, job_filter
from holdfast.web.routing import READS, WRITES, Routes

routes = Routes("/dead", "dead")


class ListDead(PlacedJobs):
    status: DeadStatus | None = None


class WhichDead(Body):
    """Failed and dead jobs. For all that match a filter, start an action."""

    ids: Ids
    reason: Reason | None = None
    """With a reason, the change is kept in the log of actions."""


@dataclass(frozen=True, slots=True)
class DeadLetterChange:
    """The jobs that were retried or discarded, and those left unchanged."""

    ids: list[str]
    left: list[str]


@routes.get("", READS)
async def list_dead(ctx: RequestContext, query: ListDead) -> Jobs:
    """List the failed and dead jobs that match, newest first."""
    page = Page(limit=query.limit, before=await ctx.before(query.cursor))
    where, calls = job_filter(query), ctx.calls.dead
    found = await ctx.service.page(
        ctx.caller, lambda part: calls.list(PublicJob, where, part, ctx.view), page, area=DEAD_ONLY
    )
    return Jobs(*found)


@routes.post("/retry", WRITES)
async def retry(ctx: RequestContext, which: WhichDead) -> DeadLetterChange:
    """Retry failed and dead jobs, with fresh attempts."""
    return await _move(ctx, "retry", which)


@routes.post("/discard", WRITES)
async def discard(ctx: RequestContext, which: WhichDead) -> DeadLetterChange:
    """Move failed and dead jobs to the history."""
    return await _move(ctx, "discard", which)


async def _move(ctx: RequestContext, kind: Literal["retry", "discard"], which: WhichDead) -> DeadLetterChange:
    ids = list(dict.fromkeys(map(str, which.ids)))
    by = None if which.reason is None else ctx.caller.name
    moved = await ctx.run_steps(change_dead(ctx.calls, kind, ids, by, which.reason, view=ctx.view))
    return DeadLetterChange(moved, sorted(set(ids) - set(moved)))
