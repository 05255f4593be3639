"""why(): where a job is and what keeps it from running, in one sentence and in detail, at a bounded cost."""

from __future__ import annotations

import json
import re
import time
import uuid
from typing import Any

import pytest
from test_plans import rows_read

from tests.support import sql_core as core
from tests.support import sql_flow as flow
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - fixture
from tests.support.sql_core import Sql

PROBE = "018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f"


def why(sql: Sql, id_: uuid.UUID) -> dict[str, Any]:
    ((report,),) = sql("select why(%s)", [id_])
    assert sorted(report) == ["id", "notes", "reasons", "sentence", "status"]
    assert report["sentence"].startswith(report["reasons"][0]["text"])
    return report


def kinds(report: dict[str, Any]) -> list[str]:
    return [reason["kind"] for reason in report["reasons"]]


def only(report: dict[str, Any]) -> dict[str, Any]:
    (reason,) = report["reasons"]
    return reason


# -- ended, and nowhere


def test_an_unknown_job(each_sql: Sql) -> None:
    report = why(each_sql, uuid.uuid4())
    assert report["status"] is None
    assert only(report)["kind"] == "unknown"
    assert "never accepted, or history has dropped it" in report["sentence"]


def test_a_job_that_succeeded(each_sql: Sql) -> None:
    id_ = core.put(each_sql)
    core.finish(each_sql, core.claim_one(each_sql, "w1"))
    report = why(each_sql, id_)
    assert (report["status"], only(report)["kind"], only(report)["worker"]) == ("succeeded", "succeeded", "w1")
    assert report["sentence"].startswith("it succeeded ") and report["sentence"].endswith(" ago, on attempt 1 of 5")


def test_a_job_that_is_dead_because_its_attempts_are_used_up(sql: Sql, clock: Clock) -> None:
    id_ = core.put(sql, max_attempts=1)
    error = {"type": "app.errors.Timeout", "message": "no\nanswer", "traceback": "long", "output": "long"}
    core.fail(sql, core.claim_one(sql), error)
    clock.advance(180)
    report = why(sql, id_)
    assert report["sentence"] == (
        "it died 3 min ago, when its attempts were used up: the last one, 1 of 1, ended with Timeout: no answer; "
        "it waits for a person to retry or discard it"
    )
    assert only(report)["error"] == {"type": "app.errors.Timeout", "message": "no\nanswer"}
    core.discard_dead(sql, id_)
    assert why(sql, id_)["sentence"].endswith("; it was discarded since")


@pytest.mark.parametrize(
    ("outcome", "words"), [("dead", "it died 0 ms ago"), ("failed", "it failed for good 0 ms ago")]
)
def test_a_job_that_its_handler_gave_up(sql: Sql, clock: Clock, outcome: str, words: str) -> None:
    id_ = core.put(sql)
    core.fail(sql, core.claim_one(sql), {"type": "Gone", "message": "404"}, outcome=outcome)
    assert why(sql, id_)["sentence"].startswith(f"{words}, on attempt 1 of 5: Gone: 404")


def test_a_job_that_was_canceled(sql: Sql, clock: Clock) -> None:
    id_ = core.put(sql)
    core.cancel(sql, id_)
    assert why(sql, id_)["sentence"] == "it was canceled 0 ms ago, before it started"
    id_ = core.put(sql, deadline="5 seconds")
    clock.advance(6)
    sql("select expire()")
    assert why(sql, id_)["sentence"] == "it was canceled 0 ms ago: its deadline passed before it could start"
    sql("select open_batch(%s, 'b')", [PROBE])
    id_ = core.put(sql, batch=PROBE)
    sql("select cancel_batch(%s)", [PROBE])
    assert why(sql, id_)["sentence"] == f"it was canceled 0 ms ago with its batch {PROBE}"


# -- running


def test_a_job_that_runs(sql: Sql, clock: Clock) -> None:
    core.put(sql)
    job = core.claim_one(sql, "w1", ttl=60)
    clock.advance(12.34)
    report = why(sql, job.id)
    assert (report["status"], report["sentence"]) == ("running", "it has been running on w1 for 12 s, attempt 1 of 5")
    assert only(report)["lease_until"] is not None
    core.cancel(sql, job.id)
    clock.advance(3)
    assert why(sql, job.id)["sentence"].endswith(" (then: it was asked to stop)")
    assert why(sql, job.id)["reasons"][1]["text"] == "it was asked to stop 3.0 s ago"
    clock.advance(60)
    report = why(sql, job.id)
    assert kinds(report) == ["lost", "canceling"]
    assert report["sentence"].startswith("w1 stopped renewing its lease, which ran out 15 s ago")


