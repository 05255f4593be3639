"""The five workloads of `holdfast bench`. The first line of each docstring explains it in the report."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from holdfast.bench import bare
from holdfast.bench.harness import TEXT, WORKER, Bench, Result, compared, rendered, timed
from holdfast.client import Holdfast

GAP = 0.02  # seconds between jobs, so that the worker is idle before each
WARM = 20  # jobs that do not count
CAP = 25  # jobs of one tenant in a claim


def enqueue_one(bench: Bench) -> Result:
    """One enqueue after another, each committed; limit: bare INSERT + COMMIT."""
    number, rounds = bench.size(2000), 4
    ours: list[float] = []
    limits: list[float] = []
    bench.noop.enqueue(0, TEXT)
    for done in range(rounds):
        bench.report(f"round {done + 1} of {rounds}", done / rounds)
        limits += bare.insert_one(bench.settings, number // rounds)
        for n in range(number // rounds):
            began = time.perf_counter()
            bench.noop.enqueue(n, TEXT)
            ours.append(time.perf_counter() - began)
    bench.empty()
    return timed("enqueue_one", ours, limits)


def enqueue_many(bench: Bench) -> Result:
    """Many jobs in one call, arguments checked; limit: COPY of rendered rows."""
    number = bench.size(100_000)

    def measure(ours: bool) -> float:
        if not ours:
            return number / bare.copy_many(bench.settings, list(rendered(number)))
        calls = [(n, TEXT) for n in range(number)]
        began = time.perf_counter()
        bench.noop.enqueue_many(calls)
        return number / (time.perf_counter() - began)

    return compared("enqueue_many", number, *bench.alternate(measure, (False, True) * 3))


def drain(bench: Bench, name: str = "drain", task: str = "bench.noop", jobs: int = 200_000, **options: Any) -> Result:
    """No-op jobs, one worker process, history kept; limit: bare SQL."""
    jobs = bench.size(jobs)

    def measure(ours: bool) -> float:
        bench.fill(jobs, task)
        if ours:
            return bench.drain_rate(jobs, **options)
        bench.run_processes("holdfast.bench.bare", options.get("processes", 1))
        number, seconds = bench.window()
        return number / seconds

    return compared(name, jobs, *bench.alternate(measure, (False, True) * 3))


def latency(bench: Bench, name: str = "latency", hf: Holdfast | None = None, **settings: Any) -> Result:
    """Enqueue to start of the handler, one by one; limit: INSERT, NOTIFY, claim."""
    number = max(50, int(1000 * min(bench.scale, 1)))
    stamp = (hf or bench.hf).task(name="bench.stamp")(_stamp)
    bench.settle()  # ends in a checkpoint, so that none falls into the measurement
    limits = asyncio.run(bare.notify_round_trip(bench.settings, number // 4, GAP))
    bench.empty()
    calls: list[float] = []  # seconds that each enqueue took

    def step() -> bool:
        if not calls and not _waits(bench, "sleepers" if settings.get("notify", True) else "workers"):
            return False
        bench.report(f"{len(calls)} of {number} jobs", len(calls) / (number + WARM))
        for _ in range(min(10, number + WARM - len(calls))):
            began = time.time_ns()
            stamp.enqueue(began)
            calls.append((time.time_ns() - began) / 1e9)
            time.sleep(GAP)
        return len(calls) >= number + WARM and bench.counted() >= len(calls)

    bench.run_processes(WORKER, 1, step, **settings)
    return _latencies(bench, name, calls, limits)


async def _stamp(sent: int) -> float:
    return 0.0


def _latencies(bench: Bench, name: str, calls: list[float], limits: list[float]) -> Result:
    with bench.connection() as conn:
        rows = conn.execute("SELECT result::text::float8 FROM history ORDER BY created_at").fetchall()
    bench.empty()
    taken = [row[0] / 1000 for row in rows]
    result = timed(name, taken[WARM:], limits)
    after = statistics.median(whole - call for whole, call in zip(taken[WARM:], calls[WARM:], strict=True))
    parts = f"{statistics.median(limits) * 1e3:.2f} ms for the limit, {after * 1e3:.2f} ms from the return of enqueue"
    result.note = f"p50: {parts}"
    return result


def _waits(bench: Bench, table: str) -> bool:
    """Return whether the worker has started and is idle. Workers without NOTIFY are not in the table sleepers."""
    return bench.value(f"SELECT 1 FROM {table} LIMIT 1") is not None


# Lanes are computed and announced once for each tenant and key, as a client's COPY does.
FILL = """
WITH groups AS MATERIALIZED (
    SELECT n, lane_of(tenant, keys) AS lane, tenant, nullif(keys, '{{}}') AS keys FROM (
        SELECT n, %(tenant)s::text || n AS tenant, array_remove(ARRAY[%(key)s::text || n], null) AS keys
        FROM generate_series(0, %(groups)s - 1) n) g),
