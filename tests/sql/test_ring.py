"""The ring of lanes: tenants take turns, whatever else waits, and no job in it is ever overlooked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import flow, sql_flow
from tests.support import sql_core as core
from tests.support.flow import Sql, Taken
from tests.support.mutants import mutant
from tests.support.pace import slower

HOUR = 3600 * 1_000_000 << 10  # as tokens count


def put_for_tenants(sql: Sql, tenants: int, jobs: int, *, name: str = "t", queue: str = "default") -> None:
    sql(
        "insert into live (id, queue, task, tenant, lane) select gen_random_uuid(), %s, 't', t.name, t.lane "
        "from (select %s || n as name, lane_of(%s || n, null) as lane from generate_series(1, %s) n) t, "
        "generate_series(1, %s)",
        [queue, name, name, tenants, jobs],
    )


def claim_all(sql: Sql, **options: Any) -> list[flow.Taken]:
    found: list[flow.Taken] = []
    while some := flow.claim(sql, **options):
        found += some
    return found


def settle(sql: Sql, *, limit: int = 1) -> list[flow.Taken]:
    """Claim until all that has arrived is in the ring, and all lanes without room are closed."""
    found: list[flow.Taken] = []
    for _ in range(500):
        before = sql("select count(*) from lanes where closed_by is not null")
        found += flow.claim(sql, limit=limit)
        if before == sql("select count(*) from lanes where closed_by is not null") and not core.count(sql, "arrivals"):
            return found
    raise AssertionError("claims find lanes to close forever")


# -- turns


def test_forty_ticks_serve_each_of_two_thousand_tenants_equally(sql: Sql) -> None:
    put_for_tenants(sql, 2000, 4)
    flow.claim(sql, limit=1, queues=["elsewhere"])
    served: Counter[str | None] = Counter()
    for _ in range(40):
        jobs = flow.claim(sql, limit=100, free=100, per_tenant=25)
        assert len(jobs) == 100
        served.update(job.tenant for job in jobs)
        flow.end(sql, *jobs)
    assert len(served) == 2000
    assert set(served.values()) == {2}


def test_workers_serve_tenants_equally_but_for_one_turn(sql: Sql) -> None:
    """A worker's claim takes several jobs of each tenant that it visits."""
    put_for_tenants(sql, 100, 60)
    served: Counter[str | None] = Counter()
    for _ in range(50):
        jobs = flow.claim(sql, limit=100)
        served.update(job.tenant for job in jobs)
        flow.end(sql, *jobs)
    assert sum(served.values()) == 5000
    assert max(served.values()) - min(served[f"t{n}"] for n in range(1, 101)) <= 8


def test_one_job_of_a_tenant_is_not_behind_the_backlog_of_another(sql: Sql) -> None:
    flow.put(sql, tenant="large", number=5000)
    flow.put(sql, number=5000)
    settle(sql, limit=100)
    flow.put(sql, tenant="small")
    assert Counter(job.tenant for job in flow.claim(sql, limit=30))["small"] == 1


def test_plain_jobs_take_their_turn_with_tenants(sql: Sql) -> None:
    """Also those that come when there have been none for a while."""
    put_for_tenants(sql, 3, 200)
    flow.claim(sql, limit=9)
    move_on(sql, -HOUR, rings="front")
    sql("update flows set tag = tag - %s where flow = 0", [HOUR])
    flow.claim(sql, limit=9)  # moves the ring's front on, past the flow of plain jobs
    flow.put(sql, number=200)
    served = Counter(job.tenant for _ in range(4) for job in flow.claim(sql, limit=40))
    assert served == {None: 40, "t1": 40, "t2": 40, "t3": 40}