# -- waiting


def test_a_job_with_nothing_in_its_way(each_sql: Sql) -> None:
    flow.serve(each_sql)
    report = why(each_sql, core.put(each_sql))
    assert (report["status"], kinds(report), report["notes"]) == ("queued", ["soon"], [])


def test_a_delayed_job_and_one_that_waits_for_another_attempt(sql: Sql, clock: Clock) -> None:
    flow.serve(sql)
    report = why(sql, core.put(sql, delay="3 minutes"))
    assert (report["sentence"], only(report)["in_seconds"]) == ("it was put off, due in 3 min", 180)
    core.put(sql, retry={"kind": "fixed", "delay": 30})
    job = core.claim_one(sql)
    core.fail(sql, job, {"type": "Timeout", "message": "no answer"})
    report = why(sql, job.id)
    assert report["sentence"] == "it waits for attempt 2 of 5, due in 30 s, after Timeout: no answer"
    assert (report["status"], only(report)["kind"], only(report)["attempt"]) == ("retrying", "later", 1)
    clock.advance(30)
    flow.serve(sql)
    assert "and is due; workers are about to move it into the queue, after Timeout" in why(sql, job.id)["sentence"]


def test_deadline_dedupe_key_and_batch(sql: Sql, clock: Clock) -> None:
    flow.serve(sql)
    id_ = core.put(sql, deadline="1 minute", dedupe_key="order-42")
    report = why(sql, id_)
    assert kinds(report) == ["soon"]
    assert [note["text"] for note in report["notes"]] == [
        "it will be canceled unless it starts within 60 s",
        "it may hold dedupe key order-42: an enqueue with that key returns this job",
    ]
    clock.advance(61)
    assert why(sql, id_)["sentence"] == "its deadline passed 1.0 s ago: it is about to be canceled"
    sql("select open_batch(%s, 'b')", [PROBE])
    id_ = core.put(sql, batch=PROBE)
    sql("update batches set canceled = true")
    assert kinds(why(sql, id_))[0] == "batch"


@pytest.mark.parametrize("key", ["queue:default", "task:t", "tenant:acme", "domain:a"])
def test_a_paused_key_of_any_kind(sql: Sql, clock: Clock, key: str) -> None:
    flow.serve(sql)
    id_, other = flow.wait(sql, "domain:a", tenant="acme"), core.put(sql, "other", queue="mail")
    sql("select pause(%s, 'ann', 'provider down')", [key])
    clock.advance(720)
    flow.serve(sql)
    report = why(sql, id_)
    assert report["sentence"] == f"{key} was paused 12 min ago by ann (provider down), until it is resumed"
    assert {name: only(report)[name] for name in ("kind", "key", "by", "reason")} == {
        "kind": "paused",
        "key": key,
        "by": "ann",
        "reason": "provider down",
    }
    assert "paused" not in kinds(why(sql, other))
    sql("select pause(%s, 'ann', p_for => '5 minutes')", [key])
    assert why(sql, id_)["sentence"] == f"{key} was paused 0 ms ago by ann, for another 5 min"
    clock.advance(300)
    flow.serve(sql)
    assert kinds(why(sql, id_)) == ["soon"]


def test_a_key_at_its_limit_names_the_jobs_that_hold_it(sql: Sql, clock: Clock) -> None:
    flow.serve(sql, "w1")
    first = flow.hold(sql, "domain:a", worker="w1", ago=12)
    second = flow.hold(sql, "domain:a", worker="w2", ago=3)
    flow.hold(sql, "domain:b")
    flow.change(sql, "domain:a", concurrency=2)
    id_ = flow.wait(sql, "domain:a")
    report = why(sql, id_)
    assert report["sentence"] == (f"domain:a runs 2 of 2: job {first} on w1 for 12 s, job {second} on w2 for 3.0 s")
    assert [(h["id"], h["worker"], h["lost"]) for h in only(report)["holders"]] == [
        (str(first), "w1", False),
        (str(second), "w2", False),
    ]
    flow.end(sql, first)
    assert kinds(why(sql, id_)) == ["soon"], "what a job has released is room before a claim takes it up"
    for _ in range(9):
        flow.hold(sql, "domain:a")
    report = why(sql, id_)
    assert len(only(report)["holders"]) == 5
    assert re.fullmatch(
        r"domain:a runs 10 of 2: job [^,]+ for 3.0 s, job [^,]+ for 0 ms and 8 more", report["sentence"]
    )
    flow.change(sql, "domain:a", concurrency=0)
    assert "domain:a has a concurrency of 0, set" in why(sql, id_)["sentence"]


