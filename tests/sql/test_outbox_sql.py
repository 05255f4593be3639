"""The outbox in SQL alone: emit and its keys, for how long they are kept, and what the views show (R21)."""

from __future__ import annotations

import json
import threading
import uuid
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.errors import InvalidParameterValue, SerializationFailure

from holdfast.model.outbox import idempotency_key
from tests.conftest import wait_until
from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - fixture
from tests.support.sql_core import Sql

DUPLICATES = "SELECT idempotency_key, COUNT(*) FROM outbox GROUP BY idempotency_key HAVING COUNT(*) > 1"
DAY = 86_400


def emit(sql: Sql, key: str | None = "k", channel: str | None = "email", **options: Any) -> tuple[uuid.UUID, str]:
    """Call emit() by named parameters and return id and outcome."""
    casts = {"retry": "jsonb", "id": "uuid", "headers": "json", "keys": "text[]"}
    names, values = ["%s", "%s::jsonb", "%s"], [channel, json.dumps(options.pop("payload", {"to": "a@b.c"})), key]
    for name, value in options.items():
        names.append(f"p_{name} => %s" + (f"::{casts[name]}" if name in casts else ""))
        values.append(value)
    return sql(f"select id, outcome from emit({', '.join(names)})", values)[0]


def claim(sql: Sql) -> core.Claimed:
    return core.claim_one(sql, queues=["outbox"])


def message(sql: Sql, id_: uuid.UUID) -> dict[str, Any]:
    ((found,),) = sql("select to_jsonb(o) from outbox o where id = %s", [id_])
    return found


def end(sql: Sql, how: str) -> None:
    """End the one message."""
    if how == "canceled":
        core.cancel(sql, *core.firsts(sql("select id from live")))
    elif how == "delivered":
        core.finish(sql, claim(sql))
    else:
        core.fail(sql, claim(sql), outcome=how)


# -- what a message is


def test_a_message_is_a_job_of_its_channel(each_sql: Sql) -> None:
    id_, outcome = emit(each_sql, "invoice-42", tenant="acme", payload={"to": "a@b.c", "n": [1, 2.5, None]})
    assert outcome == "created"
    job = claim(each_sql)
    assert (job.id, job.task, job.tenant, job.queue, job.max_attempts, job.dedupe_key) == (
        id_,
        "channel:email",
        "acme",
        "outbox",
        10,
        None,
    )
    assert job.payload == {"key": "invoice-42", "body": {"to": "a@b.c", "n": [1, 2.5, None]}}


def test_unset_options_are_as_the_channels_workers_have_registered_them(sql: Sql) -> None:
    sql("insert into tasks (name, queue, max_attempts, retry) values ('channel:email', 'mail', 3, '{}')")
    emit(sql, "a")
    emit(sql, "b", queue="fast", max_attempts=7, priority=0, retry='{"kind": "fixed", "delay": 5}')
    emit(sql, "c", channel="sms")
    rows = sql("select queue, max_attempts, priority, retry from live order by payload ->> 'key'")
    assert rows == [("mail", 3, 2, None), ("fast", 7, 0, {"kind": "fixed", "delay": 5}), ("outbox", 10, 2, None)]


def test_every_json_value_can_be_a_payload(sql: Sql) -> None:
    for n, payload in enumerate([None, 1, "text", [1], {}, True]):
        emit(sql, f"k{n}", payload=payload)
    assert core.firsts(sql("select payload from outbox order by key")) == [None, 1, "text", [1], {}, True]
    with pytest.raises(InvalidParameterValue, match="needs a payload"):
        sql("select emit('email', null, 'k')")


def test_an_ordered_message_has_the_limit_of_its_order(sql: Sql) -> None:
    emit(sql, "a", order="user-1", tenant="a/b%c")
    emit(sql, "b", order="user-1", tenant="a/b%c", keys=["smtp"])
    emit(sql, "c")
    rows = sql("select keys, lane, payload ->> 'order' from live order by payload ->> 'key'")
    order = "order:email/a%2Fb%25c/user-1"
    assert [(row[0], row[2]) for row in rows] == [([order], "user-1"), ([order, "smtp"], "user-1"), (None, None)]
    assert rows[0][1] == sql("select lane_of(%s, %s)", ["a/b%c", [order]])[0][0]
    assert rows[2][1] == 0


