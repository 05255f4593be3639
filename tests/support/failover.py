"""A load of enqueues and of jobs that write rows in their own transactions, beside which the primary is lost."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from holdfast import DatabaseUnavailable, Holdfast, Retry
from tests.support.patroni import Cluster
from tests.support.workers import fleet

SETTINGS = {"lease": 20.0, "renew": 2.0, "upkeep": 0.3, "poll": 0.1, "app": "ledger", "concurrency": 8}
PAUSE = 0.02  # seconds between the enqueues of one thread
TASKS = ("on_loop", "in_thread")
LEDGER = (
    "create table public.ledger (job uuid not null, attempt int not null, at timestamptz default clock_timestamp())"
)


@dataclass
class Load:
    """Threads that enqueue, and what was acknowledged."""

    dsn: str
    connect_timeout: float = 40.0
    accepted: list[tuple[float, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    stops: threading.Event = field(default_factory=threading.Event)

    def run(self, task: str) -> None:
        def stub(n: int) -> None: ...

        with Holdfast(self.dsn, connect_timeout=self.connect_timeout) as hf:
            handle = hf.task(name=task, retry=Retry.fixed(0, max_attempts=1000))(stub)
            while not self.stops.wait(PAUSE):
                try:
                    self.accepted.append((time.monotonic(), handle.enqueue(0).id))
                    self.accepted[-1] = (time.monotonic(), self.accepted[-1][1])
                except DatabaseUnavailable as error:
                    self.errors.append(str(error))

    def wait_for_more(self, number: int, seconds: float = 60) -> None:
        """Wait until `number` more jobs are acknowledged."""
        ends, target = time.monotonic() + seconds, len(self.accepted) + number
        while len(self.accepted) < target:
            assert time.monotonic() < ends, f"{target - len(self.accepted)} of {number} missing; {self.errors[-3:]}"
            time.sleep(0.02)

    def gap_since(self, moment: float) -> float:
        """Return the longest time without an acknowledged enqueue since a moment."""
        times = [moment, *sorted(at for at, _ in list(self.accepted) if at >= moment)]
        return max(after - before for before, after in itertools.pairwise(times))


@contextmanager
def load(dsn: str, connect_timeout: float) -> Iterator[Load]:
    """Enqueue for the length of a block."""
    made = Load(dsn, connect_timeout)
    threads = [threading.Thread(target=made.run, args=(task,), daemon=True) for task in TASKS]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        made.stops.set()
        for thread in threads:
            thread.join(60)


@dataclass(frozen=True)
class Ends:
    """What became of the jobs."""

    acknowledged: int
    lost: int
    doubled: int  # jobs with several rows, or that are there twice
    unacknowledged: int  # accepted by a reply that was lost
    again: int  # attempts that the faults ended
    errors: int  # of callers of enqueue


class Books:
    """What the database has of a load."""

    def __init__(self, cluster: Cluster) -> None:
        self._dsn = f"{cluster.dsn} target_session_attrs=read-write connect_timeout=3"
        self.sql("drop table if exists public.ledger")
        self.sql(LEDGER)

    def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            cursor = conn.execute(query, params or None)
            return cursor.fetchall() if cursor.description else []

    def drained(self, jobs: int, seconds: float = 60) -> None:
        """Wait until all jobs have ended."""
        ends = time.monotonic() + seconds
        while (left := self._left()) is None or left[0] or left[1] < jobs:
            assert time.monotonic() < ends, f"(waiting, ended): {left}, of {jobs}"
            time.sleep(0.1)

    def _left(self) -> tuple[int, int] | None:
        waiting = "(select count(*) from holdfast.live) + (select count(*) from holdfast.later)"
        query = f"select {waiting}, (select count(*) from holdfast.history)"
        with contextlib.suppress(psycopg.Error):
            waiting_now, ended = self.sql(query)[0]
            return waiting_now, ended
        return None

    def gap_since(self, at: float) -> float:
        """Return the longest time without a committed row of a job since a wall-clock time."""
        gaps = "select at, at - lag(at) over (order by at) as gap from public.ledger"
        query = f"select coalesce(extract(epoch from max(gap)), 0) from ({gaps}) g where at > to_timestamp(%s)"
        return float(self.sql(query, at)[0][0])

    def audit(self, load: Load) -> Ends:
        """Compare what was acknowledged with what the database has."""
        accepted = {id_ for _, id_ in load.accepted}
        jobs = self.sql("select id::text, status::text, attempts from holdfast.jobs")
        ids = Counter(id_ for id_, _, _ in jobs)
        rows = Counter(row[0] for row in self.sql("select job::text from public.ledger"))
        done = {id_ for id_, status, _ in jobs if status == "succeeded"}
        assert set(rows) <= set(ids), "a row without its job"
        lost = {id_ for id_ in accepted if id_ not in done or not rows[id_]}
        doubled = {id_ for id_ in ids if ids[id_] > 1 or rows[id_] > 1}
        again = sum(attempts - 1 for _, _, attempts in jobs)
        return Ends(len(accepted), len(lost), len(doubled), len(set(ids) - accepted), again, len(load.errors))


@contextmanager
def under_load(
    cluster: Cluster, folder: Path, rng: Any, *, options: str = "", connect_timeout: float = 40.0
) -> Iterator[tuple[Load, Books]]:
    """Run workers and enqueues against a cluster for the length of a block; then wait until all jobs have ended.
    options: for the DSN of both."""
    dsn = f"{cluster.dsn} {options}"
    with Holdfast(cluster.dsn) as hf:
        hf.migrate()
    books = Books(cluster)
    with fleet(dsn, folder, 2, rng, **SETTINGS):
        with load(dsn, connect_timeout) as running:
            running.wait_for_more(50)
            yield running, books
            running.wait_for_more(50)
        books.drained(len(running.accepted))