def test_a_concurrency_of_0_names_who_set_it_for_the_key_or_for_its_rule(sql: Sql, clock: Clock) -> None:
    flow.serve(sql)
    rule = {"template": "domain:{d}", "pattern": "domain:%", "code": {"concurrency": 9}}
    sql("select register_limits(%s::jsonb)", [json.dumps([rule])])
    id_ = flow.wait(sql, "domain:a")
    for key, by in (("domain:a", "ann"), ("domain:{d}", "bob")):
        sql("select set_limit(%s, '{\"concurrency\": 0}', %s)", [key, by])
        clock.advance(60)
        flow.serve(sql)
        flow.fold(sql)
        report = why(sql, id_)
        assert report["sentence"] == f"domain:a has a concurrency of 0, set 60 s ago by {by}: nothing starts under it"
        assert (only(report)["set_for"], only(report)["by"]) == (key, by)
        sql("select clear_limit(%s)", [key])


def test_a_holder_whose_lease_has_run_out_is_reported_as_such(sql: Sql, clock: Clock) -> None:
    holder = flow.hold(sql, "domain:a", worker="w1")
    flow.change(sql, "domain:a", concurrency=1)
    id_ = flow.wait(sql, "domain:a")
    clock.advance(65)
    flow.serve(sql, "w2")
    report = why(sql, id_)
    assert report["sentence"] == (
        f"domain:a runs 1 of 1: job {holder} on w1 for 65 s (its lease ran out 5.0 s ago: it will be reclaimed)"
    )
    assert only(report)["holders"][0]["lost"] is True


def test_a_rate_shows_when_the_next_start_is_free(sql: Sql, clock: Clock) -> None:
    flow.serve(sql)
    flow.change(sql, "source:x", rate=30, per=60, burst=5)
    flow.fold(sql)
    sql("update limits set tokens = -0.6, tokens_at = clock()")
    id_ = flow.wait(sql, "source:x")
    report = why(sql, id_)
    assert report["sentence"] == "source:x may start 30 in 60 s: the next start is free in 3.2 s"
    assert (only(report)["kind"], only(report)["in_seconds"]) == ("rate", 3.2)
    clock.advance(3.2)
    assert kinds(why(sql, id_)) == ["soon"]


def test_a_higher_burst_adds_no_tokens_and_a_higher_rate_counts_from_the_last_start(sql: Sql, clock: Clock) -> None:
    """As docs/guides/limits.md says under "Why does it not run?"."""
    flow.serve(sql)
    flow.change(sql, "source:x", rate=1, per=600, burst=5)
    flow.fold(sql)
    sql("update limits set tokens = 0, tokens_at = clock()")
    id_ = flow.wait(sql, "source:x")
    clock.advance(60)
    for change, left in (({"burst": 50}, 540), ({"rate": 2}, 240), ({"rate": 5}, 60), ({"rate": 2}, 240)):
        flow.change(sql, "source:x", **change)
        assert only(why(sql, id_))["in_seconds"] == pytest.approx(left), change
    flow.change(sql, "source:x", rate=1, per=1, burst=1)
    assert kinds(why(sql, id_)) == ["soon"]
    assert sql("select free_tokens from limit_state") == [(1.0,)], "for one job alone"


def test_a_breaker_that_is_open_and_one_whose_probe_is_under_way(sql: Sql, clock: Clock) -> None:
    flow.serve(sql)
    flow.change(sql, "domain:a", breaker_after=5)
    flow.fold(sql)
    sql("update limits set open_until = clock() + interval '4 minutes', failure_streak = 6")
    id_ = flow.wait(sql, "domain:a")
    report = why(sql, id_)
    assert report["sentence"] == (
        "the breaker of domain:a is open after 6 failures in a row: one job may try again in 4 min"
    )
    assert (only(report)["state"], only(report)["failure_streak"]) == ("open", 6)
    clock.advance(240)
    flow.serve(sql)
    assert kinds(why(sql, id_)) == ["soon"], "this job may be the probe"
    sql("update limits set probe = %s", [PROBE])
    assert why(sql, id_)["sentence"] == (
        f"the breaker of domain:a is half open: job {PROBE} is trying whether it works again"
    )


