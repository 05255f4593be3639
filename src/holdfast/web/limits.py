"""/v1/limits and /v1/keys: limits, pauses and breakers of keys, for operators."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from holdfast.model.limit import BreakerEvent, LimitInfo
from holdfast.web.context import RequestContext
from holdfast.web.fields import Amount, Key, PageSize, Prefix, Query, ReasonBody, ReasonQuery, Seconds, Whole, given
from holdfast.web.results import ChangeCount, ChangeResult, changed
from holdfast.web.routing import OPERATES, Routes

routes = Routes("", "limits")
MOST_EVENTS = 50  # of a breaker; no more are kept


class ListLimits(Query):
    prefix: Prefix = ""
    busy: bool = False
    """Only those that run or hold something back."""
    limit: PageSize = 200
    """Maximum number of items."""


class OneOf(Query):
    key: Key
    """A limit's key, or queue:NAME, task:NAME, tenant:NAME."""


class WhichKey(ReasonQuery, kw_only=True):
    key: Key
    """A limit's key, or queue:NAME, task:NAME, tenant:NAME."""


class OneKey(ReasonBody, kw_only=True):
    """A limit's key, or queue:NAME, task:NAME, tenant:NAME."""

    key: Key


class NewPause(OneKey, kw_only=True):
    """A key under which no more jobs start, for some seconds or until it is resumed."""

    seconds: Seconds | None = None
    """Length of the pause; without it, until resumed."""


class LimitChange(OneKey, kw_only=True):
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
class KeyState:
    """A key with the last 50 events of its breaker. limit: null for a key that is not in use."""

    limit: LimitInfo | None
    breaker: list[BreakerEvent]


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
async def clear_limit(ctx: RequestContext, query: WhichKey) -> ChangeCount:
    """Remove the overrides of a key or a template."""
    return ChangeCount(await ctx.hf.limits.aclear(query.key, by=ctx.caller.name, reason=query.reason))


@routes.get("/keys", OPERATES)
async def key(ctx: RequestContext, query: OneOf) -> KeyState:
    """Return a key: the limits in force, their use, and what its breaker did, newest first, for 30 days."""
    found = await ctx.run(ctx.calls.limits.read([query.key]))
    history = await ctx.run(ctx.calls.limits.breaker_history(query.key, MOST_EVENTS))
    return KeyState(found[0] if found else None, history)


@routes.post("/keys/pause", OPERATES)
async def pause(ctx: RequestContext, new: NewPause) -> ChangeResult:
    """Pause a key: running jobs continue. Repeating it replaces who, why and until when (changed: 0)."""
    return await pause_key(ctx, new.key, new.reason, new.seconds)


@routes.post("/keys/resume", OPERATES)
async def resume(ctx: RequestContext, one: OneKey) -> ChangeCount:
    """Resume a paused key."""
    return await changed(ctx, ctx.calls.limits.resume(one.key, ctx.caller.name, one.reason))


@routes.post("/keys/reset", OPERATES)
async def reset(ctx: RequestContext, one: OneKey) -> ChangeCount:
    """Close a key's breaker and clear its failures."""
    return await changed(ctx, ctx.calls.limits.reset_breaker(one.key, ctx.caller.name, one.reason))


async def pause_key(ctx: RequestContext, key: str, reason: str | None, seconds: float | None) -> ChangeResult:
    """Pause a key, for some seconds or until it is resumed."""
    warning = await ctx.do(ctx.hf.limits.awarning, key)
    was = await ctx.run(ctx.calls.limits.pause(key, ctx.caller.name, reason, seconds))
    return ChangeResult(int(was), warning)
