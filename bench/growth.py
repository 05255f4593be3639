"""What a job costs as everything around it grows: `python -m bench.growth [CURVE ...]`.

Server CPU (from /proc, so the server runs on this machine) of claims of 500 jobs, of their ends, and of single claims,
with more and more jobs waiting, tenants, queues, idle workers and history. A curve that is flat needs no comment.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg

from bench.costs import Costs, Figures, cpu_of
from holdfast.bench.workloads import fill_groups
from holdfast.settings import Settings
from holdfast.store.wire import connect

BATCH, CLAIMS, SINGLES = 500, 40, 100
PLAIN = """
INSERT INTO live (id, queue, task, payload, run_at)
SELECT uuid7(), 'default', 'bench.noop', json_build_object('n', 1, 'text', repeat('x', 80)), now() - interval '1 minute'
FROM generate_series(1, %s)
"""

PARTITION = """
CREATE TABLE IF NOT EXISTS history_old_{day} PARTITION OF history FOR VALUES
FROM (date_trunc('day', now()) - interval '{before} days') TO (date_trunc('day', now()) - interval '{after} days')
"""
OLD_JOBS = """
INSERT INTO history (id, status, priority, attempt, max_attempts, run_at, created_at, finished_at, queue, task, payload)
SELECT gen_random_uuid(), 'succeeded', 2, 1, 5, t, t, t, 'default', 'bench.noop', '{}' FROM
(SELECT date_trunc('day', now()) - make_interval(days => %s) + interval '1 hour' AS t) d, generate_series(1, 10000)
"""


class Session:
    """A worker's calls on one connection, and the CPU of its backend."""

    def __init__(self, costs: Costs, queues: list[str]) -> None:
        self.conn = psycopg.connect(connect.conninfo(costs.settings, "growth"), autocommit=True, prepare_threshold=0)
        self._calls = costs.bench.hf.database.calls.jobs
        self._queues = queues
        self._cursor: str | None = None

    def cpu(self) -> float:
        return cpu_of(self.conn.info.backend_pid)

    def _run(self, call: Any) -> Any:
        return call.read(self.conn.execute(call.sql, call.params).fetchall())

    def claim(self, jobs: int) -> list[Any]:
        claimed = self._run(self._calls.claim("growth", self._queues, jobs, 60.0, self._cursor, False, jobs)).jobs
        plain = [job for job in claimed if job.lane == 0]
        if plain:
            last = plain[-1]
            self._cursor = json.dumps({f"{last.queue}/{last.priority}": [last.run_at, last.id]})
        return list(claimed)

    def finish(self, jobs: list[Any]) -> None:
        tokens = [job.token for job in jobs]
        self._run(self._calls.finish([job.id for job in jobs], tokens, [], tokens[:1], locked="fail"))

    def costs(self) -> Figures:
        """Return the microseconds of a job in claims of 500, and in single claims."""
        for _ in range(6):
            self.finish(self.claim(BATCH))
        claim = finish = single = 0.0
        number = 0
        for _ in range(CLAIMS):
            began = self.cpu()
            jobs = self.claim(BATCH)
            claimed = self.cpu()
            self.finish(jobs)
            claim, finish, number = claim + claimed - began, finish + self.cpu() - claimed, number + len(jobs)
        for _ in range(SINGLES):
            began = self.cpu()
            jobs = self.claim(1)
            single += self.cpu() - began
            self.finish(jobs)
        return {
            "claim us": claim / number * 1e6,
            "finish us": finish / number * 1e6,
            "single claim us": single / SINGLES * 1e6,
        }


def measured(costs: Costs, queues: list[str] | None = None) -> Figures:
    session = Session(costs, queues or ["default"])
    try:
        return session.costs()
    finally:
        session.conn.close()


def live(costs: Costs, most: int) -> Iterator[tuple[str, Figures]]:
    """Plain jobs waiting."""
    there = 0
    for jobs in (50_000, 1_000_000, 10_000_000, 50_000_000):
        if jobs > most:
            return
        while there < jobs:
            costs.conn.execute(PLAIN.encode(), [step := min(1_000_000, jobs - there)])
            there += step
        costs.bench.settle()
        yield f"{jobs:,} live jobs", measured(costs)


