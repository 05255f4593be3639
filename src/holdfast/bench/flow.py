"""Workloads of flow control: many tenants, keys without room, exact limits and rates. Each is measured against a plain
drain in the same run, and its records are checked."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from holdfast.bench.checks import Interval, gaps, most_at_once, most_in_window, served
from holdfast.bench.workloads import TEXT, Bench, Result

CAP = 25
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
ABOVE = """
SELECT key, count(*) FROM (
    SELECT unnest(l.keys) AS key FROM claims c CROSS JOIN LATERAL unnest(c.ids) AS i(id)
    CROSS JOIN LATERAL (SELECT keys FROM live l WHERE l.id = i.id AND l.token = c.token OFFSET 0) l) held
GROUP BY key HAVING count(*) > %s
"""


def fill(
    bench: Bench,
    jobs: int,
    groups: int,
    *,
    tenant: str | None = None,
    key: str | None = None,
    flood: float = 0.0,
    age: float = 0.0,
    queue: str = "default",
    task: str = "bench.noop",
    arguments: str = f"'text', '{TEXT}'",
) -> None:
    """Insert jobs of so many tenants or keys in turn, after a share `flood` of all jobs that belongs to the first."""
    with bench.connection() as conn, conn.transaction():
        conn.execute("SELECT set_config('holdfast.announces', 'on', true)")
        conn.execute(
            FILL.format(arguments=arguments).encode(),
            {"jobs": jobs, "groups": groups, "tenant": tenant, "key": key, "flood": flood, "age": age,
             "queue": queue, "task": task},
        )  # fmt: skip


def allow(bench: Bench, pattern: str, **rule: float) -> None:
    """Declare a limit for all keys of a pattern, as code does."""
    with bench.connection() as conn:
        conn.execute(
            "INSERT INTO limit_rules (template, pattern, code, updated_at) VALUES (%s, %s, %s::jsonb, now())",
            [pattern, pattern.replace("{n}", "%"), msgspec.json.encode(rule).decode()],
        )


def rate_of(bench: Bench, load: Callable[[], None], jobs: int, processes: int = 1, record: Path | None = None) -> float:
    """Return jobs a second from the time when all workers have started."""
    load()
    bench.settle()
    bench.drain(jobs, processes, record=record)
    number, seconds = bench.window_of_all()
    return number / seconds


def plain(bench: Bench) -> float:
    """Return jobs a second of a plain drain by one worker process."""
    jobs = bench.size(200_000)
    rate = rate_of(bench, lambda: fill(bench, jobs, 1), jobs)
    bench.empty()
    return rate


def fair(bench: Bench) -> Result:
    """A million jobs of 10,000 tenants, half of them of one tenant, against a plain drain."""
    jobs, rates = bench.size(1_000_000), [plain(bench)]
    shallow, deep = claim_times(bench, jobs)
    rate = rate_of(bench, lambda: None, waiting(bench))
    problems = judge_shares(bench)
    bench.empty()
    rates.append(plain(bench))
    middle, before = statistics.median(deep), statistics.median(shallow)
    return Result("fair", jobs, jobs / rate, rate, middle * 1e3, max(deep) * 1e3, statistics.mean(rates),
                  rate / statistics.mean(rates), problems=problems,
                  note=f"limit: plain drain; a claim of {CLAIM}: {before * 1e3:.2f} ms with {jobs // 100:,} waiting, "
                  f"{middle / before:.2f} times that with {jobs:,}; {len(deep)} of each, alternating")  # fmt: skip


CLAIM = 200  # jobs of a timed claim


def claim_times(bench: Bench, jobs: int) -> tuple[list[float], list[float]]:
    """Return the seconds of claims from a hundredth of the jobs and from all of them.

    The two alternate, because the machine's pace may double within a second. The few jobs are in their own schema, with
    so many tenants that no claim reads all of them, so that only the depth differs. The many are left to be drained."""
    few = max(jobs // 100, 1000)
    beside = Bench(bench.settings.with_(schema=f"{bench.settings.schema}_few"), bench.scale)
    with beside.connection() as shallow, bench.connection() as deep:
        loaded(beside, shallow, few, max(2, few // 10))
        loaded(bench, deep, jobs, max(2, jobs // 100))
        turns = [(timed_claim(shallow), timed_claim(deep)) for _ in range(max(2, min(25, few // CLAIM // 3)))]
        deep.execute("DELETE FROM history")
        shallow.execute(f"DROP SCHEMA {beside.settings.schema} CASCADE".encode())
    return [few for few, _ in turns], [many for _, many in turns]


def loaded(bench: Bench, conn: psycopg.Connection[Any], jobs: int, tenants: int) -> None:
    """Insert jobs of many tenants, and serve each tenant once: the first change of a page after a checkpoint writes the
    whole page to the WAL."""
    fill(bench, jobs, tenants, tenant="t", flood=0.5)
    bench.settle()
    for _ in range(min(-(-tenants // CLAIM), jobs // CLAIM // 3)):
        timed_claim(conn)


def timed_claim(conn: psycopg.Connection[Any]) -> float:
    """Return the seconds of one claim, and finish its jobs. The client keeps no state, so no claim profits from an
    earlier one."""
    began = time.perf_counter()
    rows = conn.execute("SELECT id, token FROM claim('bench', '{default}', %s)", [CLAIM]).fetchall()
    taken = time.perf_counter() - began
    assert len(rows) == CLAIM
    ids, tokens = zip(*rows, strict=True)
    conn.execute("SELECT finish(%s::uuid[], %s::bigint[])", [list(ids), list(tokens)])
    return taken


def waiting(bench: Bench) -> int:
    """Return how many jobs are left."""
    with bench.connection() as conn:
        row = conn.execute("SELECT count(*) FROM live").fetchone()
    return int(row[0]) if row else 0


def judge_shares(bench: Bench) -> list[str]:
    """Check that each tenant is served before any gets more than twice its share plus the cap."""
    with bench.connection() as conn:
        found = served(conn.execute("SELECT started_at, tenant FROM history").fetchall())
    if found.most <= found.allowed(CAP):
        return []
    return [f"{found.greediest} was served {found.most:,} times before every tenant was served: after {found.starts:,} "
            f"starts for {found.tenants:,} tenants that is above {found.allowed(CAP):,.0f}"]  # fmt: skip


def pinned_fair(bench: Bench) -> Result:
    """Many jobs of 1,000 tenants while one transaction is held open from before the first, against without."""
    jobs = bench.size(500_000)
    tenants = max(2, min(1000, jobs // 100))
    rates: dict[bool, list[float]] = {False: [], True: []}
    problems: list[str] = []
    for held in (False, True, True, False):
        with bench.connection() as holder:
            if held:
                holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT count(*) FROM live")
            rates[held].append(rate_of(bench, lambda: fill(bench, jobs, tenants, tenant="t", flood=0.5), jobs))
            problems += judge_shares(bench)
            if held:
                holder.execute("ROLLBACK")
        bench.empty()
    rate, limit = statistics.mean(rates[True]), statistics.mean(rates[False])
    return Result("pinned_fair", jobs, jobs / rate, rate, limit_jobs_per_s=limit, ratio=rate / limit,
                  problems=problems, note="limit: the same without the open transaction")  # fmt: skip


def blocked(bench: Bench) -> Result:
    """50,000 jobs that may run, half of them with tenants, behind a million under 10,000 keys without room."""
    jobs, keys, free = bench.size(1_000_000), max(10, int(10_000 * bench.scale)), bench.size(50_000)
    rates = [plain(bench)]
    allow(bench, "blocked:{n}", concurrency=1)
    hold(bench, keys)
    fill(bench, jobs, keys, key="blocked:", age=60)
    fill(bench, free // 2, 1, age=30)
    fill(bench, free - free // 2, 100, tenant="t", age=30)
    rate = rate_of(bench, lambda: None, free)
    problems = judge_blocked(bench, jobs, free)
    bench.empty()
    rates.append(plain(bench))
    limit = statistics.mean(rates)
    return Result("blocked", free, free / rate, rate, limit_jobs_per_s=limit, ratio=rate / limit, problems=problems,
                  note=f"limit: plain drain; {jobs:,} wait behind {keys:,} keys")  # fmt: skip


def hold(bench: Bench, keys: int) -> None:
    """Take the only slot of each key, for a live worker that does not end its jobs."""
    fill(bench, keys, keys, key="blocked:", queue="held")
    with bench.connection() as conn:
        left = keys
        while left:
            rows = conn.execute("SELECT id FROM claim('holder', '{held}', 500, '1 hour')").fetchall()
            assert rows, "the slots of some keys cannot be taken"
            left -= len(rows)


def judge_blocked(bench: Bench, jobs: int, free: int) -> list[str]:
    """Check that no blocked job was started, and that all free ones ended."""
    with bench.connection() as conn:
        row = conn.execute(
            "SELECT (SELECT count(*) FROM history), count(*) FILTER (WHERE queue = 'default' AND token IS NULL "
            "AND attempt = 0), count(*) FILTER (WHERE queue = 'default') FROM live"
        ).fetchone()
    assert row is not None
    return [] if row == (free, jobs, jobs) else [f"of {free:,} free and {jobs:,} blocked jobs {row[0]:,} ended, "
                                                 f"{row[1]:,} wait untouched, {row[2]:,} are there"]  # fmt: skip


def limited(bench: Bench) -> Result:
    """Every job under one of 1,000 keys with two slots each, four worker processes, against a plain drain by one."""
    jobs = bench.size(200_000)
    keys = min(1000, jobs // 20)
    rates: list[float] = []
    limits = [plain(bench)]
    problems: list[str] = []
    for _ in range(3 if bench.scale >= 1 else 1):  # alternating, because the machine's pace changes by the minute
        with recorded(bench, keys, jobs, 0.0, problems) as folder:
            rates.append(rate_of(bench, lambda: None, jobs, 4, folder))
            problems += judge_places(bench, folder, keys)
        limits.append(plain(bench))
    idle = idle_places(bench, problems)
    rate, limit = statistics.median(rates), statistics.median(limits)
    each = ", ".join(f"{each:,.0f}" for each in rates)
    return Result("limited", jobs, jobs / rate, rate, idle[49] * 1e3, idle[98] * 1e3, limit, rate / limit,
                  problems=problems, note=f"limit: plain drain; medians of alternating rounds ({each}); "
                  f"a slot with waiting jobs is empty for p50 "
                  f"{idle[49] * 1e3:.1f}, p99 {idle[98] * 1e3:.1f}, at most {idle[99] * 1e3:.0f} ms")  # fmt: skip


LONGEST_GAP = 2.0  # seconds a slot may be empty while jobs for it wait; longer gaps mean polling


def idle_places(bench: Bench, problems: list[str]) -> list[float]:
    """Return percentiles and the maximum of the time a key's slot is empty between two jobs of 50 ms, when the
    keys have fewer slots than the workers."""
    keys = 20
    jobs = keys * max(20, int(400 * bench.scale))
    with recorded(bench, keys, jobs, 0.05, problems) as folder:
        rate_of(bench, lambda: None, jobs, 4, folder)
        problems += judge_places(bench, folder, keys)
        found = gaps(handled(folder, keys), 2)
    if max(found) > LONGEST_GAP:
        problems.append(f"a slot was empty for {max(found):.2f} s while jobs for it waited")
    return [*statistics.quantiles(found, n=100), max(found)]


@contextmanager
def recorded(bench: Bench, keys: int, jobs: int, seconds: float, problems: list[str]) -> Iterator[Path]:
    """Load jobs under keys with two slots, and yield a folder for the workers' records. Meanwhile check in database
    snapshots that no more than two jobs hold a key."""
    allow(bench, "key:{n}", concurrency=2)
    fill(bench, jobs, keys, key="key:", task="bench.timed", arguments=f"'seconds', {seconds}")
    over = threading.Event()

    def look() -> None:
        with bench.connection() as conn:
            conn.execute("SET jit = off")  # keeps the query short
            while not over.wait(0.25) and not problems:
                problems.extend(f"{n} jobs held {key} at once" for key, n in conn.execute(ABOVE, [2]).fetchall())

    watching = threading.Thread(target=look)
    watching.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    finally:
        over.set()
        watching.join()
        bench.empty()


def notes(folder: Path) -> dict[int, tuple[float, float]]:
    """Return when the handler of each job began and ended."""
    every = [msgspec.json.decode(file.read_bytes()) for file in folder.iterdir()]
    return {n: (began, ended) for each in every for n, began, ended in each}


def handled(folder: Path, keys: int) -> list[Interval]:
    """Return the intervals of the handlers."""
    return [Interval(n % keys, began, ended) for n, (began, ended) in notes(folder).items()]


def judge_places(bench: Bench, folder: Path, keys: int) -> list[str]:
    """Check that no more than two jobs overlap under a key, from the start of the handler, after the claim's commit, to
    the start of the transaction that ended the job."""
    with bench.connection() as conn:
        rows = conn.execute(
            "SELECT (payload ->> 'n')::int, extract(epoch FROM finished_at)::float8 FROM history"
        ).fetchall()
    began = notes(folder)
    peaks = most_at_once(Interval(n % keys, began[n][0], ended) for n, ended in rows)
    return [f"{peak} jobs ran at once under key:{key}" for key, peak in peaks.items() if peak > 2][:3]


def rate(bench: Bench) -> Result:
    """Eight workers under a rate of 600 jobs a minute: as many starts as it allows, never more."""
    seconds, burst, per_second = max(3.0, 60 * min(bench.scale, 1.0)), 10, 10.0
    allow(bench, "rate:{n}", rate=600, per=60, burst=burst)
    fill(bench, int(seconds * per_second * 3) + burst, 1, key="rate:", task="bench.timed", arguments="'seconds', 0")
    starts = starts_within(bench, seconds)
    allowed = burst + seconds * per_second
    most = most_in_window(starts, seconds)
    problems = [f"{most} starts within {seconds:g} s: above {allowed:g}"] if most > allowed else []
    if len(starts) < 0.95 * allowed:
        problems.append(f"only {len(starts)} starts of {allowed:g} that the rate allows in {seconds:g} s")
    bench.empty()
    return Result("rate", len(starts), seconds, len(starts) / seconds, limit_jobs_per_s=allowed / seconds,
                  ratio=len(starts) / allowed, problems=problems,
                  note=f"limit: what the rate allows in {seconds:g} s; most in any window {most}")  # fmt: skip


def starts_within(bench: Bench, seconds: float) -> list[float]:
    """Run eight workers for so long after the first start. Return when they claimed, by the database's clock."""
    first: list[float] = []

    def over() -> bool:
        if not first and bench.counted():
            first.append(time.monotonic())
        return bool(first) and time.monotonic() > first[0] + seconds + 1

    bench.run_processes("holdfast.bench.worker", 2, over, 4)
    with bench.connection() as conn:
        rows = conn.execute(
            "SELECT extract(epoch FROM started_at)::float8 FROM history "
            "WHERE started_at <= (SELECT min(started_at) FROM history) + make_interval(secs => %s)", [seconds]
        ).fetchall()  # fmt: skip
    return [row[0] for row in rows]


ALL: dict[str, Callable[[Bench], Result]] = {
    "fair": fair,
    "pinned_fair": pinned_fair,
    "blocked": blocked,
    "limited": limited,
    "rate": rate,
}
