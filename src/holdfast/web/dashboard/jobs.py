"""Jobs: a list by filter, and each job with the reason why it waits, its life, its values, and what to do about it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast.errors import UsageError
from holdfast.model.job import JobDetails, JobRow, PublicJob
from holdfast.model.limit import LimitInfo
from holdfast.store.jobs import Filter
from holdfast.store.select import Page
from holdfast.web.dashboard import snippets
from holdfast.web.dashboard.form import Form
from holdfast.web.dashboard.search import FILTERS, parse_args
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.timeline import timeline
from holdfast.web.dashboard.visit import Visit
from holdfast.web.fields import LongText, Moment, Name, Paged, Since, text
from holdfast.web.jobs import Status
from holdfast.web.problems import Problem, unknown
from holdfast.web.routing import OPERATES, READS, WRITES

section = Section("Jobs", "/jobs", key="j", needs=READS)
STATUSES = ("queued", "running", "retrying", "succeeded", "failed", "dead", "canceled")
WAITING = ("queued", "retrying")
DEAD = ("failed", "dead")
REASONS = {
    "queued": "It waits for its turn.",
    "retrying": "It failed, and is tried again.",
    "running": "A worker runs it.",
    "succeeded": "It succeeded.",
    "failed": "It failed, and is not tried again.",
    "dead": "It failed, and its attempts are used up.",
    "canceled": "It was canceled.",
}
DID = {
    "cancel": {"canceled": "Canceled.", "canceling": "Asked it to stop.", "finished": "It had ended already."},
    "retry": {"changed": "Put back into the queue."},
    "discard": {"changed": "Discarded."},
}


class ListJobs(Paged):
    status: Status | None = None
    task: Name | None = None
    queue: Name | None = None
    tenant: Name | None = None
    batch: UUID | None = None
    error: Name | None = None
    args: LongText | None = None
    """Arguments that the job must have: `to=ada`, or a JSON object."""
    since: Since | None = None
    until: Moment | None = None


class Reason(Form):
    reason: LongText | None = None


class Edited(Reason, kw_only=True):
    """The arguments of a job, as a JSON object."""

    args: Annotated[str, Meta(min_length=2)]


@section.page("/jobs", "jobs.html", READS)
async def show(visit: Visit, query: ListJobs) -> Values:
    """List the jobs that match, newest first."""
    page = Page(limit=query.limit, before=await visit.before(query.cursor))
    names = ("status", "task", "queue", "tenant", "error", "since", "until")
    where = Filter(**{name: getattr(query, name) for name in names}, batch=text(query.batch))
    args, calls = parse_args(query.args), visit.calls.jobs
    rows, following = await visit.service.page(
        visit.caller, lambda part: calls.list(JobRow, where, part, visit.view, args=args), page
    )
    given = dict(visit.given())
    kept = {name: given.get(name) for name in FILTERS}
    older = visit.url("/jobs", **kept, limit=given.get("limit"), cursor=following) if following else None
    return {
        "title": "Jobs",
        "jobs": rows,
        "older": older,
        "given": kept,
        "statuses": STATUSES,
        "first": not query.cursor,
    }


@section.page("/jobs/{job_id}", "job.html", READS)
async def show_job(visit: Visit, job_id: UUID) -> Values:
    """Show one job."""
    job, id_, errors = await find(visit, job_id), str(job_id), visit.calls.errors
    attempts = await visit.run(errors.of_job(id_))
    values: Values = {"details": None, "limits": [], "reasons": [], "notes": [], "logs": [], "error": job.error}
    values["sentence"] = REASONS[job.status]
    if visit.caller.everyone:
        values |= await inside(visit, id_)
    details: JobDetails | None = values["details"]
    if details is not None and details.error is not None:
        values["error"] = msgspec.Raw(details.error.encode())
    values["failure"] = failure(values["error"])
    return values | {
        "title": f"{job.task} {id_[-8:]}",
        "job": job,
        "job_id": id_,
        "attempts": attempts,
        "timeline": timeline(job, attempts, None if details is None else details.worker),
        "snippets": snippets.of(job, visit.calls.schema, str(visit.request.base_url).rstrip("/")),
        "can_cancel": job.status in (*WAITING, "running"),
        "can_retry": job.status in DEAD and not job.discarded,
        "can_edit": visit.may(OPERATES) and (job.status in WAITING or (job.status in DEAD and not job.discarded)),
    }


async def inside(visit: Visit, id_: str) -> Values:
    """Return what operators see of a job."""
    calls = visit.calls
    why, details, logs = await asyncio.gather(
        visit.run(calls.jobs.why(id_)), visit.run(calls.jobs.details(id_)), visit.run(calls.errors.log(id_))
    )
    keys = [] if details is None else details.keys
    found = await asyncio.gather(*(visit.run(calls.limits.list(key, limit=1)) for key in keys))
    limits: list[LimitInfo] = [each for some in found for each in some if each.key in keys]
    return {
        "details": details, "limits": limits, "logs": logs,
        "sentence": why.sentence or "", "reasons": why.reasons[1:], "notes": why.notes,
    }  # fmt: skip


def failure(error: Any) -> dict[str, Any] | None:
    """Return the parts of the last error that a page shows."""
    if error is None:
        return None
    try:
        found = msgspec.json.decode(error) if isinstance(error, msgspec.Raw) else error
    except (msgspec.DecodeError, RecursionError):
        found = {"message": bytes(error).decode("utf-8", "replace")}
    return {name: found.get(name) for name in ("type", "message", "code", "traceback", "output")}


async def find(visit: Visit, job_id: UUID) -> PublicJob:
    """Return a job that the viewer may see, or raise a 404."""
    found = await visit.service.look(visit.caller, str(job_id))
    if found is None:
        raise unknown("job", job_id)
    return found


@section.action("/jobs/{job_id}/cancel", WRITES)
async def cancel(visit: Visit, job_id: UUID, form: Reason) -> Done:
    """Cancel a job: at once if it waits, by asking it to stop if it runs."""
    return await act(visit, "cancel", job_id, form)


@section.action("/jobs/{job_id}/retry", WRITES)
async def retry(visit: Visit, job_id: UUID, form: Reason) -> Done:
    """Put a failed or dead job back into the queue."""
    return await act(visit, "retry", job_id, form)


@section.action("/jobs/{job_id}/discard", WRITES)
async def discard(visit: Visit, job_id: UUID, form: Reason) -> Done:
    """Discard a failed or dead job."""
    return await act(visit, "discard", job_id, form)


async def act(visit: Visit, kind: str, job_id: UUID, form: Reason) -> Done:
    """Change one job and record who did it."""
    await find(visit, job_id)
    id_ = str(job_id)
    outcomes = await visit.run(visit.calls.actions.act(kind, [id_], visit.caller.name, form.reason, visit.view))
    outcome = outcomes.get(id_, "unknown")
    return Done(f"/jobs/{id_}", DID[kind].get(outcome, f"It was left as it is: {outcome}."))


@section.action("/jobs/{job_id}/edit", OPERATES)
async def edit(visit: Visit, job_id: UUID, form: Edited) -> Done:
    """Give a job other arguments; a dead one is put back into the queue."""
    try:
        args = msgspec.json.decode(form.args)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Problem(422, f"form.args: not JSON: {error}") from None
    if not isinstance(args, dict):
        raise UsageError("form.args: expected a JSON object")
    outcome = await visit.hf.jobs.aedit(str(job_id), args, by=visit.caller.name, reason=form.reason)
    return Done(f"/jobs/{job_id}", "Edited, and put back into the queue." if outcome == "retried" else "Edited.")
