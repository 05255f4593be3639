"""Holders of limits that are killed: no limit is ever exceeded, and every counter is exact afterwards."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from bench.checks import Interval, most_at_once
from tests.conftest import wait_until
from tests.support import flow
from tests.support.flow import Sql
from tests.support.workers import Fleet, fleet

LONG = os.environ.get("HOLDFAST_TEST_LONG") == "1"
SECONDS = 30 if LONG else 8
QUICK = {"lease": 1.0, "renew": 0.3, "upkeep": 0.2, "poll": 0.2, "concurrency": 20, "app": "limited"}
PLACES = {"one": 1, "two": 2, "three": 3, "tenant:a": 4}


def load(sql: Sql, number: int, rng: random.Random) -> None:
    """Enqueue jobs of two tenants under one or two keys each."""
    for key, places in PLACES.items():
        flow.limit(sql, key, concurrency=places)
    for _ in range(number):
        keys = rng.sample(["one", "two", "three"], rng.choice([1, 1, 2]))
        tenant = rng.choice(["a", "b"])
        arguments = {"keys": ",".join([*keys, f"tenant:{tenant}"]), "seconds": rng.uniform(0, 0.1)}
        flow.put(sql, task="stay", tenant=tenant, keys=keys, payload=arguments)


class Watch(threading.Thread):
    """Check the holders continuously, in snapshots of the database."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn
        self._over = threading.Event()
        self.found: list[object] = []
        self.looks = 0
        self.peaks: Counter[str] = Counter()

    def run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True, options="-c search_path=holdfast") as conn:
            while not self._over.wait(0.01) and not self.found:
                self.found += conn.execute(flow.ABOVE).fetchall() + conn.execute(flow.DRIFT).fetchall()
                self.peaks |= Counter(dict(conn.execute(flow.HELD).fetchall()))
                self.looks += 1

    def stop(self) -> None:
        self._over.set()
        self.join()


def ran(workers: Fleet) -> list[Interval]:
    """Return when handlers ran under each key: to their end, or to that of their process."""
    notes = workers.processes[0].notes()
    ends = {(job, pid, attempt): float(at) for word, job, attempt, _, pid, at in notes if word == "end"}
    found = []
    for word, job, attempt, keys, pid, began in notes:
        if word == "begin":
            end = ends.get((job, pid, attempt), workers.killed.get(int(pid), 0.0))
            found += [Interval(key, float(began), end) for key in keys.split(",")]
    return found


@pytest.mark.timeout(SECONDS + 120)
def test_limits_hold_and_counters_are_the_truth_while_workers_are_killed(dsn: str, sql: Sql, tmp_path: Path) -> None:
    rng = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    load(sql, SECONDS * 40, rng)
    watch = Watch(dsn)
    watch.start()
    until = time.monotonic() + SECONDS
    with fleet(dsn, tmp_path, 3, rng, **QUICK) as workers:
        workers.rage(10**6, (0.05, 0.4), lambda: watch.found or time.monotonic() > until)
        left = "select (select count(*) from live) + (select count(*) from later)"
        wait_until(lambda: watch.found or sql(left) == [(0,)], 60)
        watch.stop()
    print(f"{workers.kills} killed, {watch.looks} looks, {len(ran(workers))} runs, peaks {watch.peaks}")
    assert watch.found == []
    peaks = most_at_once(ran(workers))
    assert {key: peak for key, peak in peaks.items() if peak > PLACES.get(key, 1000)} == {}
    assert flow.drift(sql) == [] and flow.held(sql) == {}
    assert workers.kills >= SECONDS / 2 and watch.peaks["two"] == 2 and watch.peaks["tenant:a"] >= 3, "too little"
