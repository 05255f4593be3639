"""The application that the bench's worker processes run."""

from __future__ import annotations

import asyncio
import time

from holdfast.client import Holdfast
from holdfast.model.delivery import Delivery

hf = Holdfast()
STARTS: list[tuple[int, float, float]] = []  # which job, when its handler began and when it ended, by the wall clock


@hf.task(name="bench.noop")
async def noop(n: int, text: str) -> None:
    """Does nothing, so that only Holdfast is measured."""


@hf.task(name="bench.noop_thread")
def noop_thread(n: int, text: str) -> None:
    """The same in a thread."""


@hf.task(name="bench.noop_process", runner="process")
def noop_process(n: int, text: str) -> None:
    """The same in a child process."""


@hf.task(name="bench.stamp")
async def stamp(sent: int) -> float:
    """How many milliseconds ago the job was sent, by this machine's clock."""
    return (time.time_ns() - sent) / 1e6


@hf.task(name="bench.timed")
async def timed(n: int, seconds: float) -> None:
    """Keeps its own time, so that what the database says can be held against it."""
    began = time.time()
    if seconds:
        await asyncio.sleep(seconds)
    STARTS.append((n, began, time.time()))


@hf.channel("bench", queue="default")
async def deliver(delivery: Delivery[object]) -> None:
    """Sends nothing."""
