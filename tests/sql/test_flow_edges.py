"""Where flow control could stumble: limits that somebody else holds, jobs from clients that know of no lanes, callers
with a snapshot of their own, numbers at their bounds."""

from __future__ import annotations

import json
from typing import Any

import flow
import psycopg
import pytest
from psycopg.errors import InvalidParameterValue
from sql_core import Sql

EVERYWHERE = {"default/2": {"from": -1}}


def look(sql: Sql, hint: dict[str, Any], *, limit: int = 10, free: int = 10) -> tuple[list[Any], dict[str, Any]]:
    """What a worker claims, and what the claim tells of default/2."""
    rows = sql("select id, payload from claim('w', '{default}', %s, '60s', %s, false, %s)",
               [limit, json.dumps(hint), free])  # fmt: skip
    told = [payload for id_, payload in rows if id_ is None]
    return [id_ for id_, _ in rows if id_ is not None], told[0]["default/2"] if told else {}


@pytest.fixture
def other(dsn: str) -> Any:
    """A second connection, in a transaction."""
    with psycopg.connect(dsn, options="-c search_path=holdfast") as conn:
        yield conn
        conn.rollback()


def test_a_lane_whose_limit_somebody_holds_is_not_taken_for_empty(sql: Sql, other: Any) -> None:
    flow.limit(sql, "k", concurrency=5)
    flow.put(sql, tenant="a", keys=["k"])
    ((lane,),) = sql("select lane from live")
    other.execute("select 1 from limits where key = 'k' for update")
    found, told = look(sql, EVERYWHERE)
    assert (found, told["more"], told["contention"]) == ([], [lane], 1)
    assert "empty" not in told
    quick = {"lanes": f"{{{lane}}}", "at": "{0}", "ids": "{00000000-0000-0000-0000-000000000000}"}
    assert "empty" not in look(sql, {"default/2": quick})[1]
    other.rollback()
    assert len(look(sql, {"default/2": quick})[0]) == 1


def test_a_lane_whose_job_must_wait_for_a_slot_is_not_taken_for_empty(sql: Sql) -> None:
    flow.limit(sql, "r", rate=100, per=1, burst=100)
    flow.put(sql, tenant="a", keys=["r"])
    found, told = look(sql, EVERYWHERE, free=0)
    assert (found, len(told["more"]), "empty" in told) == ([], 1, False)


def test_tenants_behind_one_of_many_lanes_are_found_by_the_first_claim_of_a_lap(each_sql: Sql) -> None:
    """Six hundred keys without room, and nobody else waits until a lap has walked them all."""
    sql = each_sql
    sql("insert into limit_rules (template, pattern, code, updated_at) "
        """values ('k:{n}', 'k:%', '{"concurrency": 0}', now())""")  # fmt: skip
    sql("select apply_limits(array(select 'k:' || n from generate_series(1, 600) n))")
    sql("insert into live (id, task, lane, keys) select gen_random_uuid(), 't', lane_of(null, array['k:' || n]), "
        "array['k:' || n] from generate_series(1, 600) n")  # fmt: skip
    for n in range(3):
        flow.put(sql, tenant=f"t{n}", number=2)
    found, told = look(sql, EVERYWHERE)
    assert len(found) == 6
    assert told["end"] < 2**32, "the lap goes on where its own walk has ended"
    assert 500 <= len(told["closed"]) < 600
    _, rest = look(sql, {"default/2": {"from": told["end"]}})
    assert rest["end"] is None
    assert {lane for lane, *_ in told["closed"] + rest["closed"]} == {lane for (lane,) in sql(
        "select lane from live where token is null")}  # fmt: skip


def test_a_lap_that_comes_to_a_tenant_of_many_lanes_looks_behind_it(sql: Sql) -> None:
    """Wherever in the ring that is: here after 510 tenants, of which its first claim meets 500."""
    sql("insert into limit_rules (template, pattern, code, updated_at) "
        """values ('k:{n}', 'k:%', '{"concurrency": 0}', now())""")  # fmt: skip
    sql("select apply_limits(array(select 'k:' || n from generate_series(1, 1200) n))")
    sql("insert into live (id, task, tenant, lane) select gen_random_uuid(), 't', 't' || n, n << 32 "
        "from generate_series(1::bigint, 510) n union all "
        "select gen_random_uuid(), 't', 'behind' || n, n << 32 from generate_series(700::bigint, 709) n")  # fmt: skip
    sql("insert into live (id, task, tenant, lane, keys) "
        "select gen_random_uuid(), 't', 'wide', (600::bigint << 32) + n, "
        "array['k:' || n] from generate_series(1::bigint, 1200) n")  # fmt: skip
    _, first = look(sql, EVERYWHERE)
    found, told = look(sql, {"default/2": {"from": first["end"]}})
    met = {lane >> 32 for lane in told["more"]} | {
        lane >> 32 for (lane,) in sql("select lane from live where id = any (%s)", [found])
    }
    assert set(range(700, 710)) <= met
    assert told["end"] >> 32 == 600


