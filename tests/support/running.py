"""A worker inside the test's own event loop, and ways to wait for what it does."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from holdfast import Holdfast, JobInfo, Status
from holdfast.worker import Worker
from tests.conftest import PATIENCE

QUICK = {"poll": 0.2, "upkeep": 0.2, "grace": 5.0}


@asynccontextmanager
async def working(hf: Holdfast, **settings: Any) -> AsyncIterator[Worker]:
    """Run a worker for the length of a block."""
    worker = Worker(hf, **(QUICK | settings))
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait for a condition, a function or a coroutine function, and return its value."""
    async with asyncio.timeout(seconds):
        while not (value := await _value(condition())):  # noqa: ASYNC110 - the database cannot set an Event
            await asyncio.sleep(0.01)
    return value


async def _value(expected: Any) -> Any:
    return await expected if inspect.isawaitable(expected) else expected


async def ended(hf: Holdfast, job_id: str) -> JobInfo:
    """Return the job once it is at a final status."""

    async def final() -> JobInfo | None:
        info = await hf.jobs.aget(job_id)
        return info if info is not None and info.status.final else None

    info: JobInfo = await until(final)
    return info


async def parked(hf: Holdfast, job: Any) -> str:
    """Return what a job waits for, once it does."""

    async def waits() -> str | None:
        info = await hf.jobs.aget(job.id)
        return info.waits_for if info is not None and info.status is Status.WAITING else None

    found: str = await until(waits)
    return found


async def waiting(hf: Holdfast, job_id: str) -> JobInfo:
    """Return the job once it waits for another attempt or another time."""

    async def later() -> JobInfo | None:
        info = await hf.jobs.aget(job_id)
        return info if info is not None and info.last_error is not None else None

    info: JobInfo = await until(later)
    return info


async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy bytes from one connection to another until either ends: half of a relay."""
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()
