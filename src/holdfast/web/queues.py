"""/v1/queues: their figures from the newest snapshot, how many slots they want, their pauses. For operators."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.web.context import RequestContext
from holdfast.web.fields import Body, Query, Queue, Reason, ReasonBody, Seconds
from holdfast.web.figures import TWO_DAYS, QueueFigures
from holdfast.web.limits import pause_key
from holdfast.web.results import ChangeCount, ChangeResult, changed
from holdfast.web.routing import OPERATES, WATCHES, Routes

routes = Routes("/queues", "queues")


class Pause(msgspec.Struct):
    """A pause: since when and until when, by whom and why."""

    since: datetime | None
    until: datetime | None
    by: str | None
    reason: str | None


class QueueState(QueueFigures, kw_only=True):
    """A queue with its pause."""

    paused: Pause | None = None


class Queues(msgspec.Struct):
    """The queues of a snapshot, which is `age` seconds old, with the pauses of now."""

    at: datetime
    age: float
    items: list[QueueState]


@dataclass(frozen=True, slots=True)
class WantedSlots:
    """How many slots a queue wants."""

    wanted: int


class QueuePause(Body):
    """Reason and length of a pause."""

    reason: Reason | None = None
    """Shown to operators, and kept in the log."""
    seconds: Seconds | None = None
    """Length of the pause; without it, until resumed."""


class SlotsQuery(Query):
    seconds: Annotated[float, Meta(gt=0, le=TWO_DAYS)] = 60.0
    """Time in which the present backlog is to start."""


_NOTHING: dict[str, object] = dict.fromkeys(("ready", "running", "later", "dead", "ended", "failed", "lost"), 0)
_EMPTY = _NOTHING | dict.fromkeys(("oldest_wait", "p50", "p95", "p99")) | {"estimated": [], "run_seconds": 0.0}


@routes.get("", OPERATES)
async def queues(ctx: RequestContext) -> Queues:
    """List the queues that have jobs, ran some in the last minute, or are paused, from the newest snapshot."""
    snapshot = await ctx.run(ctx.calls.figures.read())
    paused = await ctx.run(ctx.calls.queues.pauses())
    known = {row["queue"]: row for row in snapshot["queues"]}
    rows = [
        {"queue": name, **_EMPTY, **known.get(name, {}), "paused": paused.get(name)} for name in {**known, **paused}
    ]
    rows.sort(key=lambda row: str(row["queue"]))
    return msgspec.convert({"at": snapshot["at"], "age": snapshot["age"], "items": rows}, Queues)


@routes.get("/{queue}/wanted", WATCHES)
async def wanted(ctx: RequestContext, queue: Queue, query: SlotsQuery) -> WantedSlots:
    """Return how many slots a queue wants: as many as keep up with the last minute's rate and start the present backlog
    in time. For autoscalers."""
    return WantedSlots(await ctx.run(ctx.calls.figures.wanted_workers(queue, query.seconds)))


@routes.post("/{queue}/pause", OPERATES, optional_body=True)
async def pause_queue(ctx: RequestContext, queue: Queue, why: QueuePause) -> ChangeResult:
    """Pause a queue: running jobs continue. Repeating it replaces who, why and until when (changed: 0)."""
    return await pause_key(ctx, f"queue:{queue}", why.reason, why.seconds)


@routes.post("/{queue}/resume", OPERATES, optional_body=True)
async def resume_queue(ctx: RequestContext, queue: Queue, why: ReasonBody) -> ChangeCount:
    """Resume a paused queue."""
    return await changed(ctx, ctx.calls.limits.resume(f"queue:{queue}", ctx.caller.name, why.reason))
