"""A job's limits: the keys it carries through all its places, the lane it waits in, and the rules of workers' code."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.errors import InvalidParameterValue

from holdfast import Breaker, Holdfast, Limit, UsageError
from holdfast.model.limit import lane
from tests.conftest import wait_until
from tests.support import sql_core as core
from tests.support import sql_flow as flow
from tests.support.sql_core import Sql

WHERE = (
    "select * from (select id, 'live' as place, keys, lane from live "
    "union all select id, 'later', keys, lane from later union all select id, 'dead', keys, lane from dead) j"
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=30)


def found(sql: Sql, *ids: Any) -> list[tuple[str, list[str] | None, int]]:
    """Return place, keys and lane of the given jobs, or of all in the order of their ids."""
    rows = sql(f"{WHERE} order by id")
    return [row[1:] for row in (sorted(rows, key=lambda row: ids.index(row[0])) if ids else rows)]


def of(tenant: str | None, *keys: str) -> tuple[list[str] | None, int]:
    return list(keys) or None, lane(tenant, keys)


# -- lanes


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(tenant=st.none() | texts, keys=st.lists(texts, max_size=5))
@example(tenant="é\U0001f642\x1f", keys=["\uffff", "\U00010000", "a", "B", "ä", "_", "\x1f", "a"])
@example(tenant="", keys=[])
@example(tenant="acme", keys=["smtp", "order:b", "order:a"])
@example(tenant=None, keys=["order:a", "order"])
def test_python_and_sql_agree_on_every_lane(each_sql: Sql, tenant: str | None, keys: list[str]) -> None:
    assert each_sql("select lane_of(%s, %s)", [tenant, keys]) == [(lane(tenant, tuple(keys)),)]


def test_no_keys_and_no_tenant_is_lane_0(sql: Sql) -> None:
    assert sql("select lane_of(null, null), lane_of(null, '{}')") == [(0, 0)]


# -- the doors


def test_enqueue_puts_a_job_into_the_lane_of_its_tenant_and_keys(each_sql: Sql) -> None:
    ids = [
        core.put(each_sql),
        core.put(each_sql, tenant="acme"),
        core.put(each_sql, keys=["b", "a"]),
        core.put(each_sql, keys=["b", "a"], tenant="acme", delay="1 hour"),
        core.put(each_sql, keys=[]),
    ]
    assert found(each_sql, *ids) == [
        ("live", *of(None)),
        ("live", *of("acme")),
        ("live", *of(None, "b", "a")),
        ("later", *of("acme", "b", "a")),
        ("live", *of(None)),
    ]


def test_a_key_given_twice_is_one_key(sql: Sql) -> None:
    core.put(sql, keys=["b", "a", "b"])
    assert found(sql) == [("live", *of(None, "b", "a"))]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([None], "1 to 300 characters, got null"),
        ([""], "1 to 300 characters, got"),
        (["a", "b" * 301], "1 to 300 characters, got bbb"),
        ([str(n) for n in range(21)], "at most 20 limits, got 21"),
    ],
)
def test_an_invalid_key_is_refused_by_every_function(sql: Sql, keys: list[Any], message: str) -> None:
    job = json.dumps({"task": "t", "keys": keys})
    schedule = {"name": "s", "task": "t", "cron": "* * * * *", "zone": "UTC", "missed": "skip", "payload": {}}
    doors = [
        ("select enqueue('t', p_keys => %s)", [keys]),
        ("select enqueue_many(jsonb_build_array(%s::jsonb))", [job]),
        ("select open_batch(gen_random_uuid(), 'b', null, %s::jsonb)", [job]),
        ("select register_schedules(%s::jsonb)", [json.dumps([schedule | {"options": {"keys": keys}}])]),
    ]
    for statement, params in doors:
        with pytest.raises(InvalidParameterValue, match=message):
            sql(statement, params)


@pytest.mark.parametrize(
    ("keys", "lane_"),
    [
        ("{NULL}", 5),
        ('{""}', 5),
        ("{a,NULL}", 5),
        ("{a,b,a}", 5),  # it would be counted once and released twice
        ("{{a}}", 5),
        ("{}", 5),
        ("{" + "a" * 301 + "}", 5),
        ("{b," + "a" * 301 + "}", 5),
        ("{" + ",".join(map(str, range(21))) + "}", 5),
        ("{a}", 0),  # plain jobs would wait behind it
    ],
)
def test_keys_that_would_stop_a_claim_cannot_be_inserted(each_dsn: str, each_sql: Sql, keys: str, lane_: int) -> None:
    with core.session(each_dsn) as conn:
        conn.execute("set role holdfast_enqueue")
        with pytest.raises(psycopg.errors.CheckViolation):
            core.runner(conn)(
                "insert into live (id, task, keys, lane) values (gen_random_uuid(), 't', %s::text[], %s)", [keys, lane_]
            )
        with (
            pytest.raises(psycopg.errors.CheckViolation),
            conn.cursor() as cursor,
            cursor.copy("copy live (id, task, keys, lane) from stdin") as rows,
        ):
            rows.write_row((uuid.uuid4(), "t", keys, lane_))
    assert core.count(each_sql, "live") == 0


def test_keys_of_any_fitting_length_and_number_are_inserted_and_claimed(each_sql: Sql) -> None:
    """They are in one lane by mistake: those that do not belong there move to one of their own."""
    for keys in (["é" * 300], ["a"], [f"{n:0300}" for n in range(20)]):
        each_sql("insert into live (id, task, keys, lane) values (gen_random_uuid(), 't', %s, 5)", [keys])
    claimed = [job for _ in range(3) for job in core.claim(each_sql)]
    assert sorted(len(job.keys) for job in claimed) == [1, 1, 20]
    assert sorted(job.lane == lane(None, tuple(job.keys)) for job in claimed) == [False, True, True]


def test_a_limit_of_its_task_is_one_more_than_the_keys_a_job_may_have(each_sql: Sql) -> None:
    keys = [f"{n:0300}" for n in range(20)]
    core.put(each_sql, task="u" * 200, keys=keys)
    flow.change(each_sql, "task:" + "u" * 200, concurrency=1)
    core.put(each_sql, task="u" * 200)
    (job,) = (job for _ in range(3) for job in core.claim(each_sql))
    assert sorted(job.keys)[-1] == "task:" + "u" * 200
    with pytest.raises(psycopg.errors.CheckViolation):
        each_sql("insert into live (id, task, keys, lane) values (gen_random_uuid(), 't', %s, 5)", [[*keys, "a"]])


def test_enqueue_many_takes_keys_as_an_array(each_sql: Sql) -> None:
    jobs: list[dict[str, Any]] = [
        {"task": "t", "keys": ["é", 'a"\\,{}']},
        {"task": "t", "keys": None},
        {"task": "t", "keys": [], "tenant": "acme"},
        {"task": "t", "keys": ["k"], "tenant": "acme", "delay": 60},
    ]
    ids = core.firsts(each_sql("select id from enqueue_many(%s::jsonb)", [json.dumps(jobs)]))
    assert found(each_sql, *ids) == [
        ("live", *of(None, "é", 'a"\\,{}')),
        ("live", *of(None)),
        ("live", *of("acme")),
        ("later", *of("acme", "k")),
    ]
    with pytest.raises(psycopg.Error):
        each_sql("select enqueue_many(%s::jsonb)", [json.dumps([{"task": "t", "keys": "k"}])])


def test_every_way_to_enqueue_from_python_carries_the_limits(each_hf: Holdfast, each_sql: Sql) -> None:
    @each_hf.task(name="crawl", limits=[Limit("d:{domain}", concurrency=1), Limit("m:{tenant}", rate=1)])
    def crawl(domain: str) -> None: ...

    nasty = "a\tb\n\\\"',{}é\U0001f642"
    mine = crawl.using(tenant="acme")
    enqueues = [crawl.using(), mine, mine.using(delay=60), mine.using(dedupe="k"), mine.using(id=str(uuid.uuid4()))]
    for using in enqueues:
        using.enqueue(nasty)
    for using in enqueues[:3]:
        using.enqueue_many([nasty, "b"])
    without, both = of(None, f"d:{nasty}"), of("acme", f"d:{nasty}", "m:acme")
    rows = each_sql(f"select count(*), place, keys, lane from ({WHERE}) j group by place, keys, lane")
    assert sorted(rows) == sorted(
        [
            (2, "live", *without),
            (1, "live", *of(None, "d:b")),
            (4, "live", *both),
            (1, "live", *of("acme", "d:b", "m:acme")),
            (2, "later", *both),
            (1, "later", *of("acme", "d:b", "m:acme")),
        ]
    )


async def test_every_async_way_to_enqueue_carries_the_limits(hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="crawl", limits=[Limit("d:{domain}", concurrency=1)])
    async def crawl(domain: str) -> None: ...

    await crawl.aenqueue("a")
    await crawl.aenqueue_many(["b", "c"])
    await hf.aclose()
    assert found(sql) == [("live", *of(None, f"d:{name}")) for name in "abc"]


def test_a_refused_key_leaves_nothing_of_a_bulk_behind(hf: Holdfast, sql: Sql) -> None:
    @hf.task(limits=[Limit("d:{domain}", concurrency=1)])
    def crawl(domain: str) -> None: ...

    with pytest.raises(UsageError, match="gives a key of 302 characters"):
        crawl.enqueue_many([*map(str, range(150)), "a" * 300])
    assert found(sql) == []
    crawl.enqueue("works")
    assert len(found(sql)) == 1


def test_tenants_without_limits_have_lanes_of_their_own(hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="t")
    def handler(n: int) -> None: ...

    handler.using(tenant="acme").enqueue(1)
    handler.using(tenant="acme").enqueue_many([2])
    handler.enqueue_many([3])
    assert found(sql) == [("live", *of("acme")), ("live", *of("acme")), ("live", *of(None))]


def test_slots_of_a_schedule_are_under_its_limits(hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="t", limits=[Limit("d:{domain}:{tenant}", concurrency=1)])
    def handler(domain: str) -> None: ...

    handler.using(tenant="acme").schedule("s", "* * * * *", "a")
    hf.database.sync_pool.run(hf.database.calls.schedules.register(hf.registry.schedules.values()))
    hf.schedules.run("s")
    sql("update schedules set next_at = clock() - interval '1 hour'")
    (due,) = sql("select name, cron, zone, next_at from schedules")
    names = ("name", "cron", "zone", "next_at", "slots", "then")
    fire = dict(zip(names, [*due[:3], str(due[3]), [str(due[3])], None], strict=True))
    sql("select fire_schedules(%s)", [json.dumps([fire])])
    assert found(sql) == [("live", *of("acme", "d:a:acme"))] * 2


def test_a_batchs_callback_is_under_its_limits(hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="t", limits=[Limit("d:{tenant}", concurrency=1)])
    def on_end(batch: str) -> None: ...

    ids = []
    for on_done in (on_end, on_end.using(tenant="own")):
        with hf.batch("b", tenant="acme", on_done=on_done) as batch:
            pass
        ids.append(uuid.UUID(batch.info().callback))
    assert found(sql, *ids) == [("live", *of("acme", "d:acme")), ("live", *of("own", "d:own"))]


# -- a job's way through the places


def test_a_holder_whose_payload_is_replaced_gets_the_new_limits(each_sql: Sql) -> None:
    for delay, place in ((None, "live"), ("1 hour", "later")):
        id_ = core.put(each_sql, dedupe_key="k", tenant="acme", keys=["old"], delay=delay)
        assert core.enqueue(each_sql, dedupe_key="k", keys=["new"]) == (id_, "existing")
        assert found(each_sql) == [(place, *of("acme", "old"))]
        wish = {"dedupe_key": "k", "tenant": "acme", "on_conflict": "replace"}
        assert core.enqueue(each_sql, keys=["new"], **wish) == (id_, "replaced")
        assert found(each_sql) == [(place, *of("acme", "new"))]
        assert core.enqueue(each_sql, **wish) == (id_, "replaced")
        assert found(each_sql) == [(place, *of("acme"))]
        core.cancel(each_sql, id_)


def test_a_running_holder_keeps_its_limits(sql: Sql) -> None:
    core.put(sql, dedupe_key="k", keys=["old"])
    core.claim_one(sql)
    assert core.enqueue(sql, dedupe_key="k", keys=["new"], on_conflict="replace")[1] == "existing"
    assert found(sql) == [("live", *of(None, "old"))]


def test_a_replaced_job_wakes_who_sleeps(sql: Sql, dsn: str) -> None:
    core.put(sql, dedupe_key="k", keys=["old"])
    sql("insert into sleepers (queue, worker) values ('default', 'w')")
    with psycopg.connect(dsn, autocommit=True) as ears:
        ears.execute("listen holdfast_wake")
        core.enqueue(sql, dedupe_key="k", keys=["new"], on_conflict="replace")
        assert [n.payload for n in ears.notifies(timeout=5, stop_after=1)] == ["w"]


@pytest.mark.parametrize("tenant", [None, "acme"])
def test_a_job_keeps_keys_and_lane_when_it_comes_due(each_sql: Sql, tenant: str | None) -> None:
    id_ = core.put(each_sql, tenant=tenant, keys=["k"], delay="1 hour")
    each_sql("update later set run_at = clock()")
    assert core.promote(each_sql) == [id_]
    assert found(each_sql) == [("live", *of(tenant, "k"))]


def test_a_job_keeps_keys_and_lane_through_death_and_back(each_sql: Sql) -> None:
    id_ = core.put(each_sql, tenant="acme", keys=["b", "a"])
    core.fail(each_sql, core.claim_one(each_sql), delay="1 hour")
    assert found(each_sql) == [("later", *of("acme", "b", "a"))]
    each_sql("update later set run_at = clock()")
    core.promote(each_sql)
    core.fail(each_sql, core.claim_one(each_sql), outcome="dead")
    assert found(each_sql) == [("dead", *of("acme", "b", "a"))]
    assert core.retry_dead(each_sql, id_) == [id_]
    assert found(each_sql) == [("live", *of("acme", "b", "a"))]
    assert core.cancel(each_sql, id_) == ["canceled"]


# -- rules


def register(sql: Sql, *limits: Limit) -> None:
    rules = [{"template": each.key, "pattern": each.pattern, "code": each.as_json()} for each in limits]
    sql("select register_limits(%s::jsonb)", [json.dumps(rules)])


def in_force(sql: Sql) -> dict[str, tuple[Any, ...]]:
    return {row[0]: row[1:] for row in sql("select key, template, concurrency, rate from limit_use")}


@contextmanager
def listening(dsn: str, sql: Sql) -> Iterator[Any]:
    """Register two workers; yield a function that returns the payloads since its last call."""
    for name in ("w1", "w2"):
        sql("select register_worker(%s, 'h', 1, '1', '{}', 1, '[]')", [name])
    with psycopg.connect(dsn, autocommit=True) as ears:
        ears.execute("listen holdfast_wake")

        def received_payloads() -> list[str]:
            sql("notify holdfast_wake, 'end'")
            payloads: list[str] = []
            for notice in ears.notifies(timeout=10):
                if notice.payload == "end":
                    break
                payloads.append(notice.payload)
            return sorted(payloads)

        yield received_payloads


def test_workers_are_notified_by_name(sql: Sql, dsn: str) -> None:
    with listening(dsn, sql) as payloads:
        sql("select touch_limit('k')")
        assert payloads() == ["w1 limits", "w2 limits"]


def test_rules_are_kept_and_notify_only_when_they_change(each_sql: Sql, each_dsn: str) -> None:
    first = Limit("d_m:{domain}", concurrency=2), Limit("smtp", rate=30, breaker=Breaker())
    with listening(each_dsn, each_sql) as payloads:
        register(each_sql, *first)
        assert payloads() == ["w1 limits", "w2 limits"]
        kept = each_sql("select * from limit_rules order by template")
        assert [row[:4] for row in kept] == [
            ("d_m:{domain}", "d\\_m:%", {"concurrency": 2}, {}),
            ("smtp", "smtp", first[1].as_json(), {}),
        ]
        register(each_sql, *first)
        register(each_sql, first[0])  # a limit that code no longer has stays: jobs may still be under it
        register(each_sql)
        assert payloads() == []
        assert each_sql("select * from limit_rules order by template") == kept
        register(each_sql, first[0], Limit("smtp", rate=31))
        assert payloads() == ["w1 limits", "w2 limits"]
    assert each_sql("select template, code from limit_rules order by template") == [
        ("d_m:{domain}", {"concurrency": 2}),
        ("smtp", {"rate": 31, "per": 60, "burst": 1}),
    ]


def test_a_changed_rule_acts_on_the_keys_there_are(each_sql: Sql) -> None:
    register(each_sql, Limit("d:{domain}", concurrency=2))
    flow.meet(each_sql, "d:a", "d:b", "other")
    each_sql("update limits set running = 2, failure_streak = 3 where key = 'd:a'")
    assert in_force(each_sql) == {
        "d:a": ("d:{domain}", 2, None),
        "d:b": ("d:{domain}", 2, None),
        "other": (None, None, None),
    }
    register(each_sql, Limit("d:{domain}", rate=9), Limit("other", concurrency=7))
    assert in_force(each_sql) == {
        "d:a": ("d:{domain}", None, 9),
        "d:b": ("d:{domain}", None, 9),
        "other": ("other", 7, None),
    }
    assert each_sql("select running, failure_streak from limits where key = 'd:a'") == [(2, 3)]


def test_a_pattern_fits_literally(sql: Sql) -> None:
    register(sql, Limit("a_b%\\:{x}", concurrency=2), Limit("{{y}}", concurrency=3))
    flow.meet(sql, "a_b%\\:1", "acb%\\:1", "a_bcc\\:1", "a_b%\\\\:1", "a_b%\\:", "{y}", "y")
    fits = {key: row[0] for key, row in in_force(sql).items() if row[0]}
    assert fits == {"a_b%\\:1": "a_b%\\:{x}", "a_b%\\:": "a_b%\\:{x}", "{y}": "{{y}}"}


def test_the_longer_template_is_the_nearer_one(sql: Sql) -> None:
    register(sql, Limit("d:{domain}", concurrency=2))
    flow.meet(sql, "d:a", "d:big:x")
    register(sql, Limit("d:big:{page}", concurrency=20))
    assert in_force(sql) == {"d:a": ("d:{domain}", 2, None), "d:big:x": ("d:big:{page}", 20, None)}


def test_operators_settings_hold_over_new_code(sql: Sql) -> None:
    register(sql, Limit("d:{domain}", concurrency=2))
    sql("update limit_rules set override = '{\"concurrency\": 5}'")
    flow.meet(sql, "d:a", "d:own")
    flow.change(sql, "d:own", concurrency=9)
    register(sql, Limit("d:{domain}", concurrency=3, rate=8))
    assert in_force(sql) == {"d:a": ("d:{domain}", 5, 8), "d:own": ("d:{domain}", 9, 8)}


def test_an_argument_that_got_another_name_leaves_no_second_rule(sql: Sql, dsn: str) -> None:
    register(sql, Limit("d:{a}", concurrency=2))
    sql("update limit_rules set override = '{\"rate\": 4}'")
    flow.meet(sql, "d:x")
    register(sql, Limit("d:{b}", concurrency=3))
    assert sql("select template, override from limit_rules") == [("d:{b}", {"rate": 4})]
    assert in_force(sql) == {"d:x": ("d:{b}", 3, 4)}


@pytest.mark.parametrize("code", ['{"concurrency": "two"}', '{"rate": {}}', "[]", '"x"'])
def test_a_rule_that_no_claim_could_read_does_not_get_in(sql: Sql, code: str) -> None:
    with pytest.raises(psycopg.Error):
        sql("select register_limits(%s::jsonb)", [f'[{{"template": "a", "pattern": "a", "code": {code}}}]'])
    assert core.count(sql, "limit_rules") == 0


def test_workers_that_start_at_once_register_one_after_the_other(dsn: str, sql: Sql) -> None:
    """The second waits for the first, then finds nothing left to do: its rules were the same."""
    with core.session(dsn, autocommit=False) as first, core.session(dsn) as second:
        register(core.runner(first), Limit("a", concurrency=1), Limit("b", concurrency=1))
        waits = threading.Thread(target=register, args=(core.runner(second), *(Limit(k, concurrency=1) for k in "ba")))
        waits.start()
        wait_until(lambda: sql("select 1 from pg_stat_activity where wait_event_type = 'Lock' and query ~ 'register'"))
        first.commit()
        waits.join(10)
        assert not waits.is_alive()
    assert core.count(sql, "limit_rules") == 2
