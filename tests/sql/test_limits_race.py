"""Many claimers at once on the same keys, with random ends and crashes: limits are exact at every moment.

Two witnesses. The ledger is kept by the threads themselves: a job is entered after its claim has returned and struck
out before its end is sent, so it can only show too few. The snapshots are single statements, so they see what is
committed: jobs and counters must agree in every one of them.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial

import psycopg
import pytest

from bench.checks import most_in_window
from tests.support import flow
from tests.support import sql_core as core
from tests.support.flow import Taken
from tests.support.mutants import mutant
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - a fixture
from tests.support.sql_core import Sql
from tests.support.sql_hammer import hammer, rounds

PLACES = {"one": 1, "two": 2, "three": 3, "wide": 20, "tenant:a": 4, "task:u": 6}
RATE, BURST = 40.0, 5  # a second
ENDS = ("succeeded", "succeeded", "error", "snoozed", "released", "failed", "canceled")


class Race:
    """Adders, workers that may crash, an operator, and two witnesses."""

    def __init__(self, sql: Sql, *, simple: bool = False) -> None:
        """With `simple`, a job has one limit of concurrency or none, and nothing starts when claimed."""
        self.simple = simple
        self.places = {key: places for key, places in PLACES.items() if not simple or ":" not in key}
        self.seed = random.randrange(2**32)
        print(f"seed {self.seed}")
        for key, places in self.places.items():
            flow.limit(sql, key, concurrency=places)
        if not simple:
            flow.limit(sql, "rate", rate=RATE, per=1, burst=BURST)
        flow.limit(sql, "free")
        self.guard = threading.Lock()
        self.ledger: Counter[str] = Counter()
        self.above: list[str] = []
        self.drift: list[object] = []
        self.starts: list[float] = []
        self.counts: Counter[str] = Counter()
        self.peaks: dict[str, int] = defaultdict(int)

    def add(self, sql: Sql, rng: random.Random) -> None:
        if sql("select count(*) from live where token is null")[0][0] < 300:
            for _ in range(10):
                keys = ["one", "two", "three", "wide", "free", *([] if self.simple else ["rate"])]
                some = rng.sample(keys, rng.choice([0, 1, 1, 1] if self.simple else [0, 1, 1, 1, 2, 3]))
                flow.put(sql, tenant=rng.choice([None, "a", "b", "c"]), keys=some, task=rng.choice("ttu"))
        time.sleep(0.005)

    def work(self, sql: Sql, rng: random.Random) -> None:
        jobs: list[Taken] = []
        with self.retried("claim"):
            jobs = self.claim(sql, rng)
            if not jobs:
                time.sleep(0.002)
                return
            self.enter(jobs)
            self.note_starts(sql, jobs)
            time.sleep(rng.random() * 0.01)
            rng.shuffle(jobs)
            self.strike_out(jobs)
            if rng.random() < 0.1:
                self.counts["crashed"] += len(jobs)
                sql("update claims set expires_at = '2000-01-01' where token = %s", [jobs[0].token])
                return
        while jobs:
            number = rng.randint(1, len(jobs))
            self.finish(sql, jobs[:number], rng.choice(ENDS))
            jobs = jobs[number:]

    def claim(self, sql: Sql, rng: random.Random) -> list[Taken]:
        """Claim as workers with some free slots, or as clients that know of none."""
        limit = rng.choice([1, 3, 20])
        return flow.claim(sql, f"w{rng.random()}", limit, free=rng.choice([None, 0, 1, limit]))

    def finish(self, sql: Sql, jobs: list[Taken], outcome: str) -> None:
        """End jobs as workers do: the end of a deadlock's victim is sent again."""
        self.counts[outcome] += len(jobs)
        more = {"delay": 0} if outcome in ("snoozed", "error") else {}
        while True:
            try:
                assert flow.end(sql, *jobs, outcome=outcome, **more) == []
                return
            except psycopg.errors.DeadlockDetected:
                self.counts["deadlock of a finish"] += 1

    def enter(self, jobs: list[Taken]) -> None:
        with self.guard:
            for key in (key for job in jobs for key in job.every_key):
                self.ledger[key] += 1
                self.peaks[key] = max(self.peaks[key], self.ledger[key])
                if self.ledger[key] > self.places.get(key, 10**6):
                    self.above.append(f"{self.ledger[key]} at once under {key}")

    def strike_out(self, jobs: list[Taken]) -> None:
        with self.guard:
            self.ledger.subtract(key for job in jobs for key in job.every_key)

    def note_starts(self, sql: Sql, jobs: list[Taken]) -> None:
        if number := sum("rate" in job.keys for job in jobs):
            at = sql("select extract(epoch from claimed_at)::float8 from claims where token = %s", [jobs[0].token])
            with self.guard:
                self.starts += [at[0][0]] * number

    def lose(self, sql: Sql, rng: random.Random) -> None:
        time.sleep(0.01)
        with self.retried("reclaim"):
            sql("select * from upkeep('w', '10 s')")
            sql("select prune_limits(100, clock())")

    def operate(self, sql: Sql, rng: random.Random) -> None:
        """Set and clear limits while claims count: the counters stay exact."""
        time.sleep(0.01)
        sql("begin")
        for key in ("free", "tenant:b", "queue:default"):
            if rng.random() < 0.5:
                sql("select set_limit(%s, '{\"concurrency\": 1000}')", [key])
            else:
                sql("select clear_limit(%s)", [key])
        time.sleep(rng.random() * 0.01)
        sql(rng.choice(["commit", "commit", "rollback"]))
        self.counts["change"] += 1

    def look(self, sql: Sql, rng: random.Random) -> None:
        """Read the tables, one snapshot each."""
        time.sleep(0.003)
        self.counts["snapshot"] += 1
        self.above += [f"{n} hold {key}, whose places are {k}" for key, n, k in sql(flow.ABOVE)]
        self.drift += flow.drift(sql)
        assert not self.above and not self.drift

    def retried(self, what: str) -> Retried:
        return Retried(self.counts, what)

    def run(self, dsn: str, schema: str, seconds: float) -> None:
        works = [self.add] + [self.work] * 6 + [self.lose, self.look, *([] if self.simple else [self.operate])]
        errors = hammer(dsn, schema, self.seed, seconds, works, self.was_worth_it)
        assert self.above == [], "above the limit"
        assert self.drift == [], "a counter is not the truth"
        assert errors == []

    def check(self, sql: Sql) -> None:
        print(dict(self.counts), dict(self.peaks))
        self.check_rate()
        drain(sql)
        assert flow.drift(sql) == [], "a counter is not the truth"
        assert flow.held(sql) == {}

    def check_rate(self) -> None:
        for window in (0.5, 1.0, 2.0):
            # A claim's time is that of its beginning: it may have waited for another commit.
            most = most_in_window(self.starts, window)
            assert most <= BURST + RATE * (window + 0.05) + 1, f"{most} starts within {window} s"

    def was_worth_it(self) -> bool:
        """Return whether enough happened to prove anything."""
        keys = ("one", "two", "three", *([] if self.simple else ["tenant:a"]))
        full = all(self.peaks[key] == self.places[key] for key in keys)
        rated = self.simple or len(self.starts) > RATE
        changed = self.simple or self.counts["change"] > 50
        return full and rated and changed and self.counts["crashed"] > 10 and self.counts["snapshot"] > 50


