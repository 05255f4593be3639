"""POST /v1/tick: one bounded pass, for cron and serverless functions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from msgspec import Meta

from holdfast.web.context import RequestContext
from holdfast.web.fields import Body, Name
from holdfast.web.routing import Routes

routes = Routes("/tick", "tick")
COUNTS = ("claimed", "processed", "succeeded", "failed", "throttled", "contention", "depth", "seconds")


class TickRequest(Body):
    """Bounds of one pass."""

    max_jobs: Annotated[int, Meta(ge=1, le=1000)] = 200
    """Jobs in one pass."""
    per_tenant: Annotated[int, Meta(ge=1, le=1000)] = 25
    """Jobs of one tenant in one pass."""
    queues: Annotated[list[Name], Meta(max_length=100)] | None = None
    """Queues, as for a worker; defaults to a worker's default queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickResult:
    """The result of one pass."""

    ok: bool
    claimed: int
    processed: int
    succeeded: int
    failed: int
    throttled: int
    contention: int
    depth: int
    seconds: float


@routes.post("", None, keyed=False, optional_body=True)
async def tick(ctx: RequestContext, request: TickRequest) -> TickResult:
    """Claim a bounded number of jobs, fairly, run them and wait until they end. Concurrent calls are safe."""
    done = asdict(await ctx.hf.atick(request.max_jobs, request.per_tenant, queues=request.queues or None))
    return TickResult(ok=True, **{name: done[name] for name in COUNTS})
