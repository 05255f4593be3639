"""Handlers that write one row each, in their job's own transaction or beside it, for tests that kill their workers."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import psycopg
from recorder import note

from holdfast import CONTEXT, Cancel, Context, Fail, Holdfast, LeaseLost, Retry

hf = Holdfast()
ROW = "insert into public.ledger (job, attempt) values (%s, %s)"
AGAIN = Retry.fixed(0, max_attempts=1000)


def moment() -> float:
    """Return a delay long enough for a kill, before and after the row."""
    return random.uniform(0, 0.1)


@hf.task(name="on_loop", retry=AGAIN)
async def on_loop(n: int, *, ctx: Context = CONTEXT) -> None:
    async with ctx.transaction() as conn:
        await asyncio.sleep(moment())
        await conn.execute(ROW, [ctx.job_id, ctx.attempt])
        await asyncio.sleep(moment())


@hf.task(name="in_thread", retry=AGAIN)
def in_thread(n: int, *, ctx: Context = CONTEXT) -> None:
    with ctx.transaction() as conn:
        time.sleep(moment())
        conn.execute(ROW, [ctx.job_id, ctx.attempt])
        time.sleep(moment())


@hf.task(name="in_process", retry=AGAIN, runner="process")
def in_process(n: int, *, ctx: Context = CONTEXT) -> None:
    with ctx.transaction() as conn:
        conn.execute(ROW, [ctx.job_id, ctx.attempt])
        time.sleep(moment())


@hf.task(name="outside", retry=AGAIN)
async def outside(n: int, *, ctx: Context = CONTEXT) -> None:
    """Make the mistake that ctx.transaction() prevents: commit the row, and then end the job."""
    async with await psycopg.AsyncConnection.connect(hf.settings.dsn, autocommit=True) as conn:
        await conn.execute(ROW, [ctx.job_id, ctx.attempt])
    await asyncio.sleep(moment() * 2)


@hf.task(name="frozen", retry=AGAIN)
def frozen(*, ctx: Context = CONTEXT) -> None:
    """Let the test freeze the first attempt where it says so; the second holds the job until the test releases it."""
    try:
        with ctx.transaction() as conn:
            conn.execute(ROW, [ctx.job_id, ctx.attempt])
            note("written", ctx)
            go = Path(os.environ["RECORD"]).with_name(f"go-{ctx.attempt}")
            while not go.exists():
                time.sleep(0.02)
    except LeaseLost:
        note("refused", ctx)
        raise
    note("committed", ctx)


@hf.task(name="row", retry=Retry.fixed(0.05, max_attempts=4))
async def row(n: int, *, ctx: Context = CONTEXT) -> str | None:
    """Run one job of a batch: most succeed, every tenth fails, is dead, is canceled, or succeeds at its second try."""
    await asyncio.sleep(moment() / 10)
    if n % 10 == 1:
        raise Fail("bad row")
    if n % 10 == 2:
        raise Cancel("not wanted")
    if n % 10 == 3 and ctx.attempt == 1:
        raise ValueError("not yet")
    return f"row {n}" if n % 2 else None


@hf.task(name="batch_done", retry=AGAIN)
async def batch_done(batch: str, *, ctx: Context = CONTEXT) -> None:
    async with ctx.transaction() as conn:
        await conn.execute(ROW, [ctx.job_id, ctx.attempt])


@hf.task(name="endless", retry=AGAIN)
async def endless(n: int, *, ctx: Context = CONTEXT) -> None:
    """Run until canceled."""
    note("endless", ctx)
    await asyncio.sleep(3600)


@hf.task(name="endless_thread", retry=AGAIN)
def endless_thread(n: int, *, ctx: Context = CONTEXT) -> None:
    note("endless_thread", ctx)
    while True:
        ctx.raise_if_canceled()
        time.sleep(0.01)
