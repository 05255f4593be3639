"""Fencing: a worker that lost its lease can change nothing, and a job that is lost every time ends.

The checks are functions over a schema, so that the last tests can prove them on mutants: schemas whose functions have
lost a predicate. A check that passes there proves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from tests.support import sql_core as core
from tests.support.mutants import NO_TOKEN, mutant
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - fixture
from tests.support.sql_core import Claimed, Sql


def outcome(sql: Sql, job: Claimed, **word: Any) -> bool:
    """Send one outcome through finish(), as workers do; return whether it was accepted."""
    outcomes = [{"id": str(job.id), "token": job.token, **word}]
    return not sql("select finish('{}', '{}', %s::jsonb, '{}')", [json.dumps(outcomes)])


# Every way in which an attempt can end; each returns whether it was accepted.
ENDS: dict[str, Callable[[Sql, Claimed], bool]] = {
    "finish": lambda sql, job: not core.finish(sql, job),
    "finish keeping count": lambda sql, job: (
        not sql(
            "select finish(array[%s::uuid], array[%s::bigint], null, array[%s::bigint])", [job.id, job.token, job.token]
        )
    ),
    "fail": core.fail,
    "fail for good": lambda sql, job: core.fail(sql, job, outcome="failed"),
    "snooze": core.snooze,
    "release": lambda sql, job: not core.release(sql, job),
    "succeed with a result": lambda sql, job: outcome(sql, job, outcome="succeeded"),
    "cancel": lambda sql, job: outcome(sql, job, outcome="canceled"),
    "lose": lambda sql, job: outcome(sql, job, outcome="lost"),
}
every_end = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


def check_zombie(sql: Sql, end: Callable[[Sql, Claimed], bool]) -> None:
    """Wake a worker after its job was reclaimed and claimed by another: refused, and the other is untouched."""
    core.put(sql, max_attempts=5)
    zombie = core.claim_one(sql, "zombie")
    core.lose(sql)
    other = core.claim_one(sql, "other")
    assert other.id == zombie.id
    assert other.token > zombie.token
    before = core.state(sql)
    assert not end(sql, zombie), "a stale token was accepted"
    assert core.state(sql) == before, "a stale token changed something"
    assert not core.finish(sql, other), "the rightful worker was refused"
    assert core.status(sql, other.id) == "succeeded"


def check_poison(sql: Sql) -> None:
    """Check that a job that kills its worker every time is dead after max_attempts, not one round later."""
    job = core.put(sql, max_attempts=3)
    for attempt in (1, 2, 3):
        assert core.claim_one(sql, f"victim {attempt}").attempt == attempt
        ((_, worker, _, ids),) = core.lose(sql)
        assert (worker, ids) == (f"victim {attempt}", [job])
    assert core.look(sql, job).status == "dead", "a job that is lost every time must die"
    assert core.look(sql, job).attempts == 3


def check_expired_lease_is_not_renewed(sql: Sql) -> None:
    core.put(sql)
    job = core.claim_one(sql, "slow")
    assert core.renew(sql, "slow", job.token) == [job.token]
    core.expire(sql)
    before = core.state(sql)
    assert core.renew(sql, "slow", job.token) == [], "an expired lease was renewed"
    assert core.state(sql) == before


@every_end
def test_a_zombie_changes_nothing_after_another_worker_has_its_job(
    sql: Sql, end: Callable[[Sql, Claimed], bool]
) -> None:
    check_zombie(sql, end)


@every_end
def test_a_zombie_changes_nothing_after_a_failover_that_lost_its_claim(
    each_sql: Sql, end: Callable[[Sql, Claimed], bool]
) -> None:
    """On an asynchronous standby the sequence is where it was before the claim, and the job waits."""
    sql = each_sql
    core.put(sql)
    ((number, drawn),) = sql("select last_value, is_called from claim_number")
    zombie = core.claim_one(sql, "ada")
    core.release(sql, zombie)
    sql("select setval('claim_number', %s, %s)", [number, drawn])
    owner = core.claim_one(sql, "bob")
    assert owner.token > zombie.token
    before = core.state(sql)
    assert not end(sql, zombie)
    assert core.state(sql) == before


def test_tokens_grow_when_the_number_in_them_starts_anew(sql: Sql) -> None:
    tokens = core.firsts(sql("select next_token() from generate_series(1, 3000)"))
    assert len(set(tokens)) == 3000
    core.put(sql)
    sql("select setval('claim_number', 1023, false)")
    last = core.claim_one(sql)
    core.release(sql, last)
    assert core.claim_one(sql).token > last.token > max(tokens)


@every_end
def test_a_zombie_changes_nothing_while_its_job_waits_for_another_worker(
    sql: Sql, end: Callable[[Sql, Claimed], bool]
) -> None:
    core.put(sql)
    zombie = core.claim_one(sql)
    core.lose(sql)
    before = core.state(sql)
    assert not end(sql, zombie)
    assert core.state(sql) == before


@every_end
def test_a_zombie_cannot_bring_back_a_job_that_died_meanwhile(sql: Sql, end: Callable[[Sql, Claimed], bool]) -> None:
    job = core.put(sql, max_attempts=1)
    zombie = core.claim_one(sql)
    core.lose(sql)
    assert core.status(sql, job) == "dead"
    before = core.state(sql)
    assert not end(sql, zombie)
    assert core.state(sql) == before


@every_end
def test_an_attempt_ends_only_once(sql: Sql, end: Callable[[Sql, Claimed], bool]) -> None:
    core.put(sql)
    job = core.claim_one(sql)
    assert not core.finish(sql, job)
    before = core.state(sql)
    assert not end(sql, job)
    assert core.state(sql) == before


@every_end
def test_no_token_at_all_is_a_stale_one(sql: Sql, end: Callable[[Sql, Claimed], bool]) -> None:
    core.put(sql)
    waiting = core.put(sql)
    held = core.claim_one(sql)
    before = core.state(sql)
    assert not end(sql, held._replace(token=None))
    assert not end(sql, held._replace(token=0))
    assert not end(sql, held._replace(id=waiting, token=None))
    assert core.state(sql) == before


@every_end
def test_every_end_is_refused_on_each_server(each_sql: Sql, end: Callable[[Sql, Claimed], bool]) -> None:
    check_zombie(each_sql, end)


def test_stale_and_right_results_in_one_batch_are_distinguished(sql: Sql) -> None:
    ids = [core.put(sql) for _ in range(4)]
    first = core.claim(sql, "a", 2)
    core.lose(sql)
    again = core.claim(sql, "b", 4)
    assert {j.id for j in again} == set(ids)
    stale, right = first, [j for j in again if j.id not in {f.id for f in first}]
    assert sorted(core.finish(sql, *stale, *right)) == sorted(j.id for j in stale)
    assert [core.status(sql, j.id) for j in stale] == ["running"] * 2
    assert [core.status(sql, j.id) for j in right] == ["succeeded"] * 2


def test_a_batch_that_begins_with_a_stale_result_still_names_the_worker_of_the_right_ones(sql: Sql) -> None:
    core.put(sql)
    stale = core.claim_one(sql, "ada")
    core.lose(sql)
    core.claim_one(sql, "bob")
    core.put(sql)
    right = core.claim_one(sql, "ada")
    assert core.finish(sql, stale, right) == [stale.id]
    assert core.look(sql, right.id).locked_by == "ada"


def test_a_stale_outcome_is_reported_whatever_else_is_left_out(sql: Sql) -> None:
    """Callers in other languages may well pass NULL where there is nothing to pass."""
    core.put(sql)
    stale = core.claim_one(sql)
    core.lose(sql)
    outcomes = "jsonb_build_array(jsonb_build_object('id', %s::uuid, 'token', %s::bigint, 'outcome', 'failed'))"
    refused = sql(f"select finish(null, null, {outcomes})", [stale.id, stale.token])
    assert refused == [(stale.id,)]


@pytest.mark.parametrize("unknown", ["succeded", "", None])
def test_an_unknown_outcome_cannot_make_a_job_vanish(sql: Sql, unknown: str | None) -> None:
    """R2: illegal moves are impossible in SQL. A typing error of a client must not cost a job."""
    id_ = core.put(sql, retry={"kind": "fixed", "delay": 5})
    job = core.claim_one(sql)
    with suppress(psycopg.Error):  # refused or taken for an error: either will do
        core.fail(sql, job, outcome=unknown)
    assert core.look(sql, id_).status in ("running", "retrying", "queued", "failed", "dead")


def test_only_the_claims_own_worker_renews_it(sql: Sql) -> None:
    core.put(sql)
    job = core.claim_one(sql, "mine")
    before = core.state(sql)
    assert core.renew(sql, "thief", job.token) == []
    assert core.state(sql) == before
    assert core.renew(sql, "mine", job.token, job.token + 1) == [job.token]


def test_an_expired_lease_is_not_renewed(sql: Sql) -> None:
    check_expired_lease_is_not_renewed(sql)


def test_a_reclaimed_lease_is_not_renewed(sql: Sql) -> None:
    core.put(sql)
    zombie = core.claim_one(sql, "zombie")
    core.lose(sql)
    core.claim_one(sql, "other")
    before = core.state(sql)
    assert core.renew(sql, "zombie", zombie.token) == []
    assert core.state(sql) == before


def test_a_renewed_lease_is_not_reclaimed(sql: Sql, clock: Clock) -> None:
    id_ = core.put(sql)
    job = core.claim_one(sql, "alive", ttl=60)
    for _ in range(5):
        clock.advance(59)
        assert core.renew(sql, "alive", job.token) == [job.token]
        assert core.reclaim(sql) == []
    assert core.status(sql, id_) == "running"
    clock.advance(60)
    assert len(core.reclaim(sql)) == 1


@every_end
def test_a_worker_whose_claims_were_taken_back_changes_nothing(sql: Sql, end: Callable[[Sql, Claimed], bool]) -> None:
    """A supervisor that is wrong about the end of a process costs an attempt, and nothing else."""
    core.put(sql, max_attempts=5)
    zombie = core.claim_one(sql, "zombie")
    core.put(sql)
    kept = core.claim_one(sql, "other")
    assert sql("select reclaim_worker('zombie')") == [(1,)]
    assert (core.status(sql, zombie.id), core.look(sql, zombie.id).attempts) == ("retrying", 1)
    again = core.claim_one(sql, "third")
    assert (again.id, again.attempt) == (zombie.id, 2)
    before = core.state(sql)
    assert not end(sql, zombie)
    assert core.state(sql) == before
    assert not core.finish(sql, again, kept)


def test_a_worker_whose_claims_were_taken_back_is_forgotten(sql: Sql) -> None:
    for name in ("gone", "there"):
        sql("select register_worker(%s, 'h', 1, 'v', '{default}', 1, '[]')", [name])
        sql("select sleep(%s, '{default}')", [name])
    assert sql("select reclaim_worker('gone')") == [(0,)]
    assert sql("select id from workers") == [("there",)] and sql("select worker from sleepers") == [("there",)]


def test_taking_back_a_workers_claims_waits_for_no_transaction(dsn: str, sql: Sql) -> None:
    """Jobs that a transaction holds are left to the leader, which finds them expired."""
    core.put(sql)
    core.put(sql)
    held, free = core.claim_one(sql, "w"), core.claim_one(sql, "w")
    with core.session(dsn, autocommit=False) as conn:
        ends = "select finish(array[%s::uuid], array[%s::bigint], null, '{}')"  # as inside a handler's transaction
        assert not core.runner(conn)(ends, [held.id, held.token])
        assert sql("select reclaim_worker('w')") == [(1,)]
        assert core.status(sql, free.id) == "retrying"
        conn.rollback()
    assert core.firsts(sql("select worker from reclaim()")) == ["w"]
    assert core.status(sql, held.id) == "retrying"


def test_a_start_is_marked_by_the_tokens_owner_alone_and_waits_for_no_lock(dsn: str, sql: Sql) -> None:
    core.put(sql)
    job = core.claim_one(sql, "w")
    sql("update live set claimed_at = claimed_at - interval '1 hour'")
    mark = "select mark_started(array[%s::uuid], array[%s::bigint], '{60}')"
    claimed = sql("select claimed_at from live")
    sql(mark, [job.id, job.token + 1])
    assert sql("select claimed_at from live") == claimed
    with core.session(dsn, autocommit=False) as conn:
        core.finish(core.runner(conn), job)
        sql(mark, [job.id, job.token])
        conn.rollback()
    assert sql("select claimed_at from live") == claimed
    sql(mark, [job.id, job.token])
    assert sql("select claimed_at between clock() - interval '90 s' and clock() - interval '59 s' from live") == [
        (True,)
    ]
    assert not core.finish(sql, job)


def test_a_worker_that_is_late_but_not_reclaimed_may_still_finish(sql: Sql, clock: Clock) -> None:
    id_ = core.put(sql)
    job = core.claim_one(sql, ttl=60)
    clock.advance(3600)
    assert core.finish(sql, job) == []
    assert core.status(sql, id_) == "succeeded"
    assert core.reclaim(sql) == []


def test_tokens_grow_and_are_never_used_twice(sql: Sql) -> None:
    core.put(sql)
    tokens = []
    for _ in range(5):
        job = core.claim_one(sql)
        tokens.append(job.token)
        core.release(sql, job)
    assert tokens == sorted(set(tokens))


def test_a_poisonous_job_dies_after_its_attempts(each_sql: Sql) -> None:
    check_poison(each_sql)


def test_the_schema_itself_refuses_more_attempts_than_allowed_and_half_a_claim(sql: Sql) -> None:
    id_ = core.put(sql, max_attempts=2)
    for broken in ("attempt = 3", "attempt = -1", "token = 1", "claimed_at = now()", "token = 1, claimed_at = now()"):
        with pytest.raises(Exception, match="live_is_sound"):
            sql(f"update live set {broken} where id = %s", [id_])


# -- the checks themselves, on schemas that are broken on purpose


RESET = {
    "settle": [("(h.outcome in ('snoozed', 'released', 'parked'))", "(h.outcome in ('snoozed', 'parked', 'lost'))")]
}


def test_the_zombie_check_goes_red_without_the_token_predicate(dsn: str) -> None:
    with mutant(dsn, NO_TOKEN) as sql:
        for name, end in ENDS.items():
            sql("truncate live, later, dead, history, claims")
            try:
                check_zombie(sql, end)
            except AssertionError:
                continue
            pytest.fail(f"the check did not notice that {name!r} ignores the token")


@pytest.mark.parametrize("function", ["finish", "settle"])
def test_the_zombie_check_goes_red_when_one_function_alone_forgets_the_token(dsn: str, function: str) -> None:
    end = {"finish": "finish", "settle": "fail"}[function]
    with mutant(dsn, {function: NO_TOKEN[function]}) as sql, pytest.raises(AssertionError, match="stale token"):
        check_zombie(sql, ENDS[end])


def test_the_poison_check_goes_red_when_reclaim_resets_attempts(dsn: str) -> None:
    with mutant(dsn, RESET) as sql, pytest.raises(AssertionError):
        check_poison(sql)


def test_the_poison_check_goes_red_when_nothing_ever_dies(dsn: str) -> None:
    immortal = {"settle": [("h.attempt >= h.max_attempts", "h.attempt > h.max_attempts")]}
    with mutant(dsn, immortal) as sql, pytest.raises(AssertionError, match="must die"):
        check_poison(sql)


def test_the_renewal_check_goes_red_when_expiry_is_ignored(dsn: str) -> None:
    careless = {"renew": [(" and c.expires_at > clock()", "")]}
    with mutant(dsn, careless) as sql, pytest.raises(AssertionError, match="expired lease was renewed"):
        check_expired_lease_is_not_renewed(sql)


def test_the_checks_are_green_on_an_unchanged_copy(dsn: str) -> None:
    """This shows that the failures above come from the mutation, not from the copy."""
    with mutant(dsn, {}) as sql:
        for end in ENDS.values():
            sql("truncate live, later, dead, history, claims")
            check_zombie(sql, end)
        sql("truncate live, later, dead, history, claims")
        check_poison(sql)
        sql("truncate live, later, dead, history, claims")
        check_expired_lease_is_not_renewed(sql)


@pytest.mark.parametrize(
    ("timeline", "ahead", "hours"),
    [(1, 0, 0), (0, 0, 1), (1, 5, 5), (-2, 0, 3), (7, 5, 6)],
    ids=["the same", "promoted", "stored", "promoted three times", "started over"],
)
def test_tokens_are_an_hour_further_ahead_after_each_promotion(sql: Sql, timeline: int, ahead: int, hours: int) -> None:
    """The number is the timeline's; a smaller one, after pg_upgrade or a dump, counts as one promotion."""
    now = sql("select current_timeline()")[0][0]
    before = sql("select timeline, ahead from token_clock")[0]
    stored = now + timeline - 1
    sql("update token_clock set timeline = %s, ahead = %s", [stored, ahead * 3_600_000_000])
    try:
        lead = sql("select clock_lead()")
        assert lead == [(hours * 3_600_000_000,)]
        sql("select note_timeline()")
        assert sql("select timeline, clock_lead() from token_clock") == [(now, lead[0][0])]
    finally:
        sql("update token_clock set timeline = %s, ahead = %s", list(before))


def test_claims_go_on_without_a_row_in_token_clock(sql: Sql) -> None:
    """A script that empties all tables must not stop the workers."""
    before = sql("delete from token_clock returning timeline, ahead")[0]
    try:
        assert sql("select clock_lead()") == [(0,)]
        assert sql("select next_token() > 0") == [(True,)]
    finally:
        sql("insert into token_clock (timeline, ahead) values (%s, %s)", list(before))
