"""The application that the bench's worker process runs."""

from __future__ import annotations

import time

from holdfast.client import Holdfast

hf = Holdfast()


@hf.task(name="bench.noop")
async def noop(n: int, text: str) -> None:
    """Do nothing, so that only Holdfast is measured."""


@hf.task(name="bench.stamp")
async def stamp(sent: int) -> float:
    """Return how many milliseconds ago the job was sent, by this machine's clock."""
    return (time.time_ns() - sent) / 1e6
