"""/v1/metrics, /v1/levels, /v1/usage: monitoring."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.model.tick import Usage
from holdfast.telemetry.metrics import LEVELS, OTHERS, DatabaseMetrics, RequestMetrics, Stats, exposition
from holdfast.web import jobs, shapes
from holdfast.web.body import BodyRoute
from holdfast.web.coalesce import Coalescer
from holdfast.web.service import Reads, Service, Watches, respond

router = APIRouter(tags=["observe"], route_class=BodyRoute)
FRESH = 1.0  # seconds for which metrics are cached
SHARE = 5  # and at least so many times as long as the query took, so that scraping cannot keep the database busy
DAY = timedelta(days=1).total_seconds()

Names = dict[tuple[str, Any], str]
"""The route label of metrics, by method and function."""


def names(routers: Iterable[APIRouter], prefix: str) -> Names:
    """Return the label of every route. (The scope's route path differs between FastAPI versions.)"""
    routes = [each for router in routers for each in router.routes if isinstance(each, APIRoute)]
    return {
        (method, each.endpoint): f"{method} {prefix}{each.path}" for each in routes for method in each.methods or ()
    }


class Figures:
    """The metrics of the service and the database as text for Prometheus. Concurrent scrapes share one query."""

    def __init__(self, service: Service, names: Names) -> None:
        self.names = names
        self.stats = Stats(set(names.values()))
        self._service = service
        self._scrapes: Coalescer[None, tuple[bytes, str]] = Coalescer(self._scrape, at_once=1)
        self._cached: tuple[bytes, str] = b"", ""
        self._fresh_until = 0.0

    async def read(self) -> tuple[bytes, str]:
        """Return the text and its content type."""
        return await self._scrapes.ask(None)

    async def _scrape(self, requests: Sequence[None]) -> list[tuple[bytes, str]]:
        if (began := time.monotonic()) >= self._fresh_until:
            database = DatabaseMetrics(self._service.hf.settings.schema, lambda _: found)
            found = await self._service.run(database.call)
            self._cached = exposition(RequestMetrics(self.stats, jobs.waiting), database)
            ended = time.monotonic()
            self._fresh_until = ended + max(FRESH, SHARE * (ended - began))
        return [self._cached] * len(requests)


class Counted:
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
            route = self._figures.names.get((scope["method"], scope.get("endpoint")), OTHERS)
            self._figures.stats.note(route, str(status), time.monotonic() - began)


_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "the metrics"}
}


@router.get("/metrics", response_class=Response, responses=_TEXT)
async def metrics(request: Request, ctx: Watches) -> Response:
    """Return the metrics of the database and of this process, cached for a second, or longer if the query is slow."""
    figures: Figures = request.app.state.figures
    text, kind = await figures.read()
    return Response(text, media_type=kind)


@router.get("/levels", response_model=shapes.Levels)
async def levels(ctx: Watches) -> Response:
    """Return the levels of the last five minutes: each metric's worst value with its thresholds, and each worker."""
    calls = ctx.hf.database.calls
    found, workers = await ctx.run(calls.figures.levels()), await ctx.run(calls.workers.health())
    worst = max((each.level for each in found if each.level is not None), key=LEVELS.__getitem__, default=None)
    return respond(shapes.Levels(worst, found, workers))


@router.get("/usage", response_model=shapes.UsagePage)
async def usage(
    ctx: Reads,
    by: Annotated[
        str, Query(max_length=100, description="sum by some of tenant, task, minute, hour, day")
    ] = "tenant,task",
    since: Annotated[
        shapes.Since | None, Query(description="from this minute on: a time with its zone, or 90m, 24h (default), 30d")
    ] = None,
    until: Annotated[shapes.Moment | None, Query(description="before this minute")] = None,
    tenant: shapes.Name | None = None,
    task: shapes.Name | None = None,
    limit: shapes.Limit = 100,
) -> Response:
    """Return ended attempts, failures, run and queue seconds, newest first, then by run seconds."""
    names = [each for each in by.replace(" ", "").split(",") if each]
    call = ctx.hf.database.calls.workers.usage(
        names, since=since or DAY, until=until, tenant=tenant, task=task, limit=limit, view=ctx.caller.view
    )
    return respond({"items": [_item(each) for each in await ctx.run(call)]})


def _item(usage: Usage) -> dict[str, Any]:
    """Return a row as JSON. Work without a tenant has null, as elsewhere in this service."""
    by = {name: value or None for name, value in usage.by.items()}
    return by | {name: getattr(usage, name) for name in ("runs", "failures", "run_seconds", "queue_seconds")}