def test_no_worker_for_its_queue_or_task_is_alive(sql: Sql, clock: Clock) -> None:
    id_ = core.put(sql)
    assert why(sql, id_)["sentence"] == "no live worker serves queue default"
    flow.serve(sql, "w1")
    clock.advance(300)
    assert why(sql, id_)["sentence"] == (
        "no live worker serves queue default; the last one, w1, was heard of 5 min ago"
    )
    flow.serve(sql, "w2", queues="{mail}")
    assert kinds(why(sql, id_)) == ["no_worker"]
    flow.serve(sql, "w3", tasks=("other",))
    report = why(sql, id_)
    assert report["sentence"] == "no live worker knows task t; queue default is served by w3"
    sql("delete from workers")
    assert kinds(why(sql, id_)) == ["no_worker"]
    assert "ever known" not in why(sql, id_)["sentence"]
    sql("delete from tasks where name = 't'")
    assert why(sql, id_)["sentence"].endswith("; and none has ever known task t")


def test_workers_that_are_stopping(sql: Sql, clock: Clock) -> None:
    flow.serve(sql, "w1")
    for _ in range(4):
        flow.hold(sql, worker="w1")
    sql("update workers set stopping = true")
    id_, late = core.put(sql), core.put(sql, delay="3 minutes")
    report = why(sql, id_)
    assert report["sentence"] == "the only worker of queue default is stopping (4 jobs left)"
    facts = {name: only(report)[name] for name in ("kind", "queue", "workers", "jobs")}
    assert facts == {"kind": "stopping", "queue": "default", "workers": ["w1"], "jobs": 4}
    assert why(sql, late)["sentence"] == "it was put off, due in 3 min (then: its workers are stopping)"
    flow.serve(sql, "w2")
    sql("update workers set stopping = true")
    assert why(sql, id_)["sentence"] == "all 2 workers of queue default are stopping (4 jobs left)"
    flow.serve(sql, "w3")
    assert kinds(why(sql, id_)) == ["soon"]


def test_workers_whose_slots_are_all_taken(sql: Sql, clock: Clock) -> None:
    flow.serve(sql, "w", slots=1)
    flow.serve(sql, "w2", slots=1)
    flow.hold(sql, worker="w")
    id_ = core.put(sql)
    assert kinds(why(sql, id_)) == ["soon"]
    flow.hold(sql, worker="w2")
    assert why(sql, id_)["sentence"] == "all 2 slots of the 2 workers that serve queue default are busy"
    sql("delete from workers where id = 'w2'")
    assert why(sql, id_)["sentence"] == "the only slot of the one worker that serves queue default is busy"
    sql("update workers set concurrency = 20")
    for _ in range(19):
        flow.hold(sql, worker="w")
    assert why(sql, id_)["sentence"] == "all 20 slots of the one worker that serves queue default are busy"


def test_workers_whose_slots_are_taken_by_other_queues(sql: Sql, clock: Clock) -> None:
    flow.serve(sql, "w", queues="{default,mail,visits}", slots=2)
    id_ = core.put(sql)
    for queue in ("mail", "visits"):
        core.put(sql, queue=queue)
        core.claim_one(sql, "w", queues=[queue])
    report = why(sql, id_)
    busy = "all 2 slots of the one worker that serves queue default are busy"
    assert report["sentence"] == f"{busy} with other queues (mail, visits)"
    assert (only(report)["kind"], only(report)["queues"], only(report)["claimed"]) == ("busy", ["mail", "visits"], 2)
    mine = core.put(sql)
    core.claim_one(sql, "w")
    left = why(sql, mine)
    assert (left["sentence"].partition(" (then")[0], "queues" in left["reasons"][0]) == (busy, False), "one is its own"
    flow.serve(sql, "w2", queues="{default}", slots=50)
    assert "busy" not in kinds(why(sql, mine)), "another worker has slots left"


def test_the_only_slot_is_taken_by_another_queue(sql: Sql, clock: Clock) -> None:
    flow.serve(sql, "w", queues="{default,mail}", slots=1)
    id_ = core.put(sql)
    core.put(sql, queue="mail")
    core.claim_one(sql, "w", queues=["mail"])
    assert why(sql, id_)["sentence"] == (
        "the only slot of the one worker that serves queue default is busy with another queue (mail)"
    )