def tenants(costs: Costs, most: int) -> Iterator[tuple[str, Figures]]:
    """Tenants with jobs waiting."""
    for groups in (100, 10_000, 100_000, 1_000_000):
        if groups > most:
            return
        costs.bench.empty()
        fill_groups(costs.bench, max(60_000, groups), groups, tenant="t")
        costs.bench.settle()
        began = time.monotonic()
        session = Session(costs, ["default"])
        first = 0.0  # a claim folds 2,000 arrivals
        while session.conn.execute(f"SELECT 1 FROM {costs.settings.schema}.arrivals LIMIT 1".encode()).fetchone():
            before = session.cpu()
            jobs = session.claim(1)
            first += session.cpu() - before
            session.finish(jobs)
        session.conn.close()
        folded = {"fold us a tenant": first / groups * 1e6, "fold s": time.monotonic() - began}
        yield f"{groups:,} tenants", measured(costs) | folded


def queues(costs: Costs, most: int) -> Iterator[tuple[str, Figures]]:
    """Queues of one worker, of which one has jobs."""
    for number in (1, 10, 100, 1000):
        costs.bench.empty()
        costs.conn.execute(PLAIN.encode(), [50_000])
        costs.bench.settle()
        yield f"{number:,} queues", measured(costs, ["default", *(f"q{n}" for n in range(number - 1))])


def workers(costs: Costs, most: int) -> Iterator[tuple[str, Figures]]:
    """Idle workers that listen: server CPU of an enqueue that notifies, in its own backend and in all of them."""
    noop = costs.bench.noop
    with ExitStack() as stack:
        listening: list[Any] = []
        for number in (0, 1, 20, 200):
            while len(listening) < number:
                conn = stack.enter_context(psycopg.connect(connect.conninfo(costs.settings, "idle"), autocommit=True))
                conn.execute(f"LISTEN {costs.settings.schema}_wake".encode())
                conn.execute(
                    f"INSERT INTO {costs.settings.schema}.sleepers (queue, worker) VALUES ('default', %s)".encode(),
                    [f"w{len(listening)}"],
                )
                listening.append(conn)
            for n in range(50):
                noop.enqueue(n, "")
            enqueues, all_ = costs.server("holdfast client"), costs.server()
            for n in range(300):
                noop.enqueue(n, "")
                time.sleep(0.002)
            client = (costs.server("holdfast client") - enqueues) / 300 * 1e6
            yield (
                f"{number} idle workers",
                {"enqueue us": client, "all backends us": (costs.server() - all_) / 300 * 1e6},
            )


def history(costs: Costs, most: int) -> Iterator[tuple[str, Figures]]:
    """Days of history."""
    for days in (1, 30, 90):
        costs.bench.empty()
        costs.conn.execute(PLAIN.encode(), [50_000])
        for day in range(days):
            costs.conn.execute(PARTITION.format(day=day, before=day + 101, after=day + 100).encode())
            costs.conn.execute(OLD_JOBS.encode(), [day + 101])
        costs.bench.settle()
        job = str(costs.value("SELECT id FROM history LIMIT 1"))
        for _ in range(10):
            costs.bench.hf.jobs.get(job)
        before = costs.server("holdfast client")
        for _ in range(100):
            costs.bench.hf.jobs.get(job)
        look = (costs.server("holdfast client") - before) / 100 * 1e6
        yield f"{days} days", measured(costs) | {"get us": look}


ALL: dict[str, Callable[[Costs, int], Iterator[tuple[str, Figures]]]] = {
    each.__name__: each for each in (live, tenants, queues, workers, history)
}


def main() -> None:
    """Print the curves, a JSON object a line."""
    parser = argparse.ArgumentParser("python -m bench.growth")
    parser.add_argument("curve", nargs="*", default=list(ALL), help=", ".join(ALL))
    parser.add_argument(
        "--most", type=int, default=10_000_000, help="jobs or tenants at most (50 million jobs take 35 GB)"
    )
    given = parser.parse_args()
    for name in given.curve:
        costs = Costs(Settings.load(schema="holdfast_growth"))
        for at, figures in ALL[name](costs, given.most):
            print(json.dumps({"curve": name, "at": at, **{k: round(v, 2) for k, v in figures.items()}}), flush=True)
        costs.conn.execute(f"DROP SCHEMA {costs.settings.schema} CASCADE".encode())
        costs.conn.close()


if __name__ == "__main__":
    main()
