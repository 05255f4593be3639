"""In which order jobs are claimed, and that no two claims overlap."""

from __future__ import annotations

import random
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Holdfast
from tests.support import flow
from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - fixture
from tests.support.sql_core import Sql

# -- order


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    jobs=st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 0), st.uuids()), max_size=25, unique_by=lambda j: j[2])
)
def test_order_is_priority_then_run_at_then_id(sql: Sql, clock: Clock, jobs: list[tuple[int, int, uuid.UUID]]) -> None:
    sql("delete from live; delete from claims")
    for priority, seconds, id_ in jobs:
        core.put(sql, id=id_, priority=priority, run_at=clock.start + timedelta(seconds=seconds))
    claimed = []
    while batch := core.claim(sql, limit=7):
        claimed += [j.id for j in batch]
    assert claimed == [id_ for *_, id_ in sorted(jobs)]


def test_order_is_the_same_on_each_server(each_sql: Sql) -> None:
    jobs = [
        (p, f"2026-01-01 00:00:0{s}+00", uuid.UUID(int=i))
        for p in range(4)
        for s in range(3)
        for i in (p * 9 + s * 3 + 1,)
    ]
    jobs += [(2, "2026-01-01 00:00:01+00", uuid.UUID(int=2**127 + i)) for i in range(3)]
    for priority, run_at, id_ in random.sample(jobs, len(jobs)):
        core.put(each_sql, id=id_, priority=priority, run_at=run_at)
    assert [j.id for j in core.claim(each_sql, limit=99)] == [id_ for *_, id_ in sorted(jobs)]


def test_other_queues_are_left_alone(sql: Sql) -> None:
    mail, other = core.put(sql, queue="mail"), core.put(sql, queue="other", priority=0)
    assert [j.id for j in core.claim(sql, queues=["mail", "default"])] == [mail]
    assert core.status(sql, other) == "queued"
    assert core.claim(sql, queues=[]) == []


def test_priority_counts_across_queues_and_the_order_of_queues_within_a_priority(sql: Sql) -> None:
    low = core.put(sql, queue="a", priority=3)
    second = core.put(sql, queue="b", priority=2)
    first = core.put(sql, queue="a", priority=2)
    critical = core.put(sql, queue="b", priority=0)
    assert [core.claim_one(sql, queues=["a", "b"]).id for _ in range(4)] == [critical, first, second, low]


def test_a_queue_named_twice_is_claimed_once(sql: Sql) -> None:
    ids = {core.put(sql) for _ in range(3)} | {core.put(sql, queue="mail") for _ in range(3)}
    claimed = core.claim(sql, queues=["default", "default", "mail"], limit=6)
    assert {j.id for j in claimed} == ids
    assert [j.attempt for j in claimed] == [1] * 6
    ((held,),) = sql("select ids from claims")
    assert sorted(held) == sorted(ids)


def test_a_delayed_job_of_a_queue_named_twice_is_counted_once(sql: Sql, clock: Clock) -> None:
    """A place under the queue's limit that is counted twice would not come back."""
    sql("""select set_limit('queue:default', '{"concurrency": 5}')""")
    id_ = core.put(sql, delay="1 second")
    clock.advance(1)
    job = core.claim_one(sql, queues=["default", "default"])
    assert job.id == id_ and sql("select ids from claims") == [([id_],)]
    assert sql("select running from limits where key = 'queue:default'") == [(1,)]
    assert core.finish(sql, job) == []
    flow.fold(sql)
    assert sql("select running from limits where key = 'queue:default'") == [(0,)]


@pytest.mark.parametrize("queues", [None, [None], ["default", None]], ids=str)
def test_a_claim_of_queues_without_a_name_is_refused(sql: Sql, queues: Any) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="claim needs the names of queues"):
        sql("select * from claim('w', %s::text[])", [queues])


def test_a_due_delayed_job_is_claimed_without_waiting_for_the_leader(sql: Sql, clock: Clock) -> None:
    late = core.put(sql, delay="10 seconds")
    urgent = core.put(sql, delay="20 seconds", priority=0)
    elsewhere = core.put(sql, delay="5 seconds", queue="mail")
    clock.advance(9)
    assert core.claim(sql) == []
    clock.advance(11)
    assert [j.id for j in core.claim(sql)] == [urgent, late]
    assert (core.place(sql, elsewhere), core.status(sql, elsewhere)) == ("live", "queued")


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": -1}, {"limit": None}, {"ttl": 0}, {"ttl": -5}], ids=str)
def test_a_claim_of_nothing_or_for_no_time_is_refused(sql: Sql, wrong: dict[str, Any]) -> None:
    core.put(sql)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="claim needs a limit and a lease above zero"):
        core.claim(sql, **wrong)
    assert core.count(sql, "claims") == 0


def test_jobs_that_have_just_become_due_are_claimed_in_their_place_not_at_the_end(sql: Sql, clock: Clock) -> None:
    core.put(sql, priority=3)
    core.put(sql, run_at=clock.start)
    core.put(sql, delay="1 second", priority=0)
    core.put(sql, delay="1 second", priority=2)
    clock.advance(1)
    claimed = [(j.priority, j.run_at) for j in core.claim(sql)]
    assert len(claimed) == 4
    assert claimed == sorted(claimed)


