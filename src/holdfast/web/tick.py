"""POST /v1/tick: one bounded pass, for cron and serverless functions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from holdfast.web import secrets, shapes
from holdfast.web.problems import FOR_CHANGES, Problem
from holdfast.web.service import Service, answer

router = APIRouter(tags=["tick"])
COUNTS = ("claimed", "processed", "succeeded", "failed", "throttled", "contention", "depth", "seconds")


@router.post("/tick", response_model=shapes.Ticked, responses=FOR_CHANGES)
async def tick(
    request: Request, wish: shapes.TickWish | None = None, x_internal_secret: Annotated[str, Header()] = ""
) -> Response:
    """Claims a bounded number of jobs, fairly, runs them and waits for their ends. Many at once are safe."""
    if not secrets.knows(x_internal_secret, request.app.state.tick_secrets):
        raise Problem(401, "send one of the tick_secrets in the header x-internal-secret")
    service: Service = request.app.state.service
    wish = wish or shapes.TickWish()
    done = asdict(await service.hf.atick(wish.max_jobs, wish.per_tenant))
    return answer({"ok": True, **{name: done[name] for name in COUNTS}})