class Retried:
    """A deadlock's victim has changed nothing and may try again."""

    def __init__(self, counts: Counter[str], what: str) -> None:
        self._counts, self._what = counts, what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        if kind is not psycopg.errors.DeadlockDetected:
            return False
        self._counts[f"deadlock of a {self._what}"] += 1
        return True


def drain(sql: Sql) -> None:
    """Let everything that is left succeed."""
    core.lose(sql)
    flow.limit(sql, "rate")
    for _ in range(10_000):
        sql("update later set run_at = clock()")
        core.promote(sql)
        jobs = flow.claim_on(sql, limit=500)
        if not jobs and not core.count(sql, "live"):
            return
        assert jobs, f"nothing is claimed of {sql('table live')}; {flow.held(sql)}, {sql('table lanes')}"
        assert flow.end(sql, *jobs) == []
    raise AssertionError("jobs do not come to an end")


@pytest.mark.parametrize("simple", [False, True], ids=["every kind of limit", "one limit each"])
def test_limits_are_exact_at_every_moment_while_jobs_are_claimed_end_and_crash(
    dsn: str, sql: Sql, simple: bool
) -> None:
    race = Race(sql, simple=simple)
    race.run(dsn, "holdfast", 5)
    race.check(sql)
    assert race.was_worth_it(), "too little happened to prove anything"


def test_a_claim_that_began_earlier_and_counts_later_does_not_earn_the_same_time_twice(sql: Sql, clock: Clock) -> None:
    """A claim's time is that of its beginning, so two claims may count in the other order."""
    flow.limit(sql, "rate", rate=1, per=1, burst=5)
    flow.put(sql, keys=["rate"], number=20)
    assert len(flow.claim(sql, limit=3)) == 3
    clock.advance(-4)
    assert len(flow.claim(sql, limit=1)) == 1
    clock.advance(4)
    assert len(flow.claim(sql, limit=10)) == 1, "five may start at once, and five have"
    clock.advance(2)
    assert len(flow.claim(sql, limit=10)) == 2


def test_a_change_that_began_earlier_gives_no_time_back_either(sql: Sql, clock: Clock) -> None:
    flow.limit(sql, "rate", rate=1, per=1, burst=5)
    flow.put(sql, keys=["rate"], number=20)
    assert len(flow.claim(sql, limit=10)) == 5
    clock.advance(-4)
    flow.limit(sql, "rate", rate=1, per=1, burst=4)
    clock.advance(4)
    assert flow.claim(sql, limit=10) == []


