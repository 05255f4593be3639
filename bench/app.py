"""The application that the worker processes of the long suites run: the quick bench's, and more tasks."""

from __future__ import annotations

import asyncio
import time

from holdfast.bench.app import hf
from holdfast.model.outbox import Delivery

STARTS: list[tuple[int, float, float]] = []  # job number, and wall-clock start and end of its handler


@hf.task(name="bench.noop_thread")
def noop_thread(n: int, text: str) -> None:
    """Do nothing in a thread."""


@hf.task(name="bench.noop_process", runner="process")
def noop_process(n: int, text: str) -> None:
    """Do nothing in a child process."""


@hf.task(name="bench.timed")
async def timed(n: int, seconds: float) -> None:
    """Record its own times, to compare them with the database's."""
    began = time.time()
    if seconds:
        await asyncio.sleep(seconds)
    STARTS.append((n, began, time.time()))


@hf.channel("bench", queue="default")
async def deliver(delivery: Delivery[object]) -> None:
    """Send nothing."""
