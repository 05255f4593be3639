"""Upkeep: reclaim, promote, the lead, wake-ups."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import timedelta

import psycopg
import pytest

from holdfast import Retry
from tests.conftest import wait_until
from tests.support import sql_core as core
from tests.support.pace import slower
from tests.support.sql_clock import Clock, clock_fixture, each_clock_fixture  # noqa: F401 - fixtures
from tests.support.sql_core import Sql

DAY = 86_400


# -- reclaim


def test_a_lost_job_comes_back_at_once_with_its_attempt_counted(each_sql: Sql, each_clock: Clock) -> None:
    id_ = core.put(each_sql, retry=Retry.fixed(100).as_json())
    job = core.claim_one(each_sql, "gone", ttl=60)
    each_clock.advance(59)
    assert core.reclaim(each_sql) == []
    expired_at = each_clock.advance(1)
    assert core.reclaim(each_sql) == [(job.token, "gone", expired_at, [id_])]
    result = core.look(each_sql, id_)
    assert (result.status, result.attempts, result.token, result.locked_by) == ("retrying", 1, None, None)
    assert core.claim_one(each_sql, "next").attempt == 2


def test_the_error_of_a_lost_job_names_the_prior_worker(sql: Sql) -> None:
    id_ = core.put(sql)
    core.claim_one(sql, "host-7:1234")
    core.lose(sql)
    error = core.look(sql, id_).last_error
    assert (error["type"], error["code"]) == ("LeaseLost", "LEASE_LOST")
    assert "host-7:1234" in error["message"]


def test_a_job_lost_more_than_once_waits_a_random_share_of_its_delay(sql: Sql, clock: Clock) -> None:
    ids = {core.put(sql, retry=Retry.fixed(1000).as_json()) for _ in range(12)}
    core.claim(sql, limit=50)
    core.lose(sql)
    assert {j.id for j in core.claim(sql, limit=50)} == ids
    core.lose(sql)
    waits = {core.look(sql, id_).run_at - clock.now for id_ in ids}
    assert len(waits) == 12, "jobs claimed together must not come back together"
    assert all(timedelta(0) < wait < timedelta(seconds=1000) for wait in waits)


def test_a_lost_job_without_attempts_left_is_dead_and_names_its_worker(sql: Sql, clock: Clock) -> None:
    id_ = core.put(sql, max_attempts=1, dedupe_key="k")
    core.claim_one(sql, "gone")
    clock.advance(60)
    ((_, _, _, ids),) = core.reclaim(sql)
    assert ids == [id_]
    job = core.look(sql, id_)
    assert (job.status, job.attempts, job.locked_by, job.finished_at) == ("dead", 1, "gone", clock.now)
    assert job.started_at == clock.start
    assert core.count(sql, "dedupe") == 0


def test_reclaim_takes_whole_claims_and_leaves_those_that_live(sql: Sql, clock: Clock) -> None:
    for _ in range(6):
        core.put(sql)
    short, long = core.claim(sql, "short", 3, ttl=10), core.claim(sql, "long", 3, ttl=1000)
    core.finish(sql, short[0])
    clock.advance(10)
    ((token, worker, _, ids),) = core.reclaim(sql)
    assert (token, worker, sorted(ids)) == (short[0].token, "short", sorted(j.id for j in short[1:]))
    assert [core.status(sql, j.id) for j in long] == ["running"] * 3
    assert sql("select worker from claims") == [("long",)]


def test_reclaim_takes_the_oldest_claims_first_and_no_more_than_its_limit(sql: Sql) -> None:
    tokens = []
    for _ in range(5):
        core.put(sql)
        tokens.append(core.claim_one(sql).token)
    core.expire(sql)
    assert core.firsts(sql("select token from reclaim(2)")) == tokens[:2]
    assert core.firsts(sql("select token from reclaim()")) == tokens[2:]
    assert core.reclaim(sql) == []


def test_two_reclaims_at_once_share_the_work(dsn: str, sql: Sql) -> None:
    for _ in range(4):
        core.put(sql)
        core.claim_one(sql)
    core.expire(sql)
    with core.session(dsn, autocommit=False) as one, core.session(dsn, autocommit=False) as two:
        first = core.firsts(core.runner(one)("select token from reclaim(2)"))
        second = core.firsts(core.runner(two)("select token from reclaim(9)"))
        one.commit()
        two.commit()
    assert len(first) == 2
    assert len(second) == 2
    assert set(first).isdisjoint(second)
    assert sql("select distinct status::text, attempts from jobs") == [("retrying", 1)]


@pytest.mark.parametrize("counts", [False, True], ids=["by hand", "as a worker"])
def test_a_finish_under_way_and_a_reclaim_agree_on_one_end(dsn: str, sql: Sql, counts: bool) -> None:
    """The worker's finish came first but has not committed: reclaim waits or steps aside, and the success stands."""
    id_ = core.put(sql)
    job = core.claim_one(sql)
    core.expire(sql)
    with core.session(dsn, autocommit=False) as worker, core.session(dsn) as leader:
        closed = [job.token] if counts else None
        refused = worker.execute("select finish(%s, %s, null, %s)", [[job.id], [job.token], closed]).fetchall()
        assert refused == []
        done = threading.Thread(target=lambda: core.reclaim(core.runner(leader)))
        done.start()
        wait_until(
            lambda: (
                not done.is_alive()
                or sql(
                    "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'",
                    [leader.info.backend_pid],
                )
            )
        )
        worker.commit()
        done.join()
    assert core.status(sql, id_) == "succeeded"
    core.reclaim(sql)
    assert core.count(sql, "claims") == 0
    assert core.count(sql, "jobs") == 1


