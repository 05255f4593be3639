"""The application that the bench's worker processes run."""

from __future__ import annotations

import time

from holdfast.client import Holdfast

hf = Holdfast()


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
