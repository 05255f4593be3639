"""Cancel that meets a promote, a claim or an attempt's end: after "canceling" there is no other attempt."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.conftest import wait_until
from tests.support import sql_core as core
from tests.support.mutants import mutant
from tests.support.sql_clock import Clock, clock_fixture, each_clock_fixture  # noqa: F401 - fixtures
from tests.support.sql_core import Claimed, Sql
from tests.support.sql_hammer import Work, hammer, rounds

STRANDED = "select l.id, l.token, c.expires_at from live l left join claims c using (token) order by 1 limit 5"
OUT_OF_REACH = {"kind": "fixed", "delay": 60}


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def waits_for_lock(sql: Sql, conn: psycopg.Connection) -> None:
    """Return once that session waits for a lock."""
    query = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    wait_until(lambda: sql(query, [conn.info.backend_pid]))


# Every end after which a job would wait for another attempt.
PUT_BACK: dict[str, Callable[[Sql, Claimed], Any]] = {
    "error": core.fail,
    "snoozed": core.snooze,
    "released": core.release,
}


@pytest.mark.parametrize("put_back", PUT_BACK.values(), ids=PUT_BACK)
def test_a_cancel_that_commits_while_the_attempts_end_waits_for_it_is_not_lost(
    each_dsn: str, each_sql: Sql, threads: ThreadPoolExecutor, put_back: Callable[[Sql, Claimed], Any]
) -> None:
    """The end has begun and waits for the row that cancel holds: it must still see the request."""
    id_ = core.put(each_sql, retry=OUT_OF_REACH)
    job = core.claim_one(each_sql)
    with core.session(each_dsn, autocommit=False) as operator, core.session(each_dsn) as worker:
        assert core.cancel(core.runner(operator), id_) == ["canceling"]
        ending: Future[Any] = threads.submit(put_back, core.runner(worker), job)
        waits_for_lock(each_sql, worker)
        operator.commit()
        ending.result(40)
    assert core.status(each_sql, id_) == "canceled"
    assert core.count(each_sql, "cancels") == 0


# -- jobs that wait, wherever they are on their way


def test_cancel_returns_what_it_did_for_each_job(each_sql: Sql, each_clock: Clock) -> None:
    made = core.one_job_in_every_place(each_sql)
    retrying = core.put(each_sql, priority=0, retry={"kind": "fixed", "delay": 0})
    core.fail(each_sql, core.claim_one(each_sql))
    stranger = uuid.uuid4()
    ids = [made["live"], made["later"], retrying, made["running"], made["dead"], made["history"], stranger]
    expected = ["canceled", "canceled", "canceled", "canceling", "finished", "finished", "unknown"]
    assert core.cancel(each_sql, *ids) == expected
    expected[:3] = ["finished"] * 3
    assert core.cancel(each_sql, *ids) == expected
    job = core.look(each_sql, made["later"])
    assert (job.status, job.finished_at) == ("canceled", each_clock.now)
    assert core.cancel(each_sql) == []


def test_a_canceled_job_is_never_claimed(sql: Sql, clock: Clock) -> None:
    ids = [core.put(sql), core.put(sql, delay="5 seconds")]
    core.cancel(sql, *ids)
    clock.advance(10)
    assert core.claim(sql) == []
    assert core.promote(sql) == []


def test_cancel_meets_a_promote_under_way(dsn: str, sql: Sql, clock: Clock) -> None:
    """The job is being moved from later to live: cancel waits for the move and then finds it."""
    id_ = core.put(sql, delay="5 seconds")
    clock.advance(5)
    results: list[list[str]] = []
    with core.session(dsn, autocommit=False) as leader, core.session(dsn) as operator:
        assert core.promote(core.runner(leader)) == [id_]
        waiting = threading.Thread(target=lambda: results.append(core.cancel(core.runner(operator), id_)))
        waiting.start()
        wait_until(
            lambda: sql(
                "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'",
                [operator.info.backend_pid],
            )
        )
        leader.commit()
        waiting.join()
    assert results == [["canceled"]]
    assert core.status(sql, id_) == "canceled"


def test_cancel_meets_a_promote_that_is_rolled_back(dsn: str, sql: Sql, clock: Clock) -> None:
    id_ = core.put(sql, delay="5 seconds")
    clock.advance(5)
    results: list[list[str]] = []
    with core.session(dsn, autocommit=False) as leader, core.session(dsn) as operator:
        core.promote(core.runner(leader))
        waiting = threading.Thread(target=lambda: results.append(core.cancel(core.runner(operator), id_)))
        waiting.start()
        wait_until(
            lambda: sql(
                "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'",
                [operator.info.backend_pid],
            )
        )
        leader.rollback()
        waiting.join()
    assert results == [["canceled"]]
    assert core.count(sql, "jobs") == 1


def test_cancel_meets_a_claim_under_way(dsn: str, sql: Sql) -> None:
    id_ = core.put(sql)
    results: list[list[str]] = []
    with core.session(dsn, autocommit=False) as worker, core.session(dsn) as operator:
        job = core.claim_one(core.runner(worker))
        waiting = threading.Thread(target=lambda: results.append(core.cancel(core.runner(operator), id_)))
        waiting.start()
        wait_until(
            lambda: sql(
                "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'",
                [operator.info.backend_pid],
            )
        )
        worker.commit()
        waiting.join()
    assert results == [["canceling"]]
    assert core.finish(sql, job) == []


def test_a_claim_steps_over_a_job_that_is_being_canceled(dsn: str, sql: Sql) -> None:
    first, second = core.put(sql), core.put(sql)
    with core.session(dsn, autocommit=False) as operator:
        assert core.cancel(core.runner(operator), first) == ["canceled"]
        assert [j.id for j in core.claim(sql)] == [second]
        operator.rollback()
    assert core.status(sql, first) == "queued"


def test_racing_cancels_and_promotes_never_call_a_waiting_job_unknown(dsn: str, sql: Sql, clock: Clock) -> None:
    """Jobs move between live and later while they are canceled: each ends once, and none is 'unknown'."""
    ids = [core.put(sql, retry={"kind": "fixed", "delay": 1}, max_attempts=32_000) for _ in range(60)]
    stop = threading.Event()

    def go_round() -> None:
        with core.session(dsn) as conn:
            run = core.runner(conn)
            while not stop.is_set():
                jobs = core.claim(run, limit=9)
                results = [{"id": str(j.id), "token": j.token, "outcome": "snoozed", "delay": 1} for j in jobs]
                run("select finish('{}', '{}', %s::jsonb)", [json.dumps(results)])
                run(
                    "update later set run_at = clock() "
                    "where id in (select id from later limit 9 for update skip locked)"
                )
                core.promote(run, 9)

    movers = [threading.Thread(target=go_round) for _ in range(2)]
    for mover in movers:
        mover.start()
    outcomes: dict[uuid.UUID, list[str]] = {id_: [] for id_ in ids}
    try:
        with core.session(dsn) as conn:
            run = core.runner(conn)
            left = list(ids)
            while left:
                assert all(mover.is_alive() for mover in movers), "no session moves on the jobs that it holds"
                for id_ in list(left):
                    (outcome,) = core.cancel(run, id_)
                    outcomes[id_].append(outcome)
                    if outcome == "canceled" or outcomes[id_][-2:] == ["canceling", "finished"]:
                        left.remove(id_)
                    elif outcome != "canceling":
                        pytest.fail(f"a job that waits was called {outcome}")
    finally:
        stop.set()
        for mover in movers:
            mover.join()
    assert core.count(sql, "jobs") == 60
    assert sql("select distinct status::text from jobs") == [("canceled",)]


# -- everybody at once


class CancelResult(NamedTuple):
    """The outcome of cancel for a job, and its attempts by then."""

    outcome: str
    attempts: int


class Race:
    """Jobs that are enqueued (half in a batch), claimed, ended in every way, lost, promoted and canceled, all by
    threads of their own."""

    def __init__(self, sql: Sql) -> None:
        self.seed = random.randrange(2**32)
        print(f"seed {self.seed}")
        self.batch = uuid.uuid4()
        sql("select open_batch(%s, 'b')", [self.batch])
        self.ids: list[uuid.UUID] = []
        self.results: dict[uuid.UUID, CancelResult] = {}
        self.guard = threading.Lock()
        self.deadlocks = 0

    def add(self, sql: Sql, rng: random.Random) -> None:
        options = {"max_attempts": 50, "retry": {"kind": "fixed", "delay": rng.choice([0, 0.01])}}
        options["batch"] = rng.choice([None, self.batch])
        keys = [rng.choice([None, str(rng.random())]) for _ in range(rng.randint(1, 5))]
        made = [core.put(sql, **options, dedupe_key=key) for key in keys]
        with self.guard:
            self.ids += made
        time.sleep(0.004)

    def work(self, sql: Sql, rng: random.Random) -> None:
        jobs = core.claim(sql, f"w{rng.random()}", limit=rng.randint(1, 20))
        rng.shuffle(jobs)  # not in the order of ids, as the ends of real jobs are not
        time.sleep(rng.random() * 0.01)
        half = len(jobs) // 2
        words = ["error", "snoozed", "released", "succeeded", "error", "failed", "dead"]
        results = [
            {"id": str(j.id), "token": j.token, "outcome": rng.choice(words), "delay": rng.choice([None, 0, 0.01])}
            for j in jobs[half:]
        ]
        if rng.random() < 0.8:  # else the worker is gone
            plain = jobs[:half] if rng.random() < 0.3 else []
            sql(
                "select finish(%s::uuid[], %s::bigint[], %s::jsonb)",
                [[j.id for j in plain], [j.token for j in plain], json.dumps(results)],
            )

    def lose(self, sql: Sql, rng: random.Random) -> None:
        time.sleep(0.01)
        some = "select token from claims where random() < 0.3 for update skip locked"
        sql(f"update claims set expires_at = '2000-01-01' where token in ({some})")
        sql("select * from upkeep('w', '10 s')")

    def cancel(self, sql: Sql, rng: random.Random) -> None:
        if len(self.ids) < 20:
            return
        chosen = rng.sample(self.ids[-200:], rng.choice([1, 1, 2, 10]))
        sql("begin")
        rows = sql("select id, outcome from cancel(%s::uuid[])", [chosen])
        attempts = dict(sql("select id, attempts from jobs where id = any (%s)", [chosen]))
        sql("commit")
        with self.guard:
            for id_, outcome in rows:
                self.results.setdefault(id_, CancelResult(outcome, attempts[id_]))
        time.sleep(0.01)

    def retried(self, work: Work) -> Work:
        """Retry a deadlock's victim, as clients do."""

        def run(sql: Sql, rng: random.Random) -> None:
            try:
                work(sql, rng)
            except psycopg.errors.DeadlockDetected:
                sql("rollback")
                with self.guard:
                    self.deadlocks += 1

        return run

    def run(self, dsn: str, schema: str, seconds: float) -> None:
        works = [self.add] * 2 + [self.work] * 3 + [self.lose] + [self.cancel] * 2
        assert hammer(dsn, schema, self.seed, seconds, [self.retried(work) for work in works], self.enough) == []

    def outcomes(self) -> Counter[str]:
        with self.guard:
            return Counter(each.outcome for each in self.results.values())

    def enough(self) -> bool:
        return self.outcomes()["canceling"] > 50 and self.outcomes()["canceled"] > 20

    def check(self, sql: Sql) -> None:
        drain(sql)
        rows = sql("select id, status::text, attempts from jobs")
        assert sorted(row[0] for row in rows) == sorted(self.ids), "a job is lost, or in two places"
        ends = {id_: (status, attempts) for id_, status, attempts in rows}
        for id_, (outcome, attempts) in self.results.items():
            status, last = ends[id_]
            assert status == "canceled" or outcome != "canceled", f"{id_} was canceled and is {status}"
            assert last == attempts, f"{id_} returned {outcome} at attempt {attempts} and had attempt {last} after that"
        print(f"{len(self.ids)} jobs, {self.outcomes()}, {self.deadlocks} deadlocks")
        assert self.enough(), "too little was canceled to prove anything"
        self.check_batch(sql)

    def check_batch(self, sql: Sql) -> None:
        counted = sql("select total, succeeded, failed, canceled from batch_progress")[0]
        there = Counter(dict(sql("select status::text, count(*) from jobs where batch is not null group by 1")))
        ends = (there["succeeded"], there["failed"] + there["dead"], there["canceled"])
        assert counted == (sum(ends), *ends)
        assert core.count(sql, "dedupe") == 0 and core.count(sql, "claims") == 0


