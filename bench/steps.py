"""Durable steps, measured: `python -m bench.steps [--jobs N] [--children N] [--dbos PYTHON]`.

One worker in this process beside a PostgreSQL of its own. Prints one JSON line for each measurement: jobs of ten steps
(and the same work on DBOS, by a Python that has it), a signal until its handler runs, one gather of many children, and
the plain drain beside parked jobs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg

from holdfast import CONTEXT, Context, Holdfast
from holdfast.store.dev.embedded import EmbeddedPostgres
from holdfast.worker import Worker

STEPS = 10
DBOS = """
import sys, time
from dbos import DBOS
jobs, dsn = int(sys.argv[1]), sys.argv[2]
DBOS(config={"name": "bench", "system_database_url": dsn, "log_level": "ERROR"})

@DBOS.step()
async def one(n: int) -> int:
    return n

@DBOS.workflow()
async def ten(n: int) -> int:
    for i in range(10):
        await one(i)
    return n

DBOS.launch()
import asyncio
async def main() -> None:
    began = time.perf_counter()
    pending = set()
    for n in range(jobs):
        if len(pending) >= 100:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        pending.add(asyncio.ensure_future(ten(n)))
    await asyncio.wait(pending)
    print(time.perf_counter() - began)
asyncio.run(main())
DBOS.destroy()
"""


PARK = """
with made as (
    insert into later (id, queue, priority, lane, created_at, attempt, max_attempts, payload, task, run_at, durable,
                       waits_for)
    select gen_random_uuid(), 'default', 2, 0, clock(), 0, 5, '{}', 'waiter',
           clock() + %(until)s::interval + n * interval '1 ms', true, %(kind)s || ' s' || n
    from generate_series(1, %(number)s) n returning id, waits_for)
