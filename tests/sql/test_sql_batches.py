"""Batches in SQL: counted exactly, ended once and never early, under concurrent adds, ends, cancels and retries."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from test_plans import flush

from tests.conftest import wait_until
from tests.support import sql_core as core
from tests.support.mutants import mutant
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - fixture
from tests.support.sql_core import Sql
from tests.support.sql_hammer import hammer, rounds

Counts = tuple[str, int, int, int, int]


def open_batch(sql: Sql, on_done: Any = None) -> uuid.UUID:
    id_ = uuid.uuid4()
    sql("select open_batch(%s, 'import', 'acme', %s::jsonb)", [id_, on_done and json.dumps(on_done)])
    return id_


def close(sql: Sql, batch: uuid.UUID) -> bool:
    return sql("select close_batch(%s)", [batch])[0][0]


def complete(sql: Sql, *batches: uuid.UUID) -> list[uuid.UUID]:
    return core.firsts(sql("select complete_batches(%s::uuid[])", [list(batches)] if batches else [None]))


def counts(sql: Sql, batch: uuid.UUID) -> Counts:
    (row,) = sql("select status, total, succeeded, failed, canceled from batch_progress where id = %s", [batch])
    return row


def end(sql: Sql, outcome: str, limit: int = 1) -> list[uuid.UUID]:
    """Claim and end this many jobs."""
    jobs = core.claim(sql, limit=limit)
    results = [{"id": str(j.id), "token": j.token, "outcome": outcome, "error": {}} for j in jobs]
    assert sql("select finish('{}', '{}', %s::jsonb)", [json.dumps(results)]) == []
    return [j.id for j in jobs]


# -- counters that must not drift


def test_a_job_is_counted_once_however_often_it_is_enqueued(each_sql: Sql) -> None:
    batch = open_batch(each_sql)
    id_ = core.put(each_sql, id=uuid.uuid4(), batch=batch)
    assert core.enqueue(each_sql, id=id_, batch=batch) == (id_, "existing")
    assert core.enqueue(each_sql, id=id_, batch=batch, delay="1 hour") == (id_, "existing")
    core.finish(each_sql, core.claim_one(each_sql))
    assert core.enqueue(each_sql, id=id_, batch=batch) == (id_, "existing")
    many = [{"task": "t", "id": str(id_), "batch": str(batch)}] * 3
    each_sql("select enqueue_many(%s::jsonb)", [json.dumps(many)])
    assert counts(each_sql, batch) == ("running", 1, 1, 0, 0)


def test_a_repeat_that_meets_the_end_of_the_first_is_not_counted(dsn: str, sql: Sql) -> None:
    """The reply to an enqueue was lost, and while it is repeated the job is being finished."""
    batch, id_ = open_batch(sql), uuid.uuid4()
    core.put(sql, id=id_, batch=batch)
    job = core.claim_one(sql)
    results: list[Any] = []
    with core.session(dsn, autocommit=False) as worker, core.session(dsn) as client:
        core.finish(core.runner(worker), job)
        again = threading.Thread(target=lambda: results.append(core.enqueue(core.runner(client), id=id_, batch=batch)))
        again.start()
        wait_until(
            lambda: (
                sql(
                    "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'",
                    [client.info.backend_pid],
                )
                or results
            )
        )
        worker.commit()
        again.join(10)
    assert results == [(id_, "existing")]
    assert counts(sql, batch) == ("running", 1, 1, 0, 0)
    assert core.count(sql, "jobs") == 1


@pytest.mark.parametrize("on_conflict", ["existing", "replace", "raise"])
def test_a_job_that_another_holds_the_key_of_is_not_counted(sql: Sql, on_conflict: str) -> None:
    first, second = open_batch(sql), open_batch(sql)
    holder = core.put(sql, batch=first, dedupe_key="k")
    if on_conflict == "raise":
        with pytest.raises(psycopg.errors.UniqueViolation):
            core.enqueue(sql, batch=second, dedupe_key="k", on_conflict=on_conflict)
    else:
        assert core.enqueue(sql, batch=second, dedupe_key="k", on_conflict=on_conflict)[0] == holder
    assert (counts(sql, first)[1], counts(sql, second)[1]) == (1, 0)
    assert close(sql, second)
    assert counts(sql, second)[0] == "succeeded"


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "dead", "canceled", "error", "released"])
def test_an_end_sent_twice_in_one_call_is_one_end(each_sql: Sql, outcome: str) -> None:
    batch = open_batch(each_sql)
    id_ = core.put(each_sql, batch=batch, retry={"kind": "fixed", "delay": 60})
    job = core.claim_one(each_sql)
    result = {"id": str(id_), "token": job.token, "outcome": outcome, "error": {"block": "b"}}
    each_sql("select finish('{}', '{}', %s::jsonb)", [json.dumps([result, result, result])])
    assert core.count(each_sql, "jobs") == 1
    assert sum(counts(each_sql, batch)[2:]) == (outcome not in ("error", "released"))
    assert core.count(each_sql, "blocks") == (outcome == "dead")


def test_jobs_that_wait_again_are_not_counted_as_ended(sql: Sql, clock: Clock) -> None:
    batch = open_batch(sql)
    core.put(sql, batch=batch, max_attempts=9, retry={"kind": "fixed", "delay": 0})
    for outcome in ("error", "snoozed", "released", "lost"):
        end(sql, outcome)
        core.promote(sql)
        clock.advance(60)
    core.promote(sql)
    core.claim_one(sql)
    core.lose(sql)
    assert counts(sql, batch) == ("queued", 1, 0, 0, 0)
    end(sql, "canceled")
    assert counts(sql, batch) == ("running", 1, 0, 0, 1)


def test_a_dead_job_that_is_retried_and_discarded_keeps_its_batch_exact(sql: Sql) -> None:
    batch = open_batch(sql)
    for _ in range(3):
        core.put(sql, batch=batch)
    ids = end(sql, "dead", 3)
    assert counts(sql, batch) == ("running", 3, 0, 3, 0)
    assert core.retry_dead(sql, ids[0], ids[0]) == [ids[0]]
    assert core.retry_dead(sql, ids[0]) == []
    assert core.discard_dead(sql, ids[1]) == [ids[1]]
    assert counts(sql, batch) == ("running", 3, 0, 2, 0)
    assert end(sql, "failed") == [ids[0]]
    assert counts(sql, batch) == ("running", 3, 0, 3, 0)


def test_an_expired_job_counts_as_canceled(sql: Sql, clock: Clock) -> None:
    batch = open_batch(sql)
    core.put(sql, batch=batch, deadline="10 seconds")
    core.put(sql, batch=batch, delay="5 seconds", deadline="10 seconds")
    close(sql, batch)
    clock.advance(10)
    assert sql("select expired from upkeep('w', '10 seconds')") == [(2,)]
    assert counts(sql, batch) == ("succeeded", 2, 0, 0, 2)


def test_many_jobs_added_at_once_are_counted_at_once(sql: Sql) -> None:
    """A counter that is changed in one transaction many times costs more each time: 10,000 took ten seconds."""
    batch, other = open_batch(sql), open_batch(sql)
    jobs = [{"task": "t", "delay": 60, "batch": str(b)} for b in (batch, other) for _ in range(300)]
    before = writes(sql, "batch_counts")
    sql("select enqueue_many(%s::jsonb, 'existing', true)", [json.dumps(jobs)])
    assert writes(sql, "batch_counts") - before == 2
    assert (counts(sql, batch)[1], counts(sql, other)[1]) == (300, 300)


def writes(sql: Sql, table: str) -> int:
    """Return how often rows of a table were inserted or updated so far."""
    flush(sql)
    ((number,),) = sql(
        "select n_tup_ins + n_tup_upd from pg_stat_user_tables where schemaname = 'holdfast' and relname = %s", [table]
    )
    return number


def test_a_negative_number_of_jobs_cannot_be_added(sql: Sql) -> None:
    batch = open_batch(sql)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="-1"):
        sql("select add_to_batch(%s, -1)", [batch])
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        sql("select add_to_batch(%s, null)", [batch])
    assert counts(sql, batch)[1] == 0


def test_a_retried_job_of_a_batch_long_forgotten_leaves_nothing_behind(sql: Sql, clock: Clock) -> None:
    batch = open_batch(sql)
    core.put(sql, batch=batch)
    (id_,) = end(sql, "dead")
    close(sql, batch)
    clock.advance(9 * 86_400)
    sql("select prune()")
    assert core.count(sql, "batches") == 0 and core.count(sql, "batch_counts") == 0
    assert core.retry_dead(sql, id_) == [id_]
    end(sql, "succeeded")
    assert core.count(sql, "batch_counts") == 0


# -- the end of a batch


def test_an_adders_open_transaction_keeps_a_batch_from_ending(each_dsn: str, each_sql: Sql) -> None:
    batch = open_batch(each_sql, {"task": "done", "queue": "callbacks"})
    core.put(each_sql, batch=batch)
    end(each_sql, "succeeded")
    with core.session(each_dsn, autocommit=False) as adder:
        core.put(core.runner(adder), batch=batch)
        assert close(each_sql, batch), "closing does not wait for the adder"
        began = time.monotonic()
        assert complete(each_sql, batch) == [] and complete(each_sql) == []
        assert time.monotonic() - began < 10, "no call waits for it: the adder commits after this"
        adder.commit()
    assert complete(each_sql) == []
    assert counts(each_sql, batch) == ("running", 2, 1, 0, 0)
    end(each_sql, "succeeded")
    assert complete(each_sql) == [batch]
    assert complete(each_sql) == [] and complete(each_sql, batch) == []
    assert core.count(each_sql, "live") == 1


def test_an_adder_that_rolls_back_leaves_the_batch_as_it_was(dsn: str, sql: Sql) -> None:
    batch = open_batch(sql)
    close_later = core.put(sql, batch=batch)
    with core.session(dsn, autocommit=False) as adder:
        core.put(core.runner(adder), batch=batch)
        adder.rollback()
    close(sql, batch)
    assert end(sql, "succeeded") == [close_later]
    assert complete(sql) == [batch]


def test_a_batch_that_has_ended_or_was_canceled_takes_no_more(each_sql: Sql) -> None:
    ended, canceled = open_batch(each_sql), open_batch(each_sql)
    close(each_sql, ended)
    each_sql("select cancel_batch(%s)", [canceled])
    for batch, word in ((ended, "ended"), (canceled, "been canceled")):
        for statement in ("select enqueue('t', p_batch => %s)", "select add_to_batch(%s, 5)"):
            with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"has {word} and takes no more jobs"):
                each_sql(statement, [batch])
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="there is no batch"):
        core.put(each_sql, batch=uuid.uuid4())
    assert core.count(each_sql, "jobs") == 0


def test_a_batch_is_not_ended_on_an_old_view_of_it(each_dsn: str, each_sql: Sql) -> None:
    """A transaction that sees the past cannot know what was added meanwhile: the leader decides."""
    batch = open_batch(each_sql)
    core.put(each_sql, batch=batch)
    close(each_sql, batch)
    end(each_sql, "succeeded")
    with core.session(each_dsn, autocommit=False) as past:
        past.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        past.execute("select 1 from batches")
        core.put(each_sql, batch=batch)
        assert complete(core.runner(past)) == []
        past.commit()
    assert counts(each_sql, batch) == ("running", 2, 1, 0, 0)


CANNOT_BE_ENQUEUED: dict[str, Any] = {
    "a deadline before its start": {"task": "t", "run_at": "9000-01-01", "deadline": 5},
    "a batch that has ended": {"task": "t", "batch": "ENDED"},
    "a number that is none": {"task": "t", "delay": "soon"},
}
REFUSED: dict[str, Any] = {
    "no task": {"queue": "default"},
    "a name that is too long": {"task": "t" * 300},
    "no object": ["a"],
    "null": None,
    "a number too large": {"task": "t", "priority": 10**30},
    "no id": {"task": "t", "id": "one"},
    "no batch": {"task": "t", "batch": "one"},
    "no payload": {"task": "t", "payload": [1]},
    "no time": {"task": "t", "run_at": "soon"},
    "a slash": {"task": "t", "queue": "a/b"},
}


@pytest.mark.parametrize("on_done", REFUSED.values(), ids=REFUSED)
def test_a_callback_that_could_not_be_enqueued_is_refused_when_the_batch_is_opened(each_sql: Sql, on_done: Any) -> None:
    with pytest.raises(psycopg.DataError):
        each_sql("select open_batch(gen_random_uuid(), 'b', null, %s::jsonb)", [json.dumps(on_done)])
    assert each_sql("select * from batch_progress") == []


@pytest.mark.parametrize("on_done", CANNOT_BE_ENQUEUED.values(), ids=CANNOT_BE_ENQUEUED)
def test_a_callback_that_cannot_be_enqueued_stops_neither_upkeep_nor_other_batches(
    each_dsn: str, each_sql: Sql, on_done: Any
) -> None:
    ended = open_batch(each_sql)
    close(each_sql, ended)
    callback = json.loads(json.dumps(on_done).replace("ENDED", str(ended)))
    bad = open_batch(each_sql, callback)
    good = open_batch(each_sql, {"task": "done"})
    each_sql("update batches set open = false")
    lost = core.put(each_sql, queue="other")
    core.claim_one(each_sql, "gone", queues=["other"])
    core.expire(each_sql)
    assert each_sql("select reclaimed from upkeep('w', '10 seconds')") == [([{"worker": "gone", "jobs": 1}],)]
    assert core.status(each_sql, lost) == "retrying"
    assert counts(each_sql, good)[0] == "succeeded"
    assert counts(each_sql, bad)[0] == "queued", "it waits until its callback is repaired"


def test_a_callback_whose_key_is_being_taken_waits_for_the_next_round(dsn: str, sql: Sql) -> None:
    batch = open_batch(sql, {"task": "done", "dedupe_key": "k"})
    sql("update batches set open = false")
    with core.session(dsn, autocommit=False) as other:
        core.put(core.runner(other), dedupe_key="k", queue="q")
        assert sql("select term is not null from upkeep('w', '10 seconds')") == [(True,)]
        assert complete(sql) == []
        other.rollback()
    assert complete(sql) == [batch]


def test_a_callback_with_an_id_that_was_used_before_is_not_accepted_twice(sql: Sql) -> None:
    id_ = core.put(sql, id=uuid.uuid4())
    end(sql, "succeeded")
    batch = open_batch(sql, {"task": "done", "id": str(id_)})
    close(sql, batch)
    assert counts(sql, batch)[0] == "succeeded"
    assert core.count(sql, "jobs") == 1


def test_batches_that_cannot_end_yet_are_looked_at_without_being_written(sql: Sql) -> None:
    """The leader checks every batch under way every two seconds: that must write nothing."""
    for _ in range(20):
        batch = open_batch(sql)
        core.put(sql, batch=batch)
    sql("update batches set open = false")
    sql("begin")
    assert complete(sql) == []
    ((written,),) = sql("select pg_current_xact_id_if_assigned()")  # a transaction that writes or locks has one
    sql("commit")
    assert written is None


# -- canceling a batch


def test_a_batch_is_canceled_in_steps(each_sql: Sql) -> None:
    batch = open_batch(each_sql)
    ids = [core.put(each_sql, batch=batch) for _ in range(10)]
    ids += [core.put(each_sql, batch=batch, delay="1 hour") for _ in range(5)]
    other = core.put(each_sql)
    running = core.claim(each_sql, limit=3)
    steps = []
    while step := each_sql("select cancel_batch(%s, 4)", [batch])[0][0]:
        steps.append(step)
        assert step <= 4 and len(steps) < 20
    assert sum(steps) == 15
    assert counts(each_sql, batch) == ("running", 15, 0, 0, 12), "three run still"
    assert core.status(each_sql, other) == "queued"
    end_running = [{"id": str(j.id), "token": j.token, "outcome": "error"} for j in running]
    assert each_sql("select finish('{}', '{}', %s::jsonb)", [json.dumps(end_running)]) == []
    assert complete(each_sql) == [batch]
    assert counts(each_sql, batch) == ("canceled", 15, 0, 0, 15)
    assert each_sql("select cancel_batch(%s)", [batch]) == [(0,)]


def test_a_cancel_waits_for_an_adder_and_cancels_what_it_added(dsn: str, sql: Sql) -> None:
    batch = open_batch(sql)
    with core.session(dsn, autocommit=False) as adder, core.session(dsn) as operator, ThreadPoolExecutor(1) as threads:
        id_ = core.put(core.runner(adder), batch=batch)
        going = threads.submit(core.runner(operator), "select cancel_batch(%s)", [batch])
        wait_until(
            lambda: sql(
                "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'",
                [operator.info.backend_pid],
            )
        )
        adder.commit()
        assert going.result(40) == [(1,)]
    assert core.status(sql, id_) == "canceled"


# -- everybody at once


class Race:
    """Adders, workers and completers over many small batches, each closed while others are still adding to it."""

    def __init__(self, sql: Sql) -> None:
        self.seed = random.randrange(2**32)
        print(f"seed {self.seed}")
        self.batches = [self.opened(sql) for _ in range(3)]
        self.accepted: Counter[uuid.UUID] = Counter()
        self.guard = threading.Lock()
        self.early: list[uuid.UUID] = []

    def opened(self, sql: Sql) -> uuid.UUID:
        return open_batch(sql, {"task": "done", "queue": "callbacks"})

    def add(self, sql: Sql, rng: random.Random) -> None:
        batch, number = rng.choice(self.batches), rng.randint(1, 3)
        time.sleep(rng.random() * 0.002)
        try:
            if rng.random() < 0.5:
                jobs = [{"task": "t", "batch": str(batch), "max_attempts": 2}] * number
                sql("select enqueue_many(%s::jsonb)", [json.dumps(jobs)])
            else:
                self.copy(sql, rng, batch, number)
        except psycopg.errors.InvalidParameterValue:  # it has ended meanwhile
            sql("rollback")
            return
        with self.guard:
            self.accepted[batch] += number

    def copy(self, sql: Sql, rng: random.Random, batch: uuid.UUID, number: int) -> None:
        sql("begin")
        sql("select add_to_batch(%s, %s)", [batch, number])
        time.sleep(rng.random() * 0.004)
        sql(
            "insert into live (id, task, batch) select gen_random_uuid(), 't', %s from generate_series(1, %s)",
            [batch, number],
        )
        sql("commit")

    def work(self, sql: Sql, rng: random.Random) -> None:
        jobs = core.claim(sql, limit=rng.randint(1, 40))
        plain, others = jobs[::2], jobs[1::2]
        results = [
            {
                "id": str(j.id),
                "token": j.token,
                "delay": 0,
                "outcome": rng.choice(["error", "dead", "succeeded", "released"]),
            }
            for j in others
        ]
        sql(
            "select finish(%s::uuid[], %s::bigint[], %s::jsonb)",
            [[j.id for j in plain], [j.token for j in plain], json.dumps(results)],
        )
        sql("select complete_batches(%s::uuid[])", [list({j.batch for j in jobs})])

    def close(self, sql: Sql, rng: random.Random) -> None:
        time.sleep(rng.random() * 0.02)
        place = rng.randrange(3)
        closed, self.batches[place] = self.batches[place], self.opened(sql)
        close(sql, closed)
        complete(sql)

    def check(self, sql: Sql, rng: random.Random) -> None:
        ended = "select b.id from batches b where b.finished_at is not null"
        self.early += core.firsts(sql(f"{ended} and exists (select 1 from live l where l.batch = b.id)"))

    def run(self, dsn: str, schema: str, seconds: float) -> None:
        works = [self.add] * 3 + [self.work] * 2 + [self.close, self.check]
        assert hammer(dsn, schema, self.seed, seconds, works, lambda: len(self.accepted) > 60) == []
        assert self.early == [], "a batch has ended before a job of it"

    def settle(self, sql: Sql) -> None:
        """Let everything end, and compare what the adders know with the counts."""
        sql("update batches set open = false where finished_at is null")
        while jobs := core.claim(sql, limit=500):
            core.finish(sql, *jobs)
        complete(sql)
        rows = sql("select id, status, total, succeeded + failed + canceled from batch_progress")
        assert len(rows) > 50, "too few batches to prove anything"
        for id_, status, total, processed in rows:
            assert status in ("succeeded", "failed")
            assert total == processed == self.accepted[id_], "a batch counted wrongly"
        assert sql("select count(*), count(distinct payload::text) from live") == [(len(rows), 1)], "a callback each"


def test_no_batch_ends_while_a_committed_job_of_it_has_not(dsn: str, sql: Sql) -> None:
    race = Race(sql)
    race.run(dsn, "holdfast", 3)
    race.settle(sql)


HASTY = {"add_to_batch": [(" for key share", "")], "complete_batches": [(" for update", "")]}


def test_the_race_goes_red_when_the_batch_is_not_locked(dsn: str) -> None:
    def race(sql: Sql) -> None:
        for _ in rounds():
            race = Race(sql)
            race.run(dsn, "mutant", 2)
            race.settle(sql)
            sql("truncate batches, batch_counts, live, history, dead, later")

    with mutant(dsn, HASTY) as sql, pytest.raises(AssertionError, match=r"ended before a job of it|counted wrongly"):
        race(sql)
