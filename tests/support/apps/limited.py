"""Handlers that stay a moment under their limit and record when, for tests that kill their workers."""

from __future__ import annotations

import asyncio
import os
import time

from holdfast import CONTEXT, Context, Holdfast, Retry

hf = Holdfast()


def write(*words: object) -> None:
    """Write one line at once."""
    file = os.open(os.environ["RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (" ".join(map(str, words)) + "\n").encode())
    os.close(file)


@hf.task(name="stay", retry=Retry.fixed(0, max_attempts=1000))
async def stay(keys: str, seconds: float, *, ctx: Context = CONTEXT) -> None:
    """Record the start and, unless it is killed, the end: word, job, attempt, keys, process, wall clock."""
    write("begin", ctx.job_id, ctx.attempt, keys, os.getpid(), time.time())
    await asyncio.sleep(seconds)
    write("end", ctx.job_id, ctx.attempt, keys, os.getpid(), time.time())