def test_a_new_tenant_is_served_by_the_next_claim_whatever_else_waits(sql: Sql) -> None:
    """Behind 6,000 keys without room, 1,500 paused tenants and a tenant of 3,000 lanes: more than one claim folds."""
    sql_flow.rule(sql, "k:{n}", concurrency=0)
    sql(
        "insert into live (id, task, lane, keys) select gen_random_uuid(), 't', lane_of(null, array['k:' || n]), "
        "array['k:' || n] from generate_series(1, 6000) n"
    )
    sql("select pause('tenant:p' || n) from generate_series(1, 1500) n")
    put_for_tenants(sql, 1500, 1, name="p")
    sql(
        "insert into live (id, task, tenant, lane, keys) select gen_random_uuid(), 't', 'wide', "
        "lane_of('wide', array['w:' || n]), array['w:' || n] from generate_series(1, 3000) n"
    )
    settle(sql)
    assert sql("select count(*) from lanes where closed_by is not null") == [(7_500,)]
    assert sql("select count(*) > 2500 from lanes where open") == [(True,)]
    for n in range(3):
        (new,) = flow.put(sql, tenant=f"new{n}")
        began = time.monotonic()
        assert new in {job.id for job in flow.claim(sql, limit=10)}
        assert time.monotonic() - began < 1.0 * slower()
        assert len(flow.claim(sql, limit=10)) == 10, "and other jobs go on"


def test_a_new_tenant_waits_for_few_claims_behind_what_is_not_in_the_ring_yet(sql: Sql) -> None:
    """One claim folds in a part of what has arrived; so do the next ones, and none of it is lost."""
    flow.put(sql, tenant="large", number=7000)
    (new,) = flow.put(sql, tenant="new")
    served = [{job.id for job in flow.claim(sql, limit=100)} for _ in range(5)]
    assert [len(some) for some in served] == [100] * 5
    assert new in set().union(*served)
    assert len(claim_all(sql, limit=500)) == 7001 - 500
    put_for_tenants(sql, 7000, 1)
    assert len({job.id for job in claim_all(sql, limit=500)}) == 7000


# -- rules


def test_a_rule_changed_over_fifty_thousand_keys_is_exact_for_the_next_claim(sql: Sql) -> None:
    sql_flow.rule(sql, "k:{n}", concurrency=1)
    sql(
        "insert into limits (key, template, version) select 'k:' || n, 'k:{n}', (select max(version) from limit_rules) "
        "from generate_series(1, 50000) n"
    )
    sql("analyze limits")
    for n in range(1, 21):
        flow.put(sql, keys=[f"k:{n}"], number=6)

    def change(concurrency: int) -> None:
        """Take the best of three: other programs use the machine too."""
        took = []
        for _ in range(3):
            began = time.monotonic()
            assert sql_flow.change(sql, "k:{n}", concurrency=concurrency) > 10_000
            took.append(time.monotonic() - began)
        assert min(took) < 0.1

    def by_key(jobs: list[flow.Taken]) -> dict[str, int]:
        return dict(Counter(job.keys[0] for job in jobs))

    each = {f"k:{n}": 1 for n in range(1, 21)}
    jobs = claim_all(sql, limit=100)
    assert by_key(jobs) == each
    change(3)
    jobs += (more := claim_all(sql, limit=100))
    assert by_key(more) == dict.fromkeys(each, 2)
    change(2)
    flow.end(sql, *jobs[:20])
    assert flow.claim(sql, limit=100) == [], "two of each still run"
    change(0)
    flow.end(sql, *jobs[20:])
    assert flow.claim(sql, limit=100) == []
    change(1)
    assert by_key(claim_all(sql, limit=100)) == each
    assert flow.drift(sql) == []


# -- nothing is overlooked


def late_commit(dsn: str, sql: Sql, schema: str = "holdfast") -> None:
    """Commit a job after claims have gone far beyond it, in a lane that they know and in one that they do not."""
    with core.session(dsn, schema, autocommit=False) as other:
        late = core.runner(other)
        ids = [*flow.put(late, tenant="known", age=60), *flow.put(late, tenant="unknown", keys=["k"], age=60)]
        for _ in range(3):
            flow.put(sql, tenant="known", number=600)  # so many that the fold moves on
            flow.end(sql, *claim_all(sql, limit=300))
        assert core.count(sql, "history") == 1800
        other.commit()
    assert {job.id for job in flow.claim(sql)} == set(ids)