def test_a_change_waits_for_no_claim_and_gives_back_nothing_that_it_took(dsn: str, sql: Sql, clock: Clock) -> None:
    flow.limit(sql, "rate", rate=1, per=1, burst=5)
    flow.put(sql, keys=["rate"], number=20)
    with core.session(dsn, autocommit=False) as claiming:
        assert len(flow.claim(core.runner(claiming), limit=10)) == 5
        sql("set statement_timeout = '500ms'")
        sql("select set_limit('rate', '{\"burst\": 6}')")
        claiming.commit()
    assert flow.claim(sql, limit=10) == []
    clock.advance(6)
    assert len(flow.claim(sql, limit=10)) == 6


def test_while_one_claim_has_the_ring_others_find_plain_jobs_only_and_ends_do_not_wait(dsn: str, sql: Sql) -> None:
    flow.limit(sql, "one", concurrency=1)
    flow.put(sql, keys=["one"])
    (first,) = flow.claim(sql)
    flow.put(sql, tenant="a")
    (plain,) = flow.put(sql)
    flow.put(sql, keys=["one"])
    with core.session(dsn, autocommit=False) as other:
        assert other.execute("select lock_ring()").fetchone() == (True,)
        assert [job.id for job in flow.claim(sql)] == [plain]
        sql("set statement_timeout = '500ms'")
        assert flow.end(sql, first) == []
        sql("set statement_timeout = 0")
    assert sorted(job.every_key[0] for job in flow.claim(sql)) == ["one", "queue:default"]
    assert flow.drift(sql) == []


@pytest.mark.parametrize("limit", [4, 30])
def test_plain_jobs_and_those_of_tenants_share_the_limit_of_their_queue(sql: Sql, limit: int) -> None:
    flow.limit(sql, "queue:default", concurrency=5)
    for tenant in (None, "a", "b"):
        flow.put(sql, tenant=tenant, number=10)
    started = [len(flow.claim(sql, limit=limit)) for _ in range(4)]
    assert sum(started) == 5
    assert flow.drift(sql) == []


def rush(dsn: str, schema: str, sql: Sql, seconds: float) -> int:
    """Start claims at the same moment, with nothing to fold before: only the ring's lock keeps them apart.
    Return how many jobs they started."""
    for key, places in PLACES.items():
        flow.limit(sql, key, concurrency=places)
    for key, tenant in itertools.product(("one", "two", "three"), ("a", "b")):
        flow.put(sql, keys=[key], tenant=tenant, number=1000)
    flow.end(sql, *flow.claim(sql))
    number = 0
    with ExitStack() as stack, ThreadPoolExecutor(6) as pool:
        claimers = [core.runner(stack.enter_context(core.session(dsn, schema))) for _ in range(6)]
        for _ in rounds(seconds):
            flow.fold(sql)
            begin = threading.Barrier(len(claimers))
            jobs = [job for some in pool.map(partial(claim_at, begin), claimers) for job in some]
            assert sql(flow.ABOVE) == [], "above the limit"
            assert flow.drift(sql) == [], "a counter is not the truth"
            assert flow.end(sql, *jobs) == []
            number += len(jobs)
    return number


def claim_at(begin: threading.Barrier, sql: Sql) -> list[Taken]:
    sql("set deadlock_timeout = '5ms'")  # no time is lost where claims do not wait in line
    begin.wait()
    with suppress(psycopg.errors.DeadlockDetected):
        return flow.claim(sql, limit=4)
    return []


def test_claims_of_the_same_moment_start_no_more_than_limits_allow(dsn: str, sql: Sql) -> None:
    assert rush(dsn, "holdfast", sql, 3) > 50, "too little happened to prove anything"


def test_it_goes_red_when_claims_do_not_lock_the_ring(dsn: str) -> None:
    unlocked = {"lock_ring": [("if not pg_try_advisory_xact_lock(1215259732, v_ring) then", "if false then")]}
    with mutant(dsn, unlocked) as sql, pytest.raises(AssertionError, match="above the limit"):
        rush(dsn, "mutant", sql, 50)


# Each breaks a property that the race checks.
MUTANTS = {
    "claims are not counted": {"claim_round": [("m.running + u.jobs", "m.running")]},
    "ends are counted twice": {"end_under_limits": [("m.running - e.jobs", "m.running - 2 * e.jobs")]},
    "jobs do not hold the limit of their tenant": {
        "claim_round": [("not a.carried))::text", "not a.carried and a.key like 'queue:%'))::text")]
    },
}


@pytest.mark.parametrize("change", MUTANTS.values(), ids=MUTANTS)
def test_the_race_goes_red_when(dsn: str, change: dict[str, list[tuple[str, str]]]) -> None:
    def race(sql: Sql) -> None:
        for _ in rounds():
            Race(sql).run(dsn, "mutant", 3)

    with mutant(dsn, change) as sql, pytest.raises(AssertionError, match=r"above the limit|not the truth"):
        race(sql)