insert into steps (job, name, kind, tenant, started_at)
select id, split_part(waits_for, ' ', 2), %(kind)s, '', clock() from made
"""


def say(name: str, **figures: Any) -> None:
    rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in figures.items()}
    print(json.dumps({"name": name} | rounded), flush=True)


@contextlib.asynccontextmanager
async def working(hf: Holdfast, **settings: Any) -> AsyncIterator[Worker]:
    worker = Worker(hf, **({"concurrency": 100, "poll": 0.2, "upkeep": 0.5} | settings))
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def drained(conn: psycopg.AsyncConnection[Any], task: str, number: int) -> None:
    """Return when `number` jobs of a task have succeeded."""
    query = "select count(*) from history where task = %s and status = 'succeeded'"
    while (await (await conn.execute(query, [task])).fetchall())[0][0] < number:  # noqa: ASYNC110 - the database cannot set an Event
        await asyncio.sleep(0.02)


def on_dbos(python: str, jobs: int, dsn: str) -> subprocess.CompletedProcess[str]:
    """Run jobs of ten steps on DBOS, 100 at once; it prints the seconds."""
    return subprocess.run([python, "-c", DBOS, str(jobs), dsn], capture_output=True, text=True, check=False)


class Measured:
    """The measurements on one database."""

    def __init__(self, dsn: str, other_dsn: str, given: argparse.Namespace) -> None:
        self.dsn, self.other_dsn = dsn, other_dsn
        self.given = given
        self.hf = hf = Holdfast(dsn)

        async def one(n: int) -> int:
            return n

        @hf.task(name="ten")
        async def ten(n: int, *, ctx: Context = CONTEXT) -> int:
            for i in range(STEPS):
                await ctx.step(f"step {i}", one, i)
            return n

        @hf.task(name="plain")
        async def plain(n: int) -> None: ...

        @hf.task(name="parent")
        async def parent(number: int, *, ctx: Context = CONTEXT) -> int:
            async with ctx.batch("children") as children:
                plain.using(batch=children).enqueue_many(range(number))
            return (await ctx.gather(children)).succeeded

        @hf.task(name="waiter")
        async def waiter(n: int, *, ctx: Context = CONTEXT) -> float:
            sent: float = await ctx.wait_for(f"go:{n}")
            return time.time() - sent

        self.ten, self.plain, self.parent, self.waiter = ten, plain, parent, waiter

    async def steps(self, conn: psycopg.AsyncConnection[Any]) -> None:
        jobs = self.given.jobs
        self.ten.enqueue_many(range(jobs))
        began, cpu = time.perf_counter(), time.process_time()
        async with working(self.hf):
            await drained(conn, "ten", jobs)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        rate = jobs / seconds
        ((stored,),) = await (await conn.execute("select count(*) from steps")).fetchall()
        if stored != jobs * STEPS:
            raise AssertionError(f"{stored} steps are stored, not {jobs * STEPS}")
        say(
            "ten_steps",
            jobs=jobs,
            steps=stored,
            seconds=seconds,
            jobs_per_s=rate,
            worker_ms_per_step=1000 * cpu / jobs / STEPS,
        )
        if self.given.dbos:
            some = max(jobs // 10, 100)
            done = await asyncio.to_thread(on_dbos, self.given.dbos, some, self.other_dsn)
            if done.returncode:
                say("ten_steps_dbos", error=done.stderr[-600:])
                return
            other = some / float(done.stdout.split()[-1])
            say("ten_steps_dbos", jobs=some, jobs_per_s=other, ratio=rate / other)

    async def gather(self, conn: psycopg.AsyncConnection[Any]) -> None:
        number = self.given.children
        job = self.parent.enqueue(number)
        began = time.perf_counter()
        async with working(self.hf):
            done = await job.aresult(240)
            seconds = time.perf_counter() - began
        found = await conn.execute(
            "select extract(epoch from (select finished_at from history where task = 'parent') - max(finished_at))"
            "::float8, count(*) from history where task = 'plain'"
        )
        ((wake, children),) = await found.fetchall()
        say("gather", children=number, exact=done == number == children, seconds=seconds, wake_s=wake)

    async def plain_drain(self, conn: psycopg.AsyncConnection[Any]) -> None:
        jobs = 200_000
        rates: dict[int, list[float]] = {}
        for parked in (0, self.given.parked) * 4:
            await conn.execute("truncate live, later, history, steps, claims, batch_counts, batches")
            if parked:
                await self.park(conn, parked)
            self.plain.enqueue_many(range(jobs))
            await conn.execute("vacuum analyze live")
            began = time.perf_counter()
            async with working(self.hf):
                await drained(conn, "plain", jobs)
                rates.setdefault(parked, []).append(jobs / (time.perf_counter() - began))
        before, beside = (statistics.median(rates[each]) for each in (0, self.given.parked))
        runs = {"alone": [*map(round, rates[0])], "beside": [*map(round, rates[self.given.parked])]}
        say("plain_drain", parked=2 * self.given.parked, ratio=beside / before, **runs)

    async def park(self, conn: psycopg.AsyncConnection[Any], number: int) -> None:
        """Park `number` jobs that sleep, and as many that wait for signals."""
        for kind, until in (("sleep", "1 day"), ("signal", "10 years")):
            await conn.execute(PARK, {"number": number, "kind": kind, "until": until})
        await conn.execute("vacuum analyze later")

    async def signals(self, conn: psycopg.AsyncConnection[Any]) -> None:
        number, times = 300, []
        jobs = self.waiter.enqueue_many(range(number))
        async with working(self.hf):
            query = "select count(*) from later where task = 'waiter' and waits_for like 'signal go:%'"
            while (await (await conn.execute(query)).fetchall())[0][0] < number:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            for n in range(number):
                await self.hf.asignal(f"go:{n}", time.time())
                await asyncio.sleep(0.01)
            times = [1000 * await job.aresult(60) for job in jobs]
        parts = statistics.quantiles(times, n=100)
        say("signal_to_handler", signals=number, p50_ms=statistics.median(times), p99_ms=parts[98])

    async def run(self) -> None:
        async with await psycopg.AsyncConnection.connect(
            self.dsn, autocommit=True, options="-c search_path=holdfast"
        ) as conn:
            for each in self.given.only or ("steps", "signals", "gather", "plain_drain"):
                await getattr(self, each)(conn)
        await self.hf.aclose()


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench.steps")
    parser.add_argument("only", nargs="*", help="steps, signals, gather, plain_drain")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--children", type=int, default=100_000)
    parser.add_argument("--parked", type=int, default=100_000)
    parser.add_argument("--dbos", help="a Python that has dbos")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hf") as folder, EmbeddedPostgres(Path(folder) / "pg") as server:
        dsn = server.dsn()
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("create database dbos")
        Holdfast(dsn).migrate()
        asyncio.run(Measured(dsn, server.dsn("dbos"), given).run())


if __name__ == "__main__":
    main()
