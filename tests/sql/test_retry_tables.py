"""Retry delays: the documents' tables to the second, and Python and SQL in agreement (R6)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast import Retry
from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture, each_clock_fixture  # noqa: F401 - fixtures
from tests.support.sql_core import Sql

MINUTE, HOUR, DAY = 60, 3600, 86_400

# Document -> policy, and the delay after the failure of attempt 1, 2, 3 ...; then the job is dead.
DOCUMENTS: dict[str, tuple[Retry, list[float]]] = {
    "000: fixed 5 minutes, dead on the second failure": (Retry.fixed(5 * MINUTE, max_attempts=2), [300]),
    "001: base minutes x 2^n, capped at 24 hours": (
        Retry.exponential(base=5 * MINUTE, cap=24 * HOUR, max_attempts=12),
        [m * MINUTE for m in (5, 10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440)],
    ),
    "002: attempts 0-1 1 s, 2 2 s, 3 4 s, capped at 60 s": (
        Retry.exponential(base=1, cap=60, max_attempts=5),
        [1, 2, 4, 8],
    ),
    "004: min(1024, 2^attempts)": (Retry.exponential(base=2, cap=1024, max_attempts=5), [2, 4, 8, 16]),
    "a table of delays": (Retry.table([10, 30, 5]), [10, 30, 5]),
    "none": (Retry.none(), []),
}
each_document = pytest.mark.parametrize(("policy", "delays"), DOCUMENTS.values(), ids=DOCUMENTS)


def examples(number: int) -> settings:
    return settings(max_examples=number, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))


def sql_delay(sql: Sql, policy: Any, attempt: int | None) -> float:
    document = policy if isinstance(policy, str | None) else json.dumps(policy)
    return float(sql("select extract(epoch from retry_delay(%s::jsonb, %s))", [document, attempt])[0][0])


@each_document
def test_the_documents_tables_hold_in_python_and_in_sql(each_sql: Sql, policy: Retry, delays: list[float]) -> None:
    for attempt, expected in enumerate(delays, 1):
        assert policy.delay(attempt) == expected
        assert sql_delay(each_sql, policy.as_json(), attempt) == expected
    assert policy.max_attempts == len(delays) + 1


@each_document
def test_the_documents_tables_hold_through_real_failures(
    each_sql: Sql, each_clock: Clock, policy: Retry, delays: list[float]
) -> None:
    id_ = core.put(each_sql, max_attempts=policy.max_attempts, retry=policy.as_json())
    for attempt, seconds in enumerate(delays, 1):
        job = core.claim_one(each_sql)
        assert job.attempt == attempt
        assert core.fail(each_sql, job)
        row = core.look(each_sql, id_)
        assert (row.status, row.run_at) == ("retrying", each_clock.now + timedelta(seconds=seconds))
        each_clock.advance(seconds - 1)
        assert core.claim(each_sql) == []
        each_clock.advance(1)
    assert core.fail(each_sql, core.claim_one(each_sql))
    assert core.status(each_sql, id_) == "dead"
    assert core.look(each_sql, id_).attempts == policy.max_attempts


def test_document_002_treats_no_attempt_as_the_first(sql: Sql) -> None:
    policy, _ = DOCUMENTS["002: attempts 0-1 1 s, 2 2 s, 3 4 s, capped at 60 s"]
    expected = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 16, 6: 32, 7: 60, 8: 60, 100: 60}
    assert {n: policy.delay(n) for n in expected} == expected
    assert {n: sql_delay(sql, policy.as_json(), n) for n in expected} == expected


def test_document_004_is_capped_at_1024_seconds(sql: Sql) -> None:
    policy = Retry.exponential(base=2, cap=1024, max_attempts=20)
    expected = {n: min(1024, 2**n) for n in range(1, 20)}
    assert {n: policy.delay(n) for n in expected} == expected
    assert {n: sql_delay(sql, policy.as_json(), n) for n in expected} == expected


def test_a_tasks_policy_is_used_when_the_job_brings_none(sql: Sql, clock: Clock) -> None:
    tasks = [{"name": "t", "queue": "default", "max_attempts": 2, "retry": Retry.fixed(40).as_json()}]
    sql("select register_worker('w', 'h', 1, '1', '{default}', 1, %s::jsonb)", [json.dumps(tasks)])
    for retry, seconds in ((None, 40), (Retry.fixed(7).as_json(), 7)):
        id_ = core.put(sql, retry=retry)
        core.fail(sql, core.claim_one(sql))
        assert core.look(sql, id_).run_at == clock.now + timedelta(seconds=seconds)
        assert core.look(sql, id_).max_attempts == 2


@pytest.mark.parametrize("delay", ["90 seconds", "1 day 1 second"])
def test_a_handlers_own_delay_comes_before_the_policy(sql: Sql, clock: Clock, delay: str) -> None:
    id_ = core.put(sql, retry=Retry.fixed(7).as_json())
    core.fail(sql, core.claim_one(sql), delay=delay)
    assert sql("select run_at = clock() + %s::interval from jobs where id = %s", [delay, id_]) == [(True,)]


@pytest.mark.parametrize("delay", ["0", "-5 seconds"])
def test_no_delay_puts_the_job_back_at_once_with_its_attempt_counted(sql: Sql, delay: str) -> None:
    id_ = core.put(sql, retry=Retry.fixed(7).as_json())
    core.fail(sql, core.claim_one(sql), delay=delay)
    job = core.claim_one(sql)
    assert (job.id, job.attempt) == (id_, 2)


# -- Python and SQL agree

seconds = st.floats(0, 1_000_000, allow_nan=False).map(lambda x: round(x, 3))
attempts = st.integers(0, 32_000)
policies = st.one_of(
    st.builds(Retry.fixed, seconds),
    st.builds(Retry.exponential, seconds, cap=seconds, factor=st.floats(1, 100), max_attempts=st.integers(1, 32_000)),
    st.builds(Retry.table, st.lists(seconds, min_size=1, max_size=9)),
    st.just(Retry.none()),
)


@examples(150)
@given(policy=policies, attempt=attempts)
@example(policy=Retry.exponential(1e-3, factor=100, cap=315_360_000), attempt=32_000)
@example(policy=Retry.table([1, 2, 3]), attempt=32_000)
def test_python_and_sql_agree_on_every_policy(sql: Sql, policy: Retry, attempt: int) -> None:
    expected = policy.delay(attempt)
    # An interval counts whole microseconds.
    assert sql_delay(sql, policy.as_json(), attempt) == pytest.approx(expected, rel=1e-12, abs=1e-6)


@examples(60)
@given(policy=policies, jitter=st.floats(0, 1), attempt=st.integers(1, 40))
@example(policy=Retry.fixed(60), jitter=5e-324, attempt=1)
@example(policy=Retry.fixed(5e-324), jitter=0.5, attempt=1)
def test_jitter_takes_away_at_most_its_share_and_adds_nothing(
    sql: Sql, policy: Retry, jitter: float, attempt: int
) -> None:
    full = policy.delay(attempt)
    delay = sql_delay(sql, policy.as_json() | {"jitter": jitter}, attempt)
    assert full * (1 - jitter) - 1e-6 <= delay <= full + 1e-6


def test_jitter_spreads_over_its_whole_share(sql: Sql) -> None:
    policy = json.dumps(Retry.fixed(100, jitter=0.2).as_json())
    query = "select extract(epoch from retry_delay(%s::jsonb, 1)) from generate_series(1, 500)"
    delays = [float(each) for (each,) in sql(query, [policy])]
    assert 80 <= min(delays) < 84
    assert 96 < max(delays) <= 100


# -- what must never raise: a failure that cannot be stored would be a job lost

numbers = st.one_of(st.integers(-(10**40), 10**40), st.floats(allow_nan=False, allow_infinity=False))
anything = st.recursive(
    st.none()
    | st.booleans()
    | numbers
    | st.text('aé9.-e"\\', max_size=8)
    | st.sampled_from(["Infinity", "NaN", "-Infinity", "1e400"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3),
    max_leaves=5,
)
words = ["kind", "delay", "base", "factor", "cap", "jitter", "delays"]
malformed = st.one_of(
    anything,
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["fixed", "exponential", "table", "none", "odd", None, 5])},
        optional=dict.fromkeys(words[1:], anything),
    ),
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["fixed", "exponential"]), "delay": numbers, "base": numbers, "factor": numbers},
        optional={"cap": numbers, "jitter": numbers},
    ),
)
TOO_LATE = {"kind": "fixed", "delay": 9.2233e12, "cap": 1e13}  # an interval can hold it, a point in time cannot


@examples(200)
@given(policy=malformed, attempt=st.integers(-5, 32_767))
@example(policy=TOO_LATE, attempt=1)
def test_a_malformed_policy_never_raises_and_never_gives_less_than_nothing(sql: Sql, policy: Any, attempt: int) -> None:
    query = "select extract(epoch from d) >= 0, now() + d >= now() from retry_delay(%s::jsonb, %s) d"
    assert sql(query, [json.dumps(policy), attempt]) == [(True, True)]


def test_no_policy_and_no_attempt_give_no_delay(sql: Sql) -> None:
    assert sql_delay(sql, None, 3) == 0
    assert sql_delay(sql, Retry.fixed(5).as_json(), None) == 5


@examples(60)
@given(policy=malformed)
@example(policy=TOO_LATE)
def test_a_failure_is_stored_whatever_the_policy(sql: Sql, policy: Any) -> None:
    sql("delete from live; delete from later; delete from claims")
    id_ = core.put(sql, retry=policy)
    assert core.fail(sql, core.claim_one(sql))
    assert core.status(sql, id_) == "retrying"


@examples(40)
@given(policy=malformed)
@example(policy=TOO_LATE)
def test_a_lost_job_is_reclaimed_whatever_the_policy(sql: Sql, policy: Any) -> None:
    """One job whose policy makes reclaim raise would keep every other lost job from coming back."""
    sql("delete from live; delete from later; delete from claims")
    id_, other = core.put(sql, retry=policy), core.put(sql)
    for loss in (1, 2):  # the second one waits by the policy
        assert {(j.id, j.attempt) for j in core.claim(sql)} == {(id_, loss), (other, loss)}
        core.lose(sql)
    assert [core.status(sql, id_), core.status(sql, other)] == ["retrying", "retrying"]


# -- enqueue through the client carries the policy unchanged


def test_a_policy_given_at_enqueue_travels_to_sql(hf: Any, sql: Sql, clock: Clock) -> None:
    @hf.task(name="t", retry=Retry.fixed(1))
    def handler() -> None: ...

    handle = handler.using(retry=Retry.table([33], max_attempts=3)).enqueue()
    job = core.claim_one(sql)
    assert (str(job.id), job.max_attempts) == (handle.id, 3)
    core.fail(sql, job)
    assert core.look(sql, job.id).run_at == clock.now + timedelta(seconds=33)
