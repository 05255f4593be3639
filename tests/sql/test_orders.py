"""Orders: jobs under a key "order:..." run one at a time, the first first, and one that waits for another attempt holds
up the rest, whatever fails, crashes or commits late."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections import Counter, defaultdict

import psycopg
import pytest

from tests.conftest import wait_until
from tests.support import flow
from tests.support import sql_core as core
from tests.support.flow import Taken
from tests.support.mutants import mutant
from tests.support.sql_core import Sql
from tests.support.sql_hammer import hammer, rounds


def put(sql: Sql, order: str = "order:a", **options: object) -> uuid.UUID:
    return core.put(sql, keys=[order], **options)


def started(sql: Sql, limit: int = 10) -> list[uuid.UUID]:
    return [job.id for job in core.claim(sql, limit=limit)]


def test_jobs_of_an_order_run_one_at_a_time_and_in_order(sql: Sql) -> None:
    ids = [put(sql) for _ in range(5)]
    done = []
    for _ in ids:
        job = core.claim_one(sql)
        assert started(sql) == [], "one of them runs"
        core.finish(sql, job)
        done.append(job.id)
    assert done == ids


def run_all(sql: Sql) -> list[int]:
    """Claim and end one job after the other; return the places in their payloads."""
    done = []
    while jobs := core.claim(sql, limit=1):
        done.append(jobs[0].payload["n"])
        core.finish(sql, *jobs)
    return done


def test_jobs_of_one_transaction_run_as_they_were_enqueued(dsn: str, each_sql: Sql) -> None:
    """Ids of one millisecond have no order unless they are made to."""
    each_sql("begin")
    for n in range(20):
        core.put(each_sql, keys=["order:a"], payload={"n": n})
    each_sql("commit")
    each_sql(
        "do $$ begin for n in 20..39 loop "
        "perform enqueue('t', jsonb_build_object('n', n), p_keys => '{order:a}'); end loop; end $$"
    )
    assert run_all(each_sql) == list(range(40))


@pytest.mark.parametrize("delayed", [False, True])
def test_jobs_of_one_call_run_as_they_were_given_whatever_their_dedupe_keys(sql: Sql, delayed: bool) -> None:
    jobs = [{"task": "t", "payload": {"n": n}, "keys": ["order:a"]} for n in range(20)]
    jobs = [job | {"dedupe_key": f"k{99 - n}"} if n % 3 else job for n, job in enumerate(jobs)]
    jobs = [job | {"delay": 0.001} for job in jobs] if delayed else jobs
    sql("select enqueue_many(%s::jsonb)", [json.dumps(jobs)])
    sql("select pg_sleep(0.01)")
    core.promote(sql)
    assert run_all(sql) == list(range(20))


@pytest.mark.parametrize("how", ["insert", "enqueue", "in one statement"])
def test_a_row_lock_before_the_enqueue_defines_the_order(dsn: str, sql: Sql, how: str) -> None:
    """A transaction that began first may get the lock last."""
    call = "perform enqueue('t', jsonb_build_object('n', %s), p_keys => '{order:a}')"
    ways = {
        "insert": "insert into live (id, task, payload, keys, lane) values "
        "(uuid7(), 't', jsonb_build_object('n', %s), '{order:a}', lane_of(null, '{order:a}'))",
        "enqueue": call.replace("perform", "select"),
        "in one statement": f"do $$ begin perform pg_sleep(0.02); perform 1 from account for update; {call}; end $$",
    }
    sql("create table if not exists account (id integer); insert into account values (1)")
    try:
        with core.session(dsn, autocommit=False) as one, core.session(dsn, autocommit=False) as two:
            one.execute("select 1")
            two.execute("select * from account for update")
            late = threading.Thread(target=_enqueue_under_lock, args=[one, how, ways[how] % 2])
            late.start()
            wait_until(
                lambda: sql(
                    "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'", [one.info.backend_pid]
                )
            )
            two.execute(ways[how] % 1)
            two.commit()
            late.join()
        assert run_all(sql) == [1, 2]
    finally:
        sql("drop table account")


def _enqueue_under_lock(conn: psycopg.Connection, how: str, statement: str) -> None:
    if how != "in one statement":
        conn.execute("select * from account for update")
    conn.execute(statement)
    conn.commit()


@pytest.mark.parametrize("door", ["enqueue", "insert"])
def test_two_orders_on_one_job_are_refused(sql: Sql, door: str) -> None:
    """Each lane knows its own order alone, so neither could be kept."""
    if door == "enqueue":
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="one order only, got order:b and order:a"):
            core.enqueue(sql, keys=["order:b", "x", "order:a"])
    else:
        with pytest.raises(psycopg.errors.CheckViolation, match="limit_keys"):
            sql("insert into live (id, task, lane, keys) values (uuid7(), 't', 1, '{order:a,order:b}')")
    assert core.count(sql, "live") == 0


def test_a_job_that_keeps_its_order_joins_no_other_when_its_payload_is_replaced(sql: Sql) -> None:
    job = core.put(sql, keys=["order:a"], dedupe_key="k")
    core.fail(sql, core.claim_one(sql), delay="1 hour")
    result = core.enqueue(sql, keys=["order:b", "x"], dedupe_key="k", payload={"n": 2}, on_conflict="replace")
    assert result == (job, "replaced")
    assert sql("select keys::text[], held from later") == [(["x"], ["order:a"])]
    sql("update later set run_at = clock()")
    core.promote(sql)
    core.fail(sql, core.claim_one(sql), outcome="dead")
    assert sorted(sql("select keys::text[] from dead")[0][0]) == ["order:a", "x"]


def test_orders_do_not_hold_up_each_other(sql: Sql) -> None:
    first = [put(sql, f"order:{n}") for n in range(5)]
    for n in range(5):
        put(sql, f"order:{n}")
    assert sorted(started(sql, 20)) == sorted(first)


def test_a_job_that_waits_for_another_attempt_holds_up_the_rest(sql: Sql) -> None:
    first, second = put(sql), put(sql)
    core.fail(sql, core.claim_one(sql), delay="1 hour")
    assert started(sql) == [], "the second would overtake the first"
    assert flow.drift(sql) == [] == sql("select * from limit_drift")
    sql("update later set run_at = clock()")
    core.promote(sql)
    again = core.claim_one(sql)
    assert (again.id, again.attempt, again.keys) == (first, 2, ["order:a"])
    assert started(sql) == []
    core.finish(sql, again)
    assert started(sql) == [second]
    assert core.count(sql, "kept_orders") == 0


@pytest.mark.parametrize("end", ["lost", "snoozed", "released"])
def test_whatever_sends_a_job_back_keeps_its_order(sql: Sql, end: str) -> None:
    first, second = put(sql), put(sql)
    job = core.claim_one(sql)
    if end == "lost":
        core.lose(sql)
    elif end == "snoozed":
        core.snooze(sql, job, "0")
    else:
        core.release(sql, job)
    assert started(sql) == [first]
    assert second not in started(sql)
    assert sql("select * from limit_drift") == []


@pytest.mark.parametrize("outcome", ["dead", "failed", "canceled"])
def test_the_rest_goes_on_when_the_first_has_ended_for_good(sql: Sql, outcome: str) -> None:
    put(sql)
    second = put(sql)
    core.fail(sql, core.claim_one(sql), delay="0", outcome="error")
    again = core.claim_one(sql)
    core.fail(sql, again, outcome=outcome)
    assert started(sql) == [second]
    assert core.count(sql, "kept_orders") == 0


def test_a_dead_job_goes_back_into_its_order(sql: Sql) -> None:
    first, second = put(sql, tenant="acme"), put(sql, tenant="acme")
    core.fail(sql, core.claim_one(sql), delay="0")
    core.fail(sql, core.claim_one(sql), outcome="dead")
    core.finish(sql, core.claim_one(sql))
    third = put(sql, tenant="acme")
    sql("select retry_dead(%s)", [[first]])
    assert sql("select keys, lane = lane_of('acme', '{order:a}') from live where id = %s", [first]) == [
        (["order:a"], True)
    ]
    assert started(sql) == [third], "it came back after that"
    assert second not in started(sql)


def test_canceling_a_job_that_keeps_its_order_lets_the_rest_go_on(sql: Sql) -> None:
    first, second = put(sql), put(sql)
    core.fail(sql, core.claim_one(sql), delay="1 hour")
    sql("select * from cancel(%s)", [[first]])
    assert sql("select * from limit_drift") == []
    assert started(sql) == [second]


def test_other_limits_of_a_waiting_job_are_free_meanwhile(sql: Sql) -> None:
    flow.limit(sql, "smtp", concurrency=1)
    core.put(sql, keys=["order:a", "smtp"])
    core.fail(sql, core.claim_one(sql), delay="1 hour")
    other = core.put(sql, keys=["smtp"])
    assert started(sql) == [other]


def test_a_first_job_that_another_transaction_holds_is_not_overtaken(dsn: str, sql: Sql) -> None:
    first, second = put(sql), put(sql)
    with core.session(dsn, autocommit=False) as other:
        other.execute("select 1 from live where id = %s for update", [first])
        assert started(sql) == []
        other.rollback()
    assert started(sql) == [first]
    assert second not in started(sql)


def test_a_job_of_a_late_commit_comes_before_jobs_that_began_later(dsn: str, sql: Sql) -> None:
    """The ring remembers how far claims got in a lane; a job that comes later to an earlier place is found."""
    with core.session(dsn, autocommit=False) as late:
        straggler = put(core.runner(late))
        early = put(sql)
        second = put(sql)
        (job,) = flow.claim(sql)
        assert job.id == early
        assert flow.claim(sql) == []
        sql("update lanes l set mark_at = j.run_at, mark_id = j.id from live j where j.id = %s", [second])
        flow.end(sql, job)
        late.commit()
    after = put(sql)
    jobs = flow.claim(sql)
    assert [job.id for job in jobs] == [straggler]
    flow.end(sql, *jobs)
    jobs = flow.claim(sql)
    assert [job.id for job in jobs] == [second]
    assert after not in started(sql)


def test_the_reason_names_the_job_that_comes_first(sql: Sql) -> None:
    first, second = put(sql), put(sql)
    core.fail(sql, core.claim_one(sql), delay="1 hour")
    ((explanation,),) = sql("select why(%s)::text", [second])
    assert f"goes one at a time: job {first} comes first, and waits for another attempt" in explanation
    assert "runs" not in explanation


def test_an_order_unused_for_an_hour_is_pruned_and_made_again(sql: Sql) -> None:
    put(sql)
    core.finish(sql, core.claim_one(sql))
    put(sql, "order:busy")
    busy = core.claim_one(sql)
    sql("update limits set created_at = created_at - interval '2 hours', last_success_at = null")
    sql("select prune()")
    assert core.firsts(sql("select key from limits")) == ["order:busy"]
    put(sql)
    assert len(started(sql)) == 1
    assert core.finish(sql, busy) == []


def test_an_order_that_has_used_up_its_rate_is_not_pruned(sql: Sql) -> None:
    rule = {"template": "order:{a}", "pattern": "order:%", "code": {"rate": 1, "per": 86_400, "burst": 1}}
    sql("select register_limits(%s::jsonb)", [json.dumps([rule])])
    put(sql)
    core.finish(sql, core.claim_one(sql))
    sql("update limits set created_at = created_at - interval '2 hours', last_success_at = null")
    sql("select prune()")
    put(sql)
    assert started(sql) == []


@pytest.mark.parametrize("delay", ["0", "1 hour"])
def test_a_job_that_keeps_its_order_gets_no_more_limits_than_a_claim_can_return(sql: Sql, delay: str) -> None:
    put(sql, dedupe_key="k")
    core.fail(sql, core.claim_one(sql), delay=delay)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"including the order that job .* keeps; got 20"):
        core.enqueue(sql, dedupe_key="k", on_conflict="replace", keys=[f"k{n}" for n in range(20)])
    every = ["order:a", *(f"k{n}" for n in range(19))]
    assert core.enqueue(sql, dedupe_key="k", on_conflict="replace", keys=every)[1] == "replaced"
    sql("update later set run_at = clock()")
    core.promote(sql)
    job = core.claim_one(sql)
    assert sorted(job.keys) == sorted(every)
    core.fail(sql, job, outcome="dead")
    assert sql("select * from limit_drift") == []


def test_an_order_runs_one_at_a_time_whatever_an_operator_says(sql: Sql) -> None:
    flow.limit(sql, "order:a", concurrency=5)  # set_limit() refuses it; it once did not
    first = put(sql)
    put(sql)
    assert started(sql) == [first]


class Race:
    """Adders, workers that fail and crash: the ledger says which job of each order may start."""

    def __init__(self) -> None:
        self.seed = random.randrange(2**32)
        print(f"seed {self.seed}")
        self.guard = threading.Lock()
        self.adding = threading.Lock()
        self.waiting: dict[str, list[uuid.UUID]] = defaultdict(list)
        self.running: dict[str, uuid.UUID] = {}
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()

    def add(self, sql: Sql, rng: random.Random) -> None:
        """Add one job after the other, so that their order is known."""
        with self.adding:
            if sql("select count(*) from live where token is null")[0][0] < 100:
                order = f"order:{rng.randrange(6)}"
                more = rng.choice([[], [], ["shared"]])
                id_ = uuid.uuid4()
                with self.guard:
                    self.waiting[order].append(id_)
                flow.put(sql, keys=[order, *more], ids=[id_], priority=rng.choice([1, 2, 3]))
        time.sleep(0.001)

    def work(self, sql: Sql, rng: random.Random) -> None:
        try:
            limit = rng.choice([1, 3, 20])
            jobs = flow.claim(sql, f"w{rng.random()}", limit, free=rng.choice([None, limit]))
        except psycopg.errors.DeadlockDetected:
            self.counts["deadlock"] += 1
            return
        if not jobs:
            time.sleep(0.002)
            return
        self.start(jobs)
        time.sleep(rng.random() * 0.005)
        outcome = rng.choice(["succeeded", "succeeded", "error", "snoozed", "released", "dead", "crashed"])
        self.end(jobs, outcome)
        if outcome == "crashed":
            sql("update claims set expires_at = '2000-01-01' where token = %s", [jobs[0].token])
            return
        more = {"delay": rng.choice([0, 0.01])} if outcome in ("error", "snoozed") else {}
        while True:
            try:
                flow.end(sql, *jobs, outcome=outcome, **more)
                return
            except psycopg.errors.DeadlockDetected:
                self.counts["deadlock"] += 1

    def start(self, jobs: list[Taken]) -> None:
        with self.guard:
            for job in jobs:
                (order,) = (key for key in job.keys if key.startswith("order:"))
                self.counts["start"] += 1
                if order in self.running:
                    self.wrong.append(f"{job.id} runs beside {self.running[order]} of {order}")
                if self.waiting[order][0] != job.id:
                    self.wrong.append(f"{job.id} overtook {self.waiting[order][0]} of {order}")
                self.running[order] = job.id

    def end(self, jobs: list[Taken], outcome: str) -> None:
        """Note the end before it is sent: the next may start as soon as it is committed."""
        with self.guard:
            self.counts[outcome] += len(jobs)
            for job in jobs:
                (order,) = (key for key in job.keys if key.startswith("order:"))
                self.running.pop(order, None)
                if outcome in ("succeeded", "dead") and job.id in self.waiting[order]:
                    self.waiting[order].remove(job.id)

    def lose(self, sql: Sql, rng: random.Random) -> None:
        time.sleep(0.01)
        try:
            sql("select * from upkeep('w', '10 s')")
            core.reclaim(sql)
            core.promote(sql)
        except psycopg.errors.DeadlockDetected:
            self.counts["deadlock"] += 1

    def run(self, dsn: str, schema: str, seconds: float) -> None:
        works = [self.add] * 2 + [self.work] * 5 + [self.lose]
        errors = hammer(dsn, schema, self.seed, seconds, works, self.was_worth_it)
        assert self.wrong == []
        assert errors == []

    def was_worth_it(self) -> bool:
        return all(self.counts[what] > 10 for what in ("start", "error", "crashed", "dead", "snoozed", "released"))


def test_orders_hold_while_jobs_are_claimed_fail_and_crash(dsn: str, sql: Sql) -> None:
    flow.limit(sql, "shared", concurrency=2)
    race = Race()
    race.run(dsn, "holdfast", 5)
    print(dict(race.counts))
    assert race.was_worth_it(), "too little happened to prove anything"
    for _ in range(5000):
        core.lose(sql)
        sql("update later set run_at = clock()")
        core.promote(sql)
        if not (jobs := flow.claim_on(sql, limit=100)):
            break
        race.start(jobs)
        race.end(jobs, "succeeded")
        flow.end(sql, *jobs)
    assert race.wrong == []
    assert core.count(sql, "live") + core.count(sql, "later") == 0, "something was never started"
    assert flow.drift(sql) == [] == sql("select * from limit_drift")
    assert core.count(sql, "kept_orders") == 0


@pytest.mark.parametrize(
    "change",
    [
        {"claim_round": [("where not g.ordered or first_of_order(p_queue, g.lane, j.run_at, j.id)", "")]},
        {"settle": [("nullif(orders_of(g.keys || g.held), '{}')", "null::text[]")]},
        {"views/limit_state": [("case when m.kind = 'order' then 1 else", "case when m.kind = 'order' then 2 else")]},
    ],
    ids=["the first is not looked for", "a retry lets others pass", "two at a time"],
)
def test_the_race_goes_red_when_orders_are_broken(dsn: str, change: dict[str, list[tuple[str, str]]]) -> None:
    with mutant(dsn, change) as sql:
        flow.limit(sql, "shared", concurrency=2)
        for _ in rounds():
            race = Race()
            try:
                race.run(dsn, "mutant", 1)
            except AssertionError:
                if race.wrong:
                    return
            sql("truncate live, later, claims, limits, lanes, flows, rings, arrivals, releases, folds, kept_orders")
    pytest.fail("the race is green although orders are broken")
