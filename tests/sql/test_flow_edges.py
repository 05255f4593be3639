"""Edge cases of flow control: rows that another transaction holds, jobs in lanes where they do not belong,
callers with a snapshot of their own, numbers at their bounds."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from psycopg.errors import CheckViolation, InvalidParameterValue

from tests.support import flow
from tests.support.sql_core import Sql


def look(sql: Sql, *, limit: int = 10, free: int = 10) -> tuple[list[Any], dict[str, Any]]:
    """Return what a worker claims, and what the claim returns beside it."""
    rows = sql("select id, info from claim('w', '{default}', %s, '60s', null, false, %s)", [limit, free])
    assert [info is None for _, info in rows] == [False] + [True] * (len(rows) - 1), "on the first row"
    return [id_ for id_, _ in rows if id_ is not None], rows[0][1]


def claim_while_more(sql: Sql, *, limit: int = 10) -> list[Any]:
    """Return what a worker claims that repeats while a claim says that there may be more."""
    found: list[Any] = []
    for _ in range(20):
        more, info = look(sql, limit=limit)
        found += more
        if not info["more"]:
            return found
    raise AssertionError("every claim says that there is more")


@pytest.fixture
def other(dsn: str) -> Any:
    """A second connection, in a transaction."""
    with psycopg.connect(dsn, options="-c search_path=holdfast") as conn:
        yield conn
        conn.rollback()


def test_a_limit_whose_change_is_not_committed_is_in_force_as_it_was(sql: Sql, other: Any) -> None:
    flow.limit(sql, "k", concurrency=1)
    flow.put(sql, tenant="a", keys=["k"], number=2)
    other.execute("select set_limit('k', '{\"concurrency\": 2}')")
    assert len(flow.claim(sql)) == 1
    assert flow.claim(sql) == []
    other.commit()
    assert len(flow.claim(sql)) == 1, "the lane that was closed meanwhile is open again"


def test_a_lane_whose_job_must_wait_for_a_slot_is_not_taken_for_empty(sql: Sql) -> None:
    flow.limit(sql, "r", rate=100, per=1, burst=100)
    flow.put(sql, tenant="a", keys=["r"])
    look(sql, free=0)  # the lane moves to the ring of those that start at once
    for _ in range(2):
        found, info = look(sql, free=0)
        assert (found, info["waiting"]) == ([], 1)
    found, info = look(sql, free=1)
    assert (len(found), info["started"]) == (1, [str(id_) for id_ in found])
    assert claim_while_more(sql) == []
    assert look(sql, free=0)[1]["waiting"] == 0


def test_tenants_beside_many_lanes_without_room_are_found_by_the_first_claim(each_sql: Sql) -> None:
    sql = each_sql
    sql(
        "insert into limit_rules (template, pattern, code, updated_at) "
        """values ('k:{n}', 'k:%', '{"concurrency": 0}', now())"""
    )
    sql(
        "insert into live (id, task, lane, keys) select gen_random_uuid(), 't', lane_of(null, array['k:' || n]), "
        "array['k:' || n] from generate_series(1, 600) n"
    )
    for n in range(3):
        flow.put(sql, tenant=f"t{n}", number=2)
    assert len(look(sql)[0]) == 6
    assert claim_while_more(sql) == []
    assert sql("select count(*), count(distinct closed_by) from lanes where closed_by like 'k:%%'") == [(600, 600)]
    assert sql("select ring_has_work('{default}')") == [(False,)], "no claim looks at them again"


def test_a_claim_locks_no_more_than_it_takes(sql: Sql, other: Any) -> None:
    """Jobs under a rate are taken for free slots alone. Going on would lock all of them, and block other claims."""
    sql(
        "insert into limit_rules (template, pattern, code, updated_at) "
        """values ('r:{n}', 'r:%', '{"rate": 100, "per": 1, "burst": 100}', now())"""
    )
    sql(
        "insert into live (id, task, tenant, lane, keys) select gen_random_uuid(), 't', 't' || n, "
        "lane_of('t' || n, array['r:' || n]), array['r:' || n] from generate_series(1, 500) n"
    )
    taken = other.execute("select id from claim('w', '{default}', 50, '60s', null, false, 5, 25)").fetchall()
    assert len([id_ for (id_,) in taken if id_ is not None]) == 5
    assert sql("select count(*) from (select 1 from live for update skip locked) free") == [(495,)]


def test_a_claim_finds_what_waits_among_lanes_whose_jobs_all_run(sql: Sql, other: Any) -> None:
    for n in range(80):
        flow.put(sql, tenant=f"t{n % 2}", keys=[f"k{n}"])
    taken: list[Any] = []
    while some := flow.claim(sql, limit=100):
        taken += some
    assert len(taken) == 80
    (waits,) = flow.put(sql, tenant="t0", keys=["waits"])
    for _ in range(10):
        rows = other.execute("select id from claim('w', '{default}', 2)").fetchall()
        assert rows == [(waits,)]
        other.rollback()


def test_jobs_in_one_lane_that_wait_for_other_limits_are_moved_apart(sql: Sql) -> None:
    """The hashes of two keys may agree, and clients may put jobs anywhere: each is counted under its own limits, and
    none is lost."""
    flow.limit(sql, "full", concurrency=1)
    full = flow.put(sql, keys=["full"], age=60, number=3)
    rest = flow.put(sql, keys=["other"], number=3) + flow.put(sql, tenant="acme", number=3)
    sql("update live set lane = 7")
    done: set[Any] = set()
    for _ in range(5):
        found = claim_while_more(sql)
        assert len(set(full) & set(found)) <= 1
        assert flow.drift(sql) == []
        sql("select finish(array_agg(id), array_agg(token)) from live where token is not null")
        done |= set(found)
    assert done == {*full, *rest}


@pytest.mark.parametrize("key", ["tenant:acme", "task:slow"])
def test_a_job_behind_many_that_must_wait_is_found_at_once(sql: Sql, key: str) -> None:
    """Lane 0 holds jobs of many tasks."""
    sql("select pause(%s)", [key])
    sql(
        "insert into live (id, task, tenant, lane, run_at) "
        "select gen_random_uuid(), 'slow', t, lane_of(t, null), now() - interval '1 minute' "
        "from generate_series(1, 300), (values (%s)) as v(t)",
        ["acme" if key == "tenant:acme" else None],
    )
    sql("insert into live (id, task) values (gen_random_uuid(), 'quick')")
    assert len(claim_while_more(sql, limit=5)) == 1
    assert sql("select count(*) filter (where lane <> 0), count(*) filter (where token is null) from live") == [
        (300, 300)
    ]


def test_a_tenants_job_cannot_be_put_among_the_plain_ones(each_sql: Sql) -> None:
    """Claims could not know whether it is its turn, or whether its tenant is paused."""
    for columns, values in (("tenant", "'acme'"), ("keys", "'{k}'")):
        with pytest.raises(CheckViolation, match="live_has_a_lane"):
            each_sql(f"insert into live (id, task, {columns}) values (gen_random_uuid(), 't', {values})")


def test_limits_of_a_tenant_hold_whatever_lane_a_client_has_chosen(each_sql: Sql) -> None:
    flow.limit(each_sql, "tenant:acme", concurrency=1)
    each_sql(
        "insert into live (id, task, tenant, lane) select gen_random_uuid(), 't', 'acme', 5 + n "
        "from generate_series(1, 3) n"
    )
    each_sql("insert into live (id, task, tenant, lane) values (gen_random_uuid(), 't', 'other', 20)")
    (one, two) = flow.claim(each_sql)
    assert {one.tenant, two.tenant} == {"acme", "other"}
    assert flow.claim(each_sql) == []
    flow.end(each_sql, one, two)
    assert len(flow.claim(each_sql)) == 1
    assert flow.drift(each_sql) == []


def test_a_worker_from_before_there_were_lanes_gets_no_payload_it_cannot_read(sql: Sql) -> None:
    flow.limit(sql, "queue:default", concurrency=1)
    flow.put(sql, number=2)
    after = json.dumps({"default/2": [0, "00000000-0000-0000-0000-000000000000"]})
    for expected in (1, 0):
        rows = sql("select id from claim('w', '{default}', 5, '60s', %s)", [after])
        assert [row[0] is None for row in rows] == [False] * expected


def test_a_job_ends_in_a_transaction_that_has_a_snapshot_of_its_own(each_dsn: str, each_sql: Sql) -> None:
    flow.limit(each_sql, "k", concurrency=2)
    flow.put(each_sql, keys=["k"], number=3)
    first, second = flow.claim(each_sql)
    with psycopg.connect(each_dsn, options="-c search_path=holdfast") as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("select 1 from live").fetchall()
        flow.end(each_sql, first)
        conn.execute("select finish(%s::uuid[], %s::bigint[])", [[second.id], [second.token]])
    assert flow.drift(each_sql) == []
    assert len(flow.claim(each_sql)) == 1
    assert each_sql("select running from limits") == [(1,)]


def test_the_largest_numbers_that_are_allowed_stop_no_claim(sql: Sql) -> None:
    sql("""select set_limit('k', '{"rate": 1000000000, "per": 0.000001}')""")
    sql("""select set_limit('k', '{"breaker_after": 1, "breaker_pause": 1000000000}')""")
    sql("""select set_limit('tenant:a', '{"weight": 1000000000}'), set_limit('tenant:b', '{"weight": 0.000001}')""")
    for tenant in ("a", "b", None):
        flow.put(sql, tenant=tenant, keys=["k"])
    jobs = flow.claim(sql)
    assert len(jobs) == 3
    flow.end(sql, *jobs, outcome="failed")
    flow.fold(sql)
    assert sql("select count(*) from limit_state where key = 'k' and room = 0") == [(1,)]


@pytest.mark.parametrize(
    "code", [{"rate": 0}, {"rate": 1, "per": 0}, {"concurrency": -1}, {"rate": 1, "per": 1, "burst": 0}]
)
def test_a_rule_that_would_stop_claims_is_refused(sql: Sql, code: dict[str, Any]) -> None:
    rules = [{"template": "k:{k}", "pattern": "k:%", "code": code}]
    with pytest.raises(InvalidParameterValue, match="got"):
        sql("select register_limits(%s)", [json.dumps(rules)])


def test_two_claims_that_meet_new_keys_in_another_order_do_not_wait_for_each_other(
    dsn: str, sql: Sql, other: Any
) -> None:
    for queue, key in (("a", "x"), ("b", "y")):
        flow.put(sql, queue=queue, keys=[key], number=2)
    ask = "select id from claim(%s, %s, 1) where id is not null"
    assert len(other.execute(ask, ["w1", ["a"]]).fetchall()) == 1
    with psycopg.connect(dsn, options="-c search_path=holdfast -c statement_timeout=5s") as third:
        assert third.execute(ask, ["w2", ["b"]]).fetchall() == [], "another claim has the ring"
        assert len(other.execute(ask, ["w1", ["b"]]).fetchall()) == 1
        other.commit()
        assert len(third.execute(ask, ["w2", ["b"]]).fetchall()) == 1
        third.commit()
    assert len(flow.claim(sql, queues=["a", "b"])) == 1
    assert flow.drift(sql) == []


def test_sleepers_are_woken_in_every_queue_where_a_lane_waits_for_the_key(dsn: str, sql: Sql) -> None:
    """Whatever its tenant; and not where none waits for it."""
    flow.limit(sql, "k", concurrency=1)
    for queue, tenant in (("default", "a"), ("default", "b"), ("elsewhere", "c"), ("third", None)):
        flow.put(sql, queue=queue, tenant=tenant, keys=["k"] if tenant else ["free"])
    (job, _) = flow.claim(sql, queues=["default", "elsewhere", "third"])
    assert flow.claim(sql, queues=["default", "elsewhere", "third"]) == []
    sql("insert into sleepers (queue, worker) values ('default', 'same'), ('elsewhere', 'far'), ('third', 'idle')")
    with psycopg.connect(dsn, autocommit=True) as listener:
        listener.execute("listen holdfast_wake")
        flow.end(sql, job)
        sql("select pg_notify('holdfast_wake', 'last')")
        payloads = [notice.payload for notice in listener.notifies(timeout=5, stop_after=3)]
    assert sorted(payloads) == ["far", "last", "same"]


def test_a_worker_sleeps_until_there_is_room_again_by_itself(sql: Sql) -> None:
    flow.limit(sql, "full", concurrency=1)
    flow.put(sql, keys=["full"], number=3)
    assert len(claim_while_more(sql)) == 1
    assert sql("select sleep('w', '{default}')") == [(None,)], "only the end of a job can wake it"
    flow.limit(sql, "rate", rate=1, per=10, burst=1)
    flow.limit(sql, "both", concurrency=5, rate=1, per=5, burst=1)
    flow.put(sql, keys=["rate"], number=3)
    assert len(claim_while_more(sql)) == 1
    assert sql("select sleep('w', '{default}')") == [(pytest.approx(10, abs=0.5),)]
    assert sql("select sleep('w', '{elsewhere}')") == [(None,)], "no lane of that queue waits for it"
    flow.put(sql, keys=["both"], number=3)
    assert len(claim_while_more(sql)) == 1
    assert sql("select sleep('w', '{default}')") == [(pytest.approx(5, abs=0.5),)]
    assert sql("select ring_has_work('{default}')") == [(False,)], "until then no claim looks at them"


@pytest.mark.parametrize("number", [1, 10])
def test_jobs_that_another_transaction_holds_keep_no_others_from_being_found(sql: Sql, other: Any, number: int) -> None:
    """With one slot only one flow is visited in a round, and it may be the one whose jobs are locked."""
    for n in range(number):
        flow.put(sql, tenant="held", keys=[f"k{n}"], number=2)
    flow.put(sql, tenant="free", number=100)
    other.execute("select 1 from live where tenant = 'held' for update")
    for _ in range(3):
        assert len(look(sql, limit=1, free=1)[0]) == 1
        assert len(flow.claim(sql, limit=1)) == 1
    other.rollback()
    assert {job.tenant for job in flow.claim(sql, limit=4)} == {"free", "held"}
