"""/v1/jobs: create, read, list, wait for, cancel and retry jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from holdfast.client.jobs import edited_args, known_keys, raw_args
from holdfast.client.task import Dedupe, Enqueuer, Task
from holdfast.errors import UnknownTask, UsageError
from holdfast.model import payload
from holdfast.model.job import PublicJob
from holdfast.model.outbox import PREFIX
from holdfast.model.payload import Encoded
from holdfast.model.retry import LONGEST
from holdfast.model.step import Relatives, StepInfo
from holdfast.model.why import Why
from holdfast.store.jobs import Filter
from holdfast.store.select import Page
from holdfast.web.body import LARGE
from holdfast.web.context import RequestContext
from holdfast.web.fields import (
    MOST_JOBS,
    Body,
    Ids,
    LongText,
    Moment,
    Name,
    Paged,
    Priority,
    Query,
    Queue,
    ReasonBody,
    Seconds,
    Since,
    text,
)
from holdfast.web.problems import Problem, of, unknown
from holdfast.web.routing import EXPLAINS, READS, WRITES, Routes
from holdfast.web.service import Listed
from holdfast.web.waiting import ended, look, look_for_change, stream, tag

routes = Routes("/jobs", "jobs")
LONGEST_WAIT = 60.0
_args: Callable[[str], dict[str, Any]] = msgspec.json.Decoder(Annotated[dict[str, Any], Meta(min_length=1)]).decode
FEW = 100  # jobs of the first step of a search: their arguments may be large
OPTIONS = ("queue", "delay", "run_at", "max_attempts", "deadline")  # of a new job, passed on as they are
Status = Literal["queued", "running", "retrying", "waiting", "succeeded", "failed", "dead", "canceled"]
NO_APPLICATION = "this service was started without your application: holdfast serve MODULE:ATTRIBUTE"
_OBJECT = {"type": "object", "additionalProperties": True, "default": {}}


class NewDedupe(Body):
    """A key that one job of a task and tenant holds at a time."""

    key: LongText
    """Identifies the work."""
    scope: Literal["queued", "running", "success"] = "running"
    """How long the key is held: until the job starts, until it ends, or beyond its success."""
    keep: Seconds | None = None
    """With scope success: seconds to hold it; forever if left out."""
    on_conflict: Literal["existing", "replace", "raise"] = "existing"
    """existing returns the holder, replace gives a waiting holder the new arguments, raise is a 409."""

    def __post_init__(self) -> None:
        if self.keep is not None and self.scope != "success":
            raise ValueError(f"keep goes with scope 'success', not with {self.scope!r}")


class Job(Body):
    """A new job: a task's name and its arguments by name. Options that are left out come from the task."""

    task: Name
    """The task's registered name."""
    args: Annotated[msgspec.Raw, Meta(extra_json_schema=_OBJECT)] | msgspec.UnsetType = msgspec.UNSET
    """The arguments by name."""
    tenant: Name | None = None
    """Only with a token for all tenants; otherwise it is the token's tenant."""
    queue: Queue | None = None
    """Overrides the task's queue."""
    priority: Priority | None = None
    """0 critical, 1 high, 2 normal, 3 low."""
    delay: Seconds | None = None
    """Seconds from now before which it does not start."""
    run_at: Moment | None = None
    """Time with its zone, before which it does not start."""
    max_attempts: Annotated[int, Meta(ge=1, le=32_000)] | None = None
    """Maximum number of attempts."""
    deadline: Annotated[float, Meta(gt=0, le=LONGEST)] | None = None
    """Seconds after which it is canceled if no attempt has started."""
    dedupe: NewDedupe | LongText | None = None
    """A key, or a key with its options."""
    batch: UUID | None = None
    """An open batch to add it to."""

    def __post_init__(self) -> None:
        if not self.arguments.startswith(b"{"):
            raise ValueError("args: expected object")

    @property
    def arguments(self) -> bytes:
        """The encoded arguments, which the task's decoder decodes."""
        return b"{}" if self.args is msgspec.UNSET else bytes(self.args)


class ManyJobs(Body):
    """New jobs, created all or none."""

    jobs: Annotated[list[Job], Meta(min_length=1, max_length=MOST_JOBS)]


class JobIds(Body):
    """Ids of jobs."""

    ids: Ids


class PlacedJobs(Paged):
    """Conditions that lists of jobs share."""

    task: Name | None = None
    queue: Name | None = None
    tenant: Name | None = None
    batch: UUID | None = None
    error: Name | None = None
    """Type or code of the last error."""
    error_group: Name | None = None
    """Fingerprint of the last error."""


class WhichJobs(PlacedJobs):
    status: Status | None = None
    since: Since | None = None
    """Created since: a time with its zone, or 90m, 24h, 30d."""
    until: Moment | None = None
    """Created before: a time with its zone."""


