"""Keys come and go: unused limits are removed, and nothing that matters is removed with them."""

from __future__ import annotations

import json
import random
import time
import uuid

import pytest
from test_limits_race import BURST, RATE, Race

from tests.support import flow
from tests.support import sql_core as core
from tests.support.mutants import mutant
from tests.support.pace import slower
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - a fixture
from tests.support.sql_core import Sql
from tests.support.sql_hammer import rounds

DAY = 86_400


def register(sql: Sql, template: str, **code: float) -> None:
    rule = {"template": template, "pattern": template.split("{", maxsplit=1)[0] + "%" * ("{" in template), "code": code}
    sql("select register_limits(%s::jsonb)", [json.dumps([rule])])


def use(sql: Sql, key: str, outcome: str = "succeeded") -> None:
    """Run one job under the key."""
    flow.put(sql, keys=[key])
    (job,) = flow.claim(sql)
    assert flow.end(sql, job, outcome=outcome) == []
    flow.fold(sql)


def left(sql: Sql) -> list[str]:
    sql("select prune()")
    return core.firsts(sql("select key from limits order by 1"))


def test_a_key_unused_for_a_day_is_forgotten_and_made_again(sql: Sql, clock: Clock) -> None:
    register(sql, "d:{d}", concurrency=1)
    use(sql, "d:a")
    clock.advance(DAY - 60)
    assert left(sql) == ["d:a"]
    clock.advance(120)
    assert left(sql) == []
    flow.put(sql, keys=["d:a"], number=3)
    assert len(flow.claim(sql)) == 1
    assert flow.drift(sql) == []


def test_ten_thousand_keys_are_examined_in_a_moment(sql: Sql) -> None:
    register(sql, "d:{d}", concurrency=1)
    sql(
        "insert into limits (key, template, version, created_at) select 'd:' || n, 'd:{d}', "
        "(select max(version) from limit_rules), clock() - interval '2 days' from generate_series(1, 10000) n"
    )
    sql("""insert into limit_settings (key, kind, override)
           select 'd:' || n, 'key', '{"concurrency": 2}' from generate_series(1, 1000) n""")
    sql("analyze limits, limit_settings")
    sql("update limits set created_at = clock() where key > 'd:2'")  # as keys that came since then
    began = time.monotonic()
    sql("select prune_limits(1000, clock())")
    assert time.monotonic() - began < 5 * slower()  # a join of all with all takes minutes
    for _ in range(100):  # each reads a sample
        sql("select prune_limits(1000, clock())")
    assert sql("select count(*) from limits where key like 'd:1%'") == [(112,)]  # those that are set


def test_what_runs_or_was_set_by_an_operator_is_not_forgotten(sql: Sql, clock: Clock) -> None:
    for key in ("runs", "set", "paused", "tenant:heavy", "idle"):
        use(sql, key)
    flow.put(sql, keys=["runs"])
    flow.claim(sql, ttl=1000 * DAY)
    sql(
        """select set_limit('set', '{"concurrency": 3}'), set_limit('tenant:heavy', '{"weight": 3}'), pause('paused')"""
    )
    clock.advance(100 * DAY)
    assert left(sql) == ["paused", "runs", "set", "tenant:heavy"]


def test_a_pause_that_is_over_does_not_keep_its_key(sql: Sql, clock: Clock) -> None:
    sql("select pause('tenant:a', p_for => '10 days')")
    clock.advance(10.5 * DAY)
    assert left(sql) == ["tenant:a"]
    clock.advance(DAY)
    assert left(sql) == []


def test_a_rate_is_forgotten_only_when_its_bucket_is_full_again(sql: Sql, clock: Clock) -> None:
    register(sql, "r:{d}", rate=1, per=5 * DAY, burst=2)
    use(sql, "r:a")
    use(sql, "r:a")
    clock.advance(9 * DAY)
    assert left(sql) == ["r:a"]
    clock.advance(DAY + 1)
    assert left(sql) == []
    flow.put(sql, keys=["r:a"], number=5)
    assert len(flow.claim(sql)) == 2


@pytest.mark.parametrize("after", [1, 3], ids=["open", "with a streak"])
def test_a_breaker_that_is_open_or_on_its_way_is_kept_for_a_week(sql: Sql, clock: Clock, after: int) -> None:
    register(sql, "b:{d}", breaker_after=after, breaker_pause=60)
    use(sql, "b:a", "failed")
    clock.advance(6.9 * DAY)
    assert left(sql) == ["b:a"]
    clock.advance(0.2 * DAY)
    assert left(sql) == []


