"""Handlers that would kill, starve or freeze the process they run in, and healthy ones of every kind beside them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time

from holdfast import Holdfast, Retry

hf = Holdfast()
TWICE = Retry.fixed(0.05, max_attempts=2)


@hf.task(runner="process", retry=TWICE)
def exits() -> None:
    print("going, going")
    os._exit(1)


@hf.task(runner="process", retry=TWICE)
def segfaults() -> None:
    ctypes.string_at(0)


@hf.task(runner="process", retry=TWICE)
def allocates() -> None:
    bytearray(2 << 30)


@hf.task(runner="process", retry=TWICE, timeout=1)
def spins() -> None:
    while True:
        pass


@hf.task(runner="process", retry=TWICE, timeout=7)
def holds_the_lock() -> None:
    """Keep the interpreter's lock, as PyDLL calls do: no other thread of this process runs."""
    ctypes.PyDLL(None).sleep(600)


@hf.task(retry=TWICE)
async def healthy_async(n: int) -> int:
    await asyncio.sleep(0.01)
    return os.getpid()


@hf.task(retry=TWICE)
def healthy_thread(n: int) -> int:
    time.sleep(0.01)
    return os.getpid()


@hf.task(retry=TWICE, runner="process")
def healthy_process(n: int) -> int:
    time.sleep(0.01)
    return os.getpid()