def test_a_claim_without_a_memory_stops_when_nothing_more_may_be_taken(sql: Sql, other: Any) -> None:
    """Jobs under a rate are taken for free slots alone. To go on would lock all there is, and stop everybody else."""
    sql("insert into limit_rules (template, pattern, code, updated_at) "
        """values ('r:{n}', 'r:%', '{"rate": 100, "per": 1, "burst": 100}', now())""")  # fmt: skip
    sql("select apply_limits(array(select 'r:' || n from generate_series(1, 500) n))")
    sql("insert into live (id, task, tenant, lane, keys) select gen_random_uuid(), 't', 't' || n, "
        "lane_of('t' || n, array['r:' || n]), array['r:' || n] from generate_series(1, 500) n")  # fmt: skip
    taken = other.execute("select id from claim('w', '{default}', 50, '60s', null, false, 5, 25)").fetchall()
    assert len([id_ for (id_,) in taken if id_ is not None]) == 5
    assert sql("select count(*) from (select 1 from limits for update skip locked) free")[0][0] >= 400
    assert sql("select count(*) from (select 1 from live for update skip locked) free")[0][0] >= 400


def test_a_claim_without_a_memory_finds_what_waits_among_lanes_whose_jobs_all_run(sql: Sql, other: Any) -> None:
    for n in range(80):
        flow.put(sql, tenant=f"t{n % 2}", keys=[f"k{n}"])
    assert len(flow.claim(sql, limit=100)) == 80
    (waits,) = flow.put(sql, tenant="t0", keys=["waits"])
    for _ in range(10):
        rows = other.execute("select id from claim('w', '{default}', 2)").fetchall()
        assert rows == [(waits,)]
        other.rollback()


def test_a_lane_whose_first_job_runs_is_judged_by_the_one_that_waits(sql: Sql) -> None:
    """They wait for the same limits, unless the hashes of two keys agree: then the first must not speak for it."""
    flow.limit(sql, "full", concurrency=1)
    flow.put(sql, keys=["full"], age=60)
    flow.put(sql, keys=["other"])
    sql("update live set lane = 7")
    assert look(sql, EVERYWHERE)[0] != []
    sql("update live set token = null, claimed_at = null, attempt = 0 where keys = '{other}'")
    sql("update limits set running = 0 where key = 'other'")
    assert sql("select keys, token is null from live order by run_at") == [(["full"], False), (["other"], True)]
    found, told = look(sql, EVERYWHERE)
    assert (len(found), "closed" in told) == (1, False)


@pytest.mark.parametrize("key", ["tenant:acme", "task:slow"])
def test_a_job_behind_many_that_must_wait_in_its_lane_is_found_at_once(sql: Sql, key: str) -> None:
    """Lane 0 holds jobs of many tasks, and those of clients that do not know where a tenant's jobs belong."""
    sql("select pause(%s)", [key])
    sql("insert into live (id, task, tenant, run_at) "
        "select gen_random_uuid(), 'slow', 'acme', now() - interval '1 minute' "
        "from generate_series(1, 300)")  # fmt: skip
    sql("insert into live (id, task) values (gen_random_uuid(), 'quick')")
    found: list[Any] = []
    for _ in range(10):  # while it is told to come again
        more, told = look(sql, EVERYWHERE, limit=5)
        found += more
        if "again" not in told:
            break
    assert len(found) == 1
    assert sql("select count(*) filter (where lane <> 0), count(*) filter (where token is null) from live") == [
        (300, 300)
    ]


