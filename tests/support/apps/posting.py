"""Channels for tests that stop and kill their workers. Each attempt that begins, and each that ends, is one line in the
file that RECORD names."""

from __future__ import annotations

import asyncio
import os
import time

from holdfast import CONTEXT, Context, Delivery, Holdfast, Retry

hf = Holdfast()
AGAIN = Retry.fixed(0, max_attempts=1000)


def note(word: str, it: Delivery[float]) -> None:
    """Write one line at once."""
    file = os.open(os.environ["RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{word} {it.idempotency_key} {it.attempt} {it.maybe_sent}\n".encode())
    os.close(file)


@hf.channel("on_loop", retry=AGAIN)
async def on_loop(it: Delivery[float]) -> None:
    note("begins", it)
    await asyncio.sleep(0 if it.maybe_sent else it.payload)
    note("ends", it)


@hf.channel("in_thread", retry=AGAIN)
def in_thread(it: Delivery[float]) -> None:
    note("begins", it)
    time.sleep(0 if it.maybe_sent else it.payload)
    note("ends", it)


@hf.channel("in_process", retry=AGAIN, runner="process")
def in_process(it: Delivery[float]) -> None:
    note("begins", it)
    time.sleep(0 if it.maybe_sent else it.payload)
    note("ends", it)


@hf.task(name="buy", retry=AGAIN, runner="process")
def buy(n: int, *, ctx: Context = CONTEXT) -> None:
    with ctx.transaction():
        ctx.emit(in_process, 0.0, key=f"order-{n}")
        ctx.emit("on_loop", 0.0, key=f"order-{n}", order="buyer")