def drain(sql: Sql) -> None:
    """Let everything that is left succeed. No other session is left, so each round must end something."""
    core.lose(sql)
    while left := core.count(sql, "live") + core.count(sql, "later"):
        sql("update later set run_at = clock()")
        core.promote(sql)
        jobs = core.claim(sql, limit=500)
        assert jobs, f"{left} jobs are left that cannot be claimed: {sql(STRANDED)}"
        assert core.finish(sql, *jobs) == []


def test_however_many_leases_a_race_leaves_behind_all_of_its_jobs_are_drained(sql: Sql) -> None:
    """reclaim takes back a number of claims at a time; what is left for its next call is not stranded."""
    for _ in range(25):
        core.put(sql, retry=OUT_OF_REACH)
        core.claim_one(sql)
    drain(sql)
    assert core.count(sql, "history") == 25


def test_after_canceling_there_is_no_other_attempt_whatever_happens_at_the_same_time(dsn: str, sql: Sql) -> None:
    race = Race(sql)
    race.run(dsn, "holdfast", 5)
    race.check(sql)


FORGETFUL = {
    "settle": [
        ("l.token = g.token for update skip locked)", "l.token = g.token)"),
        (
            "where l.ctid = g.place and l.token = g.token offset 0)",
            "where l.ctid = g.place and l.token = g.token for update)",
        ),
    ],
    "finish": [("if p_locked = 'wait' then  -- settle", "if false then  -- settle")],
}


def test_the_race_goes_red_when_settle_looks_before_it_has_the_row(dsn: str) -> None:
    def race(sql: Sql) -> None:
        for _ in rounds():
            one = Race(sql)
            one.run(dsn, "mutant", 2)
            one.check(sql)
            sql("truncate batches, batch_counts, live, history, dead, later, claims, cancels, dedupe")

    with mutant(dsn, FORGETFUL) as sql, pytest.raises(AssertionError, match="after that"):
        race(sql)