def test_a_finish_that_meets_a_reclaim_under_way_is_refused(dsn: str, sql: Sql) -> None:
    id_ = core.put(sql)
    job = core.claim_one(sql)
    core.expire(sql)
    results: list[list[uuid.UUID]] = []
    with core.session(dsn, autocommit=False) as leader, core.session(dsn) as worker:
        assert len(core.reclaim(core.runner(leader))) == 1
        late = threading.Thread(target=lambda: results.append(core.finish(core.runner(worker), job)))
        late.start()
        wait_until(
            lambda: sql(
                "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'", [worker.info.backend_pid]
            )
        )
        leader.commit()
        late.join()
    assert results == [[id_]]
    assert core.status(sql, id_) == "retrying"


def test_stuck_jobs_are_those_whose_lease_ran_out(sql: Sql, clock: Clock) -> None:
    stuck = core.put(sql)
    core.claim_one(sql, "gone", ttl=10)
    core.put(sql)
    core.claim_one(sql, "here", ttl=1000)
    clock.advance(11)
    rows = sql("select id, locked_by, attempts, time_since_heartbeat from stuck_jobs")
    assert rows == [(stuck, "gone", 1, timedelta(seconds=11))]
    core.reclaim(sql)
    assert core.count(sql, "stuck_jobs") == 0


# -- promote


def test_promote_moves_due_jobs_earliest_first_in_batches(each_sql: Sql, each_clock: Clock) -> None:
    ids = [core.put(each_sql, delay=f"{seconds} seconds", priority=seconds % 4) for seconds in (30, 10, 20, 40, 50)]
    assert core.promote(each_sql) == []
    each_clock.advance(40)
    assert core.promote(each_sql, 2) == [ids[1], ids[2]]
    assert sorted(core.promote(each_sql)) == sorted([ids[0], ids[3]])
    assert core.promote(each_sql) == []
    assert core.place(each_sql, ids[4]) == "later"
    assert core.firsts(each_sql("select id from live order by run_at")) == [ids[1], ids[2], ids[0], ids[3]]


def test_a_promoted_job_is_the_same_job(sql: Sql, clock: Clock) -> None:
    id_ = core.put(
        sql,
        "app.mail",
        delay="5 seconds",
        queue="mail",
        tenant="acme",
        priority=1,
        payload={"a": [1, "ü"]},
        max_attempts=4,
        dedupe_key="k",
        retry={"kind": "fixed", "delay": 3},
    )
    core.put(sql)
    before = core.look(sql, id_)
    clock.advance(5)
    core.promote(sql)
    assert core.look(sql, id_) == before._replace(place="live")
    assert sql("select retry from live where id = %s", [id_]) == [({"kind": "fixed", "delay": 3},)]


def test_two_promotes_at_once_share_the_work(dsn: str, sql: Sql, clock: Clock) -> None:
    ids = {core.put(sql, delay="1 second") for _ in range(6)}
    clock.advance(1)
    with core.session(dsn, autocommit=False) as one, core.session(dsn, autocommit=False) as two:
        first, second = core.promote(core.runner(one), 3), core.promote(core.runner(two), 9)
        one.commit()
        two.commit()
    assert set(first) | set(second) == ids
    assert len(first) == len(second) == 3


