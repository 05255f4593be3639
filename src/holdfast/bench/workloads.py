"""The workloads: each measures Holdfast and the bare SQL limit in the same run and returns one Result."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from holdfast.bench import bare
from holdfast.client import Holdfast
from holdfast.model.job import NewJob
from holdfast.settings import Settings
from holdfast.store import connect
from holdfast.store.bulk import Bulk

TEXT = "x" * 80


@dataclass
class Result:
    """One line of the report."""

    name: str
    jobs: int
    seconds: float
    jobs_per_s: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    limit_jobs_per_s: float | None = None
    ratio: float | None = None
    note: str = ""
    problems: list[str] = field(default_factory=list)  # violated guarantees, which fail the bench


@dataclass
class Bench:
    """The bench's own schema, and functions to fill and drain it."""

    settings: Settings
    scale: float = 1.0
    hf: Holdfast = field(init=False)
    report: Callable[[str], None] = field(default=lambda _: None)  # takes progress texts

    def __post_init__(self) -> None:
        self.reset()
        self.hf = Holdfast(self.settings.dsn, schema=self.settings.schema)
        self.noop = self.hf.task(name="bench.noop")(_noop)
        self.stamp = self.hf.task(name="bench.stamp")(_stamp)

    def size(self, jobs: int) -> int:
        """Return the number of jobs at this scale."""
        return max(500, int(jobs * self.scale))

    def reset(self) -> None:
        """Make an empty, migrated schema."""
        with self.connection() as conn:
            conn.execute(f"DROP SCHEMA IF EXISTS {self.settings.schema} CASCADE".encode())
        Holdfast(self.settings.dsn, schema=self.settings.schema).migrate()

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Open a plain connection with the bench's schema on its path."""
        info = connect.conninfo(self.settings.with_(call_timeout=3600.0), "bench")
        with psycopg.connect(info, autocommit=True) as conn:
            conn.execute(f"SET search_path TO {self.settings.schema}".encode())
            yield conn

    def fill(self, jobs: int, task: str = "bench.noop") -> None:
        """Put no-op jobs into live."""
        self.report(f"filling: {jobs:,} jobs")
        for start in range(0, jobs, 100_000):
            bare.copy_many(self.settings, list(rendered(min(100_000, jobs - start), task)))
        self.settle()

    def settle(self) -> None:
        """Vacuum and checkpoint now, so that neither runs during the measurement."""
        with self.connection() as conn:
            conn.execute("VACUUM ANALYZE live")
            conn.execute("CHECKPOINT")

    def empty(self) -> None:
        """Empty all tables."""
        with self.connection() as conn:
            conn.execute(
                "TRUNCATE live, later, history, claims, dead, sleepers, cancels, progress, batches, batch_counts, "
                "schedules, limits, limit_rules, limit_settings, lanes, flows, rings, arrivals, releases, folds, "
                "reopenings, throttled, ticks, usage_counts, dedupe, kept_orders, "
                "webhook_endpoints, webhook_bodies, api_tokens, responses"
            )

    def window(self, first: int = 0, last: int | None = None) -> tuple[int, float]:
        """Return jobs and seconds between the first-th and the last-th finish, by the database's clock."""
        with self.connection() as conn:
            row = conn.execute(
                "SELECT count(*), extract(epoch FROM max(finished_at) - min(began))::float8 FROM ("
                "SELECT finished_at, CASE WHEN %(first)s = 0 THEN started_at ELSE finished_at END AS began "
                "FROM history ORDER BY finished_at OFFSET %(first)s LIMIT %(n)s) w",
                {"first": first, "n": None if last is None else last - first},
            ).fetchone()
        assert row is not None
        return row[0], row[1]

    def window_of_all(self) -> tuple[int, float]:
        """Return jobs and seconds from the first start of the last worker, so that process start-up does not count."""
        with self.connection() as conn:
            row = conn.execute(
                "SELECT count(*), extract(epoch FROM max(finished_at) - min(began))::float8 FROM history, ("
                "SELECT max(first) AS began FROM (SELECT min(started_at) AS first FROM history GROUP BY worker) f) a "
                "WHERE started_at >= began"
            ).fetchone()
        assert row is not None
        return row[0], row[1]

    def finished(self) -> int:
        """Return how many jobs are finished, from statistics: cheap enough for use during a measurement."""
        with self.connection() as conn:
            row = conn.execute(
                "SELECT sum(pg_stat_get_tuples_inserted(inhrelid)) FROM pg_inherits "
                "WHERE inhparent = 'history'::regclass"
            ).fetchone()
        return int(row[0] or 0) if row else 0

    def counted(self) -> int:
        """Return how many jobs are in history: exact, but expensive."""
        with self.connection() as conn:
            row = conn.execute("SELECT count(*) FROM history").fetchone()
        return int(row[0]) if row else 0

    def run_processes(
        self, module: str, number: int, until: Callable[[], bool] | None = None, *arguments: object, **settings: object
    ) -> None:
        """Run processes of a module until they end; with a condition, stop them when it holds."""
        given = {"dsn": self.settings.dsn, "schema": self.settings.schema, **settings}
        env = os.environ | {f"HOLDFAST_{name.upper()}": str(value) for name, value in given.items()}
        command = [sys.executable, "-m", module, *map(str, arguments)]
        self.report("bare SQL" if module.endswith(".bare") else "starting")
        running = [subprocess.Popen(command, env=env) for _ in range(number)]
        try:
            while until is not None and not until() and all(p.poll() is None for p in running):
                time.sleep(0.2)
        finally:
            if until is not None:
                for process in running:
                    process.send_signal(signal.SIGTERM)
            for process in running:
                # A process that is still starting has no signal handler yet.
                if process.wait() not in (0, -signal.SIGTERM if until is not None else 0):
                    raise RuntimeError(f"a bench process ended with {process.returncode}")

    def drain(
        self,
        jobs: int,
        processes: int = 1,
        workers: int = 1,
        record: Path | None = None,
        module: str = "holdfast.bench.worker",
        **settings: object,
    ) -> None:
        """Let workers finish so many jobs. `workers` is the number in each process, `record` the folder for the records
        of their handlers."""
        count = self.finished if jobs > 5000 else self.counted  # statistics lag too much for few jobs
        earlier, before = self.counted(), count()
        last, since = before, time.monotonic()

        def over() -> bool:
            nonlocal last, since
            now = count()
            if now != last:
                last, since = now, time.monotonic()
                self.report(f"{now - before:,} of {jobs:,} jobs done")
            # Statistics lag by ten seconds once the workers are idle, when an exact count does no harm.
            return now - before >= jobs or (time.monotonic() - since > 1.5 and self.counted() - earlier >= jobs)

        self.run_processes(module, processes, over, workers, *([record] if record else []), **settings)


