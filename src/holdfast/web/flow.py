"""/v1/limits, /v1/keys, /v1/queues, /v1/workers: for operators, with tokens for all tenants."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from holdfast.store.calls import Call
from holdfast.store.inspect import Inspections
from holdfast.web import shapes
from holdfast.web.body import BodyRoute
from holdfast.web.problems import FOR_CHANGES
from holdfast.web.service import Asked, Operates, answer

router = APIRouter(tags=["operate"], route_class=BodyRoute)
QueueName = Annotated[shapes.Queue, Path()]


@router.get("/limits", response_model=shapes.Limits)
async def limits(
    asked: Operates,
    prefix: Annotated[str, Query(max_length=300, pattern="^[^\\x00]*$")] = "",
    busy: Annotated[bool, Query(description="only those that run or hold something back")] = False,
    limit: shapes.Limit = 200,
) -> Response:
    """Keys with what is in force for them and how much of it is in use."""
    return answer(shapes.Limits(await asked.hf.alimits(prefix, busy=busy, limit=limit)))


@router.patch("/limits", response_model=shapes.Doubted, responses=FOR_CHANGES)
async def set_limit(change: shapes.LimitChange, asked: Operates) -> Response:
    """Changes what is in force for a key, or with a template for all of its keys, until it is cleared."""
    given = change.model_dump(exclude={"key"}, exclude_unset=True)
    warning = await _doubt(asked, change.key, None)
    return _doubted(await asked.hf.aset_limit(change.key, by=asked.caller.name, **given), warning)


@router.delete("/limits", response_model=shapes.Done, responses=FOR_CHANGES)
async def clear_limit(asked: Operates, key: Annotated[shapes.Key, Query()]) -> Response:
    """Takes back what operators have set for a key or a template."""
    return answer(shapes.Done(await asked.hf.aclear_limit(key)))


@router.post("/keys/pause", response_model=shapes.Doubted, responses=FOR_CHANGES)
async def pause(new: shapes.NewPause, asked: Operates) -> Response:
    """Starts nothing more under a key; what runs goes on. Once more replaces who, why and until when (changed: 0)."""
    return await _pause(asked, new.key, new.reason, new.seconds)


@router.post("/keys/resume", response_model=shapes.Done, responses=FOR_CHANGES)
async def resume(one: shapes.OneKey, asked: Operates) -> Response:
    """Lets a paused key go on."""
    return await _resume(asked, one.key)


@router.post("/keys/reset", response_model=shapes.Done, responses=FOR_CHANGES)
async def reset(one: shapes.OneKey, asked: Operates) -> Response:
    """Closes a key's breaker and forgets its failures."""

    async def act(conn: Any) -> Response:
        return await _changed(asked, asked.hf.flow.reset_breaker(one.key), conn)

    return await asked.once(act)


@router.get("/queues", response_model=shapes.Rows)
async def queues(asked: Operates) -> Response:
    """Queues that have jobs or are paused: what waits, runs and died there; who has paused them, why and until when."""
    return answer(shapes.Rows(await asked.run(asked.hf.calls.queue_depth())))


@router.post("/queues/{queue}/pause", response_model=shapes.Doubted, responses=FOR_CHANGES)
async def pause_queue(queue: QueueName, asked: Operates, why: shapes.QueuePause | None = None) -> Response:
    """Starts nothing more of a queue; what runs goes on. Once more replaces who, why and until when (changed: 0)."""
    how = why or shapes.QueuePause()
    return await _pause(asked, f"queue:{queue}", how.reason, how.seconds)


@router.post("/queues/{queue}/resume", response_model=shapes.Done, responses=FOR_CHANGES)
async def resume_queue(queue: QueueName, asked: Operates) -> Response:
    """Lets a paused queue go on."""
    return await _resume(asked, f"queue:{queue}")


@router.get("/workers", response_model=shapes.Rows)
async def workers(asked: Operates) -> Response:
    """Every worker known, and whether it counts as alive."""
    return answer(shapes.Rows(await asked.run(Inspections(asked.hf.settings.schema).workers())))


async def _pause(asked: Asked, key: str, reason: str | None, seconds: float | None) -> Response:
    async def act(conn: Any) -> Response:
        warning = await _doubt(asked, key, conn)
        was = await asked.run(asked.hf.flow.pause(key, asked.caller.name, reason, seconds), conn)
        return _doubted(int(was), warning)

    return await asked.once(act)


async def _doubt(asked: Asked, key: str, conn: Any) -> str | None:
    """Says so where nothing is known of a key, with what may have been meant; asked before it is changed. Tenants are
    not kept anywhere but in jobs, and a template is judged where it is set."""
    kind, _, name = key.partition(":")
    declared = [limit.pattern for limit in asked.hf.declared_limits]
    if kind == "tenant" or "{" in key or await asked.run(asked.hf.flow.is_known(key, declared), conn):
        return None
    if kind not in ("queue", "task"):
        return f"{key} fits no rule of limits and no job was claimed under it yet"
    tasks = asked.hf.tasks
    if kind == "queue":
        known = {*await asked.run(asked.hf.flow.queue_names(), conn), *(task.queue for task in tasks.values())}
    else:
        known = {*await asked.run(Inspections(asked.hf.settings.schema).task_queues(), conn), *tasks}
    if name in known:
        return None
    near = difflib.get_close_matches(name, known, n=1)
    return f"nothing is known of {key} yet{f'; did you mean {kind}:{near[0]}?' if near else ''}"


def _doubted(changed: int, warning: str | None) -> Response:
    return answer({"changed": changed} | ({} if warning is None else {"warning": warning}))


async def _resume(asked: Asked, key: str) -> Response:
    async def act(conn: Any) -> Response:
        return await _changed(asked, asked.hf.flow.resume(key), conn)

    return await asked.once(act)


async def _changed(asked: Asked, call: Call[bool], conn: Any) -> Response:
    was = await asked.run(call, conn)
    return answer(shapes.Done(int(was)))