def test_an_empty_claim_leaves_no_lease_and_takes_no_token(sql: Sql) -> None:
    before = sql("select last_value from claim_number")
    assert core.claim(sql) == []
    assert core.count(sql, "claims") == 0
    assert sql("select last_value from claim_number") == before


def test_a_claim_that_finds_nothing_in_the_ring_leaves_no_lease_either(sql: Sql) -> None:
    core.put(sql, tenant="acme", keys=["k"])
    flow.pause(sql, "k")
    assert core.claim(sql) == []  # closes the lane
    before = sql("select last_value from claim_number")
    assert core.claim(sql) == []
    assert core.count(sql, "claims") == 0
    assert sql("select last_value from claim_number") == before, "nor a token, where no lane is open"


# -- the cursor is a hint


def test_a_cursor_skips_what_lies_before_it_and_only_there(sql: Sql) -> None:
    ids = [core.put(sql, id=uuid.UUID(int=i), run_at="2026-01-01+00") for i in range(1, 7)]
    core.put(sql, queue="mail", id=uuid.UUID(int=9), run_at="2026-01-01+00")
    new_year = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    after = {"default/2": [new_year, str(ids[2])], "default/0": [new_year + 1e8, str(ids[0])]}
    claimed = core.claim(sql, queues=["default", "mail"], after=after)
    assert [j.id for j in claimed] == [*ids[3:], uuid.UUID(int=9)]
    assert [j.id for j in core.claim(sql)] == ids[:3]


@pytest.mark.parametrize("after", [{}, {"default/2": []}, {"default/2": None}, {"nowhere/7": [1767225600.0, None]}, []])
def test_an_empty_or_foreign_cursor_is_no_cursor(sql: Sql, after: object) -> None:
    id_ = core.put(sql)
    rows = sql("select id from claim('w', p_after => %s::jsonb)", [psycopg.types.json.Jsonb(after)])
    assert rows == [(id_,)]


# -- claims never overlap


def test_claims_of_two_open_transactions_never_overlap(dsn: str, sql: Sql) -> None:
    ids = [core.put(sql, id=uuid.UUID(int=i), run_at="2026-01-01+00") for i in range(1, 13)]
    with core.session(dsn, autocommit=False) as one, core.session(dsn, autocommit=False) as two:
        mine, yours = core.runner(one), core.runner(two)
        first = [j.id for j in core.claim(mine, "one", 3)]
        second = [j.id for j in core.claim(yours, "two", 3)]
        third = [j.id for j in core.claim(mine, "one", 3)]
        fourth = [j.id for j in core.claim(yours, "two", 99)]
        assert [first, second, third, fourth] == [ids[:3], ids[3:6], ids[6:9], ids[9:]]
        two.rollback()
        one.commit()
    assert [j.id for j in core.claim(sql, "three", 99)] == [*ids[3:6], *ids[9:]]


def test_a_claim_that_was_rolled_back_never_happened(dsn: str, sql: Sql) -> None:
    id_ = core.put(sql, dedupe_key="k", dedupe_scope="queued")
    before = core.state(sql)
    with core.session(dsn, autocommit=False) as conn:
        assert core.claim_one(core.runner(conn)).attempt == 1
        conn.rollback()
    assert core.state(sql) == before
    assert core.claim_one(sql).id == id_


def test_due_delayed_jobs_are_not_claimed_twice_by_two_open_transactions(dsn: str, sql: Sql, clock: Clock) -> None:
    ids = {core.put(sql, delay="1 second") for _ in range(6)}
    clock.advance(1)
    with core.session(dsn, autocommit=False) as one, core.session(dsn, autocommit=False) as two:
        first = core.claim(core.runner(one), "one", 2)
        second = core.claim(core.runner(two), "two", 2)
        one.commit()
        two.commit()
    third = core.claim(sql, "three", 99)
    claimed = [j.id for j in (*first, *second, *third)]
    assert set(claimed) == ids
    assert len(claimed) == 6


def test_racing_workers_claim_each_job_once(dsn: str, hf: Holdfast, sql: Sql) -> None:
    sql("insert into live (id, task) select gen_random_uuid(), 't' from generate_series(1, 600)")
    claimed: list[tuple[uuid.UUID, int]] = []
    start = threading.Barrier(4)

    def work(name: str) -> None:
        with core.session(dsn) as conn:
            run = core.runner(conn)
            start.wait(40)
            while batch := core.claim(run, name, 17):
                claimed.extend((j.id, j.attempt) for j in batch)
                assert core.finish(run, *batch) == []

    threads = [threading.Thread(target=work, args=[f"w{i}"]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id_ for id_, _ in claimed}) == len(claimed) == 600
    assert {attempt for _, attempt in claimed} == {1}
    assert sql("select status::text, count(*) from jobs group by 1") == [("succeeded", 600)]