def test_counts_of_work_stepped_over_go_with_history(sql: Sql, clock: Clock) -> None:
    sql("insert into throttled values ('a', '', 1, clock())")
    clock.advance(6 * DAY)
    sql("select prune()")
    assert core.count(sql, "throttled") == 1
    clock.advance(3 * DAY)
    sql("select prune()")
    assert core.count(sql, "throttled") == 0


def test_ended_jobs_are_folded_in_though_nothing_is_claimed_under_the_key(sql: Sql, dsn: str) -> None:
    flow.put(sql, keys=["k"], number=2)
    (job, _) = flow.claim(sql)
    with core.session(dsn, autocommit=False) as other:
        other.execute("select lock_ring()")
        flow.end(sql, job)
        sql("select prune()")
        assert core.count(sql, "releases") == 1, "the ring has one writer"
        assert sql("select running from limits") == [(2,)]
    sql("select prune()")
    assert core.count(sql, "releases") == 0
    assert sql("select running, last_success_at is not null from limits") == [(1, True)]


@pytest.mark.parametrize(
    ("ends", "streak"), [("f f s", 0), ("f f f", 3), ("f s f", 1), ("s f f f", 3), ("f f s f", 1), ("f ff s", 3)]
)
def test_earlier_ends_count_first_though_all_are_folded_at_once(sql: Sql, ends: str, streak: int) -> None:
    """Each end is a transaction, unless they are sent together: the breaker knows in which order they came."""
    flow.limit(sql, "k", breaker_after=3, breaker_pause=60, breaker_cap=60)
    flow.put(sql, keys=["k"], number=5)
    jobs = flow.claim(sql, limit=len(ends.replace(" ", "")))
    for together in ends.split():
        outcome = "failed" if together[0] == "f" else "succeeded"
        flow.end(sql, *(jobs.pop() for _ in together), outcome=outcome)
    sql("select prune()")
    found = sql("select failure_streak, open_until is not null, running from limits where key = 'k'")
    assert found == [(streak, streak == 3, 0)]


def test_an_abandoned_open_batch_is_canceled_and_its_callback_is_enqueued(sql: Sql, clock: Clock) -> None:
    lost, waits, young = (uuid.uuid4() for _ in "123")
    for batch in (lost, waits, young):
        sql("select open_batch(%s, 'b', null, %s::jsonb)", [batch, json.dumps({"task": "on_end"})])
    core.put(sql, batch=lost)
    core.finish(sql, core.claim_one(sql))
    core.put(sql, batch=waits, delay="100 days")
    clock.advance(7 * DAY)
    core.put(sql, batch=young)
    core.finish(sql, core.claim_one(sql))
    clock.advance(2 * DAY)
    sql("select prune()")
    assert sql("select id, status from batch_progress where status not in ('queued', 'running')") == [
        (lost, "canceled")
    ]
    assert core.firsts(sql("select task from live")) == ["on_end"]


def test_lanes_and_flows_that_were_empty_for_an_hour_are_removed_and_made_again(sql: Sql, clock: Clock) -> None:
    flow.limit(sql, "full", concurrency=1)
    flow.put(sql, tenant="a", keys=["full"], number=2)
    flow.put(sql, tenant="b")
    flow.put(sql, tenant="idle")
    jobs = [job for _ in range(2) for job in flow.claim(sql, ttl=DAY)]
    assert {job.tenant for job in jobs} == {"a", "b", "idle"}
    flow.put(sql, tenant="b")
    sql("select lock_ring(), fold_arrivals('default', next_token())")

    def ring() -> tuple[set[str], set[str]]:
        sql("select prune()")
        flows = sql("select tenant from flows where flow <> 0")
        return set(core.firsts(sql("select tenant from lanes where lane <> 0"))), set(core.firsts(flows))

    clock.advance(3500)
    assert ring() == ({"a", "b", "idle"}, {"a", "b", "idle"})
    clock.advance(200)
    assert ring() == ({"a", "b"}, {"b"}), "one has a job, one waits for its limit"
    for tenant in ("a", "b", "idle"):
        flow.put(sql, tenant=tenant)
    flow.end(sql, *(job for job in jobs if job.tenant == "a"))
    found = [job for _ in range(3) for job in flow.claim(sql)]
    assert sorted(job.tenant or "" for job in found) == ["a", "a", "b", "b", "idle"]
    assert flow.drift(sql) == []


