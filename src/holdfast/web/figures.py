"""/v1/figures: what pages and autoscalers show, from the snapshots that upkeep takes. No request counts a table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.web.context import RequestContext
from holdfast.web.fields import Query, Queue
from holdfast.web.routing import WATCHES, Routes

routes = Routes("", "figures")
TWO_DAYS = 172_800.0  # seconds for which minutes are kept


class Depth(msgspec.Struct, kw_only=True):
    """Jobs by state; those in `estimated` are estimates."""

    ready: int
    running: int
    later: int
    dead: int
    estimated: list[str]


class QueueFigures(Depth, kw_only=True):
    """A queue: its jobs, the age of the oldest due one, and the attempts of the last minute: how many ended, failed or
    lost their lease, the seconds they ran, and the seconds that half, 95 % and 99 % of them waited at most."""

    queue: str
    oldest_wait: float | None
    ended: float
    failed: float
    lost: float
    run_seconds: float
    p50: float | None
    p95: float | None
    p99: float | None


class TaskFigures(Depth, kw_only=True):
    """A task: its jobs, and its attempts of the last minute."""

    task: str
    ended: float
    failed: float
    run_seconds: float
    p50: float | None
    p95: float | None


class TenantFigures(Depth, kw_only=True):
    """A tenant: its jobs, and its share of the running ones."""

    tenant: str
    share: float


class Snapshot(msgspec.Struct, kw_only=True):
    """The counts of one moment: up to 500 queues, 100 tasks and 100 tenants, those with the most jobs. `age` is in
    seconds; `seconds` is what the counting took."""

    at: datetime
    age: float
    queues: list[QueueFigures]
    tasks: list[TaskFigures]
    tenants: list[TenantFigures]
    workers: int
    slots: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Minute:
    """The attempts of a queue in one minute, and its jobs at the end; null if nothing was counted then."""

    minute: datetime
    queue: str
    ended: int
    failed: int
    lost: int
    run_seconds: float
    p50: float | None
    p95: float | None
    p99: float | None
    ready: int | None
    running: int | None
    later: int | None
    dead: int | None


@dataclass(frozen=True, slots=True)
class Minutes:
    """Minutes that are over, the oldest first."""

    items: list[Minute]


class WhichMinutes(Query):
    seconds: Annotated[float, Meta(gt=0, le=TWO_DAYS)] = 3600.0
    """Only of the last `seconds` seconds."""
    queue: Queue | None = None
    """Only of this queue."""


@routes.get("/figures", WATCHES)
async def figures(ctx: RequestContext) -> Snapshot:
    """Return the newest snapshot: queues, tasks, tenants and workers. It is 2 seconds old at most, 5 while nothing is
    due."""
    return msgspec.convert(await ctx.run(ctx.calls.figures.read()), Snapshot)


@routes.get("/figures/minutes", WATCHES)
async def minutes(ctx: RequestContext, query: WhichMinutes) -> Minutes:
    """List the attempts and the depth of each queue by minute, kept for two days; the newest 10,000 rows."""
    rows = await ctx.run(ctx.calls.figures.minutes(query.seconds, queue=query.queue, limit=10_000))
    return Minutes([Minute(**row) for row in rows])
