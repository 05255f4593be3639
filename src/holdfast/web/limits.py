"""/v1/limits, /v1/keys, pauses of queues, /v1/workers: for operators, with tokens for all tenants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.model.limit import LimitInfo
from holdfast.store.call import Call
from holdfast.web.context import RequestContext
from holdfast.web.fields import Amount, Body, Key, PageSize, Prefix, Query, Queue, Reason, Seconds, Whole, Why, given
from holdfast.web.routing import OPERATES, Routes

routes = Routes("", "operate")


class ListLimits(Query):
    prefix: Prefix = ""
    busy: bool = False
    """Only those that run or hold something back."""
    limit: PageSize = 200
    """Maximum number of items."""


class WhichKey(Query):
    key: Key
    """A limit's key, or queue:NAME, task:NAME, tenant:NAME."""
    reason: Reason | None = None
    """Kept in the log."""


class OneKey(Body):
    """A limit's key, or queue:NAME, task:NAME, tenant:NAME."""

    key: Key
    reason: Reason | None = None
    """Kept in the log."""


class QueuePause(Body):
    """Reason and length of a pause."""

    reason: Reason | None = None
    """Shown to operators, and kept in the log."""
    seconds: Seconds | None = None
    """Length of the pause; without it, until resumed."""


class NewPause(QueuePause, kw_only=True):
    """A key under which no more jobs start, for some seconds or until it is resumed."""

    key: Key


class LimitChange(OneKey):
    """Overrides of a key's limits, or with a template of all its keys. null restores the value of the code."""

    concurrency: Whole | UnsetType | None = UNSET
    """Jobs that run at once."""
    rate: Amount | UnsetType | None = UNSET
    """Jobs in `per` seconds."""
    per: Amount | UnsetType | None = UNSET
    """Seconds."""
    burst: Amount | UnsetType | None = UNSET
    """Jobs that may start at once after an idle time."""
    breaker_after: Whole | UnsetType | None = UNSET
    """Failures in a row that open the breaker."""
    breaker_pause: Amount | UnsetType | None = UNSET
    """Seconds it stays open at first."""
    breaker_cap: Amount | UnsetType | None = UNSET
    """Seconds it stays open at most."""
    weight: Amount | UnsetType | None = UNSET
    """Of a tenant: its share relative to other tenants."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Keys with their limits."""

    items: list[LimitInfo]


@dataclass(frozen=True, slots=True)
class Done:
    """How many rows were changed."""

    changed: int


class ChangeResult(msgspec.Struct, omit_defaults=True):
    """changed is 0 if nothing changed. warning: the key is unknown."""

    changed: int
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """A list for operators."""

    items: list[dict[str, Any]]


@routes.get("/limits", OPERATES)
async def limits(ctx: RequestContext, query: ListLimits) -> Limits:
    """List keys with the limits in force and how much of them is in use."""
    return Limits(await ctx.hf.limits.alist(query.prefix, busy=query.busy, limit=query.limit))


@routes.patch("/limits", OPERATES)
async def set_limit(ctx: RequestContext, change: LimitChange) -> ChangeResult:
    """Override the limits of a key, or of all keys of a template, until cleared."""
    values = given(change)
    warning = await ctx.do(ctx.hf.limits.awarning, key := values.pop("key"))
    return ChangeResult(await ctx.hf.limits.aset(key, by=ctx.caller.name, **values), warning)


@routes.delete("/limits", OPERATES)
async def clear_limit(ctx: RequestContext, query: WhichKey) -> Done:
    """Remove the overrides of a key or a template."""
    return Done(await ctx.hf.limits.aclear(query.key, by=ctx.caller.name, reason=query.reason))


@routes.post("/keys/pause", OPERATES)
async def pause(ctx: RequestContext, new: NewPause) -> ChangeResult:
    """Pause a key: running jobs go on. Repeating it replaces who, why and until when (changed: 0)."""
    return await _pause(ctx, new.key, new)


@routes.post("/keys/resume", OPERATES)
async def resume(ctx: RequestContext, one: OneKey) -> Done:
    """Resume a paused key."""
    return await changed(ctx, ctx.calls.limits.resume(one.key, ctx.caller.name, one.reason))


@routes.post("/keys/reset", OPERATES)
async def reset(ctx: RequestContext, one: OneKey) -> Done:
    """Close a key's breaker and clear its failures."""
    return await changed(ctx, ctx.calls.limits.reset_breaker(one.key, ctx.caller.name, one.reason))


@routes.post("/queues/{queue}/pause", OPERATES, optional_body=True)
async def pause_queue(ctx: RequestContext, queue: Queue, why: QueuePause) -> ChangeResult:
    """Pause a queue: running jobs go on. Repeating it replaces who, why and until when (changed: 0)."""
    return await _pause(ctx, f"queue:{queue}", why)


@routes.post("/queues/{queue}/resume", OPERATES, optional_body=True)
async def resume_queue(ctx: RequestContext, queue: Queue, why: Why) -> Done:
    """Resume a paused queue."""
    return await changed(ctx, ctx.calls.limits.resume(f"queue:{queue}", ctx.caller.name, why.reason))


@routes.get("/workers", OPERATES)
async def workers(ctx: RequestContext) -> Rows:
    """List the workers, and whether each counts as alive."""
    return Rows(await ctx.run(ctx.calls.workers.list()))


async def changed(ctx: RequestContext, call: Call[bool]) -> Done:
    """Run a call that returns whether it changed something."""
    was = await ctx.run(call)
    return Done(int(was))


async def _pause(ctx: RequestContext, key: str, how: QueuePause) -> ChangeResult:
    warning = await ctx.do(ctx.hf.limits.awarning, key)
    was = await ctx.run(ctx.calls.limits.pause(key, ctx.caller.name, how.reason, how.seconds))
    return ChangeResult(int(was), warning)
