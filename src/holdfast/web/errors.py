"""/v1/errors: failures in groups; and the failed attempts and the logs of one job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta

from holdfast.model.action import ActionInfo
from holdfast.model.failure import AttemptLog, ErrorGroup, FailedAttempt
from holdfast.web import jobs
from holdfast.web.actions import begin
from holdfast.web.context import RequestContext
from holdfast.web.fields import Name, PageSize, Query, ReasonBody
from holdfast.web.problems import Problem
from holdfast.web.routing import READS, WRITES, Routes
from holdfast.web.waiting import look

routes = Routes("/errors", "errors")
INTERNAL = ("traceback", "output")  # parts of an example that only operators see
Fingerprint = Annotated[str, Meta(min_length=1, max_length=100, pattern="^[^/\\x00]+$")]


class ListErrors(Query):
    task: Name | None = None
    limit: PageSize = 50
    """Maximum number of items."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Groups of failures. A tenant's are those of its newest 10,000 dead jobs; others lack the last seconds."""

    items: list[ErrorGroup]


@dataclass(frozen=True, slots=True)
class Failures:
    """The last 20 failed attempts of a job, the oldest first."""

    items: list[FailedAttempt]


@dataclass(frozen=True, slots=True)
class Logs:
    """What the handlers of a job's last five attempts wrote, the oldest first."""

    items: list[AttemptLog]


@routes.get("", READS)
async def list_errors(ctx: RequestContext, query: ListErrors) -> Errors:
    """List the groups with the latest failures. A tenant sees groups of its dead jobs: attempts that were retried are
    not counted."""
    found = await ctx.run(ctx.calls.errors.list(task=query.task, limit=query.limit, view=ctx.view))
    return Errors([_public(ctx, each) for each in found])


@routes.get("/{fingerprint}", READS)
async def get(ctx: RequestContext, fingerprint: Fingerprint) -> ErrorGroup:
    """Return a group with an example and the failures of each of the last 48 hours."""
    found = await ctx.run(ctx.calls.errors.get(fingerprint, ctx.view))
    if found is None:
        raise Problem(404, f"there is no error group {fingerprint!r}; groups without a dead job go with the history")
    return _public(ctx, found)


@jobs.routes.get("/{job_id}/failures", READS)
async def failures(ctx: RequestContext, job_id: UUID) -> Failures:
    """List the last 20 failed attempts of a job, the oldest first. Only operators see the worker and the frame."""
    await look(ctx, job_id)
    found = await ctx.run(ctx.calls.errors.of_job(str(job_id)))
    return Failures(found if _operates(ctx) else [replace(each, worker=None, frame=None) for each in found])


@jobs.routes.get("/{job_id}/log", READS)
async def log(ctx: RequestContext, job_id: UUID) -> Logs:
    """List what the handlers of a job's last five attempts wrote with ctx.log, the oldest first."""
    await look(ctx, job_id)
    return Logs(await ctx.run(ctx.calls.errors.log(str(job_id))))


@routes.post("/{fingerprint}/retry", WRITES, status=201, optional_body=True)
async def retry(ctx: RequestContext, fingerprint: Fingerprint, why: ReasonBody) -> ActionInfo:
    """Start an action that retries the dead jobs of a group."""
    group = await get(ctx, fingerprint)
    return await begin(ctx, "retry", {"error_group": group.fingerprint}, None, {}, why.reason)


@routes.post("/{fingerprint}/discard", WRITES, status=201, optional_body=True)
async def discard(ctx: RequestContext, fingerprint: Fingerprint, why: ReasonBody) -> ActionInfo:
    """Start an action that discards the dead jobs of a group."""
    group = await get(ctx, fingerprint)
    return await begin(ctx, "discard", {"error_group": group.fingerprint}, None, {}, why.reason)


def _public(ctx: RequestContext, group: ErrorGroup) -> ErrorGroup:
    if group.example is None or _operates(ctx):
        return group
    example: dict[str, Any] = {name: value for name, value in group.example.items() if name not in INTERNAL}
    return replace(group, example=example)


def _operates(ctx: RequestContext) -> bool:
    return ctx.caller.everyone and ctx.caller.may("operate")