def test_orders_too_long_for_a_limit_are_distinguished_by_their_hash(sql: Sql) -> None:
    for key, order in (("a", "x" * 299), ("b", "x" * 299), ("c", "x" * 298 + "y")):
        emit(sql, key, order=order)
    one, same, other = core.firsts(sql("select keys[1] from live order by payload ->> 'key'"))
    assert one == same != other
    assert one.startswith("order:email/sha256:")
    with pytest.raises(InvalidParameterValue, match="order of a message must have 1 to 300"):
        emit(sql, "d", order="x" * 301)
    with pytest.raises(InvalidParameterValue, match="order of a message must have 1 to 300"):
        emit(sql, "d", order="")


def test_messages_of_one_order_stand_as_they_were_emitted_however_long_their_transactions_are_open(
    dsn: str, sql: Sql
) -> None:
    with core.session(dsn, autocommit=False) as long:
        long.execute("select now()")  # its transaction begins first
        first, _ = emit(sql, "a", order="o")
        second, _ = emit(core.runner(long), "b", order="o")
        third, _ = emit(core.runner(long), "c", order="o")
        long.commit()
    assert core.firsts(sql("select id from live order by run_at, id")) == [first, second, third]


# -- keys


def test_a_second_emit_returns_the_first_and_changes_nothing(each_sql: Sql) -> None:
    first, _ = emit(each_sql, payload={"n": 1})
    assert emit(each_sql, payload={"n": 2}) == (first, "existing")
    assert each_sql("select payload ->> 'body' from live") == [('{"n": 1}',)]


@pytest.mark.parametrize("how", ["delivered", "failed", "dead", "canceled"])
def test_a_key_stays_taken_whatever_became_of_its_message(sql: Sql, how: str) -> None:
    first, _ = emit(sql)
    end(sql, how)
    assert emit(sql) == (first, "existing")
    assert message(sql, first)["status"] == how
    assert core.count(sql, "live") == 0


def test_a_dead_message_that_was_retried_or_discarded_keeps_its_key(sql: Sql) -> None:
    first, _ = emit(sql)
    end(sql, "dead")
    assert core.retry_dead(sql, first) == [first]
    assert emit(sql) == (first, "existing")
    end(sql, "failed")
    assert core.discard_dead(sql, first) == [first]
    assert emit(sql) == (first, "existing")


def test_channels_and_tenants_have_keys_of_their_own(sql: Sql) -> None:
    made = [
        emit(sql, "k")[0],
        emit(sql, "k", channel="sms")[0],
        emit(sql, "k", tenant="a")[0],
        emit(sql, "k", tenant="b")[0],
        emit(sql, "a/k")[0],
        emit(sql, "b/k", tenant="a")[0],
        emit(sql, "k", tenant="a/b")[0],
        emit(sql, "k", tenant="a%2Fb")[0],
        emit(sql, "/k")[0],
        emit(sql, "%2Fk")[0],
    ]
    assert len(set(made)) == len(made) == len(set(core.firsts(sql("select idempotency_key from outbox"))))


def test_the_idempotency_key_never_changes_its_form(sql: Sql) -> None:
    """It is what receivers remember: another form would send everything again."""
    id_, _ = emit(sql, "in/voice%2F-42", tenant="50%/a")
    plain, _ = emit(sql, "k")
    assert message(sql, id_)["idempotency_key"] == "email/50%25%2Fa/in/voice%2F-42"
    assert message(sql, plain)["idempotency_key"] == "email//k"


@pytest.mark.parametrize("key", [None, "", "x" * 301, "a\nb", "a\rb", "\x1f", "\x7f"])
def test_a_key_that_is_none_is_refused(sql: Sql, key: str | None) -> None:
    with pytest.raises(InvalidParameterValue, match="key"):
        emit(sql, key)
    assert core.count(sql, "live") == core.count(sql, "dedupe") == 0


@pytest.mark.parametrize("channel", [None, "", "x" * 101, "a/b", "a b", "é", "a\n", "channel:x", "holdfast.webhooks"])
def test_a_name_that_no_channel_can_have_is_refused(sql: Sql, channel: str | None) -> None:
    with pytest.raises(InvalidParameterValue, match=r"channel|task name"):
        emit(sql, "k", channel)
    assert core.count(sql, "live") == core.count(sql, "dedupe") == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tenant": ""}, "a tenant must have 1 to 200"),
        ({"tenant": "x" * 201}, "a tenant must have 1 to 200"),
        ({"queue": "a/b"}, "a queue's name must have"),
        ({"priority": 4}, "priority must be 0"),
        ({"max_attempts": 0}, "max_attempts must be from 1"),
        ({"keys": ["x" * 301]}, "the key of a limit must have"),
    ],
)
def test_a_job_that_no_worker_could_run_is_refused(sql: Sql, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidParameterValue, match=expected):
        emit(sql, **options)
    assert core.count(sql, "live") == core.count(sql, "dedupe") == 0