# -- the lead


def lead(sql: Sql, worker: str, ttl: int = 10, chore: str = "upkeep") -> int | None:
    return sql("select take_lead(%s, %s, make_interval(secs => %s))", [chore, worker, ttl])[0][0]


def test_one_worker_leads_until_its_time_is_up(each_sql: Sql, each_clock: Clock) -> None:
    assert lead(each_sql, "ada") == 1
    assert lead(each_sql, "bob") is None
    each_clock.advance(9)
    assert lead(each_sql, "ada") == 1  # kept, not taken again
    each_clock.advance(9)
    assert lead(each_sql, "bob") is None
    each_clock.advance(1)
    assert lead(each_sql, "bob") == 2
    assert lead(each_sql, "ada") is None


def test_a_leader_that_was_away_too_long_begins_a_new_term(sql: Sql, clock: Clock) -> None:
    assert lead(sql, "ada") == 1
    clock.advance(10)
    assert lead(sql, "ada") == 2


def test_terms_only_grow(sql: Sql, clock: Clock) -> None:
    terms = []
    for turn in range(6):
        terms.append(lead(sql, ("ada", "bob")[turn % 2]))
        clock.advance(11)
    assert terms == [1, 2, 3, 4, 5, 6]


def test_a_worker_that_leaves_gives_up_the_lead(sql: Sql) -> None:
    assert lead(sql, "ada", 1000) == 1
    sql("select unregister_worker('ada', false)")
    assert lead(sql, "bob") is None
    sql("select unregister_worker('ada')")
    assert lead(sql, "bob") == 2


def test_each_chore_has_a_leader_of_its_own(sql: Sql) -> None:
    assert lead(sql, "ada", chore="one") == 1
    assert lead(sql, "bob", chore="two") == 1


