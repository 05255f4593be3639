"""/v1/health: liveness and readiness."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from holdfast.errors import HoldfastError, SchemaError
from holdfast.store import migrate
from holdfast.store.wire import connect
from holdfast.web import shapes
from holdfast.web.problems import Problem, documented
from holdfast.web.service import Service, respond

router = APIRouter(prefix="/health", tags=["health"])
PATIENCE = 5.0


@router.get("/live", response_model=shapes.Health)
async def live() -> Response:
    """Return 200 while the process responds."""
    return respond(shapes.Health("ok", {"process": "ok"}))


@router.get("/ready", response_model=shapes.Health, responses=documented(503))
async def ready(request: Request) -> Response:
    """Check that the database responds and has the schema of this release, and RabbitMQ where it is required."""
    service: Service = request.app.state.service
    database, queue = await asyncio.gather(_database(service), _queue(service))
    checks = database | queue
    if bad := {name: found for name, found in checks.items() if found != "ok"}:
        detail = "; ".join(f"{name}: {found}" for name, found in bad.items())
        raise Problem(503, f"not ready: {detail}", "not-ready", checks=checks)
    return respond(shapes.Health("ok", checks))


async def _database(service: Service) -> dict[str, str]:
    """Check the database and its schema. Only the log gets the error text, because it may name servers."""
    try:
        async with asyncio.timeout(PATIENCE):
            found = await service.run(service.hf.database.calls.version())
    except (HoldfastError, TimeoutError) as error:
        return {"database": f"not reachable ({type(error).__name__})"}
    try:
        connect.check_schema(found, migrate.expected_version(), service.hf.settings.schema)
    except SchemaError as error:
        return {"database": "ok", "schema": str(error)}
    return {"database": "ok", "schema": "ok"}


async def _queue(service: Service) -> dict[str, str]:
    """Check RabbitMQ where it is required; jobs run without it too."""
    settings = service.hf.settings
    if not (settings.amqp_enabled and settings.health_require_amqp):
        return {}
    reached = await service.hf.database.publisher.reached(PATIENCE)
    return {"queue": "ok" if reached else "not connected to RabbitMQ, which HOLDFAST_HEALTH_REQUIRE_AMQP requires"}
