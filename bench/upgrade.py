"""What an upgrade of a large live table costs its users: how long a migration holds locks, and how long calls take.

Run `python -m bench.upgrade --rows 5000000` in the repository's root; the database is created and dropped. Migrated are
new columns of `live` and `later`, a function with another signature and one with another text with all views, a
concurrent index, and new columns again while a caller's transaction stays open for five seconds.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg

from holdfast import Holdfast
from tests.support.next_release import ADD, INDEX, TERMS, next_release

ADMIN = os.environ.get("BENCH_DSN", "postgresql://postgres@127.0.0.1/postgres")
NAME = "holdfast_bench_upgrade"
SEARCH = "-c search_path=holdfast -c synchronous_commit=off"
FILL = """
INSERT INTO live (id, queue, task, payload)
SELECT uuid7(), 'default', 'bench', '{"n": 1}' FROM generate_series(1, %s)
"""
SECOND = TERMS.format(1, "yes") + ADD.replace("colour", "shade")
CHANGED = {
    "finish.sql": lambda text: text.replace("'wait') returns", "'wait', p_n int default 1) returns"),
    "claim.sql": lambda text: text + "-- newer\n",
}
CLAIM = "SELECT id, token FROM claim('bench', p_limit => 50)"
FINISH = "SELECT finish(%s, %s)"
LOCKS = """
SELECT l.mode FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE a.application_name = 'holdfast migrate' AND l.granted AND l.relation = 'live'::regclass
  AND l.mode <> 'AccessShareLock'
"""


@dataclass
class Timings:
    """How long calls took, and how long the lock was seen in each mode, in seconds."""

    calls: dict[str, list[float]] = field(default_factory=lambda: {"enqueue": [], "claim": [], "finish": []})
    held: dict[str, list[float]] = field(default_factory=dict)


class Load:
    """Callers that enqueue, claim and finish all the time, and an observer of migrate's locks on `live`."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._ends = threading.Event()
        self.timings = Timings()

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=each) for each in (self._enqueue, self._enqueue, self._work, self._observe)]
        for each in threads:
            each.start()
        try:
            yield
        finally:
            self._ends.set()
            for each in threads:
                each.join()

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._dsn, autocommit=True, options=SEARCH, prepare_threshold=0)

    def _timed(self, name: str, call: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        try:
            return call()
        finally:
            self.timings.calls[name].append(time.perf_counter() - begun)

    def _enqueue(self) -> None:
        with self._connect() as conn:
            while not self._ends.is_set():
                self._timed("enqueue", lambda: conn.execute("SELECT id FROM enqueue('bench', '{}')").fetchall())

    def _work(self) -> None:
        with self._connect() as conn:
            while not self._ends.is_set():
                found = self._timed("claim", lambda: conn.execute(CLAIM).fetchall())
                values = [[row[0] for row in found], [row[1] for row in found]]
                self._timed("finish", partial(conn.execute, FINISH, values))

    def _observe(self) -> None:
        since: dict[str, float] = {}
        with self._connect() as conn:
            while not self._ends.is_set():
                modes = {mode for (mode,) in conn.execute(LOCKS)}
                now = time.perf_counter()
                for mode in modes:
                    since.setdefault(mode, now)
                for mode in set(since) - modes:
                    self.timings.held.setdefault(mode, []).append(now - since.pop(mode))
                time.sleep(0.0005)


def report(title: str, seconds: float, timings: Timings) -> None:
    longest = ", ".join(
        f"{name} {max(found) * 1000:.0f} ms of {len(found)}" for name, found in timings.calls.items() if found
    )
    held = ", ".join(f"{mode} {max(found) * 1000:.0f} ms" for mode, found in timings.held.items()) or "none seen"
    print(f"{title}: {seconds:.1f} s; longest calls: {longest}; lock on live: {held}", flush=True)


def measure(dsn: str, title: str, work: Callable[[], Any]) -> None:
    load = Load(dsn)
    with load.running():
        time.sleep(1)
        begun = time.perf_counter()
        work()
        seconds = time.perf_counter() - begun
        time.sleep(0.5)
    report(title, seconds, load.timings)


def hold(dsn: str, seconds: float, held: threading.Event) -> None:
    """Leave a transaction open that has written to live."""
    with psycopg.connect(dsn, options=SEARCH) as conn:
        conn.execute("SELECT enqueue('bench', '{}')")
        held.set()
        time.sleep(seconds)


def upgrade(dsn: str) -> None:
    files = {"0002_colour.sql": TERMS.format(1, "yes") + ADD}
    measure(dsn, "no migration", lambda: time.sleep(5))
    with next_release(files):
        measure(dsn, "new columns", lambda: Holdfast(dsn).migrate())
    with next_release(files, CHANGED):
        measure(dsn, "functions and all views", lambda: Holdfast(dsn).migrate())
    files["0003_index.sql"] = TERMS.format(1, "yes") + INDEX
    with next_release(files, CHANGED):
        measure(dsn, "concurrent index", lambda: Holdfast(dsn).migrate())
    files["0004_shade.sql"] = SECOND
    held = threading.Event()
    holder = threading.Thread(target=hold, args=(dsn, 5.0, held))
    holder.start()
    held.wait()
    with next_release(files, CHANGED):
        measure(dsn, "new columns behind a transaction of 5 s", lambda: Holdfast(dsn).migrate())
    holder.join()


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench.upgrade")
    parser.add_argument("--rows", type=int, default=5_000_000)
    rows = parser.parse_args().rows
    with psycopg.connect(ADMIN, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)".encode())
        admin.execute(f"CREATE DATABASE {NAME}".encode())
        dsn = psycopg.conninfo.make_conninfo(ADMIN, dbname=NAME)
        try:
            Holdfast(dsn).migrate()
            with psycopg.connect(dsn, autocommit=True, options=SEARCH) as conn:
                begun = time.perf_counter()
                conn.execute(FILL, [rows])
                conn.execute("VACUUM ANALYZE live")
                size = conn.execute("SELECT pg_size_pretty(pg_total_relation_size('live'))").fetchone()
                print(f"{rows:,} rows, {size and size[0]}, filled in {time.perf_counter() - begun:.0f} s", flush=True)
            upgrade(dsn)
        finally:
            admin.execute(f"DROP DATABASE {NAME} WITH (FORCE)".encode())


if __name__ == "__main__":
    main()