class ListJobs(WhichJobs):
    args: Annotated[str, Meta(min_length=2, max_length=4000)] | None = None
    """Arguments that the job must have, as JSON: {"order": 42}."""


class Edit(ReasonBody, kw_only=True):
    """Arguments to change; the others stay."""

    args: Annotated[dict[str, Any], Meta(min_length=1)]


class Wait(Query):
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 0.0
    """Seconds to wait until it has ended."""


@dataclass(frozen=True, slots=True)
class AcceptedJob:
    """An accepted job. existing: it is an earlier job, which holds the dedupe key."""

    id: str
    existing: bool


@dataclass(frozen=True, slots=True)
class AcceptedJobs:
    """The accepted jobs, in the order given."""

    ids: list[str]


@dataclass(frozen=True, slots=True)
class Jobs:
    """A page of jobs; `next` is the cursor of the next page."""

    items: list[PublicJob]
    next: str | None


@dataclass(frozen=True, slots=True)
class CancelOutcome:
    """The outcome of a cancellation: canceled, canceling, finished or unknown."""

    id: str
    outcome: str


@dataclass(frozen=True, slots=True)
class CancelOutcomes:
    """The outcome for each job."""

    items: list[CancelOutcome]


@routes.post("", WRITES, status=201)
async def create(ctx: RequestContext, job: Job) -> AcceptedJob:
    """Create a job."""
    sender, data = await enqueuer(ctx, job)
    new = sender.checked_job(data)
    if new.may_join or ctx.conn is not None:  # it uses no connection of its own
        made = await sender.aenqueue_job(new)
    else:
        async with ctx.service.share_of(ctx.caller):
            made = await sender.aenqueue_job(new)
    return AcceptedJob(made.id, made.existing)


@routes.post("/many", WRITES, status=201)
async def create_many(ctx: RequestContext, many: ManyJobs) -> AcceptedJobs:
    """Create many jobs, all or none."""
    async with ctx.transaction():
        return AcceptedJobs(await enqueue_all(ctx, many.jobs))


async def enqueue_all(ctx: RequestContext, jobs: Sequence[Job], batch: Any = None) -> list[str]:
    """Enqueue jobs in a transaction, one call for each set of equal options. Return their ids in order."""
    kinds: dict[str, list[int]] = {}
    for place, job in enumerate(jobs):
        alone = place if job.dedupe is not None else ""
        options = [getattr(job, name) for name in job.__struct_fields__ if name != "args"]
        kinds.setdefault(f"{alone}{options!r}", []).append(place)
    ids: dict[int, str] = {}
    for places in kinds.values():
        with at_place(places[0]):
            sender, data = await enqueuer(ctx, jobs[places[0]], batch)
        these = [data]
        for place in places[1:]:
            with at_place(place):
                these.append(await _check(ctx, find_task(ctx, jobs[place].task), jobs[place]))
        if len(these) == 1:
            with at_place(places[0]):
                ids[places[0]] = (await sender.aenqueue_job(sender.checked_job(data))).id
        else:
            handles = await sender.aenqueue_many(these)
            ids |= zip(places, handles.ids, strict=True)
    return [ids[place] for place in range(len(jobs))]


@contextmanager
def at_place(place: int) -> Iterator[None]:
    """Prefix errors of the block with the job's place in the request."""
    try:
        yield
    except (UsageError, UnknownTask) as error:
        raise of(error).at(f"jobs.{place}") from error
    except Problem as problem:
        raise problem.at(f"jobs.{place}") from problem


async def enqueuer(ctx: RequestContext, job: Job, batch: Any = None) -> tuple[Enqueuer[Any, Any], Encoded]:
    """Check that the job may be made, and return its task with the request's options and the encoded arguments."""
    task = find_task(ctx, job.task)
    if job.batch is not None:
        if batch is not None:
            raise Problem(422, "jobs created with a batch belong to it; leave out their batch")
        into = await ctx.found(ctx.calls.batches.get(str(job.batch), ctx.view), "batch", job.batch)
        if into.ended:
            ended = f"batch {job.batch} ({into.name}) has ended and takes no more jobs"
            raise Problem(422, f'{ended}; make it with "open": true to add jobs later')
    data = await _check(ctx, task, job)
    options: dict[str, Any] = {name: getattr(job, name) for name in OPTIONS}
    options |= {"tenant": ctx.tenant(job.tenant), "priority": ctx.priority(job.priority, task.priority)}
    options["dedupe"] = _dedupe(job.dedupe)
    return task.using(**options, batch=batch or text(job.batch), conn=ctx.conn), data


