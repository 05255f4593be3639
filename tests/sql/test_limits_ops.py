"""What operators do to limits: set and clear them, pause and resume keys, reset breakers, count and reconcile."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import pytest
from psycopg.errors import InvalidParameterValue, LockNotAvailable
from test_plans import rows_read

from holdfast import Holdfast, UsageError
from tests.support import sql_core as core
from tests.support import sql_flow as flow
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - fixture
from tests.support.sql_core import Sql


def in_force(sql: Sql, key: str) -> dict[str, Any]:
    """Return what is in force for a key."""
    names = ("concurrency", "rate", "per", "burst", "breaker_after", "breaker_pause", "breaker_cap", "weight")
    found = flow.use(sql, key)
    return {name: found[name] for name in names if found[name] is not None}


# -- set_limit and clear_limit


def test_an_override_of_a_key_wins_over_that_of_its_rule_and_that_over_the_code(each_sql: Sql) -> None:
    flow.rule(each_sql, "domain:{domain}", concurrency=2, rate=30, per=60, burst=5)
    flow.meet(each_sql, "domain:a", "domain:b", "elsewhere")
    assert flow.change(each_sql, "domain:{domain}", concurrency=4) == 2
    assert flow.change(each_sql, "domain:a", concurrency=8) == 1
    assert in_force(each_sql, "domain:a") == {"concurrency": 8, "rate": 30, "per": 60, "burst": 5}
    assert in_force(each_sql, "domain:b")["concurrency"] == 4
    assert in_force(each_sql, "elsewhere") == {}
    flow.meet(each_sql, "domain:new")
    assert in_force(each_sql, "domain:new")["concurrency"] == 4, "a rule's override holds for keys to come"


def test_unnamed_values_stay_and_null_goes_back_to_the_code(sql: Sql) -> None:
    flow.rule(sql, "domain:{domain}", concurrency=2)
    flow.change(sql, "domain:a", concurrency=4, breaker_after=3, breaker_pause=10, breaker_cap=20)
    flow.change(sql, "domain:a", breaker_after=5)
    assert in_force(sql, "domain:a") == {"concurrency": 4, "breaker_after": 5, "breaker_pause": 10, "breaker_cap": 20}
    flow.change(sql, "domain:a", concurrency=None)
    assert in_force(sql, "domain:a")["concurrency"] == 2
    assert "concurrency" not in flow.use(sql, "domain:a")["override"]


def test_a_rate_or_a_breaker_that_is_new_gets_what_it_cannot_do_without(sql: Sql) -> None:
    flow.change(sql, "smtp", rate=30)
    assert in_force(sql, "smtp") == {"rate": 30, "per": 60, "burst": 1}
    assert flow.use(sql, "smtp")["tokens"] == 1
    flow.rule(sql, "api:{name}", rate=10, per=1, burst=3)
    flow.change(sql, "api:a", rate=20)
    assert in_force(sql, "api:a") == {"rate": 20, "per": 1, "burst": 3}, "the code has said it already"
    flow.change(sql, "smtp", breaker_after=2)
    assert in_force(sql, "smtp")["breaker_pause"] == 300


@pytest.mark.parametrize(
    ("key", "change", "expected"),
    [
        ("order:a", {"concurrency": 2}, "concurrency of order:a cannot be set"),
        ("order:a", {"rate": 1, "per": 60}, "of order:a cannot be set"),
        ("k", {"breaker_after": 3, "breaker_pause": 100, "breaker_cap": 5}, "below breaker_pause, got 5 and 100"),
    ],
)
def test_values_that_code_may_not_declare_an_operator_may_not_set(
    sql: Sql, key: str, change: dict[str, int], expected: str
) -> None:
    with pytest.raises(InvalidParameterValue, match=re.escape(expected)):
        sql("select set_limit(%s, %s::jsonb)", [key, json.dumps(change)])
    assert nothing_is_set(sql)
    sql("select set_limit('k', '{\"breaker_cap\": null, \"breaker_pause\": 100}')")


def nothing_is_set(sql: Sql) -> bool:
    return sum(core.count(sql, table) for table in ("limits", "limit_settings", "releases", "reopenings")) == 0


def test_a_concurrency_of_0_is_allowed_and_who_set_it_is_known(sql: Sql) -> None:
    flow.change(sql, "domain:a", by="ann", concurrency=0)
    found = flow.use(sql, "domain:a")
    assert (found["concurrency"], found["changed_by"], found["override"]) == (0, "ann", {"concurrency": 0})
    assert found["changed_at"] is not None
    flow.change(sql, "domain:a", concurrency=1)
    assert flow.use(sql, "domain:a")["changed_by"] == sql("select session_user::text")[0][0]


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        ("k", {"speed": 1}, "unknown limit field speed; the fields are concurrency, rate, per"),
        ("k", {"concurrency": -1}, "concurrency must be 0 or more, 1,000,000,000 at most, got -1"),
        ("k", {"concurrency": 1.5}, "concurrency must be a whole number, got 1.5"),
        ("k", {"concurrency": "4"}, 'concurrency must be a number, or null for the value in the code; got "4"'),
        ("k", {"concurrency": 10**12}, "concurrency must be 0 or more, 1,000,000,000 at most, got 1000000000000"),
        ("k", {"rate": 0}, "rate must be above 0, 1,000,000,000 at most, got 0"),
        ("k", {"rate": True}, "rate must be a number, or null for the value in the code; got true"),
        ("k", {"per": -1}, "per must be above 0,"),
        ("k", {"burst": 0.5}, "burst must be 1 or more,"),
        ("k", {"breaker_after": 0}, "breaker_after must be 1 or more,"),
        ("k", {"weight": 2}, r"only a tenant has a weight \(tenant:NAME\), not k"),
        ("tenant:a", {"weight": 0}, "weight must be above 0,"),
        ("k", {}, 'a change of a limit must be an object such as {"concurrency": 4}, got {}'),
        ("", {"concurrency": 1}, "a key must have 1 to 300 characters"),
        ("queue:", {"concurrency": 1}, "a key must have 1 to 300 characters"),
        ("k" * 301, {"concurrency": 1}, "a key must have 1 to 300 characters"),
        ("domain:{d}", {"concurrency": 1}, "there is no rule domain:{d}; workers have registered domain:{domain}"),
    ],
    ids=str,
)
def test_a_change_that_cannot_work_is_refused_in_words(sql: Sql, key: str, change: Any, message: str) -> None:
    flow.rule(sql, "domain:{domain}", concurrency=2)
    with pytest.raises(InvalidParameterValue, match=message):
        flow.change(sql, key, **change)
    assert nothing_is_set(sql)


def test_a_key_that_looks_like_a_template_is_taken_for_one_only_when_it_was_never_claimed(sql: Sql) -> None:
    flow.meet(sql, "title:a{b")
    assert flow.change(sql, "title:a{b", concurrency=1) == 1
    assert in_force(sql, "title:a{b") == {"concurrency": 1}


def test_clear_gives_a_key_or_a_rule_back_to_the_code(sql: Sql) -> None:
    flow.rule(sql, "domain:{domain}", concurrency=2)
    flow.meet(sql, "domain:a")
    flow.change(sql, "domain:a", concurrency=8)
    flow.change(sql, "domain:{domain}", concurrency=4)
    assert sql("select clear_limit('domain:a')") == [(1,)]
    assert in_force(sql, "domain:a") == {"concurrency": 4}
    assert sql("select clear_limit('domain:{domain}')") == [(1,)]
    assert in_force(sql, "domain:a") == {"concurrency": 2}
    assert flow.use(sql, "domain:a")["changed_by"] is None
    for key in ("domain:a", "domain:{domain}", "never"):
        assert sql("select clear_limit(%s)", [key]) == [(0,)]


def test_changes_made_at_once_by_two_operators_are_both_kept(dsn: str, sql: Sql) -> None:
    with core.session(dsn, autocommit=False) as one:
        flow.change(core.runner(one), "k", concurrency=4)
        other = threading.Thread(target=lambda: flow.change(sql, "k", rate=5))
        other.start()
        one.commit()
        other.join(20)
    assert in_force(sql, "k") == {"concurrency": 4, "rate": 5, "per": 60, "burst": 1}


# -- pause, resume, reset_breaker


@pytest.mark.parametrize("key", ["queue:mail", "task:app.send", "tenant:acme", "domain:a"])
def test_pause_and_resume_of_any_key(each_sql: Sql, key: str) -> None:
    flow.rule(each_sql, "domain:{domain}", concurrency=2)
    assert each_sql("select pause(%s, 'ann', 'provider down')", [key]) == [(True,)]
    found = flow.use(each_sql, key)
    assert (found["paused"], found["paused_by"], found["paused_reason"]) == (True, "ann", "provider down")
    assert found["paused_at"] is not None and found["paused_until"] is None
    assert found["concurrency"] == (2 if key == "domain:a" else None), "a row made here knows its rule"
    assert each_sql("select pause(%s, 'bob')", [key]) == [(False,)]
    assert flow.use(each_sql, key)["paused_by"] == "bob"
    assert each_sql("select resume(%s)", [key]) == [(True,)]
    assert core.count(each_sql, "limit_settings") == 0
    assert each_sql("select resume(%s)", [key]) == [(False,)]


@pytest.mark.parametrize("met", [False, True], ids=["before a claim", "after a claim"])
@pytest.mark.parametrize("key", ["queue:default", "task:t", "tenant:acme", "domain:a"])
def test_a_pause_that_is_over_leaves_no_row_that_claims_have_to_look_at(each_sql: Sql, key: str, met: bool) -> None:
    """A row of a queue makes every claim of the queue wait for the ring, even for plain jobs."""
    each_sql("select pause(%s)", [key])
    if met:
        flow.fold(each_sql)
        assert core.firsts(each_sql("select key from limits")) == [key]
    each_sql("select resume(%s)", [key])
    flow.fold(each_sql)
    left = core.firsts(each_sql("select key from limits"))
    assert left == ([key] if met and key == "domain:a" else [])


def test_a_pause_that_ends_while_jobs_run_leaves_no_row_when_they_have_ended(each_sql: Sql) -> None:
    flow.change(each_sql, "queue:default", concurrency=5)
    core.put(each_sql)
    job = core.claim_one(each_sql)
    assert each_sql("select key, running from limits") == [("queue:default", 1)]
    each_sql("select clear_limit('queue:default')")
    flow.fold(each_sql)
    assert each_sql("select key, running from limits") == [("queue:default", 1)]
    assert core.finish(each_sql, job) == []
    flow.fold(each_sql)
    assert core.count(each_sql, "limits") == 0
    assert each_sql("select * from limit_drift") == []


def test_a_pause_for_a_time_ends_by_itself(sql: Sql, clock: Clock) -> None:
    sql("select pause('k', p_for => '10 minutes')")
    assert flow.use(sql, "k")["paused"] is True
    clock.advance(600)
    assert flow.use(sql, "k")["paused"] is False
    assert sql("select resume('k')") == [(False,)], "it had gone on already"
    assert sql("select pause('k')") == [(True,)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'k', p_for => '0'", "a pause must be longer than 0"),
        ("'domain:{domain}'", "domain:{domain} is a rule, not a key: pause its keys, or set its concurrency to 0"),
        ("'tenant:'", "a key must have 1 to 300 characters"),
        ("null", "a key must have 1 to 300 characters.*got null"),
    ],
)
def test_a_pause_that_cannot_work_is_refused_in_words(sql: Sql, arguments: str, message: str) -> None:
    flow.rule(sql, "domain:{domain}", concurrency=2)
    with pytest.raises(InvalidParameterValue, match=message):
        sql(f"select pause({arguments})")


def test_a_breaker_is_reset_by_hand_and_a_pause_is_not(sql: Sql) -> None:
    flow.change(sql, "k", breaker_after=3)
    flow.fold(sql)
    sql("update limits set open_until = clock() + interval '5 minutes', failure_streak = 7, opens = 2, probe = uuid7()")
    sql("select pause('k')")
    assert flow.use(sql, "k")["breaker"] == "open"
    assert sql("select reset_breaker('k')") == [(True,)]
    found = flow.use(sql, "k")
    assert (found["breaker"], found["failure_streak"], found["probe"], found["paused"]) == ("closed", 0, None, True)
    assert sql("select reset_breaker('k')") == [(False,)]
    assert sql("select reset_breaker('never')") == [(False,)]
    flow.fold(sql)
    assert sql("select failure_streak, open_until, opens, probe from limits") == [(0, None, 0, None)]
    assert flow.use(sql, "k") == found


@pytest.mark.parametrize("how", ["clear_limit('k')", """set_limit('k', '{"breaker_after": null}')"""])
def test_a_breaker_that_is_taken_away_while_it_is_open_holds_nothing_back(each_sql: Sql, how: str) -> None:
    flow.change(each_sql, "k", breaker_after=1, breaker_pause=3600, breaker_cap=3600)
    flow.wait(each_sql, "k")
    core.fail(each_sql, core.claim_one(each_sql), outcome="failed")
    flow.wait(each_sql, "k")
    assert core.claim(each_sql) == []
    assert flow.use(each_sql, "k")["breaker"] == "open"
    each_sql(f"select {how}")
    assert (flow.use(each_sql, "k")["breaker"], flow.use(each_sql, "k")["open_until"]) == (None, None)
    assert len(core.claim(each_sql)) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "select set_limit('k', '{\"concurrency\": 1}')",
        "select clear_limit('k')",
        "select pause('k')",
        "select resume('k')",
        "select reset_breaker('k')",
        "select reconcile_limits()",
    ],
)
def test_every_worker_is_notified_at_once(dsn: str, sql: Sql, statement: str) -> None:
    flow.serve(sql, "w1")
    flow.serve(sql, "w2")
    flow.change(sql, "k", concurrency=3)
    sql("select pause('k')")
    flow.fold(sql)
    sql("update limits set failure_streak = 1, running = 9")
    with core.session(dsn) as conn:
        conn.execute("listen holdfast_wake")
        sql(statement)
        payloads = [notice.payload for notice in conn.notifies(timeout=10, stop_after=2)]
    assert sorted(payloads) == ["w1 limits", "w2 limits"]


def test_no_notification_is_sent_when_nothing_has_changed(dsn: str, sql: Sql) -> None:
    flow.serve(sql, "w1")
    with core.session(dsn) as conn:
        conn.execute("listen holdfast_wake")
        for statement in ("clear_limit('k')", "resume('k')", "reset_breaker('k')", "reconcile_limits()"):
            sql(f"select {statement}")
        sql("select pg_notify('holdfast_wake', 'the end')")
        assert [notice.payload for notice in conn.notifies(timeout=10, stop_after=1)] == ["the end"]


# -- what can be read


def test_limit_use_returns_how_much_of_a_limit_is_in_use(sql: Sql, clock: Clock) -> None:
    flow.rule(sql, "domain:{domain}", concurrency=2, rate=30, per=60, burst=5, breaker_after=5, breaker_pause=300)
    flow.hold(sql, "domain:a")
    over = flow.hold(sql, "domain:a")
    flow.end(sql, over)
    sql("update limits set tokens = 0.5, tokens_at = clock()")
    sql("insert into throttled values ('domain:a', 'x', 3, clock()), ('domain:a', '', 4, clock())")
    found = flow.use(sql, "domain:a")
    expected = {
        "kind": "key",
        "template": "domain:{domain}",
        "concurrency": 2,
        "running": 1,
        "rate": 30,
        "per": 60,
        "burst": 5,
        "tokens": 0.5,
        "next_token": 1,
        "paused": False,
        "breaker": "closed",
        "failure_streak": 0,
        "throttled": 7,
        "weight": None,
        "override": {},
        "changed_by": None,
    }
    assert {name: found[name] for name in expected} == expected
    clock.advance(5)
    assert (flow.use(sql, "domain:a")["tokens"], flow.use(sql, "domain:a")["next_token"]) == (3, 0)


def test_a_breaker_is_open_then_half_open_and_null_where_there_is_none(sql: Sql, clock: Clock) -> None:
    flow.change(sql, "k", breaker_after=1)
    flow.change(sql, "other", concurrency=1)
    flow.fold(sql)
    sql("update limits set open_until = clock() + interval '1 minute' where key = 'k'")
    assert flow.use(sql, "k")["breaker"] == "open"
    clock.advance(60)
    assert flow.use(sql, "k")["breaker"] == "half-open"
    assert flow.use(sql, "other")["breaker"] is None


def test_the_view_of_limits_shows_the_health_of_a_key(sql: Sql, clock: Clock) -> None:
    flow.change(sql, "source:ebay", rate=30, per=30, breaker_after=5)
    flow.fold(sql)
    sql(
        "update limits set failure_streak = 6, last_success_at = clock() - interval '1 h', last_failure_at = clock(), "
        "open_until = clock() + interval '5 minutes'"
    )
    columns = "paused, failure_streak, rate / per * 60, last_success_at, last_failure_at, open_until"
    ((*row, success, failure, until),) = sql(f"select {columns} from limit_use")
    assert row == [False, 6, 60]
    assert ((clock.now - success).total_seconds(), failure) == (3600, clock.now)
    assert (until - clock.now).total_seconds() == 300
    sql("select pause('source:ebay', p_for => '10 minutes')")
    ((paused, until),) = sql("select paused, paused_until from limit_use")
    assert (paused, (until - clock.now).total_seconds()) == (True, 600)


def test_tenant_shares_returns_each_tenants_part_of_what_runs(sql: Sql) -> None:
    for tenant in ("acme", "acme", "acme", None):
        flow.hold(sql, tenant=tenant)
    flow.wait(sql, tenant="waits")
    flow.change(sql, "tenant:acme", weight=3)
    found = sql("select tenant, running, share, weight from tenant_shares order by running desc")
    assert [(t, r, float(s), w) for t, r, s, w in found] == [("acme", 3, 0.75, 3), (None, 1, 0.25, 1)]


def test_throttled_work_is_added_up_by_key_and_tenant(sql: Sql) -> None:
    """A lane that a claim finds closed counts once, until it opens again."""
    for key in ("a", "b"):
        flow.change(sql, key, concurrency=1)
    for keys, tenant in ((("a",), None), (("b",), "x"), (("b", "c"), "x"), (("b",), "y")):
        flow.wait(sql, *keys, tenant=tenant)
        flow.wait(sql, *keys, tenant=tenant)
    for _ in range(3):
        held = core.claim(sql)
        assert sorted(job.keys[0] for job in held) in (["a", "b"], ["b"], [])
        assert core.claim(sql) == []
        throttled = dict(sql("select key || ' ' || tenant, count from throttled"))
        core.finish(sql, *held)
    assert {name: count > 0 for name, count in throttled.items()} == {"a ": True, "b x": True, "b y": True}
    assert sum(throttled.values()) == sum(flow.use(sql, key)["throttled"] for key in ("a", "b"))


# -- reconcile


def test_counts_that_are_true_are_no_drift(each_sql: Sql) -> None:
    flow.hold(each_sql, "a", "b", tenant="acme")
    flow.end(each_sql, flow.hold(each_sql, "a"))
    flow.wait(each_sql, "a")
    assert each_sql("select * from limit_drift") == []
    assert each_sql("select key, running from limits order by 1") == [("a", 2), ("b", 1)]


def test_implicit_keys_that_a_claim_has_counted_are_true_too(sql: Sql) -> None:
    id_ = flow.hold(sql, "a")
    sql("update live set held = '{queue:default,a}' where id = %s", [id_])
    sql("insert into limits (key, kind, running) values ('queue:default', 'queue', 1)")
    assert sql("select * from limit_drift") == []


def test_drift_is_reported_and_with_repair_set_right(each_sql: Sql) -> None:
    flow.rule(each_sql, "lost:{x}", concurrency=3)
    flow.hold(each_sql, "high")
    flow.hold(each_sql, "low")
    flow.hold(each_sql, "lost:1")
    flow.end(each_sql, flow.hold(each_sql, "owed"))
    for key, more in {"high": 4, "low": -1, "owed": 1}.items():
        each_sql("update limits set running = running + %s where key = %s", [more, key])
    each_sql("delete from limits where key = 'lost:1'")
    drift = [("high", 5, 1), ("lost:1", 0, 1), ("low", 0, 1), ("owed", 1, 0)]
    assert each_sql("select * from limit_drift") == drift
    assert each_sql("select * from limit_drift order by 1") == drift, "looking changes nothing"
    assert each_sql("select * from reconcile_limits() order by 1") == drift
    assert each_sql("select * from limit_drift") == []
    flow.fold(each_sql)
    assert each_sql("select * from limit_drift") == []
    running = dict(each_sql("select key, running from limits"))
    assert running == {"high": 1, "lost:1": 1, "low": 1, "owed": 0}
    assert in_force(each_sql, "lost:1") == {"concurrency": 3}


def test_a_repair_does_not_overwrite_what_a_claim_is_about_to_commit(dsn: str, sql: Sql) -> None:
    flow.hold(sql, "k")
    sql("update limits set running = 5")
    flow.wait(sql, "k")
    with core.session(dsn, autocommit=False) as claiming:
        core.claim_one(core.runner(claiming))
        sql("set lock_timeout = '1s'")
        assert sql("select * from reconcile_limits()") == [("k", 5, 1)], "it waits for no claim"
        claiming.commit()
    assert sql("select * from limit_drift") == []
    flow.fold(sql)
    assert sql("select running from limits") == [(2,)]
    assert sql("select * from limit_drift") == []


def test_two_repairs_at_once_do_not_repair_twice(dsn: str, sql: Sql) -> None:
    flow.hold(sql, "k")
    sql("update limits set running = 5")
    with core.session(dsn, autocommit=False) as other:
        assert core.runner(other)("select * from reconcile_limits()") == [("k", 5, 1)]
        with pytest.raises(LockNotAvailable, match="another repair of limit counts is running; try again"):
            sql("select reconcile_limits()")
        other.commit()
    assert sql("select * from reconcile_limits()") == []
    flow.fold(sql)
    assert sql("select running from limits") == [(1,)]


def test_a_repair_counts_what_has_ended_and_was_not_taken_up(sql: Sql) -> None:
    ended, _ = flow.hold(sql, "k"), flow.hold(sql, "k")
    sql("update limits set running = 7")
    flow.end(sql, ended)
    assert sql("select * from reconcile_limits()") == [("k", 6, 1)]
    assert sql("select running from limits") == [(7,)], "the next claim takes both into account"
    flow.fold(sql)
    assert sql("select running from limits") == [(1,)]
    assert sql("select * from limit_drift") == []


def test_reconciling_reads_no_backlog(sql: Sql) -> None:
    sql(
        "insert into live (id, task, keys, lane) select gen_random_uuid(), 't', '{k}', 7 from generate_series(1, 20000)"
    )
    flow.hold(sql, "k")
    before = rows_read(sql)
    assert sql("select * from reconcile_limits()") == []
    assert sql("select tenant, running from tenant_shares") == [(None, 1)]
    read = rows_read(sql) - before
    assert read < 100, f"{read:,} rows were read to reconcile one job"


@pytest.mark.parametrize("wrong", [{"rate": float("nan")}, {"rate": float("inf")}, {"concurrency": float("-inf")}])
def test_a_number_that_json_does_not_have_takes_no_limit_away(hf: Holdfast, wrong: dict[str, float]) -> None:
    hf.limits.set("k", concurrency=1, rate=5)
    with pytest.raises(UsageError, match="must be a number"):
        hf.limits.set("k", **wrong)  # type: ignore[arg-type]
    (info,) = hf.limits.list("k")
    assert (info.concurrency, info.rate) == (1, 5)


@pytest.mark.parametrize("length", [float("inf"), float("nan"), 1e18, 1e12, "x", True])
def test_a_pause_for_a_time_that_is_none_is_refused_in_words(hf: Holdfast, length: Any) -> None:
    with pytest.raises(UsageError, match="the length of a pause must be"):
        hf.limits.pause("k", for_=length)


def test_sql_refuses_a_pause_that_no_client_could_read(sql: Sql) -> None:
    with pytest.raises(InvalidParameterValue, match="100 years at most"):
        sql("select pause('k', p_for => '40000 years')")


@pytest.mark.parametrize("wrong", ["a\x00b", "\ud800", 5])
def test_a_key_that_cannot_be_stored_is_refused_in_words(hf: Holdfast, wrong: Any) -> None:
    for act in (hf.limits.pause, hf.limits.resume, hf.limits.clear, hf.limits.reset_breaker, hf.limits.list):
        with pytest.raises(UsageError, match="key"):
            act(wrong)
    with pytest.raises(UsageError, match="key"):
        hf.limits.set(wrong, concurrency=1)
    with pytest.raises(UsageError, match="reason"):
        hf.limits.pause("k", reason=wrong)
