"""Harmonyk's background work, and the service whose tick runs it: `uvicorn harmonyk.app:web`."""

from __future__ import annotations

import hmac
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

from fastapi import FastAPI, Header, HTTPException
from pydantic import AwareDatetime, BaseModel

from harmonyk.jobs import RETRY, EnqueueJobInput, JobsRepository
from holdfast import Dedupe, Holdfast, InvalidPayload, Tick, UnknownTask

JOBS_PER_TICK = int(os.environ.get("JOBS_PER_TICK", "25"))  # N

hf = Holdfast()


@hf.task(name="document.index", retry=RETRY, dedupe=Dedupe())
async def index_document(document_id: int, pages: int = 1) -> dict[str, int]:
    return {"document_id": document_id, "words": pages * 250}


@hf.task(name="digest.send", retry=RETRY, dedupe=Dedupe())
async def send_digest(to: str, weekday: str = "monday") -> str:
    return f"{weekday}'s digest to {to}"


class CalendarDown(Exception):
    """The calendar's provider does not respond."""


outages: dict[str, int] = {}  # how many more times a calendar fails; the run and the tests fill it


@hf.task(name="calendar.sync", retry=RETRY, dedupe=Dedupe())
async def sync_calendar(calendar: str) -> int:
    left = outages.get(calendar, 0)
    if left:
        outages[calendar] = left - 1
        raise CalendarDown(f"calendar {calendar} does not respond")
    return 12


async def run_jobs_tick_dev(max_jobs: int = JOBS_PER_TICK) -> Tick:
    """Claim at most N due jobs, run them in this process, and mark their success or failure. Any number of
    ticks may run at the same time, here and elsewhere."""
    return await hf.atick(max_jobs=max_jobs)


# --- the web tier ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _closing(_: FastAPI) -> AsyncIterator[None]:
    async with JobsRepository(hf) as jobs:
        web.state.jobs = jobs
        yield
    await hf.aclose()


web = FastAPI(title="Harmonyk", lifespan=_closing)


class Wanted(BaseModel):
    type: str
    orgId: UUID | None = None  # noqa: N815 - as callers spell it
    payload: dict[str, Any] = {}
    runAt: AwareDatetime | None = None  # noqa: N815


@web.post("/api/jobs", status_code=202)
async def enqueue(wanted: Wanted) -> dict[str, str]:
    org = None if wanted.orgId is None else str(wanted.orgId)
    try:
        job = EnqueueJobInput(wanted.type, org, wanted.payload, wanted.runAt)
        return {"id": await web.state.jobs.enqueue(job)}
    except (UnknownTask, InvalidPayload) as error:
        raise HTTPException(422, str(error)) from error


@web.post("/api/jobs/tick")
async def tick(x_internal_secret: Annotated[str, Header()] = "") -> dict[str, bool]:
    """Run a tick; cron calls this every minute or every second."""
    secret = os.environ.get("INTERNAL_SECRET", "")
    if not secret or not hmac.compare_digest(secret.encode(), x_internal_secret.encode()):
        raise HTTPException(401, "send INTERNAL_SECRET in the header x-internal-secret")
    await run_jobs_tick_dev()
    return {"ok": True}


@web.get("/api/insights")
async def insights() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = await web.state.jobs.insights()
    return rows