async def _noop(n: int, text: str) -> None: ...


async def _stamp(sent: int) -> float:
    return 0.0


def rendered(jobs: int, task: str = "bench.noop") -> Iterator[bytes]:
    """Return blocks of COPY lines of no-op jobs."""
    like = NewJob("", task, b"", max_attempts=5)
    return Bulk(like, range(jobs), lambda n: f'{{"n":{n},"text":"{TEXT}"}}'.encode()).blocks()


def drain(bench: Bench, processes: int = 1) -> Result:
    """One worker process, history kept, against the bare loop."""
    name = "drain" if processes == 1 else f"drain{processes}"
    return _drain(bench, name, "bench.noop", bench.size(200_000), processes)


def _drain(bench: Bench, name: str, task: str, jobs: int, processes: int = 1) -> Result:
    ours: list[float] = []
    limits: list[float] = []
    for _ in range(3):
        for rates, work in ((limits, _bare_drain), (ours, _our_drain)):
            bench.fill(jobs, task)
            work(bench, jobs, processes)
            number, seconds = bench.window()
            rates.append(number / seconds)
            bench.empty()
    rate, limit = statistics.median(ours), statistics.median(limits)
    return Result(name, jobs, jobs / rate, rate, limit_jobs_per_s=limit, ratio=rate / limit)


def _our_drain(bench: Bench, jobs: int, processes: int) -> None:
    bench.drain(jobs, processes)


def _bare_drain(bench: Bench, jobs: int, processes: int) -> None:
    bench.run_processes("holdfast.bench.bare", processes)


def drain2(bench: Bench) -> Result:
    """Two worker processes against two bare loops."""
    return drain(bench, 2)


def thread(bench: Bench) -> Result:
    """One worker process, handlers in threads, against the bare loop."""
    return _drain(bench, "thread", "bench.noop_thread", bench.size(60_000))


def process(bench: Bench) -> Result:
    """One worker process, handlers in its child processes, against the bare loop."""
    return _drain(bench, "process", "bench.noop_process", bench.size(20_000))