def _dedupe(given: NewDedupe | str | None) -> Dedupe | None:
    new = NewDedupe(key=given) if isinstance(given, str) else given
    return None if new is None else Dedupe(new.scope, new.keep, new.on_conflict, new.key)


def find_task(ctx: RequestContext, name: str) -> Task[Any, Any]:
    """Return a task of the application. The tasks of deliveries and messages cannot be enqueued here."""
    if (found := ctx.hf.registry.tasks.get(name)) is None or not _is_own(name):
        if known := list(filter(_is_own, ctx.hf.registry.tasks)):
            raise UnknownTask(name, known)
        raise Problem(422, f"no task named {name!r}: {NO_APPLICATION}", "unknown-task")
    return found


def _is_own(name: str) -> bool:
    return not name.startswith((PREFIX, "holdfast."))


async def _check(ctx: RequestContext, task: Task[Any, Any], job: Job) -> Encoded:
    """Check arguments against the handler's signature, and encode them."""
    if len(data := job.arguments) >= LARGE:
        return await ctx.service.in_thread(ctx.caller, task.check_payload, data)
    return task.check_payload(data)


@routes.get("", READS)
async def list_jobs(ctx: RequestContext, query: ListJobs) -> Jobs:
    """List the jobs that match, newest first. A search by args reads the jobs, so a page may end early."""
    args = None if query.args is None else _wanted_args(ctx, query.args)
    return Jobs(*await matching(ctx, PublicJob, query, args))


async def matching(
    ctx: RequestContext, kind: type[Listed], query: PlacedJobs, args: Any
) -> tuple[list[Listed], str | None]:
    """Return a page of the jobs that match and have the arguments, and the cursor of the next page."""
    page = Page(limit=query.limit, before=await ctx.before(query.cursor))
    where, calls = job_filter(query), ctx.calls.jobs
    return await ctx.service.page(
        ctx.caller,
        lambda part: calls.list(kind, where, part, ctx.view, args=args),
        page,
        area=where.area,
        step=None if args is None else FEW,
    )


def _wanted_args(ctx: RequestContext, given: str) -> dict[str, Any]:
    """Return the arguments of a search."""
    payload.check_limits(given.encode(), "query.args", ctx.hf.settings.max_payload, ctx.hf.settings.max_depth)
    try:
        return _args(given)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Problem(422, f'query.args: wanted a JSON object such as {{"order": 42}}: {error}') from None


def job_filter(given: Any) -> Filter:
    """Return the filter of a request that has these fields."""
    found = {each.name: getattr(given, each.name, None) for each in fields(Filter)}
    return Filter(**found | {"batch": text(given.batch)})


@routes.post("/cancel", WRITES)
async def cancel_many(ctx: RequestContext, which: JobIds) -> CancelOutcomes:
    """Cancel jobs: waiting ones at once, running ones by asking them to stop."""
    ids = list(dict.fromkeys(map(str, which.ids)))
    outcomes = await ctx.run(ctx.calls.jobs.cancel(ids, ctx.view))
    return CancelOutcomes([CancelOutcome(each, outcomes.get(each, "unknown")) for each in ids])


_TAG = {"ETag": {"description": "changes with the job", "schema": {"type": "string"}}}
_KNOWN = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "an ETag: 304 if it still matches",
    "schema": {"type": "string"},
}
_TAGGED = {
    "parameters": [_KNOWN],
    "responses": {"200": {"headers": _TAG}, "304": {"description": "not modified", "headers": _TAG}},
}


@routes.get("/{job_id}", READS, described=_TAGGED)
async def get(ctx: RequestContext, job_id: UUID, query: Wait) -> PublicJob | Response:
    """Return a job. With wait, respond when it has ended or the time is over."""
    found = await look(ctx, job_id)
    if query.wait and not found.ended:
        found = await ended(ctx, found, time.monotonic() + query.wait)
    body = msgspec.json.encode(found)
    etag = tag(body)
    if ctx.request.headers.get("if-none-match") in (etag, f"W/{etag}", "*"):
        return Response(None, 304, {"ETag": etag})
    return Response(body, 200, {"ETag": etag}, "application/json")


_STREAM = {
    "responses": {
        "200": {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "its changes"}
    }
}


@routes.get("/{job_id}/events", READS, described=_STREAM)
async def events(ctx: RequestContext, job_id: UUID) -> Response:
    """Stream the job as server-sent events named "job", one for each change, until it has ended."""
    return stream(ctx, await look(ctx, job_id))


@routes.get("/{job_id}/why", EXPLAINS)
async def why(ctx: RequestContext, job_id: UUID) -> Why:
    """Explain why a job does not run."""
    await look(ctx, job_id)
    explanation = await ctx.hf.jobs.awhy(str(job_id))
    if explanation.status is None:
        raise unknown("job", job_id)
    return explanation