def held_by_another(dsn: str, sql: Sql, schema: str = "holdfast") -> None:
    """Lock the only job of a lane in another transaction: the lane is not taken for empty."""
    (id_,) = flow.put(sql, tenant="a")
    with core.session(dsn, schema, autocommit=False) as other:
        other.execute("select 1 from live for update")
        for _ in range(3):
            assert flow.claim(sql) == []
        other.rollback()
    assert [job.id for job in flow.claim(sql)] == [id_]


def restored(dsn: str, sql: Sql, schema: str = "holdfast") -> None:
    """Restore tables from a server that was far ahead; transactions of this one have small numbers."""
    flow.limit(sql, "k", concurrency=1)
    waiting = flow.put(sql, tenant="a", keys=["k"], number=3)
    taken = claim_all(sql)
    for rest in (2, 1):  # with something that was not in the ring yet, and without
        if rest == 2:
            waiting += flow.put(sql, tenant="b")
            flow.end(sql, *taken)
        move_on(sql, 1_000_000_000, arrivals="xid", releases="xid", folds="from_xid")
        if rest == 1:
            waiting += flow.put(sql, tenant="c")
            flow.end(sql, *taken[-2:])
        taken += (found := claim_all(sql))
        assert len(found) == 2
    assert {job.id for job in taken} == set(waiting)
    assert flow.drift(sql) == []


def clock_back(dsn: str, sql: Sql, schema: str = "holdfast") -> None:
    """Set the ring an hour ahead of the tokens that are given out now."""
    put_for_tenants(sql, 5, 40)
    flow.claim(sql, limit=10)
    move_on(sql, HOUR, flows="tag", rings="front", lanes="closed_at", folds="token")
    for _ in range(3):
        assert len(flow.claim(sql, limit=40)) == 40
    (new,) = flow.put(sql, tenant="new")
    flow.put(sql, tenant="new", priority=1)
    served = flow.claim(sql, limit=20)
    assert new in {job.id for job in served}
    assert [job.priority for job in served].count(1) == 1
    assert len(claim_all(sql)) == 202 - 150
    flow.put(sql, tenant="t1")
    assert len(flow.claim(sql)) == 1, "a lane that was empty is open again"


def move_on(sql: Sql, by: int, **columns: str) -> None:
    """Add a number to a column of each table: a token, or the number of a transaction."""
    for table, name in columns.items():
        kind = "xid8" if name.endswith("xid") else "bigint"
        sql(f"update {table} set {name} = ({name}::text::bigint + %s)::text::{kind}", [by])


def capped(dsn: str, sql: Sql, schema: str) -> None:
    """A tenant gets no more than its cap in one claim, whatever room there is."""
    put_for_tenants(sql, 2, 20)
    rows = sql("select tenant from claim('w', p_limit => 30, p_per_tenant => 3)")
    assert Counter(tenant for (tenant,) in rows) == {"t1": 3, "t2": 3}


CHECKS: dict[str, Callable[[str, Sql, str], None]] = {
    "a late commit": late_commit,
    "a job that another transaction holds": held_by_another,
    "a restore": restored,
    "a clock that goes back": clock_back,
    "a cap": capped,
}
EMPTY = "limit 1) is null as empties"
FUTURE = (" and f.from_xid <= v_from", "")
MUTANTS: dict[str, tuple[str, dict[str, list[tuple[str, str]]]]] = {
    "open transactions are forgotten": (
        "a late commit",
        {"fold_arrivals": [("a.xid = any (v_fold.open_xids)", "false")]},
    ),
    "marks never go back": (
        "a late commit",
        {
            "fold_arrivals": [
                ("mark_at = least(l.mark_at, n.run_at)", "mark_at = l.mark_at"),
                ("(not n.waits or n.run_at <= n.mark_at)", "not n.waits"),
            ]
        },
    ),
    "what is locked is not there": (
        "a job that another transaction holds",
        {"claim_round": [(EMPTY, EMPTY.replace("is null", "is not false"))]},
    ),
    "tenants get more than their cap": (
        "a cap",
        {"claim_round": [("case when s.tenant is not null then p_claim", "case when false then p_claim")]},
    ),
    "folds are always right": ("a restore", {"fold_arrivals": [FUTURE]}),
    "folds of ends are always right": ("a restore", {"fold_releases": [FUTURE]}),
    "tags follow the clock": (
        "a clock that goes back",
        {"claim_ring": [("greatest(p_claim.token, v_front)", "p_claim.token")]},
    ),
}