announced AS (
    INSERT INTO arrivals (queue, priority, lane, run_at, tenant, keys)
    SELECT %(queue)s, 2, lane, '-infinity', tenant, keys FROM groups WHERE lane <> 0)
INSERT INTO live (id, queue, lane, tenant, keys, task, payload, run_at)
SELECT uuid7(), %(queue)s, g.lane, g.tenant, g.keys, %(task)s,
       json_build_object('n', j.n, {arguments}), now() - make_interval(secs => (%(jobs)s - j.n) * 1e-5 + %(age)s)
FROM generate_series(0, %(jobs)s - 1) AS j(n)
JOIN groups g ON g.n = CASE WHEN j.n < %(jobs)s * %(flood)s THEN 0 ELSE j.n %% %(groups)s END
ORDER BY j.n
"""
DEFAULTS = {"tenant": None, "key": None, "flood": 0.0, "age": 0.0, "queue": "default", "task": "bench.noop"}


def fill_groups(bench: Bench, jobs: int, groups: int, arguments: str = f"'text', '{TEXT}'", **options: Any) -> None:
    """Insert jobs of `groups` tenants or keys in turn, after a share `flood` of all jobs that belongs to the first.
    `tenant` and `key` are prefixes of the names, `age` the seconds since the jobs were due."""
    bench.report(f"filling: {jobs:,} jobs of {groups:,} groups")
    with bench.connection() as conn, conn.transaction():
        conn.execute("SELECT set_config('holdfast.announces', 'on', true)")
        query = FILL.format(arguments=arguments).encode()
        conn.execute(query, {"jobs": jobs, "groups": groups, **DEFAULTS, **options})


def fair(bench: Bench) -> Result:
    """Many tenants, half of all jobs of one; limit: a drain without tenants."""
    jobs = bench.size(1_000_000)
    problems: list[str] = []

    def measure(ours: bool) -> float:
        if not ours:
            return bench.plain_rate()
        fill_groups(bench, jobs, max(2, jobs // 100), tenant="t", flood=0.5)
        bench.settle()
        rate = bench.drain_rate(jobs)
        problems.extend(judge_shares(bench))
        return rate

    return compared("fair", jobs, *bench.alternate(measure, (False, True, False)), problems=problems)


def judge_shares(bench: Bench) -> list[str]:
    """Check that each tenant is served before any gets more than twice its share plus the cap."""
    with bench.connection() as conn:
        found = shares(conn.execute("SELECT started_at, tenant FROM history").fetchall())
    if found.most <= found.allowed(CAP):
        return []
    who = f"{found.greediest} was served {found.most:,} times before every tenant was served"
    return [
        f"{who}: after {found.starts:,} starts for {found.tenants:,} tenants that is above {found.allowed(CAP):,.0f}"
    ]


class Shares(NamedTuple):
    """Starts by tenant up to the time when every tenant had one."""

    starts: int
    tenants: int
    most: int
    greediest: Any

    def allowed(self, cap: int) -> float:
        """Return the maximum for one tenant: twice an equal share, plus the cap of one claim."""
        return 2 * self.starts / self.tenants + cap


def shares(claims: Iterable[tuple[Any, Any]]) -> Shares:
    """Count starts, given as (time, tenant) in any order. Starts at the same time belong to one claim."""
    first: dict[Any, Any] = {}
    starts = sorted(claims)
    for moment, tenant in starts:
        first.setdefault(tenant, moment)
    last_first = max(first.values())
    counts = Counter(tenant for moment, tenant in starts if moment <= last_first)
    ((greediest, most),) = counts.most_common(1)
    return Shares(sum(counts.values()), len(first), most, greediest)


ALL: dict[str, Callable[[Bench], Result]] = {
    "enqueue_one": enqueue_one,
    "enqueue_many": enqueue_many,
    "drain": drain,
    "latency": latency,
    "fair": fair,
}
