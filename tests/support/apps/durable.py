"""Tasks with steps, which child processes import."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from holdfast import CONTEXT, Context, Fail, Holdfast, Retry

hf = Holdfast()
failing = threading.Event()


def square(n: int) -> int:
    return n * n


def whoami() -> int:
    return os.getpid()


def large() -> str:
    return "x" * 500_000


def leave() -> None:
    os._exit(3)


def fail() -> None:
    raise ValueError("no")


def start_another() -> None:
    """Start a program, note both process ids, and wait for it."""
    other = subprocess.Popen(["sleep", "60"])
    Path(os.environ["RECORD"]).write_text(f"{os.getpid()} {other.pid}\n")
    other.wait()


def sit() -> None:
    time.sleep(60)


def charge() -> int:
    failing.wait()
    return 7


async def reserve() -> None:
    raise Fail("sold out")


@hf.task(name="parallel_in_process", runner="process")
async def parallel_in_process(*, ctx: Context = CONTEXT) -> None:
    try:
        await asyncio.gather(ctx.step("charge", charge), ctx.step("reserve", reserve))
    finally:
        failing.set()


@hf.task(name="starts_another", retry=Retry.none())
async def starts_another(timeout: float | None, *, ctx: Context = CONTEXT) -> None:
    await ctx.step("start", start_another, runner="process", timeout=timeout)


@hf.task(name="label")
def label(n: int) -> int:
    return n + 1


@hf.task(name="in_process", runner="process")
def in_process(n: int, *, ctx: Context = CONTEXT) -> list[Any]:
    sync: Any = ctx
    first = sync.step("square", square, n)
    sync.sleep("nap", seconds=0.05)
    with sync.batch("labels") as labels:
        label.using(batch=labels).enqueue_many([1, 2])
    done = sync.gather(labels)
    return [first, done.succeeded, sync.call("one", label, 41), sync.wait_for("go")]


@hf.task(name="large_result", timeout=20)
async def large_result(*, ctx: Context = CONTEXT) -> int:
    return len(await ctx.step("large", large, runner="process", timeout=5))


@hf.task(name="steps_in_processes")
async def steps_in_processes(*, ctx: Context = CONTEXT) -> list[Any]:
    pid = await ctx.step("pid", whoami, runner="process")
    found: list[Any] = [pid != os.getpid(), await ctx.step("square", square, 7, runner="process")]
    for name, function in (("leave", leave), ("fail", fail), ("sit", sit)):
        try:
            await ctx.step(name, function, runner="process", timeout=0.5 if name == "sit" else None)
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found
