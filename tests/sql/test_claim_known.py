"""The shorter way to claim jobs from known lanes: what it takes, what it tells, and when claim_lanes has to do it."""

from __future__ import annotations

import json
import uuid
from typing import Any

import flow
import pytest
import sql_core as core
from sql_core import Sql

ZERO = "00000000-0000-0000-0000-000000000000"


def known(sql: Sql, *keys: str, room: int = 10, **more: Any) -> dict[str, Any]:
    """claim_known() over the lanes of these keys, each from its beginning."""
    lanes = [sql("select lane_of(null, %s)", [[key]])[0][0] for key in keys]
    hint = {"lanes": "{" + ",".join(map(str, lanes)) + "}", "at": "{" + ",".join(["-infinity"] * len(lanes)) + "}",
            "ids": "{" + ",".join([ZERO] * len(lanes)) + "}", **more}  # fmt: skip
    ((found,),) = sql("select to_jsonb(c) from claim_known('default', 2, %s::jsonb, %s) c", [json.dumps(hint), room])
    return {**found, "lanes": dict(zip(keys, lanes, strict=True))}


def put(sql: Sql, *keys: str, number: int = 1) -> list[uuid.UUID]:
    return flow.put(sql, keys=keys, number=number)


def test_it_takes_what_the_limits_let_start_and_counts_it(sql: Sql) -> None:
    for key in "ab":
        flow.limit(sql, key, concurrency=2)
        put(sql, key, number=5)
    found = known(sql, "a", "b")
    assert found["fits"]
    assert len(found["ids"]) == len(found["places"]) == 4
    assert sql("select key, running from limits order by key") == [("a", 2), ("b", 2)]


@pytest.mark.parametrize(("free", "locked"), [(2, 2), (1, 1), (0, 1)])
def test_of_a_key_that_it_is_told_it_locks_no_more_jobs_than_have_room(
    dsn: str, sql: Sql, free: int, locked: int
) -> None:
    """One it locks always, to tell by that there is no room; all that are locked in vain are dear."""
    flow.limit(sql, "a", concurrency=2)
    put(sql, "a", number=2 - free)
    flow.claim(sql, limit=2 - free) if free < 2 else None
    ids = put(sql, "a", number=5)
    with core.session(dsn, autocommit=False) as other:
        found = known(core.runner(other), "a", keys=["a"])
        assert found["fits"] and len(found["ids"] or ()) == free
        assert "closed" not in found["info"] or not free
        left = sql("select id from live where id = any (%s) for update skip locked", [ids])
    assert len(left) == 5 - locked


@pytest.mark.parametrize("keys", [["b"], [None], [], ["nobody's"]])
def test_a_key_that_it_is_told_wrongly_changes_nothing_of_what_is_right(sql: Sql, keys: list[str | None]) -> None:
    flow.limit(sql, "a", concurrency=2)
    flow.limit(sql, "b", concurrency=1)
    put(sql, "a", number=5)
    found = known(sql, "a", keys=keys)
    assert found["fits"] and 1 <= len(found["ids"]) <= 2
    assert sql("select running from limits where key = 'a'") == [(len(found["ids"]),)]


def test_it_tells_of_lanes_that_are_empty_or_shut(sql: Sql) -> None:
    for key in ("empty", "full", "free"):
        flow.limit(sql, key, concurrency=1)
    put(sql, "full")
    core.claim_one(sql)
    put(sql, "full")
    put(sql, "free")
    found = known(sql, "empty", "full", "free")
    lanes = found["lanes"]
    assert len(found["ids"]) == 1
    assert found["info"]["empty"] == [lanes["empty"]]
    assert found["info"]["closed"] == [[lanes["full"], "full", None, None]]


@pytest.mark.parametrize("waiting", [True, False])
def test_a_lane_that_a_tenants_part_did_not_reach_is_not_told_empty(sql: Sql, waiting: bool) -> None:
    """Of fifteen lanes of one tenant and one of another, a claim of four comes to some only."""
    owned = [("many", f"k{n}") for n in range(15)] + [("few", "k")]
    lanes = [sql("select lane_of(%s, %s)", [tenant, [key]])[0][0] for tenant, key in owned]
    for tenant, key in owned:
        flow.limit(sql, key, concurrency=1)
        if waiting:
            flow.put(sql, tenant=tenant, keys=[key])
    hint = {"lanes": "{" + ",".join(map(str, lanes)) + "}", "at": "{" + ",".join(["-infinity"] * 16) + "}",
            "ids": "{" + ",".join([ZERO] * 16) + "}"}  # fmt: skip
    ((found,),) = sql("select to_jsonb(c) from claim_known('default', 2, %s::jsonb, 4) c", [json.dumps(hint)])
    assert found["fits"]
    told = set(found["info"].get("empty") or ())
    if waiting:
        assert not told and found["ids"]
    else:
        assert 0 < len(told) < len(lanes), "it cannot know of those that it did not visit"


