"""POST /v1/tick: one bounded pass, for cron and serverless functions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from starlette.responses import Response

from holdfast.web import secrets, shapes
from holdfast.web.body import BodyRoute
from holdfast.web.parameters import unknown_parameter
from holdfast.web.problems import FOR_CHANGES, Problem
from holdfast.web.service import Service, respond

router = APIRouter(tags=["tick"], route_class=BodyRoute)
COUNTS = ("claimed", "processed", "succeeded", "failed", "throttled", "contention", "depth", "seconds")


async def _knows_secret(request: Request, x_internal_secret: Annotated[str, Header()] = "") -> None:
    """Check the secret before the body is read. Starlette decodes header bytes as Latin-1."""
    if not secrets.knows(x_internal_secret.encode("latin-1", "replace"), request.app.state.tick_secrets):
        raise Problem(401, "send one of HOLDFAST_TICK_SECRETS in the header x-internal-secret")
    if (wrong := unknown_parameter(request)) is not None:
        raise Problem(422, wrong)


@router.post("/tick", response_model=shapes.Ticked, responses=FOR_CHANGES, dependencies=[Depends(_knows_secret)])
async def tick(request: Request, wish: shapes.TickWish | None = None) -> Response:
    """Claim a bounded number of jobs, fairly, run them and wait until they end. Concurrent calls are safe."""
    service: Service = request.app.state.service
    wish = wish or shapes.TickWish()
    done = asdict(await service.hf.atick(wish.max_jobs, wish.per_tenant, queues=wish.queues or None))
    return respond({"ok": True, **{name: done[name] for name in COUNTS}})