def test_the_longest_names_fit_the_index(sql: Sql) -> None:
    key, tenant, channel = "🦀" * 300, "🐙" * 200, "c" * 100
    first, _ = emit(sql, key, channel, tenant=tenant, order="🦀" * 300)
    assert emit(sql, key, channel, tenant=tenant) == (first, "existing")
    assert emit(sql, key, channel, tenant="/" * 200)[1] == "created"


@pytest.mark.parametrize("key", ["'; drop table live; --", '"}', "\\", "%s %(a)s", "a b", "ключ", "\u202e", "{}"])
def test_a_strange_key_is_a_key_like_any_other(sql: Sql, key: str) -> None:
    first, _ = emit(sql, key, payload={key: key})
    assert emit(sql, key) == (first, "existing")
    assert (message(sql, first)["key"], message(sql, first)["payload"]) == (key, {key: key})


# -- races


def test_two_that_emit_one_key_at_once_make_one_message(each_sql: Sql, each_dsn: str) -> None:
    start, results = threading.Barrier(8), []

    def work() -> None:
        with core.session(each_dsn) as conn:
            start.wait()
            results.extend(emit(core.runner(conn), f"k{n}") for n in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(results) == 160
    assert sum(outcome == "created" for _, outcome in results) == 20 == core.count(each_sql, "live")
    assert {id_ for id_, _ in results} == set(core.firsts(each_sql("select id from live")))
    assert each_sql(DUPLICATES) == []


@pytest.mark.parametrize("commits", [True, False])
def test_the_second_waits_for_what_becomes_of_the_firsts_transaction(dsn: str, sql: Sql, commits: bool) -> None:
    results: list[tuple[uuid.UUID, str]] = []
    with core.session(dsn, autocommit=False) as one, core.session(dsn) as two:
        first, _ = emit(core.runner(one))
        waiting = threading.Thread(target=lambda: results.append(emit(core.runner(two))))
        waiting.start()
        wait_until(lambda: sql("select 1 from pg_locks where pid = %s and not granted", [two.info.backend_pid]))
        one.commit() if commits else one.rollback()
        waiting.join()
    assert results[0][1] == ("existing" if commits else "created")
    assert (results[0][0] == first) is commits
    assert core.count(sql, "live") == 1


def test_a_rolled_back_emit_leaves_nothing(dsn: str, sql: Sql) -> None:
    with core.session(dsn, autocommit=False) as conn:
        emit(core.runner(conn))
        conn.rollback()
    assert core.count(sql, "outbox") == core.count(sql, "dedupe") == 0
    with core.session(dsn, autocommit=False) as conn:
        with conn.transaction():
            emit(core.runner(conn))
            raise psycopg.Rollback
        assert emit(core.runner(conn))[1] == "created"  # a savepoint that was left counts as little
        conn.commit()
    assert core.count(sql, "outbox") == 1


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_a_transaction_that_cannot_see_who_was_first_is_to_be_repeated(
    dsn: str, sql: Sql, level: psycopg.IsolationLevel
) -> None:
    with core.session(dsn, autocommit=False) as conn:
        conn.isolation_level = level
        conn.execute("select count(*) from live")  # its snapshot is taken
        first, _ = emit(sql)
        with pytest.raises(SerializationFailure):
            emit(core.runner(conn))
        conn.rollback()
        assert emit(core.runner(conn)) == (first, "existing")
        assert emit(core.runner(conn), "other")[1] == "created"
        assert emit(core.runner(conn), "other")[1] == "existing"
        conn.commit()
    assert core.count(sql, "live") == 2


def test_a_repeated_call_with_the_same_id_is_the_same_message(sql: Sql) -> None:
    id_ = uuid.uuid4()
    assert emit(sql, id=id_) == (id_, "created")
    assert emit(sql, id=id_) == (id_, "existing")
    core.finish(sql, claim(sql))
    assert emit(sql, id=id_) == (id_, "existing")
    assert core.count(sql, "live") == 0


def test_an_id_that_another_message_has_is_an_error_and_no_message(sql: Sql) -> None:
    id_, _ = emit(sql, "a")
    with pytest.raises(psycopg.errors.UniqueViolation):
        emit(sql, "b", id=id_)
    assert core.count(sql, "outbox") == core.count(sql, "dedupe") == 1


def test_sleepers_of_the_queue_are_woken(dsn: str, sql: Sql) -> None:
    sql("insert into sleepers values ('outbox', 'w')")
    with core.session(dsn) as conn:
        conn.execute("listen holdfast_wake")
        emit(sql, "a")
        emit(sql, "b", queue="other")
        assert [note.payload for note in conn.notifies(timeout=5, stop_after=1)] == ["w"]


# -- how long a key is kept


def test_a_key_is_kept_for_as_long_as_the_settings_say(sql: Sql, clock: Clock) -> None:
    first, _ = emit(sql)
    assert sql("select expires_at from dedupe")[0][0] == clock.now + timedelta(days=30)
    core.finish(sql, claim(sql))
    sql("delete from history")  # as retention does
    clock.advance(30 * DAY - 1)
    assert emit(sql) == (first, "existing")
    clock.advance(1)
    second, outcome = emit(sql)
    assert (outcome, second != first) == ("created", True)


@pytest.mark.parametrize("how", ["waiting", "dead", "delivered"])
def test_a_message_that_is_still_there_keeps_its_key(sql: Sql, clock: Clock, how: str) -> None:
    first, _ = emit(sql)
    if how != "waiting":
        end(sql, how)
        sql("update history set finished_at = '9000-01-01'")  # where retention is longer than keys are kept
    clock.advance(31 * DAY)
    assert emit(sql) == (first, "existing")
    sql("select prune()")
    assert core.count(sql, "dedupe") == 1
    assert emit(sql) == (first, "existing")
    assert sql(DUPLICATES) == []


def test_prune_forgets_the_keys_of_messages_that_are_gone(sql: Sql, clock: Clock) -> None:
    for n in range(5):
        emit(sql, f"k{n}")
    core.finish(sql, *core.claim(sql, queues=["outbox"], limit=4))
    sql("delete from history")
    clock.advance(31 * DAY)
    assert sql("select rows_removed from prune()") == [(5,)], "four keys, and a count of attempts"
    assert core.count(sql, "dedupe") == 1
    core.finish(sql, claim(sql))
    sql("delete from history")
    assert sql("select rows_removed from prune()") == [(0,)]  # looked at again in a day
    clock.advance(DAY)
    assert sql("select rows_removed from prune()") == [(2,)]


# -- views


def test_the_view_shows_where_a_message_stands(each_sql: Sql) -> None:
    sql = each_sql
    id_, _ = emit(sql, "k", tenant="acme", order="o", max_attempts=2)
    row = message(sql, id_)
    assert (row["tenant"], row["channel"], row["key"], row["order"], row["idempotency_key"]) == (
        "acme",
        "email",
        "k",
        "o",
        "email/acme/k",
    )
    assert (row["status"], row["attempts"], row["error"], row["delivered_at"]) == ("pending", 0, None, None)
    job = claim(sql)
    assert (message(sql, id_)["status"], message(sql, id_)["attempts"]) == ("delivering", 1)
    core.fail(sql, job, {"type": "Oops", "message": "no"}, delay="0 seconds")
    assert (message(sql, id_)["status"], message(sql, id_)["error"]["message"]) == ("pending", "no")
    core.finish(sql, claim(sql))
    row = message(sql, id_)
    assert (row["status"], row["attempts"], row["delivered_at"] is not None) == ("delivered", 2, True)


def test_jobs_that_are_no_messages_are_not_in_the_outbox(sql: Sql) -> None:
    core.put(sql, "channel_of_something")
    core.put(sql, "channel:email", payload={"no": "key"})
    assert core.count(sql, "outbox") == 0


@pytest.mark.parametrize("tenant", [None, "acme", "a/b", "%", "%2F", "%25/", "//", "é 漢 🙂"])
@pytest.mark.parametrize("key", ["k", "/", "a/b", "%2F", "'\"\\", "🙂"])
def test_python_makes_the_same_idempotency_key(sql: Sql, tenant: str | None, key: str) -> None:
    made = idempotency_key("email", tenant, key)
    assert sql("select idempotency_key('email', %s::text, %s)", [tenant, key]) == [(made,)]