def test_of_racing_workers_one_leads(dsn: str, sql: Sql) -> None:
    terms: list[int | None] = []
    start = threading.Barrier(6)

    def work(name: str) -> None:
        with core.session(dsn) as conn:
            start.wait(40)
            terms.append(lead(core.runner(conn), name))

    threads = [threading.Thread(target=work, args=[f"w{n}"]) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(terms, key=str) == [1, *[None] * 5]


def test_only_the_leader_promotes_and_reclaims(sql: Sql, clock: Clock) -> None:
    lost, late = core.put(sql), core.put(sql, delay="30 seconds")
    core.claim_one(sql, "gone", ttl=10)
    clock.advance(30)
    assert lead(sql, "ada", 30) == 1
    assert sql("select term, promoted, reclaimed from upkeep('bob', '10 seconds')") == [(None, 0, [])]
    assert (core.status(sql, lost), core.place(sql, late)) == ("running", "later")
    assert sql("select term, promoted, reclaimed from upkeep('ada', '10 seconds')") == [
        (1, 1, [{"worker": "gone", "jobs": 1}])
    ]
    assert (core.status(sql, lost), core.place(sql, late)) == ("retrying", "live")


def test_a_lease_is_renewed_while_a_handlers_transaction_that_has_finished_its_job_is_not_committed(
    each_dsn: str, each_sql: Sql
) -> None:
    """The event loop may be held up just there. Renewals come from a thread, and must not wait for it."""
    core.put(each_sql)
    core.put(each_sql)
    first, second = core.claim(each_sql, "w")
    with core.session(each_dsn, autocommit=False) as handler:
        handler.execute("select finish(array[%s::uuid], array[%s::bigint], null, '{}')", [first.id, first.token])
        each_sql("set lock_timeout = '1 s'")
        assert core.renew(each_sql, "w", second.token) == [second.token]
        core.expire(each_sql)
        assert [lost[3] for lost in core.reclaim(each_sql)] == [[second.id]], "the handler's own job stays with it"
        handler.commit()
    assert [lost[3] for lost in core.reclaim(each_sql)] == [[]], "the claim is closed"
    assert core.status(each_sql, first.id) == "succeeded"


# -- wake-ups


def test_enqueue_wakes_a_sleeper_and_sends_nothing_when_no_worker_sleeps(dsn: str, sql: Sql) -> None:
    with core.session(dsn) as listener:
        listener.execute("listen holdfast_wake")
        core.put(sql)
        sql("select sleep('ada', '{default}')")
        core.put(sql, queue="mail")
        core.put(sql)
        core.put(sql, delay="1 hour")
        payloads = [n.payload for n in listener.notifies(timeout=40, stop_after=2)]
        assert payloads == ["ada", "ada"]  # the due one, and the delayed one: it is now the next to come due
        core.put(sql, delay="2 hours")
        assert list(listener.notifies(timeout=0.1)) == []


def test_a_claim_that_woke_up_is_no_sleeper_any_more(sql: Sql) -> None:
    assert sql("select sleep('ada', '{default,mail}')") == [(None,)]
    assert core.count(sql, "sleepers") == 2
    assert core.claim(sql, "ada", asleep=True) == []
    assert core.count(sql, "sleepers") == 2  # nothing found: it sleeps on
    core.put(sql)
    core.claim(sql, "ada", asleep=True)
    assert core.count(sql, "sleepers") == 0


def test_sleep_says_when_the_next_delayed_job_is_due(sql: Sql, clock: Clock) -> None:
    core.put(sql, delay="90 seconds")
    core.put(sql, delay="30 seconds")
    assert sql("select sleep('ada', '{default}')") == [(30.0,)]
    clock.advance(31)
    assert sql("select sleep('ada', '{default}')") == [(-1.0,)]


# -- one bad row must not stop the fleet


def test_an_id_in_two_tables_stops_neither_claims_nor_upkeep(sql: Sql) -> None:
    """The enqueue role could make one: a delayed job, and the same id copied into live on a queue without workers."""
    twice = core.put(sql, delay="1 hour")
    sql("insert into live (id, queue, task) values (%s, 'unserved', 't')", [twice])
    sql("update later set run_at = now() - interval '1 second'")
    healthy = core.put(sql)
    assert [job.id for job in core.claim(sql)] == [healthy]
    assert sql("select term is not null from upkeep('w', '10 seconds')") == [(True,)]
    assert core.count(sql, "later") == 0


def test_a_claim_that_cannot_be_reclaimed_keeps_no_other_from_it(sql: Sql) -> None:
    core.put(sql)
    core.put(sql)
    bad, good = core.claim_one(sql), core.claim_one(sql)
    sql("alter table later add constraint refuses check (task <> 'refused')")
    sql("alter table dead add constraint refuses check (task <> 'refused')")
    try:
        sql("update live set task = 'refused', attempt = max_attempts where id = %s", [bad.id])
        sql("update claims set expires_at = now() - interval '1 second'")
        assert [row[0] for row in sql("select token from reclaim()")] == [good.token]
        assert core.look(sql, good.id).status == "retrying"
        assert core.look(sql, bad.id).status == "running"
    finally:
        sql("alter table later drop constraint refuses")
        sql("alter table dead drop constraint refuses")


def test_an_id_of_ones_own_needs_a_snapshot_that_sees_what_became_of_it(dsn: str, sql: Sql) -> None:
    with core.session(dsn, autocommit=False) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="repeatable read"):
            conn.execute("select enqueue('t', p_id => gen_random_uuid())")
        conn.rollback()
        conn.execute("select enqueue('t')")
        conn.commit()
    assert core.count(sql, "live") == 1


def test_a_round_of_upkeep_is_cheap_on_every_server(each_sql: Sql) -> None:
    """Compiled by jit, as PostgreSQL 15 did once, it took 165 ms every two seconds."""

    def once() -> float:
        began = time.perf_counter()
        each_sql("select term from upkeep('w', '1 minute')")
        return time.perf_counter() - began

    assert min(once() for _ in range(10)) < 0.05 * slower()


# -- sleepers whose worker is gone


def asleep(sql: Sql) -> list[str]:
    return core.firsts(sql("select worker from sleepers order by 1"))


def test_a_sleeper_is_forgotten_when_its_connection_is_gone(each_dsn: str, each_sql: Sql) -> None:
    with core.session(each_dsn) as alive:
        core.runner(alive)("select sleep('alive', '{default}')")
        with core.session(each_dsn) as killed:
            core.runner(killed)("select sleep('killed', '{default}')")
        each_sql("select * from upkeep('leads', '10 seconds')")
        wait_until(lambda: each_sql("select * from upkeep('leads', '10 seconds')") and asleep(each_sql) == ["alive"])


