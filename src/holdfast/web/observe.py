"""/v1/metrics, /v1/levels, /v1/usage: what to watch."""

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
from holdfast.store.telemetry import TelemetryCalls
from holdfast.telemetry.metrics import LEVELS, OTHERS, DatabaseMetrics, RequestMetrics, Stats, exposition
from holdfast.web import jobs, shapes
from holdfast.web.body import BodyRoute
from holdfast.web.service import Reads, Service, Watches, answer
from holdfast.web.together import Together

router = APIRouter(tags=["observe"], route_class=BodyRoute)
FRESH = 1.0  # seconds for which figures are told again
SHARE = 5  # and for so many times as long as it took to count them: nobody's scraping keeps the database busy
DAY = timedelta(days=1).total_seconds()

Names = dict[tuple[str, Any], str]
"""By method and function: how figures call a route."""


def names(routers: Iterable[APIRouter], prefix: str) -> Names:
    """Every route, as the document calls it. (What a request's scope says of it differs by FastAPI's version.)"""
    routes = [each for router in routers for each in router.routes if isinstance(each, APIRoute)]
    return {
        (method, each.endpoint): f"{method} {prefix}{each.path}" for each in routes for method in each.methods or ()
    }


class Figures:
    """The service's figures and the database's as text for Prometheus. However many ask, one counts."""

    def __init__(self, service: Service, names: Names) -> None:
        self.names = names
        self.stats = Stats(set(names.values()))
        self._service = service
        self._scrapes: Together[None, tuple[bytes, str]] = Together(self._answer, at_once=1)
        self._told: tuple[bytes, str] = b"", ""
        self._fresh_until = 0.0

    async def read(self) -> tuple[bytes, str]:
        """The text, and its content type."""
        return await self._scrapes.ask(None)

    async def _answer(self, asking: Sequence[None]) -> list[tuple[bytes, str]]:
        if (began := time.monotonic()) >= self._fresh_until:
            database = DatabaseMetrics(self._service.hf.settings.schema, lambda _: found)
            found = await self._service.run(database.call)
            self._told = exposition(RequestMetrics(self.stats, jobs.waiting), database)
            ended = time.monotonic()
            self._fresh_until = ended + max(FRESH, SHARE * (ended - began))
        return [self._told] * len(asking)


class Counted:
    """Counts requests by route and status, and how long they took."""

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
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "the figures"}
}


@router.get("/metrics", response_class=Response, responses=_TEXT)
async def metrics(request: Request, asked: Watches) -> Response:
    """Figures of the database and of this process, for Prometheus: a second old, or older where counting is slow."""
    figures: Figures = request.app.state.figures
    text, kind = await figures.read()
    return Response(text, media_type=kind)


@router.get("/levels", response_model=shapes.Levels)
async def levels(asked: Watches) -> Response:
    """How the last five minutes stand: each figure's worst with its thresholds, and what each worker did."""
    calls = TelemetryCalls(asked.hf.settings.schema)
    found, workers = await asked.run(calls.levels()), await asked.run(calls.health())
    worst = max((each.level for each in found if each.level is not None), key=LEVELS.__getitem__, default=None)
    return answer(shapes.Levels(worst, found, workers))


@router.get("/usage", response_model=shapes.UsagePage)
async def usage(
    asked: Reads,
    by: Annotated[
        str, Query(max_length=100, description="sum by some of tenant, task, minute, hour, day")
    ] = "tenant,task",
    since: Annotated[
        shapes.Since | None, Query(description="from this minute on: a time with its zone, or 90m, 24h, 30d; else 24h")
    ] = None,
    until: Annotated[shapes.Moment | None, Query(description="before this minute")] = None,
    tenant: shapes.Name | None = None,
    task: shapes.Name | None = None,
    limit: shapes.Limit = 100,
) -> Response:
    """Attempts that ended, failures, run and queue seconds: the newest time first, then the most run seconds."""
    names = [each for each in by.replace(" ", "").split(",") if each]
    call = TelemetryCalls(asked.hf.settings.schema).usage(
        names, since=since or DAY, until=until, tenant=tenant, task=task, limit=limit, who=asked.caller
    )
    return answer({"items": [_told(each) for each in await asked.run(call)]})


def _told(used: Usage) -> dict[str, Any]:
    """Work without a tenant has null, as elsewhere in this service."""
    by = {name: value or None for name, value in used.by.items()}
    return by | {name: getattr(used, name) for name in ("runs", "failures", "run_seconds", "queue_seconds")}