@pytest.mark.parametrize("name", CHECKS)
def test_no_job_is_overlooked_after(each_dsn: str, each_sql: Sql, name: str) -> None:
    CHECKS[name](each_dsn, each_sql, "holdfast")


@pytest.mark.parametrize("name", MUTANTS)
def test_the_checks_go_red_where(dsn: str, name: str) -> None:
    check, changes = MUTANTS[name]
    with mutant(dsn, changes) as sql, pytest.raises(AssertionError):
        CHECKS[check](dsn, sql, "mutant")


def test_an_id_that_is_taken_for_a_delayed_job_brings_no_lane(sql: Sql) -> None:
    """It is in live for a moment, where no claim ever sees it."""
    core.put(sql, id="00000000-0000-7000-8000-000000000001", delay="1 hour")
    assert core.count(sql, "arrivals") == 0
    assert sql("select ring_has_work('{default}')") == [(False,)]


def test_the_limit_of_one_queue_is_no_matter_of_another(sql: Sql) -> None:
    """Its claims need no ring, and a delayed job that has just come due is found behind their cursor."""
    flow.limit(sql, "queue:limited", concurrency=1)
    id_ = core.put(sql, queue="mine", delay="1 hour")
    sql("update later set run_at = clock() - interval '1 second'")
    ((now,),) = sql("select date_part('epoch', clock())")
    after = {"mine/2": [now + 60, "00000000-0000-0000-0000-000000000000"]}
    assert [job.id for job in core.claim(sql, queues=["mine"], after=after)] == [id_]


# -- nothing is left behind


def test_a_lane_is_not_forgotten_when_the_plain_job_before_it_is_canceled(sql: Sql) -> None:
    flow.limit(sql, "queue:default", concurrency=1)
    (running,) = flow.put(sql)
    held = flow.claim(sql)
    assert [job.id for job in held] == [running]
    (plain,) = flow.put(sql)
    (waiting,) = flow.put(sql, tenant="acme")
    assert flow.claim(sql) == []  # closes both lanes under the queue's key
    sql("select cancel(array[%s]::uuid[])", [plain])
    flow.end(sql, *held)
    assert [job.id for job in flow.claim(sql)] == [waiting]


def test_lower_priorities_wait_while_a_ring_has_more_to_visit(sql: Sql) -> None:
    """The lane of a spent token is closed by a round that finds nothing: the other ring is visited all the same."""
    flow.limit(sql, "rate", rate=1, per=60, burst=1)
    flow.put(sql, keys=["rate"], number=5)
    flow.put(sql, tenant="acme", number=50)
    flow.put(sql, tenant="acme", number=50, priority=3)
    rows = sql("select priority, keys from claim('w', p_limit => 20, p_free => 20)")
    assert Counter(priority for priority, _ in rows) == {2: 20}
    assert sum(keys is not None for _, keys in rows) == 1


# -- claims that find many jobs


def lanes_of(sql: Sql) -> dict[str, int]:
    """Return how many lanes are open, and how many limits have closed."""
    found = sql("select count(*) filter (where open), count(*) filter (where closed_by is not null) from lanes")
    return dict(zip(("open", "closed"), found[0], strict=True))


def claim_many(sql: Sql, limit: int = 1000) -> tuple[list[flow.Taken], bool]:
    """Claim as a worker; return the jobs, and whether it is to claim again at once."""
    rows = sql(
        "select id, token, tenant, queue, task, priority, attempt, keys, info from claim('w', p_limit => %s, "
        "p_free => %s)",
        [limit, limit],
    )
    return [Taken(*row[:7], tuple(row[7] or ())) for row in rows if row[0] is not None], rows[0][-1]["more"]


