"""Workloads of limits: many tenants, keys without room, exact limits and rates. Each is measured against a plain
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

from bench.checks import Interval, gaps, most_at_once, most_in_window
from bench.engine import WORKER, open_transaction
from holdfast.bench.harness import Bench, Result, compared, timed
from holdfast.bench.workloads import fill_groups, judge_shares

ABOVE = """
SELECT key, count(*) FROM (
    SELECT unnest(l.keys) AS key FROM claims c CROSS JOIN LATERAL unnest(c.ids) AS i(id)
    CROSS JOIN LATERAL (SELECT keys FROM live l WHERE l.id = i.id AND l.token = c.token OFFSET 0) l) held
GROUP BY key HAVING count(*) > %s
"""


def allow(bench: Bench, pattern: str, **rule: float) -> None:
    """Declare a limit for all keys of a pattern, as code does."""
    with bench.connection() as conn:
        conn.execute(
            "INSERT INTO limit_rules (template, pattern, code, updated_at) VALUES (%s, %s, %s::jsonb, now())",
            [pattern, pattern.replace("{n}", "%"), msgspec.json.encode(rule).decode()],
        )


def rate_of(bench: Bench, jobs: int, processes: int = 1, record: Path | None = None) -> float:
    """Drain jobs that are there. Return jobs a second from the first start of the last worker, so that the startup of
    processes does not count."""
    bench.settle()
    bench.drain(jobs, processes, 1, *([record] if record else []), module=WORKER)
    with bench.connection() as conn:
        row = conn.execute(
            "SELECT count(*) / extract(epoch FROM max(finished_at) - min(began))::float8 FROM history, ("
            "SELECT max(first) AS began FROM (SELECT min(started_at) AS first FROM history GROUP BY worker) f) a "
            "WHERE started_at >= began"
        ).fetchone()
    assert row is not None
    return float(row[0])


CLAIM = 200  # jobs of a timed claim


def fair_claims(bench: Bench) -> Result:
    """Claims from a million jobs of many tenants; limit: from a hundredth of them.

    The two alternate, because the machine's pace may double within a second. The few jobs are in their own schema, with
    so many tenants that no claim reads all of them, so that only the depth differs."""
    jobs = bench.size(1_000_000)
    few = max(jobs // 100, 1000)
    beside = Bench(bench.settings.with_(schema=f"{bench.settings.schema}_few"), bench.scale)
    with beside.connection() as shallow, bench.connection() as deep:
        loaded(beside, shallow, few, max(2, few // 10))
        loaded(bench, deep, jobs, max(2, jobs // 100))
        turns = [(timed_claim(shallow), timed_claim(deep)) for _ in range(max(2, min(25, few // CLAIM // 3)))]
        shallow.execute(f"DROP SCHEMA {beside.settings.schema} CASCADE".encode())
    bench.empty()
    limits, ours = zip(*turns, strict=True)
    result = timed("fair_claims", list(ours), list(limits))
    result.jobs, result.jobs_per_s = len(ours) * CLAIM, CLAIM / statistics.median(ours)
    result.limit_jobs_per_s = CLAIM / statistics.median(limits)
    result.note = f"claims of {CLAIM} jobs: with {few:,} waiting and with {jobs:,}"
    return result


def loaded(bench: Bench, conn: psycopg.Connection[Any], jobs: int, tenants: int) -> None:
    """Insert jobs of many tenants, and serve each tenant once: the first change of a page after a checkpoint writes the
    whole page to the WAL."""
    fill_groups(bench, jobs, tenants, tenant="t", flood=0.5)
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


def pinned_fair(bench: Bench) -> Result:
    """Many jobs of 1,000 tenants, one transaction open from before the first; limit: none open."""
    jobs = bench.size(500_000)
    problems: list[str] = []

    def measure(held: bool) -> float:
        with open_transaction(bench, held):
            fill_groups(bench, jobs, max(2, min(1000, jobs // 100)), tenant="t", flood=0.5)
            rate = rate_of(bench, jobs)
            problems.extend(judge_shares(bench))
            return rate

    return compared("pinned_fair", jobs, *bench.alternate(measure), problems=problems)


def blocked(bench: Bench) -> Result:
    """Jobs that may run, half of them with tenants, behind a million without room; limit: plain drain."""
    jobs, keys, free = bench.size(1_000_000), max(10, int(10_000 * bench.scale)), bench.size(50_000)
    problems: list[str] = []

    def measure(ours: bool) -> float:
        if not ours:
            return bench.plain_rate()
        allow(bench, "blocked:{n}", concurrency=1)
        hold(bench, keys)
        fill_groups(bench, jobs, keys, key="blocked:", age=60)
        fill_groups(bench, free // 2, 1, age=30)
        fill_groups(bench, free - free // 2, 100, tenant="t", age=30)
        rate = rate_of(bench, free)
        problems.extend(judge_blocked(bench, jobs, free))
        return rate

    rates = bench.alternate(measure, (False, True, False))
    return compared("blocked", free, *rates, problems=problems, note=f"{jobs:,} wait behind {keys:,} keys")


def hold(bench: Bench, keys: int) -> None:
    """Take the only slot of each key, for a live worker that does not end its jobs."""
    fill_groups(bench, keys, keys, key="blocked:", queue="held")
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
    ended, untouched, there = row
    if row == (free, jobs, jobs):
        return []
    found = f"{ended:,} ended, {untouched:,} wait untouched, {there:,} are there"
    return [f"of {free:,} free and {jobs:,} blocked jobs {found}"]


def limited(bench: Bench) -> Result:
    """Every job under one of 1,000 keys with two slots each, four processes; limit: plain drain by one."""
    jobs = bench.size(200_000)
    keys = min(1000, jobs // 20)
    problems: list[str] = []

    def measure(ours: bool) -> float:
        if not ours:
            return bench.plain_rate()
        with recorded(bench, keys, jobs, 0.0, problems) as folder:
            rate = rate_of(bench, jobs, 4, folder)
            problems.extend(judge_places(bench, folder, keys))
        return rate

    rates, limits = bench.alternate(measure, (False, *(True, False) * (3 if bench.scale >= 1 else 1)))
    idle = [each * 1e3 for each in idle_places(bench, problems)]
    note = f"rounds: {', '.join(f'{each:,.0f}' for each in rates)}; a slot with waiting jobs is empty for "
    note += f"p50 {idle[49]:.1f}, p99 {idle[98]:.1f}, at most {idle[99]:.0f} ms"
    return compared("limited", jobs, rates, limits, p50_ms=idle[49], p99_ms=idle[98], problems=problems, note=note)


LONGEST_GAP = 2.0  # seconds a slot may be empty while jobs for it wait; longer gaps mean polling


def idle_places(bench: Bench, problems: list[str]) -> list[float]:
    """Return percentiles and the maximum of the time a key's slot is empty between two jobs of 50 ms, when the
    keys have fewer slots than the workers."""
    keys = 20
    jobs = keys * max(20, int(400 * bench.scale))
    with recorded(bench, keys, jobs, 0.05, problems) as folder:
        rate_of(bench, jobs, 4, folder)
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
    fill_groups(bench, jobs, keys, f"'seconds', {seconds}", key="key:", task="bench.timed")
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
    """Eight workers under a rate of 600 a minute; limit: what the rate allows, never more."""
    seconds, burst, per_second = max(3.0, 60 * min(bench.scale, 1.0)), 10, 10.0
    allow(bench, "rate:{n}", rate=600, per=60, burst=burst)
    jobs = int(seconds * per_second * 3) + burst
    fill_groups(bench, jobs, 1, "'seconds', 0", key="rate:", task="bench.timed")
    starts = starts_within(bench, seconds)
    allowed = burst + seconds * per_second
    most = most_in_window(starts, seconds)
    problems = [f"{most} starts within {seconds:g} s: above {allowed:g}"] if most > allowed else []
    if len(starts) < 0.95 * allowed:
        problems.append(f"only {len(starts)} starts of {allowed:g} that the rate allows in {seconds:g} s")
    bench.empty()
    rates = [len(starts) / seconds], [allowed / seconds]
    note = f"within {seconds:g} s; most in any window {most}"
    return compared("rate", len(starts), *rates, problems=problems, note=note)


def starts_within(bench: Bench, seconds: float) -> list[float]:
    """Run eight workers for so long after the first start. Return when they claimed, by the database's clock."""
    first: list[float] = []

    def over() -> bool:
        if not first and bench.counted():
            first.append(time.monotonic())
        return bool(first) and time.monotonic() > first[0] + seconds + 1

    bench.run_processes(WORKER, 2, over, 4)
    within = "started_at <= (SELECT min(started_at) FROM history) + make_interval(secs => %s)"
    query = f"SELECT extract(epoch FROM started_at)::float8 FROM history WHERE {within}"
    with bench.connection() as conn:
        return [row[0] for row in conn.execute(query.encode(), [seconds])]


ALL: dict[str, Callable[[Bench], Result]] = {
    "fair_claims": fair_claims,
    "pinned_fair": pinned_fair,
    "blocked": blocked,
    "limited": limited,
    "rate": rate,
}
