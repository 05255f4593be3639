"""An application whose workers and callers are of different releases: for tests/faults/test_upgrade.py.

`python rolling.py FILE SEED` enqueues until SIGTERM. It writes a line to FILE before each call and after it, so that a
kill leaves at most one call of unknown outcome.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import psycopg

from holdfast import CONTEXT, Context, Holdfast, Limit, Retry, Snooze

hf = Holdfast()
# Kills cost attempts, and no job may run out of them.
OFTEN = Retry.fixed(0.05, max_attempts=50)


class Wanted(Exception):
    """The error that a handler of this file raises on purpose."""


@hf.task(name="plain", retry=OFTEN)
async def plain(n: int) -> int:
    return n


@hf.task(name="threaded", retry=OFTEN, queue="threads")
def threaded(n: int, *, ctx: Context = CONTEXT) -> None:
    ctx.progress(n, 10)
    ctx.log.info("under way")


@hf.task(name="limited", retry=OFTEN, limits=[Limit("site:{site}", concurrency=2)])
async def limited(site: str) -> None:
    await asyncio.sleep(0.002)


@hf.task(name="stumbling", retry=OFTEN)
async def stumbling(*, ctx: Context = CONTEXT) -> None:
    if ctx.attempt == 1:
        raise Wanted("the first attempt")


@hf.task(name="snoozing", retry=OFTEN)
async def snoozing() -> None:
    if random.random() < 0.5:
        raise Snooze(0.05)


@hf.task(name="once", retry=OFTEN)
async def once(*, ctx: Context = CONTEXT) -> None:
    async with ctx.transaction() as conn:
        await conn.execute("insert into effects (job) values (%s)", [ctx.job_id])


@hf.task(name="relay", retry=OFTEN)
async def relay(n: int) -> None:
    await plain.aenqueue(n)


def in_my_transaction(conn: psycopg.Connection[Any]) -> list[str]:
    with conn.transaction():
        job = once.using(conn=conn).enqueue()
        conn.execute("insert into orders (job) values (%s)", [job.id])
    return [job.id]


def calls(
    rng: random.Random, conn: psycopg.Connection[Any], loop: asyncio.AbstractEventLoop
) -> dict[str, Callable[[], list[str]]]:
    """Return the ways to enqueue; each returns the ids that were accepted."""
    tenant = rng.choice("abc")
    n = rng.randrange(10)
    return {
        "one": lambda: [plain.enqueue(n).id],
        "tenant": lambda: [plain.using(tenant=tenant).enqueue(n).id],
        "many": lambda: plain.enqueue_many([n] * 20).ids,
        "many of a tenant": lambda: limited.using(tenant=tenant).enqueue_many([f"s{n}"] * 5).ids,
        "thread": lambda: [threaded.enqueue(n).id],
        "limited": lambda: [limited.enqueue(f"s{n}").id],
        "later": lambda: [plain.using(delay=0.1).enqueue(n).id],
        "key": lambda: [plain.using(dedupe=f"k{rng.random()}").enqueue(n).id],
        "stumbling": lambda: [stumbling.enqueue().id],
        "snoozing": lambda: [snoozing.enqueue().id],
        "relay": lambda: [relay.enqueue(n).id],
        "async": lambda: [loop.run_until_complete(once.aenqueue()).id],
        "my transaction": lambda: in_my_transaction(conn),
    }


def main(file: str, seed: int) -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    rng, loop = random.Random(seed), asyncio.new_event_loop()
    with (
        psycopg.connect(os.environ["HOLDFAST_DSN"], autocommit=True, prepare_threshold=0) as conn,
        open(file, "a", encoding="utf-8", buffering=1) as notes,
    ):
        while not stopping:
            name, call = rng.choice(list(calls(rng, conn, loop).items()))
            notes.write(json.dumps({"call": name}) + "\n")
            try:
                found = {"ids": call()}
            except Exception as error:
                found = {"error": f"{name}: {type(error).__name__}: {error}"}
            notes.write(json.dumps(found) + "\n")
            time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
