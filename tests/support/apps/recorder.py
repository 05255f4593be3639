"""Handlers for worker processes in the tests. Each start of a handler is one line in the file that RECORD names."""

from __future__ import annotations

import asyncio
import os
import time

from holdfast import CONTEXT, Context, Fail, Holdfast, Retry

hf = Holdfast()


def note(word: str, ctx: Context) -> None:
    """Write one line at once: word, job, attempt, process."""
    line = f"{word} {ctx.job_id} {ctx.attempt} {os.getpid()}\n"
    file = os.open(os.environ["RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


@hf.task(name="record", retry=Retry.fixed(0.1, max_attempts=5))
async def record(n: int, *, ctx: Context = CONTEXT) -> None:
    note("record", ctx)


@hf.task(name="slow", retry=Retry.fixed(0.1, max_attempts=5))
async def slow(seconds: float, *, ctx: Context = CONTEXT) -> str:
    note("slow", ctx)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("canceled", ctx)
        raise
    return f"slept {seconds}"


@hf.task(name="slow_at_first", retry=Retry.fixed(0.1, max_attempts=5))
async def slow_at_first(seconds: float, *, ctx: Context = CONTEXT) -> None:
    """Let the first attempt last long enough for its worker to be killed or frozen meanwhile."""
    note("slow", ctx)
    await asyncio.sleep(seconds if ctx.attempt == 1 else 0)


@hf.task(name="in_thread", retry=Retry.fixed(0.1, max_attempts=5))
def in_thread(seconds: float, *, ctx: Context = CONTEXT) -> None:
    note("in_thread", ctx)
    time.sleep(seconds)


@hf.task(name="poison", retry=Retry.fixed(0.05, max_attempts=3))
async def poison(*, ctx: Context = CONTEXT) -> None:
    note("poison", ctx)
    os._exit(9)


@hf.task(name="hopeless")
async def hopeless() -> None:
    raise Fail("never works", code="HOPELESS")
