"""What a job costs: CPU of the server, the worker and the client, WAL, and the time until an idle worker starts it.

    python -m bench.costs [--rounds N] [WORKLOAD ...]

Figures are CPU time (of threads and backends, from /proc, so the server runs on this machine), not rates: they hardly
depend on what else the machine does.
bench/compare.py runs this for two trees by turns. So it uses only what both have: the public API, and holdfast.bench.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from holdfast.bench import bare
from holdfast.bench.harness import TEXT, Bench
from holdfast.bench.workloads import fill_groups
from holdfast.model.job import ids
from holdfast.settings import Settings
from holdfast.store.wire import connect

Figures = dict[str, float]
BACKENDS = (
    "SELECT pid, application_name FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
WORKER = "bench.costs_worker"
GAP = 0.02  # seconds between jobs that are picked up


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU that a process has used, by all its threads."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((thread / "schedstat").read_text().split()[0])
        except OSError:  # it has ended
            continue
    return total / 1e9


class Costs:
    """The bench's schema, and a connection that measures."""

    def __init__(self, settings: Settings) -> None:
        self.bench = Bench(settings)
        self.settings = settings
        self.conn = psycopg.connect(connect.conninfo(settings.with_(call_timeout=600.0), "costs"), autocommit=True)
        self.stamp = self.bench.hf.task(name="bench.start")(_start)
        self.conn.execute(f"SET search_path TO {settings.schema}".encode())

    def value(self, query: str) -> Any:
        row = self.conn.execute(query.encode()).fetchone()
        return row and row[0]

    def server(self, part: str = "holdfast") -> float:
        """Return the seconds of CPU of backends whose application name contains a text."""
        return sum(cpu_of(pid) for pid, name in self.conn.execute(BACKENDS).fetchall() if part in name)

    def wal(self) -> float:
        return float(self.value("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))

    def done(self) -> int:
        return int(self.value("SELECT count(*) FROM history"))

    def left(self) -> bool:
        return self.value("SELECT 1 FROM live LIMIT 1") is not None

    @contextmanager
    def workers(
        self, number: int = 1, *arguments: object, **settings: object
    ) -> Iterator[list[subprocess.Popen[bytes]]]:
        given = {"dsn": self.settings.dsn, "schema": self.settings.schema, **settings}
        env = os.environ | {f"HOLDFAST_{name.upper()}": str(value) for name, value in given.items()}
        command = [sys.executable, "-m", WORKER, *map(str, arguments)]
        running = [subprocess.Popen(command, env=env) for _ in range(number)]
        try:
            yield running
        finally:
            for each in running:
                each.terminate()
            for each in running:
                each.wait()

    def drained(self, jobs: int, processes: int = 1, **settings: object) -> Figures:
        """Return what a job costs, from the first that has ended to the last, and jobs a second."""
        with self.workers(processes, **settings) as running:
            until(lambda: self.value("SELECT 1 FROM history LIMIT 1") is not None)
            workers = [each.pid for each in running]
            first, wal = self.done(), self.wal()
            parts = {"claim": self.server(" claim"), "finish": self.server(" finish"), "server": self.server()}
            worker = sum(map(cpu_of, workers))
            until(lambda: not self.left())
            number = (self.done() - first) / 1e6
            found = {
                "server us": (self.server() - parts["server"]) / number,
                "claim us": (self.server(" claim") - parts["claim"]) / number,
                "finish us": (self.server(" finish") - parts["finish"]) / number,
                "worker us": (sum(map(cpu_of, workers)) - worker) / number,
                "WAL bytes": (self.wal() - wal) / number / 1e6,
            }
        count, seconds = self.bench.window()
        return found | {"jobs/s": count / seconds}


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the workload has not ended")
        time.sleep(0.02)


def drain(costs: Costs) -> Figures:
    """A plain job: 200,000 by one worker."""
    costs.bench.fill(200_000)
    return costs.drained(200_000)


def drain2(costs: Costs) -> Figures:
    """A plain job: 200,000 by two workers."""
    costs.bench.fill(200_000)
    return costs.drained(200_000, 2)


def tenants(costs: Costs) -> Figures:
    """A job of one of 100 tenants: 100,000 by one worker."""
    return grouped(costs, 100_000, 1, tenant="t")


def tenants2(costs: Costs) -> Figures:
    """A job of one of 100 tenants: 100,000 by two workers."""
    return grouped(costs, 100_000, 2, tenant="t")


def limited(costs: Costs) -> Figures:
    """A job of one of 100 tenants with a limit of 10 each: 50,000 by one worker."""
    costs.conn.execute(
        "INSERT INTO limit_rules (template, pattern, code, updated_at) "
        "VALUES ('k:{n}', 'k:%', '{\"concurrency\": 10}', now())"
    )
    return grouped(costs, 50_000, 1, tenant="t", key="k:")


def grouped(costs: Costs, jobs: int, processes: int, **options: Any) -> Figures:
    fill_groups(costs.bench, jobs, 100, **options)
    costs.bench.settle()
    return costs.drained(jobs, processes)


def pinned(costs: Costs) -> Figures:
    """The fourth to sixth 50,000 plain jobs behind a transaction that stays open, against none open."""
    rates: dict[bool, list[Figures]] = {False: [], True: []}
    for held in (False, True):
        with costs.bench.connection() as holder:
            if held:
                holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT count(*) FROM live")
            for _ in range(6):
                costs.conn.execute("TRUNCATE history")
                costs.bench.fill(50_000)
                rates[held].append(costs.drained(50_000))
            holder.rollback() if not held else holder.execute("ROLLBACK")
        costs.bench.empty()
    free, pinned = (
        {name: statistics.median(each[name] for each in rates[held][3:]) for name in rates[held][0]}
        for held in (False, True)
    )
    return {f"held {name}": value for name, value in pinned.items()} | {"ratio": pinned["jobs/s"] / free["jobs/s"]}


def enqueue(costs: Costs) -> Figures:
    """One enqueue after another, and a bare INSERT: 4,000 each, by turns."""
    noop, number, ours, limits = costs.bench.noop, 500, Meter(costs, "holdfast client"), Meter(costs, "holdfast bare")
    with psycopg.connect(connect.conninfo(costs.settings, "bare"), autocommit=True, prepare_threshold=0) as conn:
        for turn in range(9):
            for meter, call in ((ours, lambda n: noop.enqueue(n, TEXT)), (limits, lambda n: insert(conn, costs, n))):
                with meter.counting(number if turn else 0):
                    for n in range(number):
                        call(n)
    return against(ours, limits)


def threads(costs: Costs) -> Figures:
    """16 threads that enqueue one after another, and bare INSERTs: 8,000 each, by turns."""
    noop, number, ours, limits = costs.bench.noop, 1000, Meter(costs, "holdfast client"), Meter(costs, "holdfast bare")
    info = connect.conninfo(costs.settings, "bare")
    conns = [psycopg.connect(info, autocommit=True, prepare_threshold=0) for _ in range(16)]

    def run(call: Callable[[int, int], object]) -> None:
        running = [threading.Thread(target=lambda i=i: [call(i, n) for n in range(number // 16)]) for i in range(16)]
        for each in running:
            each.start()
        for each in running:
            each.join()

    for turn in range(9):
        with ours.counting(number if turn else 0):
            run(lambda _, n: noop.enqueue(n, TEXT))
        with limits.counting(number if turn else 0):
            run(lambda i, n: insert(conns[i], costs, n))
    for conn in conns:
        conn.close()
    return against(ours, limits)


def coroutines(costs: Costs) -> Figures:
    """16 coroutines that enqueue one after another, and bare INSERTs: 8,000 each, by turns."""
    noop, number, ours, limits = costs.bench.noop, 1000, Meter(costs, "holdfast client"), Meter(costs, "holdfast bare")
    info, sql = connect.conninfo(costs.settings, "bare"), bare_insert(costs)

    async def run(call: Callable[[int, int], Any]) -> None:
        async def one(i: int) -> None:
            for n in range(number // 16):
                await call(i, n)

        await asyncio.gather(*(one(i) for i in range(16)))

    async def main() -> None:
        conns = [await psycopg.AsyncConnection.connect(info, autocommit=True, prepare_threshold=0) for _ in range(16)]
        for turn in range(9):
            with ours.counting(number if turn else 0):
                await run(lambda _, n: noop.aenqueue(n, TEXT))
            with limits.counting(number if turn else 0):
                await run(lambda i, n: conns[i].execute(sql, (ids.make(), body(n))))
        for conn in conns:
            await conn.close()
        await costs.bench.hf.aclose()

    bare.run_async(main())
    return against(ours, limits)


def bulk(costs: Costs) -> Figures:
    """100,000 jobs by one enqueue_many, and a bare COPY of rendered rows."""
    from holdfast.bench.harness import rendered

    number, rates, limits, client = 100_000, [], [], []
    for _ in range(3):
        calls = [(n, TEXT) for n in range(number)]
        began, cpu = time.perf_counter(), time.process_time()
        costs.bench.noop.enqueue_many(calls)
        rates.append(number / (time.perf_counter() - began))
        client.append((time.process_time() - cpu) / number * 1e6)
        costs.bench.empty()
        limits.append(number / bare.copy_many(costs.settings, list(rendered(number))))
        costs.bench.empty()
    rate, limit = statistics.median(rates), statistics.median(limits)
    return {"jobs/s": rate, "COPY/s": limit, "ratio": rate / limit, "client us": statistics.median(client)}


class Meter:
    """Sums CPU and time of calls in this process and in its backends."""

    def __init__(self, costs: Costs, backends: str) -> None:
        self._costs = costs
        self._backends = backends
        self.calls = 0
        self.client = self.server = self.wall = self.wal = 0.0

    @contextmanager
    def counting(self, calls: int) -> Iterator[None]:
        """Count a block; with 0 calls it only warms up."""
        server, wal = self._costs.server(self._backends), self._costs.wal()
        client, wall = time.process_time(), time.perf_counter()  # of all threads, also of those that have ended
        yield
        if calls:
            self.wall += time.perf_counter() - wall
            self.client += time.process_time() - client
            self.server += self._costs.server(self._backends) - server
            self.wal += self._costs.wal() - wal
            self.calls += calls


def against(ours: Meter, limits: Meter) -> Figures:
    found: Figures = {}
    for name, meter in (("", ours), ("bare ", limits)):
        found |= {
            f"{name}calls/s": meter.calls / meter.wall,
            f"{name}client us": meter.client / meter.calls * 1e6,
            f"{name}server us": meter.server / meter.calls * 1e6,
            f"{name}WAL bytes": meter.wal / meter.calls,
        }
    return found | {"ratio": found["calls/s"] / found["bare calls/s"]}


def bare_insert(costs: Costs) -> str:
    return (
        f"INSERT INTO {costs.settings.schema}.live (id, queue, task, payload) VALUES (%s, 'default', 'bench.noop', %s)"
    )


def body(n: int) -> str:
    return f'{{"n":{n},"text":"{TEXT}"}}'


def insert(conn: Any, costs: Costs, n: int) -> None:
    conn.execute(bare_insert(costs), (ids.make(), body(n)))


def pickup(costs: Costs, number: int = 300) -> Figures:
    """From the return of enqueue to the start of the handler on an idle worker, a job each 20 ms; and a bare loop."""
    path = Path(tempfile.mkdtemp()) / "starts"
    found: Figures = {}
    for name in ("bare ", ""):
        with costs.workers(1, *(["bare"] if name else ["stamps"]), path) as (worker,):
            if name:
                until(
                    lambda: (
                        costs.value("SELECT 1 FROM pg_stat_activity WHERE application_name = 'holdfast bare listen'")
                        is not None
                    )
                )
                sent = send_bare(costs, number + 20)
            else:
                until(lambda: costs.value("SELECT 1 FROM sleepers LIMIT 1") is not None)
                time.sleep(0.3)
                server, cpu = costs.server(" claim"), cpu_of(worker.pid)
                sent = send_ours(costs, number + 20)
                found["claim us"] = (costs.server(" claim") - server) / (number + 20) * 1e6
                found["worker us"] = (cpu_of(worker.pid) - cpu) / (number + 20) * 1e6
            until(lambda: not costs.left())
        starts = dict(json.loads(path.read_text()))
        path.unlink()
        taken = [(starts[n] - returned) / 1e6 for n, returned in sent[20:]]
        cuts = statistics.quantiles(taken, n=100)
        found |= {f"{name}p50 ms": cuts[49], f"{name}p90 ms": cuts[89], f"{name}p99 ms": cuts[98]}
        costs.bench.empty()
    return found | {
        "ratio p50": found["p50 ms"] / found["bare p50 ms"],
        "ratio p99": found["p99 ms"] / found["bare p99 ms"],
    }


def send_ours(costs: Costs, number: int) -> list[tuple[int, int]]:
    sent = []
    for n in range(number):
        costs.stamp.enqueue(n)
        sent.append((n, time.time_ns()))
        time.sleep(GAP)
    return sent


async def _start(n: int) -> None: ...


def send_bare(costs: Costs, number: int) -> list[tuple[int, int]]:
    sql = (
        f"WITH i AS (INSERT INTO {costs.settings.schema}.live (id, task, payload) VALUES (%s, 'bench.start', %s)) "
        "SELECT pg_notify('bare_pickup', '')"
    )
    sent = []
    with psycopg.connect(connect.conninfo(costs.settings, "bare"), autocommit=True, prepare_threshold=0) as conn:
        for n in range(number):
            conn.execute(sql, (ids.make(), f'{{"n": {n}}}'))
            sent.append((n, time.time_ns()))
            time.sleep(GAP)
    return sent


def start(costs: Costs) -> Figures:
    """From the start of the process to the start of its first job, which waits; and what an idle worker takes."""
    seconds = []
    for _ in range(5):
        costs.bench.noop.enqueue(0, TEXT)
        began = time.monotonic()
        with costs.workers(1):
            while costs.left():
                time.sleep(0.001)
            seconds.append(time.monotonic() - began)
    with costs.workers(1) as (worker,):
        until(lambda: costs.value("SELECT 1 FROM sleepers LIMIT 1") is not None)
        time.sleep(2)
        cpu, server = cpu_of(worker.pid), costs.server()
        time.sleep(10)
        share = (cpu_of(worker.pid) - cpu) / 10 * 100
        share_server = (costs.server() - server) / 10 * 100
        memory = next(
            int(line.split()[1])
            for line in Path(f"/proc/{worker.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS")
        )
    return {
        "first job s": statistics.median(seconds),
        "idle %": share,
        "idle server %": share_server,
        "idle MB": memory / 1024,
    }


ALL: dict[str, Callable[[Costs], Figures]] = {
    each.__name__: each
    for each in (pickup, enqueue, threads, coroutines, bulk, drain, drain2, tenants, tenants2, limited, pinned, start)
}


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench.costs", description=", ".join(ALL))
    parser.add_argument("workload", nargs="*", default=list(ALL))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--dsn")
    given = parser.parse_args()
    costs = Costs(Settings.load(dsn=given.dsn, schema="holdfast_costs", pool_size=16))
    for _ in range(given.rounds):
        for name in given.workload:
            costs.bench.empty()
            print(json.dumps({"workload": name, **{k: round(v, 3) for k, v in ALL[name](costs).items()}}), flush=True)
    costs.conn.execute(f"DROP SCHEMA {costs.settings.schema} CASCADE".encode())


if __name__ == "__main__":
    main()
