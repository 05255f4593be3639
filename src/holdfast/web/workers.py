"""/v1/workers: the worker processes, and stopping one; for operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.web.context import RequestContext
from holdfast.web.fields import Name, ReasonBody
from holdfast.web.routing import OPERATES, Routes

routes = Routes("/workers", "workers")


class Stop(ReasonBody, kw_only=True):
    """How a worker stops."""

    now: bool = False
    """Release its jobs at once, as at a second SIGTERM; otherwise it finishes them, as at the first."""


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers, oldest first."""

    items: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class StopResult:
    """A worker that was asked to stop."""

    id: str


@routes.get("", OPERATES)
async def workers(ctx: RequestContext) -> Workers:
    """List the workers: where they run, whether each is alive, draining, stopping or gone, and who asked for it."""
    return Workers(await ctx.run(ctx.calls.workers.list()))


@routes.post("/{worker_id}/stop", OPERATES, optional_body=True)
async def stop(ctx: RequestContext, worker_id: Name, how: Stop) -> StopResult:
    """Ask one worker to claim nothing more, finish its jobs and end. It reads the request every two seconds (setting
    `upkeep`)."""
    call = ctx.calls.workers.stop(worker_id, now=how.now, by=ctx.caller.name, reason=how.reason)
    found = await ctx.found(call, "worker", worker_id)
    return StopResult(found)
