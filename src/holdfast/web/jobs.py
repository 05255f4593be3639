"""/v1/jobs: made, looked at, listed, waited for, canceled and retried."""

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
from holdfast.model.delivery import PREFIX
from holdfast.model.payload import Encoded
from holdfast.model.token import Caller
from holdfast.store.seen import Page, SeenJob
from holdfast.store.values import Filter
from holdfast.web import shapes
from holdfast.web.body import LARGE, BodyRoute
from holdfast.web.problems import FOR_CHANGES, FOR_ONE, Problem, of, unknown
from holdfast.web.service import Asked, Explains, Reads, Writes, answer

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=BodyRoute)
LONGEST_WAIT = 60.0
LONGEST_STREAM = 300.0  # then the client connects again, with a token that is looked at anew
STILL_HERE = 15.0  # seconds after which a stream that has no news says so
LOOK_UP = 0.5  # seconds after which one who waits asks whether it may wait on
MOST_WAITING = 1000
MOST_OF_ONE = 250  # of them, of one tenant
_waiting: Counter[str | None] = Counter()  # by tenant, of all applications of this process together


@router.post("", status_code=201, response_model=shapes.Made, responses=FOR_CHANGES)
async def create(job: shapes.Job, asked: Writes) -> Response:
    """Makes a job."""

    async def act(conn: Any) -> Response:
        sender, data = await enqueuer(asked, job, conn)
        new = sender.checked_job(data)
        if conn is None and _is_simple(asked, job):
            told = await asked.service.enqueue(new, asked.caller)
            return answer(shapes.Made(told.id, told.outcome != "created"), 201)
        made = await sender.aenqueue_job(new)
        return answer(shapes.Made(made.id, made.existing), 201)

    return await asked.once(act)


def _is_simple(asked: Asked, job: shapes.Job) -> bool:
    """Whether a job may be accepted together with others: no key to take, no batch, no middleware around it."""
    keyed = job.dedupe is not None or asked.hf.tasks[job.task].dedupe is not None
    return not (keyed or job.batch is not None or asked.hf.around_enqueues)


@router.post("/many", status_code=201, response_model=shapes.MadeMany, responses=FOR_CHANGES)
async def create_many(many: shapes.ManyJobs, asked: Writes) -> Response:
    """Makes many jobs, all or none."""

    async def act(conn: Any) -> Response:
        return answer(shapes.MadeMany(await enqueue_all(asked, many.jobs, conn)), 201)

    async def in_transaction(conn: Any) -> Response:
        if conn is not None:
            return await act(conn)
        async with asked.service.transaction(asked.caller) as own:
            return await act(own)

    return await asked.once(in_transaction)


async def enqueue_all(asked: Asked, jobs: Sequence[shapes.Job], conn: Any, batch: Any = None) -> list[str]:
    """Enqueues jobs in a transaction; those of a kind together. Answers their ids in order."""
    kinds: dict[str, list[int]] = {}
    for place, job in enumerate(jobs):
        alone = f"{place}" if job.dedupe is not None else ""
        kinds.setdefault(job.model_dump_json(exclude={"args"}) + alone, []).append(place)
    ids: dict[int, str] = {}
    for places in kinds.values():
        with at_place(places[0]):
            sender, data = await enqueuer(asked, jobs[places[0]], conn, batch)
        these = [data]
        for place in places[1:]:
            with at_place(place):
                these.append(await _check(asked, find_task(asked, jobs[place].task), jobs[place]))
        if len(these) == 1:
            with at_place(places[0]):
                ids[places[0]] = (await sender.aenqueue_job(sender.checked_job(data))).id
        else:
            handles = await sender.aenqueue_many(these)
            ids |= zip(places, handles.ids, strict=True)
    return [ids[place] for place in range(len(jobs))]


@contextmanager
def at_place(place: int) -> Iterator[None]:
    """What is wrong with one of many says with which."""
    try:
        yield
    except (UsageError, UnknownTask) as error:
        raise of(error).at(f"jobs.{place}") from error
    except Problem as problem:
        raise problem.at(f"jobs.{place}") from problem