def test_nobody_waits_for_a_limit_that_somebody_has(dsn: str, sql: Sql) -> None:
    for key in ("held", "free"):
        flow.limit(sql, key, concurrency=1)
        put(sql, key)
    with core.session(dsn, autocommit=False) as other:
        other.execute("select 1 from limits where key = 'held' for update")
        found = known(sql, "held", "free")
    assert found["fits"]
    assert len(found["ids"]) == 1
    assert found["info"]["contention"] == 1


def test_what_is_owed_to_a_limit_is_taken_into_account(sql: Sql) -> None:
    flow.limit(sql, "a", concurrency=1)
    put(sql, "a", number=2)
    first = flow.claim(sql, limit=1)[0]
    sql("delete from live where id = %s", [first.id])
    sql("insert into limit_owed (key, ids, well, ill) values ('a', %s, '{}', '{}')", [[first.id]])
    assert len(known(sql, "a")["ids"]) == 1
    assert sql("select running from limits") == [(1,)]


def test_the_lane_whose_turn_was_cut_short_is_named(sql: Sql) -> None:
    for key in "abc":
        flow.limit(sql, key)
        put(sql, key, number=5)
    found = known(sql, "a", "b", "c", room=5)
    assert found["info"]["cut"] == [found["lanes"]["c"], 1]
    assert len(known(sql, "c", "a", room=4, first=1)["ids"]) == 3


def test_jobs_without_limits_need_no_room(sql: Sql) -> None:
    flow.put(sql, tenant="acme", number=3)
    ((lane,),) = sql("select lane_of('acme', null)")
    hint = json.dumps({"lanes": f"{{{lane}}}", "at": "{-infinity}", "ids": f"{{{ZERO}}}"})
    ((fits, number),) = sql("select fits, cardinality(ids) from claim_known('default', 2, %s::jsonb, 10)", [hint])
    assert (fits, number) == (True, 3)


@pytest.mark.parametrize(
    "setup",
    [
        lambda sql: put(sql, "a", "b"),
        lambda sql: put(sql, "new"),
        lambda sql: (flow.limit(sql, "a", rate=5, per=1, burst=1), put(sql, "a")),
        lambda sql: (flow.limit(sql, "a", breaker_after=5, breaker_pause=1, breaker_cap=1), put(sql, "a")),
        lambda sql: (flow.pause(sql, "a"), put(sql, "a")),
        lambda sql: (flow.limit(sql, "tenant:x", concurrency=1), put(sql, "a")),
        lambda sql: (flow.limit(sql, "order:a"), put(sql, "order:a")),
    ],
    ids=["two limits", "a new key", "a rate", "a breaker", "a pause", "a limit of a tenant", "an order"],
)
def test_what_needs_more_is_left_to_the_longer_way_and_nothing_is_counted(sql: Sql, setup: Any) -> None:
    setup(sql)
    keys = sql("select keys from live")[0][0]
    lane = sql("select lane from live")[0][0]
    hint = json.dumps({"lanes": f"{{{lane}}}", "at": "{-infinity}", "ids": f"{{{ZERO}}}"})
    assert sql("select fits from claim_known('default', 2, %s::jsonb, 10)", [hint]) == [(False,)], keys
    assert sql("select coalesce(sum(running), 0) from limits") == [(0,)]


def test_a_worker_that_knows_its_lanes_claims_the_same_as_one_that_does_not(sql: Sql) -> None:
    from holdfast.worker.lanes import Lanes

    for key in "abcdef":
        flow.limit(sql, key, concurrency=2)
        put(sql, key, number=20)
    lanes, done = Lanes(["default"]), 0
    for _ in range(200):
        jobs = flow.claim_known(sql, lanes, limit=7)
        assert flow.drift(sql) == []
        flow.end(sql, *jobs)
        done += len(jobs)
        if done == 120:
            break
    assert done == 120
    assert any(ring.known for ring in lanes._rings.values()), "the shorter way was never taken"
