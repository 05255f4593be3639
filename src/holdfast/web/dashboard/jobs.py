"""Jobs: a list by filter, and each job with the reason why it waits, its life, its values, and what to do about it."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from markupsafe import Markup
from msgspec import Meta

from holdfast.client.jobs import raw_args
from holdfast.model.job import JobRow, PublicJob
from holdfast.model.limit import LimitInfo
from holdfast.model.why import Why, remedies
from holdfast.web.dashboard import snippets
from holdfast.web.dashboard.form import ReasonForm
from holdfast.web.dashboard.links import linked
from holdfast.web.dashboard.pauses import Resume
from holdfast.web.dashboard.render import when
from holdfast.web.dashboard.search import FILTERS, Search, parse_args
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.steps import graph, tree
from holdfast.web.dashboard.timeline import timeline
from holdfast.web.dashboard.visit import Visit
from holdfast.web.jobs import editable, matching, set_args
from holdfast.web.problems import Problem
from holdfast.web.routing import OPERATES, READS, WRITES
from holdfast.web.waiting import look

section = Section("Jobs", "/jobs", key="j", needs=READS)
STATUSES = ("queued", "running", "retrying", "waiting", "succeeded", "failed", "dead", "canceled")
WAITING = ("queued", "retrying")
PARKED = "waiting"
MOST_READS = 4  # of a job that changes while its page is read
AGO = re.compile(r"\d[\d.]* (ms|s|min|h|d) ago")  # as in_words() in SQL says it; before what a job contains
LONGEST_EDITED = 100_000  # bytes of arguments that a form may hold
DEAD = ("failed", "dead")
REASONS = {
    "queued": "It waits for its turn.",
    "retrying": "It failed, and is tried again.",
    "waiting": "It sleeps, or waits for a signal or for other jobs.",
    "running": "A worker runs it.",
    "succeeded": "It succeeded.",
    "failed": "It failed, and is not tried again.",
    "dead": "It failed, and its attempts are used up.",
    "canceled": "It was canceled.",
}
DID = {
    "cancel": {"canceled": "Canceled.", "canceling": "Asked it to stop.", "finished": "It had ended already."},
    "retry": {"changed": "Retried."},
    "discard": {"changed": "Discarded."},
    "reschedule": {"changed": "Starts as soon as a slot and its limits allow."},
}


class EditForm(ReasonForm, kw_only=True):
    """The arguments of a job, as a JSON object."""

    args: Annotated[str, Meta(min_length=2)]


@section.page("/jobs", "jobs.html", READS)
async def show(visit: Visit, query: Search) -> Values:
    """List the jobs that match, newest first."""
    rows, following = await matching(visit, JobRow, query, parse_args(query.args))
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
    job, values = await read_job(visit, job_id)
    id_, details, relatives = job.id, values["details"], values["relatives"]
    error = job.error if details is None or details.error is None else msgspec.Raw(details.error.encode())
    base = str(visit.request.base_url).rstrip("/")
    return values | {
        "title": f"{job.task} {id_[-8:]}",
        "job": job,
        "job_id": id_,
        "follows": "job" if job.ended else "job figures",  # of all parts: they are fetched together
        "failure": failure(error),
        "progress": progress(job.progress),
        "tree": tree(relatives),
        "graph": graph(id_, relatives),
        "timeline": timeline(job, values["attempts"], None if details is None else details.worker),
        "snippets": snippets.of(job, None if details is None else details.keys, visit.calls.schema, base),
        "can_cancel": job.status in (*WAITING, PARKED, "running"),
        "can_retry": job.status in DEAD and not job.discarded,
        "can_start": job.status in WAITING and job.run_at > datetime.now(UTC),
        "can_edit": visit.may(OPERATES) and is_editable(job),
        "has_form": visit.may(OPERATES) and is_short(job) and (is_editable(job) or job.status in (PARKED, "running")),
    }


async def read_job(visit: Visit, job_id: UUID) -> tuple[PublicJob, Values]:
    """Return a job and what other queries say about it. A job that changes between them is read again."""
    job = await look(visit, job_id)
    for _ in range(MOST_READS):
        values = await describe(visit, job)
        before, job = job, await look(visit, job_id)
        if phase(job) == phase(before):
            break
    return job, values


def phase(job: PublicJob) -> tuple[object, ...]:
    """Return what changes when a job starts, ends, parks or is put off, but not with its progress."""
    return job.status, job.attempts, job.run_at, job.started_at, job.finished_at, job.discarded, job.waits_for


async def describe(visit: Visit, job: PublicJob) -> Values:
    """Return the attempts, steps and relatives of a job, and as far as the viewer may see it, why it is where it is."""
    id_, steps = job.id, visit.calls.steps
    nothing: Values = {name: [] for name in ("keys", "limits", "commands", "reasons", "notes", "logs")}
    values: Values = {"details": None, "sentence": REASONS[job.status], **nothing}
    values["attempts"] = await visit.run(visit.calls.errors.of_job(id_))
    values["steps"] = await visit.run(steps.list(id_, visit.view))
    values["relatives"] = await visit.run(steps.relatives(id_, visit.view))
    return values | (await explain(visit, id_) if visit.caller.everyone else {})


def is_editable(job: PublicJob) -> bool:
    """Return whether the arguments of a job can be changed, and are short enough for a form."""
    return is_short(job) and (job.status in WAITING or (job.status in DEAD and not job.discarded))


def is_short(job: PublicJob) -> bool:
    """Return whether the arguments of a job fit into a form."""
    return not isinstance(job.args, msgspec.Raw) or len(bytes(job.args)) <= LONGEST_EDITED


async def explain(visit: Visit, id_: str) -> Values:
    """Return why a job is where it is, for viewers of all tenants, and what operators see of it."""
    if not visit.may(OPERATES):
        return sentences(visit, await visit.run(visit.calls.jobs.why(id_)))
    calls = visit.calls
    why, details, logs = await asyncio.gather(
        visit.run(calls.jobs.why(id_)), visit.run(calls.jobs.details(id_)), visit.run(calls.errors.log(id_))
    )
    keys = [] if details is None else list(details.keys)
    keys += [each.facts["key"] for each in why.reasons if each.kind == "paused" and each.facts["key"] not in keys]
    found = await asyncio.gather(*(visit.run(calls.limits.list(key, limit=1)) for key in keys))
    limits: list[LimitInfo] = [each for some in found for each in some if each.key in keys]
    return sentences(visit, why) | {"details": details, "keys": keys, "limits": limits, "logs": logs}


def sentences(visit: Visit, why: Why) -> Values:
    """Return why a job is where it is, with links, and for viewers who may change something, the commands for that."""
    may_change = visit.may(OPERATES) or visit.may(WRITES)
    commands = [remedies(each, why.id) if may_change else [] for each in why.reasons]
    return {
        "sentence": moving(linked(visit, why.sentence or "", why.reasons, 1000), why),
        "commands": next(iter(commands), []),
        "reasons": [(linked(visit, each.text, [each]), commands[n]) for n, each in enumerate(why.reasons) if n],
        "notes": why.notes,
    }


def moving(sentence: Markup, why: Why) -> Markup:
    """Return the sentence of an ended job with how long ago that was as `<time>`, which the page keeps up to date."""
    ended_at = next((each.facts.get("finished_at") for each in why.reasons), None)
    return sentence if ended_at is None else Markup(AGO.sub(lambda _: when(ended_at), sentence, count=1))  # noqa: S704


def failure(error: Any) -> dict[str, Any] | None:
    """Return the parts of the last error that a page shows."""
    if error is None:
        return None
    try:
        found = msgspec.json.decode(error) if isinstance(error, msgspec.Raw) else error
    except (msgspec.DecodeError, RecursionError):
        found = {"message": bytes(error).decode("utf-8", "replace")}
    return {name: found.get(name) for name in ("type", "message", "code", "traceback", "output")}


def progress(reported: Any) -> dict[str, Any] | None:
    """Return the progress that a handler reported, in words and numbers."""
    given = msgspec.json.decode(reported) if isinstance(reported, msgspec.Raw) else reported
    if not given:
        return None
    done, total, message = given.get("done"), given.get("total"), given.get("message")
    counted = f"{done:,} of {total:,}" if total else f"{done:,}"
    words = f"{counted}: {message}" if message else counted
    return {"done": done, "total": total, "words": words, "at": given.get("updated_at")}


@section.action("/jobs/{job_id}/cancel", WRITES)
async def cancel(visit: Visit, job_id: UUID, form: ReasonForm) -> Done:
    """Cancel a job: at once if it waits, by asking it to stop if it runs."""
    return await act(visit, "cancel", job_id, form)


@section.action("/jobs/{job_id}/retry", WRITES)
async def retry(visit: Visit, job_id: UUID, form: ReasonForm) -> Done:
    """Retry a failed or dead job."""
    return await act(visit, "retry", job_id, form)


@section.action("/jobs/{job_id}/discard", WRITES)
async def discard(visit: Visit, job_id: UUID, form: ReasonForm) -> Done:
    """Discard a failed or dead job."""
    return await act(visit, "discard", job_id, form)


@section.action("/jobs/{job_id}/start", WRITES)
async def start(visit: Visit, job_id: UUID, form: ReasonForm) -> Done:
    """Let a delayed job or one that is retried later start now."""
    return await act(visit, "reschedule", job_id, form, run_at=datetime.now(UTC))


@section.action("/jobs/{job_id}/resume", OPERATES)
async def resume(visit: Visit, job_id: UUID, form: Resume) -> Done:
    """Resume a key that holds the job up."""
    was = await visit.run(visit.calls.limits.resume(form.name, visit.caller.name))
    visit.forget()
    return Done(f"/jobs/{job_id}", f"Resumed {form.name}." if was else f"{form.name} was not paused.")


async def act(visit: Visit, kind: str, job_id: UUID, form: ReasonForm, **params: Any) -> Done:
    """Change one job and record who did it."""
    await look(visit, job_id)
    id_ = str(job_id)
    outcomes = await visit.run(
        visit.calls.actions.act(kind, [id_], visit.caller.name, form.reason, visit.view, **params)
    )
    outcome = outcomes.get(id_, "unknown")
    return Done(f"/jobs/{id_}", DID[kind].get(outcome, f"Not changed: {outcome}."))


@section.action("/jobs/{job_id}/edit", OPERATES)
async def edit(visit: Visit, job_id: UUID, form: EditForm) -> Done:
    """Give a job the arguments of the form, which shows all of them; a dead job is retried."""
    found = await editable(visit, job_id)
    outcome = await set_args(visit, found, typed_args(form.args), form.reason)
    return Done(f"/jobs/{job_id}", "Edited and retried." if outcome == "retried" else "Edited.")


def typed_args(text: str) -> dict[str, Any]:
    """Return arguments as typed, by name, or raise a 422."""
    try:
        found = msgspec.json.decode(text)  # checks what raw_args does not: texts, and how deep it is
    except (msgspec.DecodeError, RecursionError) as error:
        raise Problem(422, f"form.args: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Problem(422, "form.args: expected a JSON object")
    return dict(raw_args(text))