def enqueue_one(bench: Bench) -> Result:
    """One enqueue after another, each committed, against a bare INSERT + COMMIT."""
    number = bench.size(2000)
    ours: list[float] = []
    limits: list[float] = []
    bench.noop.enqueue(0, TEXT)
    for _ in range(4):
        limits += bare.insert_one(bench.settings, number // 4)
        for n in range(number // 4):
            began = time.perf_counter()
            bench.noop.enqueue(n, TEXT)
            ours.append(time.perf_counter() - began)
    bench.empty()
    return timed("enqueue_one", ours, limits)


def enqueue_many(bench: Bench) -> Result:
    """100,000 jobs in one call, arguments checked, against a bare COPY of rows already rendered."""
    number = bench.size(100_000)
    ours, limits = [], []
    for _ in range(3):
        limits.append(bare.copy_many(bench.settings, list(rendered(number))))
        bench.empty()
        calls = [(n, TEXT) for n in range(number)]
        began = time.perf_counter()
        bench.noop.enqueue_many(calls)
        ours.append(time.perf_counter() - began)
        bench.empty()
    taken, limit = statistics.median(ours), statistics.median(limits)
    return Result("enqueue_many", number, taken, number / taken, limit_jobs_per_s=number / limit, ratio=limit / taken)


def depth(bench: Bench) -> Result:
    """A drain with a backlog of 2 million, against one with 20 thousand."""
    small, large, counted = bench.size(20_000), bench.size(2_000_000), bench.size(100_000)
    rates = []
    for _ in range(5):
        bench.fill(small)
        bench.drain(small)
        number, seconds = bench.window()
        rates.append(number / seconds)
        bench.empty()
    bench.fill(large)
    bench.drain(counted)
    number, seconds = bench.window(0, counted)
    bench.empty()
    rate, limit = number / seconds, statistics.median(rates)
    return Result("depth", number, seconds, rate, limit_jobs_per_s=limit, ratio=rate / limit, note=f"{large:,} waiting")


def pinned(bench: Bench) -> Result:
    """The last fifth of 500 thousand jobs while one transaction is held open from before the first, against without."""
    jobs = bench.size(500_000)
    rates: dict[bool, list[float]] = {False: [], True: []}
    for held in (False, True, True, False):
        with bench.connection() as holder:
            if held:
                holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT count(*) FROM live")
            bench.fill(jobs)
            bench.drain(jobs)
            number, seconds = bench.window(jobs * 4 // 5, jobs)
            rates[held].append(number / seconds)
            if held:
                holder.execute("ROLLBACK")
        bench.empty()
    rate, limit = statistics.mean(rates[True]), statistics.mean(rates[False])
    return Result("pinned", jobs, jobs / rate, rate, limit_jobs_per_s=limit, ratio=rate / limit,
                  note="limit: the same without the open transaction")  # fmt: skip


def batch(bench: Bench) -> Result:
    """Eight workers, all jobs in one batch, against the same jobs in none; alternating rounds.

    The workers share two processes, because eight processes on two cores would measure the scheduler. Each has its own
    connections, and so its own counters of the batch.
    """
    jobs = bench.size(100_000)
    rates: dict[bool, list[float]] = {False: [], True: []}
    for together in (False, True, True, False) * 2:
        calls = [(n, TEXT) for n in range(jobs)]
        if together:
            with bench.hf.batch("bench") as held:
                bench.noop.using(batch=held).enqueue_many(calls)
        else:
            bench.noop.enqueue_many(calls)
        bench.settle()
        bench.drain(jobs, processes=2, workers=4)
        number, seconds = bench.window()
        rates[together].append(number / seconds)
        if together:
            info = held.info()
            assert info is not None and info.succeeded == info.total == jobs, f"wrong counters of the batch: {info}"
        bench.empty()
    rate, limit = statistics.median(rates[True]), statistics.median(rates[False])
    return Result("batch", jobs, jobs / rate, rate, limit_jobs_per_s=limit, ratio=rate / limit,
                  note="limit: the same without a batch")  # fmt: skip


def timed(name: str, ours: list[float], limits: list[float]) -> Result:
    """Return the result of a workload that measures single times."""
    mid, bare_mid = statistics.median(ours), statistics.median(limits)
    cuts = statistics.quantiles(ours, n=100)
    return Result(name, len(ours), sum(ours), 1 / mid, cuts[49] * 1000, cuts[98] * 1000, 1 / bare_mid, bare_mid / mid,
                  note=f"bare p50 {bare_mid * 1000:.2f} ms")  # fmt: skip


ALL: dict[str, Callable[[Bench], Result]] = {
    "enqueue_one": enqueue_one,
    "enqueue_many": enqueue_many,
    "drain": drain,
    "drain2": drain2,
    "thread": thread,
    "process": process,
    "depth": depth,
    "pinned": pinned,
    "batch": batch,
}