def test_a_worker_is_alive_while_it_has_heartbeats_or_a_valid_lease(sql: Sql, clock: Clock) -> None:
    flow.serve(sql, "w")
    id_ = core.put(sql)
    clock.advance(89)
    assert kinds(why(sql, id_)) == ["soon"]
    clock.advance(2)
    assert kinds(why(sql, id_)) == ["no_worker"]
    flow.hold(sql, worker="w")
    assert kinds(why(sql, id_)) == ["soon"]
    clock.advance(61)
    assert kinds(why(sql, id_)) == ["no_worker"]


def test_lanes_that_take_turns_are_left_out_where_something_else_blocks(sql: Sql, clock: Clock) -> None:
    flow.serve(sql)
    id_ = flow.wait(sql, tenant="acme")
    flow.wait(sql, tenant="bree")
    flow.arrive(sql)
    sql("select pause('tenant:acme', 'ann')")
    report = why(sql, id_)
    assert (kinds(report), report["sentence"]) == (
        ["paused", "ring"],
        "tenant:acme was paused 0 ms ago by ann, until it is resumed",
    )


def test_a_job_behind_others(sql: Sql, clock: Clock) -> None:
    flow.serve(sql)
    flow.wait(sql, tenant="acme")
    id_ = flow.wait(sql, tenant="acme")
    clock.advance(1)
    id_ = flow.wait(sql, tenant="acme")
    report = why(sql, id_)
    assert (kinds(report), report["sentence"]) == (["behind"], "2 jobs of the same tenant are before it")
    for tenant in ("x", "y", "z"):
        flow.wait(sql, tenant=tenant)
    flow.wait(sql, priority=0)
    flow.wait(sql, queue="mail", priority=0)
    flow.arrive(sql)
    report = why(sql, id_)
    assert [(r["kind"], r.get("jobs"), r.get("tenants")) for r in report["reasons"]] == [
        ("priority", 1, None),
        ("behind", 2, None),
        ("ring", None, 3),
    ]
    assert [r["text"] for r in report["reasons"]] == [
        "1 job of a higher priority goes first",
        "2 jobs of the same tenant are before it",
        "3 other tenants take turns with it",
    ]
    assert report["sentence"] == "1 job of a higher priority goes first (then: jobs before it, others take turns)"


def test_lanes_that_take_turns_with_a_job(sql: Sql, clock: Clock) -> None:
    flow.serve(sql)
    plain = core.put(sql)
    clock.advance(1)
    jobs = {key: flow.wait(sql, key) for key in "abc"}
    flow.arrive(sql)
    assert only(why(sql, jobs["a"]))["text"] == "3 other lanes take turns with it"
    assert only(why(sql, plain))["text"] == "1 other lane takes turns with it"
    assert {name: only(why(sql, jobs["a"]))[name] for name in ("lanes", "tenants", "more")} == {
        "lanes": 3,
        "tenants": 0,
        "more": False,
    }
    clock.advance(1)
    assert (
        why(sql, flow.wait(sql, "a"))["sentence"] == "1 job of the same limits is before it (then: others take turns)"
    )
    assert why(sql, core.put(sql))["sentence"] == "1 job of the same queue is before it (then: others take turns)"
    mine = [flow.wait(sql, *keys, tenant="acme") for keys in (["a"], ["b"], [])]
    flow.arrive(sql)
    ring = why(sql, mine[0])["reasons"][-1]
    assert (ring["kind"], ring["lanes"], ring["tenants"]) == ("ring", 4, 0), (
        "two of its own, plain jobs, those of no tenant"
    )
    assert why(sql, plain)["reasons"][-1]["text"] == "1 other tenant takes turns with it"
    sql("select pause('tenant:acme')")
    assert why(sql, plain)["reasons"][-1]["tenants"] == 0, "a paused tenant takes no turns"
    sql("select resume('tenant:acme')")
    sql("update flows set open = false where tenant = 'acme'")
    assert why(sql, plain)["reasons"][-1]["tenants"] == 0, "what is closed or empty takes no turns"


def test_a_job_takes_turns_with_those_of_its_own_ring(sql: Sql, clock: Clock) -> None:
    """Jobs under a rate or a breaker are claimed for free slots only, apart from all others."""
    flow.serve(sql)
    flow.change(sql, "source:x", breaker_after=5)
    for _ in range(2):
        direct = {tenant: flow.wait(sql, "source:x", tenant=tenant) for tenant in "abc"}
        other = {tenant: flow.wait(sql, tenant=tenant) for tenant in "abcdef"}
        flow.wait(sql, tenant="g", queue="mail")
        flow.arrive(sql)
        texts = [only(why(sql, id_))["text"] for id_ in (direct["a"], other["a"])]
        assert len(core.claim(sql)) == 9
    assert texts == ["2 other tenants take turns with it", "5 other tenants take turns with it"]