def test_a_connection_that_a_pooler_gave_to_another_client_is_not_the_sleepers(dsn: str, sql: Sql) -> None:
    with core.session(dsn) as pooled:
        run = core.runner(pooled)
        run("set application_name = 'holdfast w claim'")
        run("select sleep('w', '{default}')")
        sql("select forget_sleepers()")
        assert asleep(sql) == ["w"]
        run("discard all")  # as PgBouncer does between two clients
        sql("select forget_sleepers()")
        assert asleep(sql) == []


def test_a_worker_that_has_connected_anew_sleeps_on_its_new_connection(dsn: str, sql: Sql) -> None:
    with core.session(dsn) as first, core.session(dsn) as second:
        core.runner(first)("select sleep('w', '{default,mail}')")
        before = sql("select queue, ctid, backend from sleepers order by 1")
        core.runner(first)("select sleep('w', '{default,mail}')")
        assert sql("select queue, ctid, backend from sleepers order by 1") == before, "nothing was written"
        core.runner(second)("select sleep('w', '{default,mail}')")
        assert {row[0] for row in sql("select backend from sleepers")} == {second.info.backend_pid}


def test_when_the_leader_is_late_other_workers_remove_dead_sleepers(sql: Sql, clock: Clock) -> None:
    sql("insert into sleepers (queue, worker, backend) values ('default', 'gone', -1)")
    sql("insert into leader values ('upkeep', 'leads', 1, clock() + interval '6 seconds')")
    assert sql("select term from upkeep('other', '6 seconds')") == [(None,)]
    assert asleep(sql) == ["gone"], "the leader has just looked"
    clock.advance(2.1)
    assert sql("select term from upkeep('other', '6 seconds')") == [(None,)]
    assert asleep(sql) == []


def test_upkeep_says_whether_it_knows_who_calls(sql: Sql) -> None:
    assert sql("select known, asleep from upkeep('w', '10 seconds')") == [(False, False)]
    sql("select register_worker('w', 'h', 1, '1', '{default}', 1, '[]'), sleep('w', '{default}')")
    assert sql("select known, asleep from upkeep('w', '10 seconds')") == [(True, True)]


# -- jobs whose claim is gone


def test_a_job_whose_claim_was_closed_too_early_is_taken_back(each_sql: Sql) -> None:
    left = [core.put(each_sql, keys=["k"]), core.put(each_sql)]
    held = core.put(each_sql)
    core.claim(each_sql)
    each_sql("delete from claims")
    core.put(each_sql, queue="held")
    (running,) = core.claim(each_sql, queues=("held",))
    each_sql("update live set token = %s where id = %s", [running.token, held])
    assert each_sql("select reclaimed from upkeep('w', '10 seconds')") == [([{"jobs": 2, "worker": None}],)]
    assert [core.status(each_sql, job) for job in left] == ["retrying", "retrying"]
    assert core.look(each_sql, left[0]).last_error["code"] == "LEASE_LOST"
    assert each_sql("select running from limits where key = 'k'") == [(0,)]
    assert core.status(each_sql, held) == "running"


def test_a_search_for_jobs_without_a_claim_reads_a_fixed_number_of_pages_and_finds_them_in_time(sql: Sql) -> None:
    sql("insert into live (id, task) select uuid7(), 't' from generate_series(1, 3000)")
    core.claim(sql)
    sql("delete from claims")
    pages = sql("select pg_relation_size('live') / 8192")[0][0]
    found = 0
    for _ in range(40 * pages):  # by chance: 1 in (pages / 4) each time
        found += len(sql("select reclaim_orphans(4)"))
        if found == 10:
            return
    raise AssertionError(f"{found} of 10 found")


# -- a leader row that another transaction holds


def test_a_lead_that_another_transaction_holds_is_had_once_it_has_run_out_twice_over(
    dsn: str, sql: Sql, clock: Clock
) -> None:
    sql("select take_lead('upkeep', 'first', '10 seconds')")
    with core.session(dsn, autocommit=False) as other:
        core.runner(other)("select take_lead('upkeep', 'first', '10 seconds')")
        clock.advance(11)
        assert sql("select take_lead('upkeep', 'second', '10 seconds')") == [(None,)]
        clock.advance(10)
        assert sql("select take_lead('upkeep', 'second', '10 seconds')") == [(2,)]
        other.rollback()
    assert sql("select take_lead('upkeep', 'second', '10 seconds')") == [(2,)]
