"""/v1/limits, /v1/keys, /v1/queues, /v1/workers: for operators, with tokens for all tenants."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from holdfast.store.call import Call
from holdfast.web import shapes
from holdfast.web.body import BodyRoute
from holdfast.web.problems import FOR_CHANGES
from holdfast.web.service import Operates, RequestContext, respond

router = APIRouter(tags=["operate"], route_class=BodyRoute)
QueueName = Annotated[shapes.Queue, Path()]


@router.get("/limits", response_model=shapes.Limits)
async def limits(
    ctx: Operates,
    prefix: Annotated[str, Query(max_length=300, pattern="^[^\\x00]*$")] = "",
    busy: Annotated[bool, Query(description="only those that run or hold something back")] = False,
    limit: shapes.Limit = 200,
) -> Response:
    """List keys with the limits in force and how much of them is in use."""
    return respond(shapes.Limits(await ctx.hf.limits.alist(prefix, busy=busy, limit=limit)))


@router.patch("/limits", response_model=shapes.ChangeResult, responses=FOR_CHANGES)
async def set_limit(change: shapes.LimitChange, ctx: Operates) -> Response:
    """Override the limits of a key, or of all keys of a template, until cleared."""
    given = change.model_dump(exclude={"key"}, exclude_unset=True)
    warning = await _unknown_key_warning(ctx, change.key, None)
    return _change_result(await ctx.hf.limits.aset(change.key, by=ctx.caller.name, **given), warning)


@router.delete("/limits", response_model=shapes.Done, responses=FOR_CHANGES)
async def clear_limit(ctx: Operates, key: Annotated[shapes.Key, Query()]) -> Response:
    """Remove the overrides of a key or a template."""
    return respond(shapes.Done(await ctx.hf.limits.aclear(key)))


@router.post("/keys/pause", response_model=shapes.ChangeResult, responses=FOR_CHANGES)
async def pause(new: shapes.NewPause, ctx: Operates) -> Response:
    """Pause a key: running jobs go on. Repeating it replaces who, why and until when (changed: 0)."""
    return await _pause(ctx, new.key, new.reason, new.seconds)


@router.post("/keys/resume", response_model=shapes.Done, responses=FOR_CHANGES)
async def resume(one: shapes.OneKey, ctx: Operates) -> Response:
    """Resume a paused key."""
    return await _resume(ctx, one.key)


@router.post("/keys/reset", response_model=shapes.Done, responses=FOR_CHANGES)
async def reset(one: shapes.OneKey, ctx: Operates) -> Response:
    """Close a key's breaker and clear its failures."""

    async def act(conn: Any) -> Response:
        return await _changed(ctx, ctx.hf.limits.calls.reset_breaker(one.key), conn)

    return await ctx.once(act)


@router.get("/queues", response_model=shapes.Rows)
async def queues(ctx: Operates) -> Response:
    """List the queues that have jobs or are paused, with their counts, and who paused them, why and until when."""
    return respond(shapes.Rows(await ctx.run(ctx.hf.database.calls.queues.list())))


@router.post("/queues/{queue}/pause", response_model=shapes.ChangeResult, responses=FOR_CHANGES)
async def pause_queue(queue: QueueName, ctx: Operates, why: shapes.QueuePause | None = None) -> Response:
    """Pause a queue: running jobs go on. Repeating it replaces who, why and until when (changed: 0)."""
    how = why or shapes.QueuePause()
    return await _pause(ctx, f"queue:{queue}", how.reason, how.seconds)


@router.post("/queues/{queue}/resume", response_model=shapes.Done, responses=FOR_CHANGES)
async def resume_queue(queue: QueueName, ctx: Operates) -> Response:
    """Resume a paused queue."""
    return await _resume(ctx, f"queue:{queue}")


@router.get("/workers", response_model=shapes.Rows)
async def workers(ctx: Operates) -> Response:
    """List the workers, and whether each counts as alive."""
    return respond(shapes.Rows(await ctx.run(ctx.hf.database.calls.workers.list())))


async def _pause(ctx: RequestContext, key: str, reason: str | None, seconds: float | None) -> Response:
    async def act(conn: Any) -> Response:
        warning = await _unknown_key_warning(ctx, key, conn)
        was = await ctx.run(ctx.hf.limits.calls.pause(key, ctx.caller.name, reason, seconds), conn)
        return _change_result(int(was), warning)

    return await ctx.once(act)


async def _unknown_key_warning(ctx: RequestContext, key: str, conn: Any) -> str | None:
    """Return a warning if a key is unknown, with the nearest known one. Call it before the change.

    Tenants are recorded in jobs only, and templates are checked when they are set, so neither is checked here."""
    kind, _, name = key.partition(":")
    declared = [limit.pattern for limit in ctx.hf.registry.limits]
    if kind == "tenant" or "{" in key or await ctx.run(ctx.hf.limits.calls.is_known(key, declared), conn):
        return None
    if kind not in ("queue", "task"):
        return f"{key} matches no declared limit, and no job has been claimed under it yet"
    tasks = ctx.hf.registry.tasks
    if kind == "queue":
        known = {*await ctx.run(ctx.hf.database.calls.queues.names(), conn), *(task.queue for task in tasks.values())}
    else:
        known = {*await ctx.run(ctx.hf.database.calls.queues.task_queues(), conn), *tasks}
    if name in known:
        return None
    near = difflib.get_close_matches(name, known, n=1)
    return f"unknown key {key}{f'; did you mean {kind}:{near[0]}?' if near else ''}"


def _change_result(changed: int, warning: str | None) -> Response:
    return respond({"changed": changed} | ({} if warning is None else {"warning": warning}))


async def _resume(ctx: RequestContext, key: str) -> Response:
    async def act(conn: Any) -> Response:
        return await _changed(ctx, ctx.hf.limits.calls.resume(key), conn)

    return await ctx.once(act)


async def _changed(ctx: RequestContext, call: Call[bool], conn: Any) -> Response:
    was = await ctx.run(call, conn)
    return respond(shapes.Done(int(was)))
