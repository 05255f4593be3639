"""LISTEN: wake this worker when an enqueue names it, when a job is to be canceled, and when limits change.

A lost connection costs latency, never a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.errors import HoldfastError
from holdfast.model.clock import CLOCK
from holdfast.store.calls import Calls
from holdfast.store.wire.session import Session
from holdfast.telemetry import logs

log = logs.get("notify")


async def listen(session: Session, calls: Calls, worker: str, on_notification: Callable[[str], None]) -> None:
    """Listen until canceled, and reconnect after a loss.

    A notification is "WORKER" or "WORKER PAYLOAD". The first of each connection is empty: earlier notifications may
    have been missed.
    """
    warnings, pause = logs.RateLimitedLog(log), 0.1
    while True:
        try:
            async for text in session.listen(calls.channel):
                pause = 0.1
                name, _, payload = text.partition(" ")
                if name in ("", worker):
                    on_notification(payload)
        except HoldfastError as error:
            warnings.failed("listener lost; polling continues", error)
        await asyncio.sleep(CLOCK.jitter(pause))
        pause = min(pause * 2, 2.0)