@routes.post("/{job_id}/cancel", WRITES)
async def cancel(ctx: RequestContext, job_id: UUID) -> CancelOutcome:
    """Cancel a job: at once if it waits, by asking it to stop if it runs."""
    outcomes = await ctx.run(ctx.calls.jobs.cancel([str(job_id)], ctx.view))
    if outcomes.get(str(job_id), "unknown") == "unknown":
        raise unknown("job", job_id)
    return CancelOutcome(str(job_id), outcomes[str(job_id)])


@routes.post("/{job_id}/retry", WRITES)
async def retry(ctx: RequestContext, job_id: UUID) -> AcceptedJob:
    """Retry a failed or dead job, with fresh attempts."""
    if not await ctx.run(ctx.calls.dead.retry([str(job_id)], ctx.view)):
        raise Problem(409, f"job {job_id} was not retried: {_why_not(await look(ctx, job_id))}")
    return AcceptedJob(str(job_id), existing=True)


@dataclass(frozen=True, slots=True)
class EditResult:
    """The outcome of an edit: edited, or retried for a failed or dead job."""

    id: str
    outcome: str


@routes.post("/{job_id}/edit", WRITES)
async def edit(ctx: RequestContext, job_id: UUID, change: Edit) -> EditResult:
    """Change arguments of a waiting job, or of a failed or dead one, which is then retried. They are checked against
    the task's signature if the service knows the task."""
    found = await editable(ctx, job_id)
    return EditResult(str(job_id), await set_args(ctx, found, {**raw_args(found.args), **change.args}, change.reason))


async def editable(ctx: RequestContext, job_id: UUID) -> PublicJob:
    """Return a job whose arguments can be changed, or raise a 409."""
    found = await look(ctx, job_id)
    if found.discarded or found.status in ("running", "succeeded", "canceled"):
        state = "was discarded" if found.discarded else f"is {found.status}"
        raise Problem(409, f"job {job_id} cannot be edited: it {state}")
    return found


async def set_args(ctx: RequestContext, job: PublicJob, args: dict[str, Any], reason: str | None) -> str:
    """Give a job these arguments instead of its own, unless they have changed meanwhile. Return the outcome."""
    data, keys = await ctx.service.in_thread(ctx.caller, edited_args, ctx.hf, job, args)
    return await ctx.run(ctx.calls.actions.edit(job.id, data, job.args, keys, ctx.caller.name, reason, ctx.view))


@dataclass(frozen=True, slots=True)
class JobSteps:
    """The durable steps of a job in order, and the jobs around it."""

    items: list[StepInfo]
    relatives: Relatives


@routes.get("/{job_id}/steps", READS)
async def steps(ctx: RequestContext, job_id: UUID) -> JobSteps:
    """List the durable steps of a job, its parent, its children, and the jobs that it follows or that follow it."""
    await look(ctx, job_id)
    calls = ctx.calls.steps
    steps = await ctx.run(calls.list(str(job_id), ctx.view))
    return JobSteps(steps, await ctx.run(calls.relatives(str(job_id), ctx.view)))


class Rerun(ReasonBody, kw_only=True):
    """From where a job that has ended is run again."""

    from_step: Name | None = None
    """Run this step and all later ones again; keep earlier results."""


@routes.post("/{job_id}/rerun", WRITES, optional_body=True)
async def rerun(ctx: RequestContext, job_id: UUID, how: Rerun) -> AcceptedJob:
    """Run a job that has ended again, with fresh attempts."""
    found = await look_for_change(ctx, job_id)
    keys = await ctx.service.in_thread(ctx.caller, known_keys, ctx.hf, found, msgspec.json.encode(found.args))
    call = ctx.calls.steps.rerun(str(job_id), how.from_step, keys, ctx.caller.name, how.reason, ctx.view)
    if await ctx.run(call) is None:
        raise Problem(409, f"job {job_id} was not rerun: a newer job holds its dedupe key")
    return AcceptedJob(str(job_id), existing=True)


@dataclass(frozen=True, slots=True)
class CompensateResult:
    """The number of jobs that undo steps."""

    id: str
    undone: int


@routes.post("/{job_id}/compensate", WRITES, optional_body=True)
async def compensate(ctx: RequestContext, job_id: UUID, why: ReasonBody) -> CompensateResult:
    """Undo the finished steps of a job that has ended, the last first, in jobs of their own."""
    await look_for_change(ctx, job_id)
    call = ctx.calls.steps.compensate(str(job_id), ctx.caller.name, why.reason, ctx.view)
    return CompensateResult(str(job_id), await ctx.run(call))


def _why_not(found: PublicJob) -> str:
    if found.status not in ("failed", "dead"):
        return f"it is {found.status}"
    return "it was discarded" if found.discarded else "a newer job holds its dedupe key"
