"""/v1/metrics, /v1/levels, /v1/usage: monitoring."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.model.health import LEVELS
from holdfast.model.tick import Level, Usage
from holdfast.store.wire.coalesce import LoopCoalescer
from holdfast.telemetry.metrics import OTHERS, DatabaseMetrics, RequestMetrics, Stats, exposition
from holdfast.web.context import RequestContext
from holdfast.web.fields import Moment, Name, PageSize, Query, Since
from holdfast.web.routing import READS, WATCHES, Routes
from holdfast.web.service import Service
from holdfast.web.waiting import waiting

routes = Routes("", "observe")
FRESH = 1.0  # seconds for which metrics are cached
FRESH_FACTOR = 5  # and cached for at least this many times as long as their query took, to bound the load
DAY = timedelta(days=1).total_seconds()
ROUTE = "holdfast.route"  # scope key: the label of the request's route


class Figures:
    """The metrics of the service and the database as text for Prometheus. Concurrent scrapes share one query."""

    def __init__(self, service: Service, labels: set[str]) -> None:
        self.stats = Stats(labels)
        self._service = service
        self._scrapes: LoopCoalescer[None, tuple[bytes, str]] = LoopCoalescer(self._scrape, at_once=1)
        self._cached: tuple[bytes, str] = b"", ""
        self._fresh_until = 0.0
        if service.hf.registry.meters:
            self._export()

    def _export(self) -> None:
        from holdfast.telemetry import meters

        hf = self._service.hf
        for meter in hf.registry.meters:
            meters.observe(meter, RequestMetrics(self.stats, waiting))
            meters.observe_database(meter, hf.settings.schema, hf.database.sync_pool.run)

    async def read(self) -> tuple[bytes, str]:
        """Return the text and its content type."""
        return await self._scrapes.ask(None)

    async def _scrape(self, requests: Sequence[None]) -> list[tuple[bytes, str]]:
        if (began := time.monotonic()) >= self._fresh_until:
            database = DatabaseMetrics(self._service.hf.settings.schema, lambda _: found)
            found = await self._service.run(database.call)
            self._cached = exposition(RequestMetrics(self.stats, waiting), database)
            ended = time.monotonic()
            self._fresh_until = ended + max(FRESH, FRESH_FACTOR * (ended - began))
        return [self._cached] * len(requests)


class RequestCounter:
    """Middleware that counts requests by route and status, and measures their duration."""

    def __init__(self, inner: ASGIApp, figures: Figures) -> None:
        self._inner = inner
        self._figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._inner(scope, receive, noting)
        finally:
            self._figures.stats.note(scope.get(ROUTE, OTHERS), str(status), time.monotonic() - began)


class ListUsage(Query):
    by: Annotated[str, Meta(max_length=100)] = "tenant,task"
    """Sum by some of tenant, task, minute, hour, day."""
    since: Since | None = None
    """From this minute on: a time with its zone, or 90m, 24h (default), 30d."""
    until: Moment | None = None
    """Before this minute."""
    tenant: Name | None = None
    task: Name | None = None
    limit: PageSize = 100
    """Maximum number of items."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The worst level, each metric, and the rows of the view worker_health_summary."""

    level: str | None
    items: list[Level]
    workers: list[dict[str, Any]]


class UsageRow(msgspec.Struct, kw_only=True):
    """Usage, with those of tenant, task, minute, hour and day that it is summed by."""

    tenant: str | UnsetType | None = UNSET
    task: str | UnsetType | None = UNSET
    minute: datetime | UnsetType = UNSET
    hour: datetime | UnsetType = UNSET
    day: datetime | UnsetType = UNSET
    runs: int
    failures: int
    run_seconds: float
    queue_seconds: float


@dataclass(frozen=True, slots=True)
class UsageRows:
    """Usage, newest first, then by run seconds."""

    items: list[UsageRow]


_TEXT = {"200": {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "the metrics"}}


@routes.get("/metrics", WATCHES, described={"responses": _TEXT})
async def metrics(ctx: RequestContext) -> Response:
    """Return the metrics of the database and of this process, cached for a second, or longer if the query is slow."""
    text, kind = await ctx.app.figures.read()
    return Response(text, media_type=kind)


@routes.get("/levels", WATCHES)
async def levels(ctx: RequestContext) -> Levels:
    """Return the levels of the last five minutes: each metric's worst value with its thresholds, and each worker."""
    calls = ctx.calls
    found, workers = await ctx.run(calls.figures.levels()), await ctx.run(calls.workers.health())
    worst = max((each.level for each in found if each.level is not None), key=LEVELS.__getitem__, default=None)
    return Levels(worst, found, workers)


@routes.get("/usage", READS)
async def usage(ctx: RequestContext, query: ListUsage) -> UsageRows:
    """Return ended attempts, failures, run and queue seconds, newest first, then by run seconds."""
    names = [each for each in query.by.replace(" ", "").split(",") if each]
    where: dict[str, Any] = {name: getattr(query, name) for name in ("until", "tenant", "task", "limit")}
    call = ctx.calls.workers.usage(names, since=query.since or DAY, **where, view=ctx.view)
    return UsageRows([_usage_row(each) for each in await ctx.run(call)])


def _usage_row(usage: Usage) -> UsageRow:
    """Return a row. Work without a tenant has null, as elsewhere in this service."""
    by: dict[str, Any] = {name: value or None for name, value in usage.by.items()}
    sums: dict[str, Any] = {name: getattr(usage, name) for name in ("runs", "failures", "run_seconds", "queue_seconds")}
    return UsageRow(**by, **sums)