async def enqueuer(asked: Asked, job: shapes.Job, conn: Any, batch: Any = None) -> tuple[Enqueuer[Any, Any], Encoded]:
    """The task with the options that a request gives, and its checked arguments, once it is certain that the job may
    be made."""
    task = find_task(asked, job.task)
    if job.batch is not None:
        if batch is not None:
            raise Problem(422, "jobs that are made with a batch are in that one; leave out their batch")
        if (into := await asked.run(asked.service.seen.batch(asked.caller, str(job.batch)), conn)) is None:
            raise unknown("batch", job.batch)
        if into.ended:
            raise Problem(422, f"batch {job.batch} ({into.name}) has ended and takes no more jobs; make it with "
                               '"open": true to add jobs later')  # fmt: skip
    data = await _check(asked, task, job)
    given = job.dedupe
    dedupe = None if given is None else Dedupe(given.scope, given.keep, given.on_conflict, given.key)
    sender = task.using(
        tenant=asked.tenant(job.tenant), queue=job.queue,
        priority=asked.priority(job.priority, task.priority), delay=job.delay, run_at=job.run_at,
        max_attempts=job.max_attempts, deadline=job.deadline, batch=batch or shapes.text(job.batch), conn=conn,
        dedupe=dedupe,
    )  # fmt: skip
    return sender, data


def find_task(asked: Asked, name: str) -> Task[Any, Any]:
    """A task of the application's; deliveries and messages have ways of their own."""
    if (found := asked.hf.tasks.get(name)) is None or not _is_own(name):
        raise UnknownTask(name, filter(_is_own, asked.hf.tasks))
    return found


def _is_own(name: str) -> bool:
    return not name.startswith((PREFIX, "holdfast."))


async def _check(asked: Asked, task: Task[Any, Any], job: shapes.Job) -> Encoded:
    """Check arguments against the handler: senders of JSON have no type checker. Nothing decodes them again."""
    if len(job.args) >= LARGE:
        return await asked.service.in_thread(asked.caller, task.check_payload, job.args)
    return task.check_payload(job.args)


@router.get("", response_model=shapes.Jobs)
async def list_jobs(
    asked: Reads,
    status: shapes.Status | None = None,
    task: shapes.Name | None = None,
    queue: shapes.Name | None = None,
    tenant: shapes.Name | None = None,
    batch: UUID | None = None,
    error: Annotated[shapes.Name | None, Query(description="type or code of the last error")] = None,
    since: Annotated[
        shapes.Since | None, Query(description="made since then: a time with its zone, or 90m, 24h, 30d")
    ] = None,
    until: Annotated[shapes.Moment | None, Query(description="made before then, a time with its zone")] = None,
    cursor: shapes.Cursor = None,
    limit: shapes.Limit = 50,
) -> Response:
    """The newest jobs that match."""
    where = Filter(status=status, task=task, queue=queue, tenant=tenant, error=error, batch=shapes.text(batch))
    page = Page(limit=limit, before=await asked.before(cursor), since=since, until=until)
    calls = asked.service.seen
    found = await asked.service.page(asked.caller, lambda part: calls.list_jobs(asked.caller, where, part), page)
    return answer(shapes.Jobs(*found))


@router.post("/cancel", response_model=shapes.Outcomes, responses=FOR_CHANGES)
async def cancel_many(which: shapes.JobIds, asked: Writes) -> Response:
    """Cancels jobs: waiting ones at once, running ones by asking them to stop."""

    async def act(conn: Any) -> Response:
        ids = list(dict.fromkeys(map(str, which.ids)))
        told = await asked.run(asked.service.seen.cancel(asked.caller, ids), conn)
        return answer(shapes.Outcomes([shapes.Outcome(each, told.get(each, "unknown")) for each in ids]))

    return await asked.once(act)


_TAG = {"ETag": {"description": "changes with the job", "schema": {"type": "string"}}}
_KNOWN = {"name": "If-None-Match", "in": "header", "required": False, "description": "an ETag: 304 if it is still that",
          "schema": {"type": "string"}}  # fmt: skip


@router.get(
    "/{job_id}",
    response_model=SeenJob,
    responses=FOR_ONE | {200: {"headers": _TAG}, 304: {"description": "it is as you know it", "headers": _TAG}},
    openapi_extra={"parameters": [_KNOWN]},
)
async def get(
    job_id: UUID,
    asked: Reads,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="seconds to wait until it has ended")] = 0,
) -> Response:
    """A job as it is now; with wait, as soon as it has ended or the time is over."""
    found = await _look(asked, job_id)
    if wait and not found.ended:
        ends = time.monotonic() + wait
        asked.begin_wait()
        with _Place(asked.caller), asked.service.watch.on(found.id) as seen:
            while (left := ends - time.monotonic()) > 0:
                news = await seen.changed(min(left, LOOK_UP))
                if not await asked.stays():
                    break
                if not news:
                    continue
                found = await _look(asked, job_id)
                if found.ended:
                    break
    body = msgspec.json.encode(found)
    tag = _tag(body)
    if asked.request.headers.get("if-none-match") in (tag, f"W/{tag}", "*"):
        return Response(None, 304, {"ETag": tag})
    return Response(body, 200, {"ETag": tag}, "application/json")


