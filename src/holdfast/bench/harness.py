"""The bench's own schema: fill it, drain it with worker processes, and compare rates."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from holdfast.bench import bare
from holdfast.bench.report import ReportProgress
from holdfast.client import Holdfast
from holdfast.errors import UsageError
from holdfast.model.job import NewJob
from holdfast.settings import Settings
from holdfast.store.bulk import Bulk
from holdfast.store.wire import connect

TEXT = "x" * 80
TABLES = (
    "live, later, history, claims, dead, sleepers, cancels, progress, batches, batch_counts, schedules, limits, "
    "limit_rules, limit_settings, lanes, flows, rings, arrivals, releases, folds, reopenings, throttled, ticks, "
    "usage_counts, dedupe, kept_orders, webhook_endpoints, webhook_bodies, api_tokens, responses"
)
WORKER = "holdfast.bench.worker"
MARK = "made by holdfast bench"  # comment on the schema, which the next bench drops
TINY = 0.01  # a scale for tests


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


def compared(name: str, jobs: int, rates: Sequence[float], limits: Sequence[float], **more: Any) -> Result:
    """Return the medians of two series of jobs a second, and their ratio."""
    rate, limit = statistics.median(rates), statistics.median(limits)
    return Result(name, jobs, jobs / rate, rate, limit_jobs_per_s=limit, ratio=rate / limit, **more)


def timed(name: str, ours: list[float], limits: list[float]) -> Result:
    """Return the result of a workload that measures single times."""
    rates = 1 / statistics.median(ours), 1 / statistics.median(limits)
    cuts = [cut * 1000 for cut in statistics.quantiles(ours, n=100)]
    return Result(name, len(ours), sum(ours), rates[0], cuts[49], cuts[98], rates[1], rates[0] / rates[1])


@dataclass
class Bench:
    """The bench's own schema, and functions to fill and drain it."""

    settings: Settings
    scale: float = 1.0
    hf: Holdfast = field(init=False)
    report: ReportProgress = field(default=lambda text, share=None: None)

    def __post_init__(self) -> None:
        self._drop_schema()
        self.hf = Holdfast(self.settings.dsn, schema=self.settings.schema)
        self.hf.migrate()
        with self.connection() as conn:
            conn.execute(f"COMMENT ON SCHEMA {self.settings.schema} IS '{MARK}'".encode())
        self.noop = self.hf.task(name="bench.noop")(_noop)

    def _drop_schema(self) -> None:
        """Drop the schema of an earlier bench; refuse one that has another origin."""
        schema = self.settings.schema
        found = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s"
        with self.connection() as conn:
            if (row := conn.execute(found, [schema]).fetchone()) is None:
                return
            if row[0] != MARK:
                raise UsageError(
                    f"schema {schema!r} exists, and no bench has made it; drop it yourself, or let the bench take "
                    "another one: holdfast bench --schema NAME measures in NAME_bench"
                )
            conn.execute(f"DROP SCHEMA {schema} CASCADE".encode())

    def size(self, jobs: int) -> int:
        """Return the number of jobs at this scale."""
        return max(500, int(jobs * self.scale))

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Open a plain connection with the bench's schema on its path."""
        info = connect.conninfo(self.settings.with_(call_timeout=3600.0), "bench")
        with psycopg.connect(info, autocommit=True) as conn:
            conn.execute(f"SET search_path TO {self.settings.schema}".encode())
            yield conn

    def value(self, query: str, params: Sequence[object] = ()) -> Any:
        """Return the first value of the first row of a query, or None."""
        with self.connection() as conn:
            row = conn.execute(query.encode(), params).fetchone()
        return row and row[0]

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
            with suppress(psycopg.errors.InsufficientPrivilege):  # it needs the role pg_checkpoint
                conn.execute("CHECKPOINT")

    def empty(self) -> None:
        """Empty all tables."""
        with self.connection() as conn:
            conn.execute(f"TRUNCATE {TABLES}".encode())

    def alternate(
        self, measure: Callable[[bool], float], turns: Sequence[bool] = (False, True, True, False)
    ) -> tuple[list[float], list[float]]:
        """Measure with and without something by turns, because the machine's pace changes. Return both series. At a
        tiny scale, where no figure means anything, each is measured once."""
        turns = turns if self.scale >= TINY else (False, True)
        rates: dict[bool, list[float]] = {True: [], False: []}
        for done, turn in enumerate(turns):
            self.report(f"round {done + 1} of {len(turns)}", done / len(turns))
            rates[turn].append(measure(turn))
            self.empty()
        return rates[True], rates[False]

    def drain_rate(self, jobs: int, processes: int = 1, module: str = WORKER) -> float:
        """Drain `jobs` waiting jobs with workers. Return jobs a second by the database's clock."""
        self.drain(jobs, processes, module=module)
        number, seconds = self.window()
        return number / seconds

    def plain_rate(self) -> float:
        """Return jobs a second of a plain drain by one worker process."""
        self.fill(jobs := self.size(200_000))
        rate = self.drain_rate(jobs)
        self.empty()
        return rate

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

    def finished(self) -> int:
        """Return how many jobs are finished, from statistics: cheap enough for use during a measurement."""
        sum_ = (
            "SELECT sum(pg_stat_get_tuples_inserted(inhrelid)) FROM pg_inherits WHERE inhparent = 'history'::regclass"
        )
        return int(self.value(sum_) or 0)

    def counted(self) -> int:
        """Return how many jobs are in history: exact, but expensive."""
        return int(self.value("SELECT count(*) FROM history"))

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
            _end(running, signal.SIGTERM if until is not None else None)

    def drain(
        self, jobs: int, processes: int = 1, *arguments: object, module: str = WORKER, **settings: object
    ) -> None:
        """Wait until worker processes have finished `jobs` jobs."""
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

        self.run_processes(module, processes, over, *arguments, **settings)


def _end(running: list[subprocess.Popen[bytes]], stop: signal.Signals | None) -> None:
    """Wait for processes, after a signal if there is one. A process that is still starting has no handler for it."""
    if stop is not None:
        for process in running:
            process.send_signal(stop)
    for process in running:
        if process.wait() not in (0, -(stop or 0)):
            raise RuntimeError(f"a bench process ended with {process.returncode}")


async def _noop(n: int, text: str) -> None: ...


def rendered(jobs: int, task: str = "bench.noop") -> Iterator[bytes]:
    """Return blocks of COPY lines of no-op jobs."""
    like = NewJob("", task, b"", max_attempts=5)
    return Bulk(like, range(jobs), lambda n: f'{{"n":{n},"text":"{TEXT}"}}'.encode()).blocks()
