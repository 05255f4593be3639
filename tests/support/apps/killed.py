"""A job of steps, a sleep, a child and a signal, for the test that kills its workers."""

from __future__ import annotations

import asyncio

from recorder import note

from holdfast import CONTEXT, Context, Holdfast, Retry

hf = Holdfast()
ROW = "insert into public.ledger (job, step) values (%s, %s)"
AGAIN = Retry.fixed(0, max_attempts=1000)


async def book(name: str, ctx: Context) -> str:
    """Write a row with the step. Before and after it the worker may be killed."""
    note(f"begin-{name}", ctx)
    await asyncio.sleep(0.03)
    async with ctx.transaction() as conn:
        await conn.execute(ROW, [ctx.job_id, name])
        ctx.set_result(name)
    note(f"end-{name}", ctx)
    await asyncio.sleep(0.03)
    return name


@hf.task(name="deliver", retry=AGAIN)
async def deliver(order: str, *, ctx: Context = CONTEXT) -> str:
    await ctx.step("van", book, "van", ctx)
    return f"{order} delivered"


@hf.task(name="order", retry=AGAIN)
async def order(order: str, *, ctx: Context = CONTEXT) -> list[str]:
    done = [await ctx.step("pay", book, "pay", ctx)]
    await ctx.sleep("cooling", seconds=0.2)
    done.append(await ctx.step("pack", book, "pack", ctx))
    done.append(await ctx.call("deliver", deliver, order))
    done.append(await ctx.wait_for("approved"))
    done.append(await ctx.step("bill", book, "bill", ctx))
    return done