def test_a_key_that_is_forgotten_while_jobs_wait_for_another_of_their_keys_still_counts(sql: Sql, clock: Clock) -> None:
    register(sql, "d:{d}", concurrency=1)
    sql("select pause('d:gate')")
    flow.put(sql, keys=["d:a", "d:gate"], number=3)
    assert flow.claim(sql) == []
    clock.advance(2 * DAY)
    assert left(sql) == ["d:gate"]
    sql("select resume('d:gate'), set_limit('d:gate', '{\"concurrency\": 9}')")
    assert [len(flow.claim(sql, ttl=DAY)) for _ in range(2)] == [1, 0]
    assert flow.drift(sql) == []


# -- who comes while a row is being removed


# Such a session would be ended before a test can check.
LEFT_OPEN = "select prune(), set_config('idle_in_transaction_session_timeout', '0', true)"


def idle(sql: Sql, key: str) -> None:
    register(sql, "d:{d}", concurrency=2)
    use(sql, key)
    sql("update limits set created_at = '2000-01-01', last_success_at = '2000-01-01'")


@pytest.mark.parametrize("change", ["pause('d:a')", """set_limit('d:a', '{"concurrency": 0}')"""], ids=["pause", "set"])
def test_what_an_operator_sets_while_the_row_is_removed_holds_and_is_shown_at_once(
    sql: Sql, dsn: str, change: str
) -> None:
    idle(sql, "d:a")
    with core.session(dsn, autocommit=False) as pruning:
        pruning.execute(LEFT_OPEN)
        assert pruning.execute("select key from limits").fetchall() == []
        sql("set lock_timeout = '1s'")
        sql(f"select {change}")
        pruning.commit()
    flow.put(sql, keys=["d:a"])
    assert flow.claim(sql) == []


def test_a_claim_does_not_wait_for_a_row_that_is_being_removed(sql: Sql, dsn: str) -> None:
    idle(sql, "d:a")
    flow.put(sql, keys=["d:a"], number=5)
    with core.session(dsn, autocommit=False) as pruning:
        pruning.execute(LEFT_OPEN)
        sql("set lock_timeout = '1s'")
        assert flow.claim(sql) == []
        pruning.commit()
    assert len(flow.claim(sql)) == 2
    assert flow.drift(sql) == []


def test_a_row_that_a_claim_has_is_not_removed(sql: Sql, dsn: str) -> None:
    idle(sql, "d:a")
    flow.put(sql, keys=["d:a"], number=5)
    with core.session(dsn, autocommit=False) as claiming:
        assert len(flow.claim(core.runner(claiming))) == 2
        sql("select prune()")
        claiming.commit()
    assert (flow.claim(sql), flow.drift(sql)) == ([], [])


class PrunedRace(Race):
    """The race over limits, by rules of code alone, while a session removes every row the moment it is idle."""

    def __init__(self, sql: Sql) -> None:
        super().__init__(sql, simple=True)
        self.simple = False  # with a rate, and many limits at once
        sql("truncate limits, limit_settings, releases")
        for key, places in self.places.items():
            register(sql, key, concurrency=places)
        register(sql, "rate", rate=RATE, per=1, burst=BURST)

    def lose(self, sql: Sql, rng: random.Random) -> None:
        super().lose(sql, rng)
        for _ in range(5):
            time.sleep(0.001)
            self.counts["removed"] += sql("select prune_limits(100, clock())")[0][0]

    def was_worth_it(self) -> bool:
        full = all(self.peaks[key] == self.places[key] for key in ("one", "two", "three"))
        return full and len(self.starts) > RATE and self.counts["removed"] > 50 and self.counts["snapshot"] > 50


AT_ONCE = ("interval '1 day' end", "interval '0' end")


def test_limits_are_exact_while_their_rows_are_removed(dsn: str) -> None:
    with mutant(dsn, {"prune_limits": [AT_ONCE]}) as sql:
        race = PrunedRace(sql)
        race.run(dsn, "mutant", 3)
        register(sql, "rate", rate=100_000, per=1, burst=100_000)  # the remaining work must not wait for it
        race.check(sql)
        assert race.was_worth_it(), f"too little happened to prove anything: {race.counts}"


def test_that_race_goes_red_when_rows_are_removed_that_count_something(dsn: str) -> None:
    def race(sql: Sql) -> None:
        for _ in rounds():
            PrunedRace(sql).run(dsn, "mutant", 3)

    changes = {"prune_limits": [AT_ONCE, ("m.running = 0", "true")]}
    with mutant(dsn, changes) as sql, pytest.raises(AssertionError, match="the"):
        race(sql)
