"""/v1/health: whether the process lives, and whether it can answer."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from holdfast.errors import HoldfastError
from holdfast.store import connect, migrate
from holdfast.web import shapes
from holdfast.web.problems import Problem, documented
from holdfast.web.service import Service, answer

router = APIRouter(prefix="/health", tags=["health"])
PATIENCE = 5.0


@router.get("/live", response_model=shapes.Health)
async def live() -> Response:
    """Whether the process answers."""
    return answer(shapes.Health("ok"))


@router.get("/ready", response_model=shapes.Health, responses=documented(503))
async def ready(request: Request) -> Response:
    """Whether the database answers and has the schema that this release needs."""
    service: Service = request.app.state.service
    try:
        async with asyncio.timeout(PATIENCE):
            found = await service.run(service.seen.version())
            connect.check_schema(found, migrate.expected_version(), service.hf.settings.schema)
    except (HoldfastError, TimeoutError) as error:
        kind = type(error).__name__
        raise Problem(503, f"the database does not answer, or its schema does not fit ({kind})", "not-ready") from error
    return answer(shapes.Health("ok"))
