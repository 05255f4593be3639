"""/v1/jobs: create, read, list, wait for, cancel and retry jobs."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.client.task import Dedupe, Enqueuer, Task
from holdfast.errors import DatabaseUnavailable, UnknownTask, UsageError
from holdfast.model.job import PublicJob
from holdfast.model.outbox import PREFIX
from holdfast.model.payload import Encoded
from holdfast.model.token import Caller
from holdfast.store.jobs import Filter
from holdfast.store.select import Page
from holdfast.web import shapes
from holdfast.web.body import LARGE, BodyRoute
from holdfast.web.problems import FOR_CHANGES, FOR_ONE, Problem, of, unknown
from holdfast.web.service import Explains, Reads, RequestContext, Writes, respond

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=BodyRoute)
LONGEST_WAIT = 60.0
LONGEST_STREAM = 300.0  # seconds; then the client reconnects, and its token is checked again
STILL_HERE = 15.0  # seconds between keep-alive comments of a stream
LOOK_UP = 0.5  # seconds between checks that a waiting request may keep waiting
MOST_WAITING = 1000
OPTIONS = ("queue", "delay", "run_at", "max_attempts", "deadline")  # of a new job, passed on as they are
MOST_OF_ONE = 250  # of them, of one tenant
_waiting: Counter[str | None] = Counter()  # by tenant, for all applications of this process


@router.post("", status_code=201, response_model=shapes.Made, responses=FOR_CHANGES)
async def create(job: shapes.Job, ctx: Writes) -> Response:
    """Create a job."""

    async def act(conn: Any) -> Response:
        sender, data = await enqueuer(ctx, job, conn)
        new = sender.checked_job(data)
        if conn is None and _is_simple(ctx, job):
            accepted = await ctx.service.enqueue(new, ctx.caller)
            return respond(shapes.Made(accepted.id, accepted.outcome != "created"), 201)
        made = await sender.aenqueue_job(new)
        return respond(shapes.Made(made.id, made.existing), 201)

    return await ctx.once(act)


def _is_simple(ctx: RequestContext, job: shapes.Job) -> bool:
    """Return whether a job can be coalesced: it has no dedupe key, no batch and no middleware."""
    keyed = job.dedupe is not None or ctx.hf.registry.tasks[job.task].dedupe is not None
    return not (keyed or job.batch is not None or ctx.hf.registry.around_enqueue)


@router.post("/many", status_code=201, response_model=shapes.MadeMany, responses=FOR_CHANGES)
async def create_many(many: shapes.ManyJobs, ctx: Writes) -> Response:
    """Create many jobs, all or none."""

    async def act(conn: Any) -> Response:
        return respond(shapes.MadeMany(await enqueue_all(ctx, many.jobs, conn)), 201)

    async def in_transaction(conn: Any) -> Response:
        if conn is not None:
            return await act(conn)
        async with ctx.service.transaction(ctx.caller) as own:
            return await act(own)

    return await ctx.once(in_transaction)


async def enqueue_all(ctx: RequestContext, jobs: Sequence[shapes.Job], conn: Any, batch: Any = None) -> list[str]:
    """Enqueue jobs in a transaction, one call for each set of equal options. Return their ids in order."""
    kinds: dict[str, list[int]] = {}
    for place, job in enumerate(jobs):
        alone = f"{place}" if job.dedupe is not None else ""
        kinds.setdefault(job.model_dump_json(exclude={"args"}) + alone, []).append(place)
    ids: dict[int, str] = {}
    for places in kinds.values():
        with at_place(places[0]):
            sender, data = await enqueuer(ctx, jobs[places[0]], conn, batch)
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


async def enqueuer(
    ctx: RequestContext, job: shapes.Job, conn: Any, batch: Any = None
) -> tuple[Enqueuer[Any, Any], Encoded]:
    """Check that the job may be made, and return its task with the request's options and the encoded arguments."""
    task = find_task(ctx, job.task)
    if job.batch is not None:
        if batch is not None:
            raise Problem(422, "jobs created with a batch belong to it; leave out their batch")
        if (into := await ctx.run(ctx.hf.database.calls.batches.get(str(job.batch), ctx.caller.view), conn)) is None:
            raise unknown("batch", job.batch)
        if into.ended:
            ended = f"batch {job.batch} ({into.name}) has ended and takes no more jobs"
            raise Problem(422, f'{ended}; make it with "open": true to add jobs later')
    data = await _check(ctx, task, job)
    given = job.dedupe
    options: dict[str, Any] = {name: getattr(job, name) for name in OPTIONS}
    options["dedupe"] = None if given is None else Dedupe(given.scope, given.keep, given.on_conflict, given.key)
    options |= {"tenant": ctx.tenant(job.tenant), "priority": ctx.priority(job.priority, task.priority)}
    return task.using(**options, batch=batch or shapes.text(job.batch), conn=conn), data


