"""LISTEN: wakes this worker when an enqueue names it, and tells it of jobs to cancel and of limits that changed.

A lost connection costs latency, never a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.errors import HoldfastError
from holdfast.store.calls import Calls
from holdfast.store.session import Session
from holdfast.telemetry import logs

log = logs.get("notify")


async def listen(session: Session, calls: Calls, worker: str, tell: Callable[[str], None]) -> None:
    """Listens for ever, connecting again after a loss. A notification is "WORKER" or "WORKER NEWS"; the first of each
    connection is empty: from then on it hears them, and what it was told before it has to look for."""
    warnings, pause = logs.Seldom(log), 0.1
    while True:
        try:
            async for payload in session.listen(calls.channel):
                pause = 0.1
                name, _, news = payload.partition(" ")
                if name in ("", worker):
                    tell(news)
        except HoldfastError as error:
            warnings.failed("listener lost; polling goes on", error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, 5.0)
