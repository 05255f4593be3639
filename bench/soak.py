"""Soak test of flow control: random limits, pauses and kills for minutes, with two invariants checked all the time.

No key is ever above its limit, and no lane with a due job waits for longer than a second while its limits have room and
a worker has a free slot. Run `python bench/soak.py --seconds 600`; exit code 1 and a report when an invariant breaks.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from holdfast import Holdfast, Limit

DSN = os.environ.get("SOAK_DSN", "postgresql://postgres@127.0.0.1/postgres")
SCHEMA = "soak"
KEYS, TENANTS, SLOTS, WORKERS = 40, 12, 20, 3
hf = Holdfast(DSN, schema=SCHEMA)


@hf.task(name="soak", limits=[Limit("key:{key}", concurrency=2)], queue="default")
async def soak(key: str, seconds: float) -> None:
    """Hold a place of a key for a while."""
    await asyncio.sleep(seconds)


ABOVE = """
SELECT h.key, h.held, m.concurrency FROM (
    SELECT unnest(coalesce(l.keys || l.held, l.keys, l.held)) AS key, count(*) AS held
    FROM live l WHERE l.token IS NOT NULL GROUP BY 1) h
JOIN limit_state m ON m.key = h.key WHERE h.held > greatest(m.concurrency, {floor})
"""
# Lanes whose first job is due and whose limits all have room, counting only what is folded: pending releases add room.
READY = """
SELECT j.queue || '/' || j.priority || '/' || j.lane FROM (
    SELECT DISTINCT ON (queue, priority, lane) queue, priority, lane, tenant, keys FROM live
    WHERE token IS NULL AND created_at < now() - interval '50 milliseconds' ORDER BY queue, priority, lane, run_at) j
WHERE NOT EXISTS (
    SELECT 1 FROM limit_state s
    WHERE s.key = ANY (j.keys || ARRAY['tenant:' || j.tenant, 'queue:' || j.queue]) AND s.room <= 0)
"""
BUSY = "SELECT count(*) FROM live WHERE token IS NOT NULL"


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Start one worker process."""
    command = [
        sys.executable,
        "-m",
        "holdfast.cli",
        "worker",
        "soak:hf",
        "--concurrency",
        str(SLOTS),
        "--lease",
        "2",
        "--renew",
        "0.5",
        "--poll",
        "0.25",
        "--log-level",
        "error",
    ]
    return subprocess.Popen(command, cwd=folder, env={**os.environ, "HOLDFAST_UPKEEP": "0.2"})


def disturb(conn: psycopg.Connection[Any], rng: random.Random, lowered: dict[str, float]) -> None:
    """Change one limit, or pause or resume one key."""
    key = rng.choice([f"key:{rng.randrange(KEYS)}", f"tenant:t{rng.randrange(TENANTS)}"])
    match rng.randrange(4):
        case 0:
            conn.execute("SELECT set_limit(%s, jsonb_build_object('concurrency', %s::int))", [key, rng.randint(1, 4)])
            lowered[key] = time.monotonic()
        case 1:
            conn.execute("SELECT clear_limit(%s)", [key])
            lowered[key] = time.monotonic()
        case 2:
            conn.execute("SELECT pause(%s, p_for => make_interval(secs => %s))", [key, rng.uniform(0.2, 2)])
        case _:
            conn.execute("SELECT resume(%s)", [key])


def enqueue(rng: random.Random, number: int) -> None:
    """Enqueue jobs of random tenants and keys."""
    for _ in range(number):
        tenant = None if rng.random() < 0.2 else f"t{rng.randrange(TENANTS)}"
        soak.using(tenant=tenant, priority=rng.choice([1, 2])).enqueue(str(rng.randrange(KEYS)), rng.uniform(0, 0.1))


def check(conn: psycopg.Connection[Any], lowered: dict[str, float], ready: dict[str, float]) -> list[str]:
    """Return broken invariants. A limit that was lowered a moment ago may be exceeded by jobs that ran before."""
    now = time.monotonic()
    problems = [
        f"{held} jobs hold {key}, its limit is {limit}"
        for key, held, limit in conn.execute(ABOVE.format(floor=0).encode()).fetchall()
        if now - lowered.get(key, 0.0) > 5
    ]
    row = conn.execute(BUSY).fetchone()
    free = row is not None and row[0] < SLOTS  # even one live worker has a free slot
    lanes = {lane for (lane,) in conn.execute(READY.encode()).fetchall()} if free else set()
    for lane in [*ready]:
        if lane not in lanes:
            del ready[lane]
    for lane in lanes:
        if now - ready.setdefault(lane, now) > 1.0:
            problems.append(f"lane {lane} waited for {now - ready[lane]:.1f} s although it has room")
    return problems


def main() -> int:
    """Run the soak test; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    rng, folder = random.Random(options.seed), Path(__file__).parent
    print(f"seed {options.seed}", flush=True)
    with psycopg.connect(DSN, autocommit=True, options=f"-c search_path={SCHEMA}") as conn:
        conn.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
        hf.migrate()
        workers = [start(folder) for _ in range(WORKERS)]
        lowered: dict[str, float] = {}
        ready: dict[str, float] = {}
        problems: list[str] = []
        began, kills, looks, longest = time.monotonic(), 0, 0, 0.0
        try:
            while time.monotonic() < began + options.seconds and not problems:
                enqueue(rng, rng.randint(0, 12))
                if rng.random() < 0.3:
                    disturb(conn, rng, lowered)
                if rng.random() < 0.02 and time.monotonic() > began + 5:
                    victim = rng.randrange(1, WORKERS)  # the first one stays: a slot is always free
                    workers[victim].send_signal(signal.SIGKILL)
                    workers[victim].wait()
                    workers[victim] = start(folder)
                    kills += 1
                problems = check(conn, lowered, ready) if time.monotonic() > began + 5 else []
                longest = max([longest, *(time.monotonic() - since for since in ready.values())])
                looks += 1
                time.sleep(0.05)
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait()
        done = conn.execute("SELECT count(*) FROM history").fetchone()
        drift = conn.execute("SELECT * FROM limit_drift()").fetchall()
    print(
        f"{time.monotonic() - began:.0f} s, {done and done[0]:,} jobs, {kills} kills, {looks} looks, "
        f"longest wait with room {longest:.2f} s, drift {drift}, problems {problems[:5]}"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