def find_task(ctx: RequestContext, name: str) -> Task[Any, Any]:
    """Return a task of the application. The tasks of deliveries and messages cannot be enqueued here."""
    if (found := ctx.hf.registry.tasks.get(name)) is None or not _is_own(name):
        raise UnknownTask(name, filter(_is_own, ctx.hf.registry.tasks))
    return found


def _is_own(name: str) -> bool:
    return not name.startswith((PREFIX, "holdfast."))


async def _check(ctx: RequestContext, task: Task[Any, Any], job: shapes.Job) -> Encoded:
    """Check arguments against the handler's signature, and encode them."""
    if len(job.args) >= LARGE:
        return await ctx.service.in_thread(ctx.caller, task.check_payload, job.args)
    return task.check_payload(job.args)


@router.get("", response_model=shapes.Jobs)
async def list_jobs(
    ctx: Reads,
    status: shapes.Status | None = None,
    task: shapes.Name | None = None,
    queue: shapes.Name | None = None,
    tenant: shapes.Name | None = None,
    batch: UUID | None = None,
    error: Annotated[shapes.Name | None, Query(description="type or code of the last error")] = None,
    since: Annotated[
        shapes.Since | None, Query(description="created since: a time with its zone, or 90m, 24h, 30d")
    ] = None,
    until: Annotated[shapes.Moment | None, Query(description="created before: a time with its zone")] = None,
    cursor: shapes.Cursor = None,
    limit: shapes.Limit = 50,
) -> Response:
    """List the jobs that match, newest first."""
    given = {"status": status, "task": task, "queue": queue, "tenant": tenant, "error": error}
    where = Filter(**given, batch=shapes.text(batch), since=since, until=until)
    page = Page(limit=limit, before=await ctx.before(cursor))
    calls, view = ctx.hf.database.calls.jobs, ctx.caller.view
    found = await ctx.service.page(ctx.caller, lambda part: calls.list(PublicJob, where, part, view), page)
    return respond(shapes.Jobs(*found))


@router.post("/cancel", response_model=shapes.Outcomes, responses=FOR_CHANGES)
async def cancel_many(which: shapes.JobIds, ctx: Writes) -> Response:
    """Cancel jobs: waiting ones at once, running ones by asking them to stop."""

    async def act(conn: Any) -> Response:
        ids = list(dict.fromkeys(map(str, which.ids)))
        outcomes = await ctx.run(ctx.hf.database.calls.jobs.cancel(ids, ctx.caller.view), conn)
        return respond(shapes.Outcomes([shapes.Outcome(each, outcomes.get(each, "unknown")) for each in ids]))

    return await ctx.once(act)


_TAG = {"ETag": {"description": "changes with the job", "schema": {"type": "string"}}}
_KNOWN = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "an ETag: 304 if it still matches",
    "schema": {"type": "string"},
}


@router.get(
    "/{job_id}",
    response_model=PublicJob,
    responses=FOR_ONE | {200: {"headers": _TAG}, 304: {"description": "not modified", "headers": _TAG}},
    openapi_extra={"parameters": [_KNOWN]},
)
async def get(
    job_id: UUID,
    ctx: Reads,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="seconds to wait until it has ended")] = 0,
) -> Response:
    """Return a job. With wait, respond when it has ended or the time is over."""
    found = await _look(ctx, job_id)
    if wait and not found.ended:
        ends = time.monotonic() + wait
        ctx.begin_wait()
        with _Place(ctx.caller), ctx.service.changes.watch(found.id) as observer:
            while (left := ends - time.monotonic()) > 0:
                changed = await observer.changed(min(left, LOOK_UP))
                if not await ctx.stays():
                    break
                if not changed:
                    continue
                found = await _look(ctx, job_id)
                if found.ended:
                    break
    body = msgspec.json.encode(found)
    tag = _tag(body)
    if ctx.request.headers.get("if-none-match") in (tag, f"W/{tag}", "*"):
        return Response(None, 304, {"ETag": tag})
    return Response(body, 200, {"ETag": tag}, "application/json")


_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "its changes"}
}


