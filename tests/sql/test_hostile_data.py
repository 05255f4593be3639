"""Hostile data on its way through the real database: refused at enqueue with a clear error, or carried unharmed. One
bad row must never stop a queue, a worker or a list."""

from __future__ import annotations

import json
import math
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast import Holdfast, InvalidPayload, Retry, UsageError
from holdfast.store.calls import Calls
from holdfast.store.wire.session import Session
from holdfast.worker.cursor import Cursor
from tests.support import sql_core as core
from tests.support.json_values import values
from tests.support.sql_core import Sql


def same(one: Any, other: Any) -> bool:
    """Compare as JSON does: true is not 1, but there is only one kind of number."""
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if type(other) is float and type(one) is int:
        return float(one) == other
    return type(one) is type(other) and one == other


def claimed_payload(hf: Holdfast, sql: Sql) -> tuple[str, str]:
    """Return the id and payload of the next job, as a worker gets them."""
    call = Calls("holdfast").jobs.claim("w", ["default"], 1, 60, None, False, 1)
    ((id_, _, _, payload, *_),) = sql(call.sql, call.params)
    return id_, payload


@settings(max_examples=80, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(value=values, way=st.sampled_from(["enqueue", "delayed", "many", "many with keys"]))
@example(value=1e300, way="delayed")
@example(value=5e-324, way="delayed")
@example(value=2**64 - 1, way="delayed")
@example(value=[{"": 1e16}], way="delayed")
@example(value="\\", way="many")
@example(value="\t\n\r\\N\\.", way="many")
@example(value="\\u0000", way="many")
@example(value="\u2028\U0001f600\x7f", way="many")
@example(value={"b": 1, "aa": 2, "a": 3}, way="delayed")
def test_the_handler_gets_what_enqueue_accepts(hf: Holdfast, sql: Sql, value: Any, way: str) -> None:
    sql("delete from live; delete from later; delete from claims; delete from dedupe")
    hf.registry.tasks.clear()

    @hf.task(name="t")
    def handler(value: Any) -> None: ...

    try:
        if way == "enqueue":
            handler.enqueue(value)
        elif way == "delayed":
            handler.using(run_at=datetime(2020, 1, 1, tzinfo=UTC)).enqueue(value)
        elif way == "many":
            handler.enqueue_many([(value,)])
        else:
            handler.using(run_at=datetime(2020, 1, 1, tzinfo=UTC)).enqueue_many([(value,)])
    except InvalidPayload:
        return
    _, payload = claimed_payload(hf, sql)
    (found,), _ = handler.signature.decode(payload)
    assert same(found, value), f"{value!r} arrived as {found!r}"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_a_number_that_json_has_not_is_refused_and_does_not_become_none(hf: Holdfast, value: float) -> None:
    @hf.task(name="t")
    def handler(value: Any) -> None: ...

    with pytest.raises(InvalidPayload):
        handler.enqueue({"deep": [value]})


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"], ids=["NUL", "surrogate"])
@pytest.mark.parametrize("option", ["tenant", "queue", "dedupe"])
def test_hostile_text_in_an_option_is_a_usage_error(hf: Holdfast, option: str, text: str) -> None:
    @hf.task(name="t")
    def handler() -> None: ...

    with pytest.raises(UsageError):
        handler.using(**{option: text}).enqueue()
    with pytest.raises(UsageError):
        handler.using(**{option: text}, delay=5).enqueue()
    if option != "dedupe":
        with pytest.raises(UsageError):
            handler.using(**{option: text}).enqueue_many([()])


REFUSED: dict[str, dict[str, Any]] = {
    "a slash in the queue": {"queue": "a/b"},
    "a long queue": {"queue": "q" * 101},
    "an empty tenant": {"tenant": ""},
    "a long tenant": {"tenant": "t" * 201},
    "too many attempts": {"max_attempts": 32_001},
    "fewer than no attempts": {"max_attempts": -1},
}


@pytest.mark.parametrize("options", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("way", ["plain", "delayed", "many"])
def test_a_job_that_sql_refuses_is_refused_by_every_call(
    hf: Holdfast, sql: Sql, options: dict[str, Any], way: str
) -> None:
    """R2 and R29: a job that enqueue() would refuse must not be accepted by another way."""

    @hf.task(name="t")
    def handler() -> None: ...

    def enqueue() -> None:
        using = handler.using(**options)
        ways = {
            "plain": using.enqueue,
            "delayed": using.using(delay=1).enqueue,
            "many": partial(using.enqueue_many, [()]),
        }
        ways[way]()

    with pytest.raises(UsageError):
        enqueue()
    assert core.count(sql, "jobs") == 0


UNREADABLE = {
    "NUL": r'{"a": "\u0000"}',
    "NUL in a name": r'{"\u0000": 1}',
    "NUL after a backslash": r'{"a": "\\\u0000"}',
    "high surrogate": r'{"a": "\ud800"}',
    "low surrogate": r'{"a": "\uDC00x"}',
    "two high": r'{"a": "\ud83d\uD83D"}',
    "swapped": r'{"a": ["\ude00\ud83d"]}',
    "high and a letter": r'{"a": "\uD83d\u0041"}',
}
READABLE = [
    r'{"a": "\\u0000 \\ud800"}',
    r'{"a": "\u0001\u001f\u00e9"}',
    r'{"a": "\ud83d\ude00 \uD83D\uDE00"}',
    r'{"u0000": "d800\"\\"}',
    '{"a": 1e999, "b": 1.0e+2, "c": " \\/ "}',
]


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("copied", [False, True], ids=["insert", "copy"])
def test_json_that_no_reader_can_decode_is_refused_by_whatever_door(
    dsn: str, sql: Sql, text: str, copied: bool
) -> None:
    def put(conn: psycopg.Connection) -> None:
        if copied:
            with conn.cursor() as cursor, cursor.copy("copy live (id, task, payload) from stdin") as rows:
                rows.write_row((str(uuid.uuid4()), "t", text))
        else:
            conn.execute("insert into live (id, task, payload) values (gen_random_uuid(), 't', %s)", [text])

    with core.session(dsn) as conn:
        conn.execute("set role holdfast_enqueue")
        with pytest.raises(psycopg.DataError):
            put(conn)
    assert core.count(sql, "live") == 0


@pytest.mark.parametrize("text", READABLE)
def test_json_that_readers_can_decode_is_stored_as_it_came(sql: Sql, text: str) -> None:
    sql("insert into live (id, task, payload) values (gen_random_uuid(), 't', %s)", [text])
    assert sql("select payload::text from jobs") == [(text,)]
    assert core.claim_one(sql).payload == json.loads(text)


def test_a_job_that_allows_no_attempt_cannot_be_stored(dsn: str, sql: Sql) -> None:
    """Copied in by a custom client, it would make every claim of its queue fail forever."""
    with core.session(dsn) as conn:
        conn.execute("set role holdfast_enqueue")
        with pytest.raises(psycopg.errors.CheckViolation):
            conn.execute("insert into live (id, task, max_attempts) values (%s, 't', 0)", [uuid.uuid4()])
    core.put(sql)
    assert len(core.claim(sql)) == 1


@pytest.mark.parametrize("run_at", ["-infinity", "infinity", "20000-01-01"])
def test_a_time_that_python_cannot_read_stops_no_worker_and_no_list(
    each_hf: Holdfast, each_sql: Sql, run_at: str
) -> None:
    """Either enqueue refuses it, or every function that meets the job can handle it."""
    try:
        core.enqueue(each_sql, run_at=run_at)
    except psycopg.errors.InvalidParameterValue:
        return
    other = core.put(each_sql)
    call = Calls("holdfast").jobs.claim("w", ["default"], 10, 60, None, False, 10)
    jobs = call.read(each_sql(call.sql, call.params)).jobs
    assert str(other) in [job.id for job in jobs]
    cursor = Cursor()
    cursor.learn(jobs, enough=True, began=0.0, now=0.0)
    hint = cursor.hint(0.0)
    assert hint is not None and call.read(each_sql(call.sql, [*call.params[:4], hint, *call.params[5:]])).jobs == []
    each_sql("select sleep('w', '{default}')")
    each_sql("select count(*) from queue_depth")
    assert len(each_hf.jobs.list()) == 2


@pytest.mark.parametrize(("outcome", "delay"), [("error", 1e10), ("error", 1e12), ("error", 1e300), ("snoozed", 1e12)])
def test_a_handlers_absurd_delay_is_stored_and_can_be_listed(
    hf: Holdfast, sql: Sql, outcome: str, delay: float
) -> None:
    """Retry-After comes from an external server: a huge value must not fail the job or hide other jobs."""
    id_ = core.put(sql)
    job = core.claim_one(sql)
    results = json.dumps([{"id": str(job.id), "token": job.token, "outcome": outcome, "delay": delay}])
    assert sql("select finish('{}', '{}', %s::jsonb)", [results]) == []
    found = hf.jobs.get(str(id_))
    assert found is not None
    assert str(found.status) in ("retrying", "queued")
    assert found.run_at > datetime.now(UTC) + timedelta(days=300)
    assert len(hf.jobs.list()) == 1


@pytest.mark.parametrize("style", ["ISO, DMY", "SQL, DMY", "German"])
async def test_a_worker_reads_positions_whatever_the_databases_date_style(hf: Holdfast, sql: Sql, style: str) -> None:
    ids = [core.put(sql) for _ in range(3)]
    ((database,),) = sql("select current_database()")
    sql(f"alter database {database} set datestyle = {style}")
    sql(f"alter database {database} set timezone = 'Asia/Kolkata'")
    session = Session(hf.settings, "test")
    try:
        cursor = Cursor()
        first = await session.run(hf.database.calls.jobs.claim("w", ["default"], 2, 60, cursor.hint(0.0), False, 2))
        cursor.learn(first.jobs, enough=True, began=0.0, now=0.0)
        hint = cursor.hint(0.1)
        assert hint is not None and str(ids[1]) in hint
        rest = await session.run(hf.database.calls.jobs.claim("w", ["default"], 2, 60, hint, False, 2))
        assert [job.id for job in (*first.jobs, *rest.jobs)] == [str(id_) for id_ in ids]
    finally:
        await session.close()
        sql(f"alter database {database} reset all")


def test_a_huge_error_is_stored_whatever_it_holds(sql: Sql) -> None:
    from holdfast.model.outcome import describe

    id_ = core.put(sql)
    job = core.claim_one(sql)
    details = describe(ValueError("\x00\ud800" + "x" * 10_000_000), 16_384)
    assert core.fail(sql, job, error=details)
    assert core.look(sql, id_).last_error["type"] == "ValueError"


def test_retry_policies_of_every_kind_survive_the_way_through_copy(hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="t")
    def handler(text: str) -> None: ...

    handler.using(retry=Retry.table([1.5, 2], jitter=0.5), tenant='a"\\\tb').enqueue_many(["x"])
    ((retry, tenant),) = sql("select retry, tenant from live")
    assert retry == Retry.table([1.5, 2], jitter=0.5).as_json()
    assert tenant == 'a"\\\tb'