def test_limits_of_a_tenant_hold_for_jobs_in_lane_0(each_sql: Sql) -> None:
    flow.limit(each_sql, "tenant:acme", concurrency=1)
    each_sql("insert into live (id, task, tenant) select gen_random_uuid(), 't', 'acme' from generate_series(1, 3)")
    each_sql("insert into live (id, task, tenant) values (gen_random_uuid(), 't', 'other')")
    (one, two) = flow.claim(each_sql)
    assert {one.tenant, two.tenant} == {"acme", "other"}
    assert flow.claim(each_sql) == []
    flow.end(each_sql, one, two)
    assert len(flow.claim(each_sql)) == 1
    assert flow.drift(each_sql) == []


def test_a_worker_from_before_there_were_lanes_is_told_nothing_it_cannot_read(sql: Sql) -> None:
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
    ask = "select id from claim(%s, %s, 1)"
    assert len(other.execute(ask, ["w1", ["a"]]).fetchall()) == 1
    with psycopg.connect(dsn, options="-c search_path=holdfast -c statement_timeout=5s") as third:
        assert len(third.execute(ask, ["w2", ["b"]]).fetchall()) == 1
        assert third.execute(ask, ["w2", ["a"]]).fetchall() == [], "made by another at this moment: not waited for"
        assert other.execute(ask, ["w1", ["b"]]).fetchall() == []
        third.commit()
    other.commit()
    assert len(flow.claim(sql, queues=["a", "b"])) == 2
    assert flow.drift(sql) == []


def test_whoever_waits_for_the_same_key_is_told_whatever_its_tenant_and_queue(dsn: str, sql: Sql) -> None:
    """Its lane has another number: so the key is named by a number too."""
    flow.limit(sql, "k", concurrency=1)
    flow.put(sql, tenant="a", keys=["k"])
    (job,) = flow.claim(sql)
    sql("insert into sleepers (queue, worker) values ('default', 'same'), ('elsewhere', 'far')")
    heard: dict[str, str] = {}
    with psycopg.connect(dsn, autocommit=True) as listener:
        listener.execute("listen holdfast_wake")
        flow.end(sql, job)
        for notice in listener.notifies(timeout=5, stop_after=2):
            worker, word, numbers = notice.payload.split(" ")
            heard[worker] = word
            assert sql("select lane_of(null, '{k}')::text = any (string_to_array(%s, ','))", [numbers]) == [(True,)]
    assert heard == {"same": "lanes", "far": "room"}


def test_a_claim_that_fills_a_limit_tells_when_there_is_room_again(sql: Sql) -> None:
    """Not what was true before it: the worker would come back at once, for nothing."""
    flow.limit(sql, "full", concurrency=1)
    flow.limit(sql, "rate", rate=1, per=10, burst=1)
    flow.limit(sql, "both", concurrency=5, rate=1, per=10, burst=1)
    for key in ("full", "rate", "both"):
        flow.put(sql, keys=[key], number=3)
    _, told = look(sql, EVERYWHERE)
    waits = {key: wait for _, key, _, wait in told["closed"]}
    assert waits == {"full": None, "rate": pytest.approx(10, abs=0.1), "both": pytest.approx(10, abs=0.1)}


@pytest.mark.parametrize("number", [1, 10])
def test_a_limit_that_somebody_holds_keeps_nobody_else_from_being_found(sql: Sql, other: Any, number: int) -> None:
    """With one slot, only the first lane is looked at in a round, and it may be the same one every time."""
    keys = [f"k{n}" for n in range(number)]
    for key in keys:
        flow.limit(sql, key, concurrency=5)
        flow.put(sql, tenant="held", keys=[key], number=2)
    flow.put(sql, tenant="free", number=100)
    sql("update live set lane = lane & 4294967295 where tenant = 'held'")  # those that are held come first
    lanes = [lane for (lane,) in sql("select distinct lane from live order by 1")]
    other.execute("select 1 from limits for update")
    quick = {"lanes": "{" + ",".join(map(str, lanes)) + "}", "at": "{" + ",".join("0" for _ in lanes) + "}",
             "ids": "{" + ",".join(["00000000-0000-0000-0000-000000000000"] * len(lanes)) + "}"}  # fmt: skip
    for _ in range(3):
        assert len(look(sql, EVERYWHERE, limit=1, free=1)[0]) == 1
        assert len(look(sql, {"default/2": quick}, limit=1, free=1)[0]) == 1
        assert len(flow.claim(sql, limit=1)) == 1