def test_a_claim_of_many_jobs_leaves_lanes_at_their_limit_open_and_the_next_one_closes_them(sql: Sql) -> None:
    for n in range(60):
        flow.limit(sql, f"k{n}", concurrency=2)
        flow.put(sql, tenant=f"t{n}", keys=[f"k{n}"], number=6)
    first, more = claim_many(sql)
    assert (len(first), more) == (120, True)
    assert lanes_of(sql) == {"open": 60, "closed": 0}
    flow.end(sql, *first)
    second, more = claim_many(sql)
    assert (len(second), more) == (120, True) and flow.drift(sql) == []
    none, more = claim_many(sql)  # nothing has ended meanwhile
    assert none == [] and lanes_of(sql) == {"open": 0, "closed": 60}
    assert sql(flow.ABOVE) == []
    flow.end(sql, *second)
    third, _ = claim_many(sql)
    assert len(third) == 120 and flow.drift(sql) == []


def test_an_end_wakes_a_worker_that_sleeps_after_a_claim_of_many_jobs(sql: Sql) -> None:
    """A worker claims until nothing is left to claim at once. Then all lanes without room are closed, so the end of one
    of their jobs wakes it."""
    for n in range(60):
        flow.limit(sql, f"k{n}", concurrency=2)
        flow.put(sql, tenant=f"t{n}", keys=[f"k{n}"], number=6)
    jobs, more = claim_many(sql)
    while more:
        some, more = claim_many(sql)
        jobs += some
    sql("select sleep('w', '{default}')")
    assert lanes_of(sql)["open"] == 0 and len(jobs) == 120
    flow.end(sql, jobs[0])
    assert len(claim_many(sql)[0]) == 1


def test_a_claim_of_many_jobs_still_fills_its_room_from_lower_priorities_and_other_queues(sql: Sql) -> None:
    for n in range(60):
        flow.limit(sql, f"k{n}", concurrency=2)
        flow.put(sql, tenant=f"t{n}", keys=[f"k{n}"], number=6)
    flow.put(sql, priority=3, number=50)
    flow.put(sql, queue="other", priority=3, number=50)
    rows = sql("select queue, priority from claim('w', '{default,other}', 200, p_free => 200)")
    assert Counter(rows) == {("default", 2): 120, ("default", 3): 50, ("other", 3): 30}


def test_a_claim_of_many_jobs_gives_a_tenant_what_the_limits_of_other_tenants_leave(sql: Sql) -> None:
    """One with jobs left and no limit of its own takes all of the room, before lower priorities."""
    for n in range(60):
        flow.limit(sql, f"k{n}", concurrency=2)
        flow.put(sql, tenant=f"t{n}", keys=[f"k{n}"], number=6)
    flow.put(sql, tenant="big", number=500)
    flow.put(sql, priority=3, number=50)
    found = Counter((job.tenant == "big", job.priority) for job in claim_many(sql, 400)[0])
    assert found == {(True, 2): 280, (False, 2): 120}


def test_lanes_that_share_a_key_use_all_of_its_room_in_a_claim_of_many_jobs(sql: Sql) -> None:
    flow.limit(sql, "shared", concurrency=150)
    for n in range(30):
        flow.put(sql, tenant=f"t{n}", keys=["shared"], number=1 if n else 400)
    jobs = flow.claim_on(sql, limit=1000)
    while more := flow.claim_on(sql, limit=1000):
        jobs += more
    assert len(jobs) == 150 and sql(flow.ABOVE) == []


def test_a_claim_of_many_jobs_gives_a_shared_key_all_of_its_room_before_lower_priorities(sql: Sql) -> None:
    """A lane asks for more of a shared key than it takes, so that the next one seems to have no room."""
    flow.limit(sql, "shared", concurrency=140)
    for tenant in ("x", "y"):
        flow.put(sql, tenant=tenant, keys=["shared"], number=100)
    flow.put(sql, priority=3, number=500)
    first, more = claim_many(sql, 300)
    assert (Counter(job.priority for job in first), more) == ({2: 140}, True) and sql(flow.ABOVE) == []
    assert Counter(job.priority for job in claim_many(sql, 160)[0]) == {3: 160}
