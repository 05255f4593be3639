"""Measures the prototype in ring.sql: drains, fairness, and how soon a newcomer starts behind walls of work.

python bench/lab/ring.py postgresql://... [drain fair walls ticks pinned]: the database is a scratch one.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

Conn = psycopg.Connection[Any]
CLAIM = "select id, token, tenant from claim('w', 'default', %s, %s)"


def connect(dsn: str) -> Conn:
    return psycopg.connect(dsn, autocommit=True, prepare_threshold=1, options="-c search_path=ring")


def finish(conn: Conn, rows: list[tuple[Any, ...]]) -> None:
    conn.execute("select finish(%s::uuid[], %s::bigint[])", [[row[0] for row in rows], [row[1] for row in rows]])


def work(dsn: str, size: int, quantum: int, done: Any) -> None:
    """Claims and finishes until nothing is left."""
    with connect(dsn) as conn:
        jobs = 0
        while True:
            if rows := conn.execute(CLAIM, [size, quantum]).fetchall():
                finish(conn, rows)
                jobs += len(rows)
            elif not conn.execute("select 1 from live limit 1").fetchone():
                break
        done.put(jobs)


def drain(dsn: str, processes: int, size: int = 500, quantum: int = 4) -> float:
    """Return jobs a second of so many serial loops."""
    done: Any = multiprocessing.Queue()
    workers = [multiprocessing.Process(target=work, args=(dsn, size, quantum, done)) for _ in range(processes)]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    jobs = sum(done.get(timeout=120) for _ in workers)
    seconds = time.monotonic() - began
    for worker in workers:
        worker.join()
    return jobs / seconds


def empty(conn: Conn) -> None:
    conn.execute("truncate live, history, claims, arrivals, releases, lanes, shares, rings, limits, limit_rules, "
                 "limit_settings")  # fmt: skip
    conn.execute("insert into limit_rules values ('key:{n}', 'key:%', 2), ('wall:{n}', 'wall:%', 0)")


def fill(conn: Conn, *args: object) -> None:
    conn.execute(f"select fill({', '.join(['%s'] * len(args))})", args)
    conn.execute("vacuum analyze live")


def drains(dsn: str, conn: Conn) -> None:
    loads = {
        "100 tenants": (200_000, 100, "t", None),
        "10,000 tenants, half of it one's": (200_000, 10_000, "t", None, 0.5),
        "1,000 keys, 2 each": (100_000, 1000, None, "key:"),
    }
    for name, load in loads.items():
        for processes in (1, 2, 4):
            empty(conn)
            fill(conn, *load)
            print(f"{name}, {processes} processes: {drain(dsn, processes):,.0f} jobs/s")


def newcomer(conn: Conn, tenant: str | None, key: str | None) -> float:
    """Return milliseconds of a new job's enqueue and of the claim that takes it."""
    began = time.perf_counter()
    conn.execute("select fill(1, 1, %s, %s)", [tenant, key])
    rows = conn.execute(CLAIM, [500, 4]).fetchall()
    taken = (time.perf_counter() - began) * 1000
    assert rows and any(row[2] == (None if tenant is None else f"{tenant}0") for row in rows), "it waits"
    finish(conn, rows)
    return taken


def walls(conn: Conn) -> None:
    for name, load in {"100,000 closed keys": (100_000, 100_000, None, "wall:"),
                       "a tenant with 40,000 lanes": (200_000, 40_000, "big", "free:", 0.0, True)}.items():  # fmt: skip
        empty(conn)
        fill(conn, *load)
        began, claims = time.perf_counter(), 0
        while conn.execute("select 1 from arrivals limit 1").fetchone():
            rows = conn.execute(CLAIM, [500, 4]).fetchall()
            finish(conn, rows)
            claims += 1
        folded = time.perf_counter() - began
        taken = [newcomer(conn, f"new{n}-", None) for n in range(20)]
        print(f"{name}: met in {claims} claims, {folded:.1f} s; then a new tenant's job takes "
              f"{statistics.median(taken):.1f} ms, at most {max(taken):.1f}")  # fmt: skip


def ticks(conn: Conn) -> None:
    empty(conn)
    fill(conn, 200_000, 2000, "t", None)
    served: Counter[str] = Counter()
    for _ in range(40):
        rows = conn.execute(CLAIM, [100, 1]).fetchall()
        served.update(row[2] for row in rows)
        finish(conn, rows)
    least, most = min(served.values()), max(served.values())
    print(f"40 ticks of 100 over 2,000 tenants: {len(served)} served, from {least} to {most}")


def pinned(dsn: str, conn: Conn) -> None:
    loads = {"1,000 tenants": (300_000, 1000, "t", None, 0.5), "1,000 keys": (100_000, 1000, None, "key:")}
    for name, load in loads.items():
        rates = []
        for held in (False, True):
            empty(conn)
            with connect(dsn) as holder:
                if held:
                    holder.execute("begin isolation level repeatable read")
                    holder.execute("select count(*) from live")
                fill(conn, *load)
                rates.append(drain(dsn, 1))
        free, held_open = rates
        print(f"{name}: {free:,.0f} jobs/s, with a transaction held open {held_open:,.0f} ({held_open / free:.2f})")


if __name__ == "__main__":
    address, *chosen = sys.argv[1:]
    with connect(address) as main:
        main.execute(Path(__file__).with_name("ring.sql").read_bytes())
        for each in chosen or ("drain", "walls", "ticks", "pinned"):
            if each == "drain":
                drains(address, main)
            elif each == "walls":
                walls(main)
            elif each == "ticks":
                ticks(main)
            else:
                pinned(address, main)