@router.get("/{job_id}/events", response_class=StreamingResponse, responses=FOR_ONE | _STREAM)
async def events(job_id: UUID, ctx: Reads) -> Response:
    """Stream the job as server-sent events named "job", one for each change, until it has ended."""
    found = await _look(ctx, job_id)
    place = _Place(ctx.caller)
    ctx.begin_wait()
    return _Stream(_stream(ctx, found), place)


async def _stream(ctx: RequestContext, found: PublicJob) -> AsyncIterator[bytes]:
    last, sent_at = None, time.monotonic()
    ends = sent_at + LONGEST_STREAM
    # A client that reconnects gets the 503.
    with suppress(DatabaseUnavailable), ctx.service.changes.watch(found.id) as observer:
        while True:
            body = msgspec.json.encode(found)
            if body != last:
                yield b"event: job\nid: %b\ndata: %b\n\n" % (_tag(body).strip('"').encode(), body)
                last, sent_at = body, time.monotonic()
            elif time.monotonic() - sent_at >= STILL_HERE:
                yield b": still here\n\n"  # proxies close idle connections
                sent_at = time.monotonic()
            if found.ended or time.monotonic() >= ends:
                return
            changed = await observer.changed(LOOK_UP)
            if not await ctx.stays():
                return
            if not changed:
                continue
            if (now := await ctx.service.look(ctx.caller, found.id)) is None:
                return
            found = now


@router.get("/{job_id}/why", response_model=dict[str, Any], responses=FOR_ONE)
async def why(job_id: UUID, ctx: Explains) -> Response:
    """Explain why a job does not run."""
    await _look(ctx, job_id)
    explanation = await ctx.hf.jobs.awhy(str(job_id))
    if explanation.status is None:
        raise unknown("job", job_id)
    return respond(explanation)


@router.post("/{job_id}/cancel", response_model=shapes.Outcome, responses=FOR_CHANGES)
async def cancel(job_id: UUID, ctx: Writes) -> Response:
    """Cancel a job: at once if it waits, by asking it to stop if it runs."""

    async def act(conn: Any) -> Response:
        outcomes = await ctx.run(ctx.hf.database.calls.jobs.cancel([str(job_id)], ctx.caller.view), conn)
        if outcomes.get(str(job_id), "unknown") == "unknown":
            raise unknown("job", job_id)
        return respond(shapes.Outcome(str(job_id), outcomes[str(job_id)]))

    return await ctx.once(act)


@router.post("/{job_id}/retry", response_model=shapes.Made, responses=FOR_CHANGES)
async def retry(job_id: UUID, ctx: Writes) -> Response:
    """Put a failed or dead job back into the queue with fresh attempts."""

    async def act(conn: Any) -> Response:
        if not await ctx.run(ctx.hf.database.calls.dead.retry([str(job_id)], ctx.caller.view), conn):
            raise Problem(409, f"job {job_id} was not put back: {_why_not(await _look(ctx, job_id))}")
        return respond(shapes.Made(str(job_id), existing=True))

    return await ctx.once(act)


def _why_not(found: PublicJob) -> str:
    if found.status not in ("failed", "dead"):
        return f"it is {found.status}"
    return "it was discarded" if found.discarded else "a newer job holds its dedupe key"


async def _look(ctx: RequestContext, job_id: UUID) -> PublicJob:
    found = await ctx.service.look(ctx.caller, str(job_id))
    if found is None:
        raise unknown("job", job_id)
    return found


def _tag(body: bytes) -> str:
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


class _Place:
    """A slot for a waiting request, taken at once or refused with 429. No tenant can use all slots."""

    def __init__(self, caller: Caller) -> None:
        self._tenant = caller.tenant
        mine, every = _waiting[self._tenant], _waiting.total()
        if every >= MOST_WAITING or (mine >= MOST_OF_ONE and not caller.everyone):
            raise Problem(429, f"{mine} of your requests wait already; try again later", headers={"Retry-After": "5"})
        _waiting[self._tenant] += 1

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        _waiting[self._tenant] -= 1
        if not _waiting[self._tenant]:
            del _waiting[self._tenant]


class _Stream(StreamingResponse):
    """A stream that releases its slot even if it never begins."""

    def __init__(self, content: AsyncIterator[bytes], place: _Place) -> None:
        super().__init__(content, media_type="text/event-stream")
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await super().__call__(scope, receive, send)


def waiting() -> int:
    """Return how many requests wait for a job."""
    return _waiting.total()
