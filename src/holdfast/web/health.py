"""/v1/health: liveness and readiness."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from holdfast.errors import HoldfastError, SchemaError
from holdfast.store.wire import connect
from holdfast.web.context import RequestContext
from holdfast.web.problems import Problem
from holdfast.web.routing import Routes
from holdfast.web.service import Service

routes = Routes("/health", "health")
PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Health:
    """checks: "ok" for each part that was checked."""

    status: str
    checks: dict[str, str]


@routes.get("/live", None, head=True)
async def live(ctx: RequestContext) -> Health:
    """Return 200 while the process responds."""
    return Health("ok", {"process": "ok"})


@routes.get("/ready", None, head=True)
async def ready(ctx: RequestContext) -> Health:
    """Check that the database responds and has the schema of this release, and RabbitMQ where it is required."""
    database, queue = await asyncio.gather(_database(ctx.service), _queue(ctx.service))
    checks = database | queue
    if bad := {name: found for name, found in checks.items() if found != "ok"}:
        detail = "; ".join(f"{name}: {found}" for name, found in bad.items())
        raise Problem(503, f"not ready: {detail}", "not-ready", checks=checks)
    return Health("ok", checks)


async def _database(service: Service) -> dict[str, str]:
    """Check the database and its schema. Only the log gets the error text, because it may name servers."""
    try:
        async with asyncio.timeout(PATIENCE):
            found = await service.run(service.hf.database.calls.version())
    except (HoldfastError, TimeoutError) as error:
        return {"database": f"not reachable ({type(error).__name__})"}
    try:
        connect.check_schema(found, service.hf.settings.schema)
    except SchemaError as error:
        return {"database": "ok", "schema": str(error)}
    return {"database": "ok", "schema": "ok"}


async def _queue(service: Service) -> dict[str, str]:
    """Check RabbitMQ where it is required; jobs run without it too."""
    settings = service.hf.settings
    if not (settings.amqp_enabled and settings.health_require_amqp):
        return {}
    connected = await service.hf.database.publisher.wait_connected(PATIENCE)
    return {"queue": "ok" if connected else "not connected to RabbitMQ, which HOLDFAST_HEALTH_REQUIRE_AMQP requires"}
