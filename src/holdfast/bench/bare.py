"""The limit: the same work in bare SQL, without handlers, token checks, cursors or limits.

`python -m holdfast.bench.bare` drains the live table into history with two connections, one claiming and one
finishing, as fast as psycopg and PostgreSQL can. No engine on this schema could be faster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import msgspec
import psycopg

from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.store.wire import connect

BATCH = 500
CLAIM = """
WITH next AS MATERIALIZED (
    SELECT ctid FROM {s}.live WHERE queue = 'default' AND priority = 2 AND lane = 0 AND token IS NULL
    ORDER BY queue, priority, lane, run_at, id LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE {s}.live l SET token = 1, claimed_at = now(), attempt = attempt + 1
FROM next WHERE l.ctid = next.ctid RETURNING l.id::text, l.task, l.payload::text, l.attempt
"""
FINISH = """
WITH done AS (DELETE FROM {s}.live WHERE id = ANY(%s::uuid[]) RETURNING *)
INSERT INTO {s}.history (id, status, priority, attempt, max_attempts, run_at, created_at, started_at, finished_at,
                         queue, task, worker, tenant, payload)
SELECT id, 'succeeded', priority, attempt, max_attempts, run_at, created_at, claimed_at, now(),
       queue, task, 'bare', tenant, payload FROM done
"""
NOTIFY = """
WITH i AS (INSERT INTO {s}.live (id, task, payload) VALUES (gen_random_uuid(), 'bench.noop', '{{}}'))
SELECT pg_notify('bare_latency', %s)
"""


async def drain(settings: Settings) -> int:
    """Claim and finish until nothing is left. Return the number of jobs."""
    info = connect.conninfo(settings, "bare")
    queue: asyncio.Queue[list[tuple[Any, ...]]] = asyncio.Queue(4)
    async with await _connect(info) as claims, await _connect(info) as ends:
        claiming = asyncio.create_task(_claim(claims, settings.schema, queue))
        done = 0
        while rows := await queue.get():
            ids = "{" + ",".join([row[0] for row in rows]) + "}"
            await ends.execute(FINISH.format(s=settings.schema), (ids,))
            done += len(rows)
        await claiming
    return done


async def _claim(conn: psycopg.AsyncConnection[Any], schema: str, queue: asyncio.Queue[Any]) -> None:
    decode = msgspec.json.Decoder().decode
    while True:
        rows = await (await conn.execute(CLAIM.format(s=schema), (BATCH,))).fetchall()
        for row in rows:
            decode(row[2])
        await queue.put(rows)
        if not rows:
            return


async def _connect(info: str) -> psycopg.AsyncConnection[Any]:
    conn = await psycopg.AsyncConnection.connect(info, autocommit=True, prepare_threshold=0)
    # The table was empty when it was last analyzed, so the planner needs the same settings as claim() and finish().
    for name in ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"):
        await conn.execute(f"SET {name} = off")
    await conn.execute("SET plan_cache_mode = force_generic_plan")
    return conn


def insert_one(settings: Settings, number: int) -> list[float]:
    """Return the seconds of each bare INSERT + COMMIT of one job."""
    from holdfast.model.job import ids

    taken = []
    with psycopg.connect(connect.conninfo(settings, "bare"), autocommit=True, prepare_threshold=0) as conn:
        sql = f"INSERT INTO {settings.schema}.live (id, queue, task, payload) VALUES (%s, 'default', 'bench.noop', %s)"
        for n in range(number):
            payload = f'{{"n":{n},"text":"{"x" * 80}"}}'
            began = time.perf_counter()
            conn.execute(sql, (ids.make(), payload))
            taken.append(time.perf_counter() - began)
    return taken


def copy_many(settings: Settings, blocks: list[bytes]) -> float:
    """Return the seconds to COPY rows that are already rendered."""
    with psycopg.connect(connect.conninfo(settings, "bare"), autocommit=True) as conn:
        began = time.perf_counter()
        with conn.cursor().copy(Calls(settings.schema).jobs.copy_sql) as copy:
            for block in blocks:
                copy.write(block)
        return time.perf_counter() - began


async def notify_round_trip(settings: Settings, number: int, gap: float) -> list[float]:
    """Return the seconds from a bare INSERT with NOTIFY to the listener's claim of the row."""
    info, taken = connect.conninfo(settings, "bare"), []
    async with await _connect(info) as sender, await _connect(info) as listener, await _connect(info) as claims:
        await listener.execute("LISTEN bare_latency")
        notes = listener.notifies()
        for n in range(number):
            began = time.perf_counter()
            await sender.execute(NOTIFY.format(s=settings.schema), (str(n),))
            await anext(notes)
            rows = await (await claims.execute(CLAIM.format(s=settings.schema), (1,))).fetchall()
            taken.append(time.perf_counter() - began)
            await claims.execute(FINISH.format(s=settings.schema), ("{" + rows[0][0] + "}",))
            await asyncio.sleep(gap)
        await notes.aclose()  # an open iterator holds the connection's lock
    return taken


def run_async(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine, on uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


if __name__ == "__main__":
    run_async(drain(Settings.load()))