_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "its changes"}
}


@router.get("/{job_id}/events", response_class=StreamingResponse, responses=FOR_ONE | _STREAM)
async def events(job_id: UUID, asked: Reads) -> Response:
    """Server-sent events: the job whenever it has changed, until it has ended; each is an event "job"."""
    found = await _look(asked, job_id)
    place = _Place(asked.caller)
    asked.begin_wait()
    return _Stream(_stream(asked, found), place)


async def _stream(asked: Asked, found: SeenJob) -> AsyncIterator[bytes]:
    last, said = None, time.monotonic()
    ends = said + LONGEST_STREAM
    # Whoever connects again is told that the database is away.
    with suppress(DatabaseUnavailable), asked.service.watch.on(found.id) as seen:
        while True:
            body = msgspec.json.encode(found)
            if body != last:
                yield b"event: job\nid: %b\ndata: %b\n\n" % (_tag(body).strip('"').encode(), body)
                last, said = body, time.monotonic()
            elif time.monotonic() - said >= STILL_HERE:
                yield b": still here\n\n"  # so that nobody between takes the connection for dead
                said = time.monotonic()
            if found.ended or time.monotonic() >= ends:
                return
            news = await seen.changed(LOOK_UP)
            if not await asked.stays():
                return
            if not news:
                continue
            if (now := await asked.service.look(asked.caller, found.id)) is None:
                return
            found = now


@router.get("/{job_id}/why", response_model=dict[str, Any], responses=FOR_ONE)
async def why(job_id: UUID, asked: Explains) -> Response:
    """Why a job does not run."""
    await _look(asked, job_id)
    told = await asked.hf.awhy(str(job_id))
    if told.status is None:
        raise unknown("job", job_id)
    return answer(told)


@router.post("/{job_id}/cancel", response_model=shapes.Outcome, responses=FOR_CHANGES)
async def cancel(job_id: UUID, asked: Writes) -> Response:
    """Cancels a job: at once if it waits, by asking it to stop if it runs."""

    async def act(conn: Any) -> Response:
        told = await asked.run(asked.service.seen.cancel(asked.caller, [str(job_id)]), conn)
        if told.get(str(job_id), "unknown") == "unknown":
            raise unknown("job", job_id)
        return answer(shapes.Outcome(str(job_id), told[str(job_id)]))

    return await asked.once(act)


@router.post("/{job_id}/retry", response_model=shapes.Made, responses=FOR_CHANGES)
async def retry(job_id: UUID, asked: Writes) -> Response:
    """Puts a failed or dead job back into the queue with fresh attempts."""

    async def act(conn: Any) -> Response:
        if not await asked.run(asked.service.seen.retry_dead(asked.caller, [str(job_id)]), conn):
            raise Problem(409, f"job {job_id} was not put back: {_why_not(await _look(asked, job_id))}")
        return answer(shapes.Made(str(job_id), existing=True))

    return await asked.once(act)


def _why_not(found: SeenJob) -> str:
    if found.status not in ("failed", "dead"):
        return f"it is {found.status}"
    return "it was discarded" if found.discarded else "a newer job holds its dedupe key"


async def _look(asked: Asked, job_id: UUID) -> SeenJob:
    found = await asked.service.look(asked.caller, str(job_id))
    if found is None:
        raise unknown("job", job_id)
    return found


def _tag(body: bytes) -> str:
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


class _Place:
    """One of the places for requests that wait, taken at once or refused: each costs a look now and then, and no tenant
    has the places of all."""

    def __init__(self, caller: Caller) -> None:
        self._tenant = caller.tenant
        mine, every = _waiting[self._tenant], _waiting.total()
        if every >= MOST_WAITING or (mine >= MOST_OF_ONE and not caller.everyone):
            raise Problem(429, f"{mine} requests of yours wait already; come back later", headers={"Retry-After": "5"})
        _waiting[self._tenant] += 1

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        _waiting[self._tenant] -= 1
        if not _waiting[self._tenant]:
            del _waiting[self._tenant]


class _Stream(StreamingResponse):
    """A stream that gives its place back also where it never began."""

    def __init__(self, content: AsyncIterator[bytes], place: _Place) -> None:
        super().__init__(content, media_type="text/event-stream")
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await super().__call__(scope, receive, send)


def waiting() -> int:
    """How many requests wait for a job."""
    return _waiting.total()
