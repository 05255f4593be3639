"""A bulk retry of many dead jobs beside a worker, its process killed twice: `python -m bench.actions [JOBS]`.

Prints jobs retried a second, the worker's throughput with and without it, and how often each job was put back.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from holdfast import Holdfast
from holdfast.store.dev.embedded import EmbeddedPostgres

JOIN = "import sys; from holdfast import Holdfast; Holdfast(sys.argv[1]).actions.join(sys.argv[2])"
DEAD = """insert into dead (id, status, queue, priority, lane, run_at, created_at, finished_at, attempt,
    max_attempts, task, payload, last_error) select uuid7(), 'dead', 'bulk', 2, 0, now(), now(), now(), 5, 5, 't',
    '{"order": 1, "to": "someone@example.org"}', '{"type": "app.Oops"}' from generate_series(1, %s)"""
ALONE = 6.0  # seconds before and after the action


def session(dsn: str) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, autocommit=True, options="-c search_path=holdfast")


class Beside:
    """A worker's database calls on another queue: enqueue, claim and finish a hundred jobs at a time."""

    def __init__(self, dsn: str) -> None:
        self.dsn, self.done, self.stops = dsn, 0, threading.Event()

    def run(self) -> None:
        with session(self.dsn) as conn:
            while not self.stops.is_set():
                conn.execute(
                    "insert into live (id, task, queue) "
                    "select gen_random_uuid(), 'u', 'beside' from generate_series(1, 100)"
                )
                jobs = conn.execute("select id, token from claim('beside', '{beside}', 100)").fetchall()
                conn.execute("select finish(%s::uuid[], %s::bigint[])", [[j[0] for j in jobs], [j[1] for j in jobs]])
                self.done += len(jobs)


@contextmanager
def beside(dsn: str) -> Iterator[Beside]:
    worker = Beside(dsn)
    thread = threading.Thread(target=worker.run)
    thread.start()
    yield worker
    worker.stops.set()
    thread.join()


def join_until(dsn: str, action: str, conn: psycopg.Connection[Any], changed: int) -> None:
    """Work on the action in another process until `changed` jobs are changed, and kill it; or until the end."""
    process = subprocess.Popen([sys.executable, "-c", JOIN, dsn, action])
    while process.poll() is None:
        if conn.execute("select 1 from actions where id = %s and changed >= %s", [action, changed]).fetchone():
            process.kill()
        time.sleep(0.02)


def main(jobs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="hf") as folder, EmbeddedPostgres(Path(folder) / "pg") as server:
        dsn = server.dsn()
        Holdfast(dsn).migrate()
        with session(dsn) as conn:
            conn.execute(DEAD, [jobs])
            conn.execute("analyze")
            with beside(dsn) as worker:
                time.sleep(1)
                began, before = time.monotonic(), worker.done
                time.sleep(ALONE)
                alone = (worker.done - before) / (time.monotonic() - began)
                (row,) = conn.execute("select start_action('retry', '{\"task\": \"t\"}')::text").fetchall()
                began, before = time.monotonic(), worker.done
                for changed in (jobs // 3, jobs * 2 // 3, jobs + 1):
                    join_until(dsn, row[0], conn, changed)
                seconds = time.monotonic() - began
                together = (worker.done - before) / seconds
                before = worker.done
                time.sleep(ALONE)
                after = (worker.done - before) / ALONE
            state = conn.execute("select state, matched, changed, skipped from actions").fetchone()
            places = conn.execute(
                "select count(*), count(distinct id), (select count(*) from dead) from live where queue = 'bulk'"
            ).fetchone()
        print(
            f"{jobs / seconds:,.0f} retried/s in {seconds:.1f} s, killed twice; action {state}; "
            f"live, distinct, dead {places}"
        )
        ratio = together / ((alone + after) / 2)
        print(f"beside: {alone:,.0f}/s before, {together:,.0f}/s together, {after:,.0f}/s after, ratio {ratio:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000)