def test_the_strongest_reason_comes_first(sql: Sql, clock: Clock) -> None:
    flow.change(sql, "source:x", rate=1, per=60)
    flow.fold(sql)
    sql("update limits set tokens = 0")
    flow.hold(sql, "domain:a")
    flow.change(sql, "domain:a", concurrency=1, breaker_after=1)
    sql("update limits set open_until = clock() + interval '1 minute' where key = 'domain:a'")
    flow.wait(sql, "domain:a", "source:x", tenant="acme")
    clock.advance(1)
    id_ = flow.wait(sql, "domain:a", "source:x", tenant="acme")
    sql("select pause('tenant:acme', 'ann')")
    report = why(sql, id_)
    assert kinds(report) == ["paused", "no_worker", "breaker", "concurrency", "rate", "behind"]
    assert report["sentence"].startswith("tenant:acme was paused 0 ms ago by ann, until it is resumed (then: ")


# -- what it costs


def test_the_cost_is_bounded_beside_a_large_backlog(sql: Sql) -> None:
    """200,000 jobs of 10,000 tenants, half of them of one tenant; a thousand run, and their key is full."""
    sql("set holdfast.announces = 'on'")  # their lanes are written below
    sql(
        "insert into live (id, task, tenant, keys, lane, run_at) "
        "select gen_random_uuid(), 't', 'tenant-' || n, '{k}', lane_of('tenant-' || n, '{k}'), "
        "now() - i * interval '1 ms' from "
        "(select i, case when i % 2 = 0 then 1 else 2 + i % 20000 / 2 end as n from generate_series(1, 200000) i) g"
    )
    for n in range(10):
        sql(
            "with taken as (select id from live where token is null order by id limit 100), "
            "claim as (insert into claims select %s, 'w', now(), now(), now() + '1 min', array_agg(id) from taken) "
            "update live set token = %s, claimed_at = now(), attempt = 1 where id = any (array(select id from taken))",
            [n, n],
        )
    sql(
        "insert into lanes (queue, priority, lane, flow, open, tenant, keys) "
        "select distinct 'default', 2, lane, lane_of(tenant, null), true, tenant, keys::text[] from live"
    )
    sql(
        "insert into flows select 'default', 2, false, flow, row_number() over (), 0, 0, true, false, tenant from lanes"
    )
    sql("insert into rings values ('default', 2, false, 0)")
    flow.change(sql, "k", concurrency=1000)
    sql("insert into limits (key, running) values ('k', 1000)")
    flow.serve(sql)
    ((id_,),) = sql("select id from live where tenant = 'tenant-1' and token is null order by run_at desc limit 1")
    took = []
    for _ in range(9):  # after five runs plans may be kept
        began = time.perf_counter()
        report = why(sql, id_)
        took.append(time.perf_counter() - began)
    before = rows_read(sql)
    why(sql, id_)
    read = rows_read(sql) - before
    assert kinds(report) == ["concurrency", "busy", "behind", "ring"]
    assert (report["reasons"][2]["jobs"] > 900, report["reasons"][3]["more"]) == (True, True)
    assert report["reasons"][3]["text"] == "more than 300 other tenants take turns with it"
    assert read < 10_000, f"{read:,} rows were read"
    assert min(took[-3:]) < 0.05, f"it took {min(took) * 1000:.0f} ms"


def test_a_plan_made_while_all_was_empty_does_not_read_the_backlog(dsn: str, sql: Sql) -> None:
    sql("vacuum analyze live, later, dead, claims, limits, lanes, flows, rings, releases")
    with core.session(dsn) as conn:
        kept = core.runner(conn)
        for _ in range(8):
            why(kept, flow.wait(sql, "k", tenant="acme"))
            sql("delete from live")
        sql("insert into live (id, task, lane) select gen_random_uuid(), 't', 5 from generate_series(1, 20000)")
        for table in (
            "lanes (queue, priority, lane, flow, open)",
            "flows (queue, priority, lane, flow, open, direct, tag)",
        ):
            more = ", false, n" if "tag" in table else ""
            sql(f"insert into {table} select 'default', 3, n, n, true{more} from generate_series(1, 20000) n")
        id_ = flow.wait(sql, "k", tenant="acme")
        before = rows_read(kept)
        why(kept, id_)
        read = rows_read(kept) - before
    assert read < 200, f"{read:,} rows were read"
