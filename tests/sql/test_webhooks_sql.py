"""Webhooks in SQL alone: endpoints and their secrets, which events go to which, deliveries and redelivery (R22)."""

from __future__ import annotations

import json
import random
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.errors import InvalidParameterValue

from holdfast import Holdfast
from holdfast.client.delivery import HOST_LIMIT
from holdfast.model.view import View
from holdfast.store.select import PAGE_BYTES, Page
from holdfast.store.webhooks import Deliveries
from tests.conftest import wait_until
from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - fixture
from tests.support.sql_core import Sql

DAY = 86_400
RESPONSE = {"http_status": 503, "response_headers": {"x": "y"}, "response_body": "aGk="}


def add(sql: Sql, tenant: str | None = None, events: list[str] | None = None, **options: Any) -> uuid.UUID:
    """Add an endpoint and return its id."""
    id_ = uuid.uuid4()
    names = "".join(f", p_{name} => %s" for name in options)
    url = options.pop("url", "https://example.org/hook")
    query = f"select add_endpoint(%s, %s, 'plain:one', %s, %s::text[]{names.replace(', p_url => %s', '')})"
    assert sql(query, [id_, url, tenant, events, *options.values()]) == [(True,)]
    return id_


def publish(
    sql: Sql, type_: str = "order.paid", tenant: str | None = None, **options: Any
) -> tuple[uuid.UUID, list[uuid.UUID], str]:
    """Call publish_event(); return the event's id, the deliveries' ids and the outcome."""
    casts = {"event": "uuid"}
    names = "".join(f", p_{name} => %s::{casts.get(name, 'text')}" for name in options)
    query = f"select event, deliveries, outcome from publish_event(%s, %s, %s{names})"
    return sql(query, [type_, '{"a":1}', tenant, *options.values()])[0]


def endpoints_of(sql: Sql, *events: uuid.UUID) -> set[uuid.UUID]:
    """Return the endpoints that have deliveries of the events."""
    query = "select webhook_endpoint_id from webhook_deliveries where event_id = any (%s)"
    return set(core.firsts(sql(query, [list(events)])))


def claim(sql: Sql) -> core.Claimed:
    return core.claim_one(sql, queues=["webhooks"])


def shown(sql: Sql, id_: uuid.UUID) -> dict[str, Any]:
    ((found,),) = sql("select to_jsonb(d) from webhook_deliveries d where webhook_delivery_id = %s", [id_])
    return found


def redeliver(sql: Sql, *ids: uuid.UUID) -> list[tuple[Any, ...]]:
    return sql("select id, outcome, delivery from redeliver(%s)", [list(ids)])


def secrets(sql: Sql, id_: uuid.UUID) -> list[str]:
    return sql("select secrets from read_endpoint(%s)", [id_])[0][0]


# -- which events go where


def test_an_event_is_a_job_for_each_endpoint_that_wants_it(each_sql: Sql) -> None:
    first, second = add(each_sql, "acme"), add(each_sql, "acme")
    event, deliveries, outcome = publish(each_sql, tenant="acme")
    assert outcome == "created" and endpoints_of(each_sql, event) == {first, second}
    jobs = core.claim(each_sql, queues=["webhooks"])
    assert sorted(job.id for job in jobs) == sorted(deliveries)
    for job in jobs:
        endpoint = job.payload["endpoint"]
        body_id = job.payload["body_id"]
        assert job.payload == {"endpoint": endpoint, "event": str(event), "type": "order.paid", "body_id": body_id}
        assert each_sql("select read_body(%s, 'acme')", [body_id]) == [('{"a":1}',)]
        assert (job.task, job.tenant, job.max_attempts) == ("holdfast.webhook", "acme", 10)
        assert job.keys == [f"webhook:{endpoint}", "webhook-host:example.org/acme"]
        assert job.lane == each_sql("select lane_of('acme', %s)", [job.keys])[0][0]


@pytest.mark.parametrize(
    ("events", "type_", "wanted"),
    [
        (None, "anything", True),
        (["order.paid"], "order.paid", True),
        (["order.paid"], "order.paid.late", False),
        (["order.paid"], "Order.Paid", False),
        (["order.*"], "order.paid", True),
        (["order.*"], "order.item.added", True),
        (["order.*"], "order", False),
        (["order.*"], "orders.paid", False),
        (["a", "order.*"], "order.paid", True),
        (["a%", "o_der.*"], "order.paid", False),
    ],
)
def test_an_endpoint_gets_the_types_it_wants(sql: Sql, events: list[str] | None, type_: str, wanted: bool) -> None:
    add(sql, events=events)
    assert bool(publish(sql, type_)[1]) is wanted


def test_tenants_get_their_own_events_only(sql: Sql) -> None:
    endpoints = {tenant: add(sql, tenant) for tenant in ("a", "b", "A", None)}
    for tenant, endpoint in endpoints.items():
        event, deliveries, _ = publish(sql, tenant=tenant)
        assert len(deliveries) == 1 and endpoints_of(sql, event) == {endpoint}
    assert publish(sql, tenant="c")[1] == []


def test_a_disabled_endpoint_gets_no_events(sql: Sql) -> None:
    endpoint = add(sql)
    assert sql("select disable_endpoint(%s, 'too slow')", [endpoint]) == [(True,)]
    assert publish(sql)[1] == []
    assert sql("select enabled, disabled_reason from webhook_endpoint_state") == [(False, "too slow")]
    assert sql("select disable_endpoint(%s, 'again')", [endpoint]) == [(False,)]
    assert sql("""select change_endpoint(%s, '{"enabled": true}')""", [endpoint]) == [(True,)]
    assert len(publish(sql)[1]) == 1
    assert sql("select enabled, disabled_reason from webhook_endpoint_state") == [(True, None)]


def test_a_stale_410_does_not_disable_a_new_address(sql: Sql) -> None:
    endpoint = add(sql, url="https://example.org/old")
    sql("select change_endpoint(%s, %s)", [endpoint, json.dumps({"url": "https://example.org/new"})])
    assert sql("select disable_endpoint(%s, 'gone', 'https://example.org/old')", [endpoint]) == [(False,)]
    assert sql("select disable_endpoint(%s, 'gone', 'https://example.org/new')", [endpoint]) == [(True,)]


def test_an_event_is_rolled_back_with_its_transaction(dsn: str, sql: Sql) -> None:
    add(sql)
    with core.session(dsn, autocommit=False) as conn:
        publish(core.runner(conn), key="k")
        conn.rollback()
    assert core.count(sql, "live") == core.count(sql, "dedupe") == 0


@pytest.mark.parametrize("type_", [None, "", "x" * 201, "a b", "é", "a\nb", "a\x7f"])
def test_a_type_that_no_header_could_carry_is_refused(sql: Sql, type_: str | None) -> None:
    with pytest.raises(InvalidParameterValue, match="an event's type"):
        publish(sql, type_)


def test_an_event_without_a_body_or_with_an_odd_tenant_is_refused(sql: Sql) -> None:
    with pytest.raises(InvalidParameterValue, match="needs a body"):
        sql("select publish_event('a', null)")
    with pytest.raises(InvalidParameterValue, match="a tenant must have"):
        publish(sql, tenant="x" * 201)


# -- once


def test_the_same_event_is_delivered_once_to_each_endpoint(sql: Sql) -> None:
    event = uuid.uuid4()
    add(sql)
    _, first, outcome = publish(sql, event=event)
    assert outcome == "created"
    assert publish(sql, event=event) == (event, first, "existing")
    core.finish(sql, claim(sql))
    assert publish(sql, event=event) == (event, first, "existing")
    add(sql)  # one that was not there before gets it now
    _, second, outcome = publish(sql, event=event)
    assert outcome == "created" and len(second) == 1 and second != first
    assert core.count(sql, "live") == 1


def test_a_key_makes_one_event_whatever_became_of_it(sql: Sql) -> None:
    add(sql, "acme")
    event, deliveries, _ = publish(sql, tenant="acme", key="order-7")
    assert publish(sql, tenant="acme", key="order-7") == (event, deliveries, "existing")
    core.fail(sql, claim(sql), outcome="dead")
    assert publish(sql, tenant="acme", key="order-7") == (event, deliveries, "existing")
    assert publish(sql, tenant="other", key="order-7")[2] == "created"
    assert publish(sql, tenant="acme", key="order-8")[2] == "created"


def test_a_channel_of_the_outbox_has_keys_of_its_own(sql: Sql) -> None:
    add(sql)
    sql("select emit('webhooks', '{}', 'k')")
    assert publish(sql, key="k")[2] == "created"


@pytest.mark.parametrize("known_by", ["event", "key"])
def test_concurrent_publishes_of_one_event_make_one(dsn: str, sql: Sql, known_by: str) -> None:
    for _ in range(3):
        add(sql)
    same: dict[str, Any] = {"event": uuid.uuid4()} if known_by == "event" else {"key": "k"}
    outcomes: list[Any] = []

    def work() -> None:
        with core.session(dsn) as conn:
            outcomes.append(publish(core.runner(conn), **same))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome for _, _, outcome in outcomes) == ["created"] + ["existing"] * 7
    assert len({(event, tuple(sorted(ids))) for event, ids, _ in outcomes}) == 1
    assert core.count(sql, "live") == 3


def test_a_repeated_publish_waits_for_the_first_and_sees_what_ended_meanwhile(dsn: str, sql: Sql) -> None:
    add(sql)
    event = uuid.uuid4()
    again: list[Any] = []
    with core.session(dsn, autocommit=False) as one, core.session(dsn) as two:
        publish(core.runner(one), event=event)
        waiting = threading.Thread(target=lambda: again.append(publish(core.runner(two), event=event)))
        waiting.start()
        wait_until(
            lambda: sql(
                "select 1 from pg_stat_activity where wait_event_type = 'Lock' and pid = %s", [two.info.backend_pid]
            )
        )
        one.commit()
        waiting.join()
    assert again[0][2] == "existing"
    assert core.count(sql, "live") == 1


def test_an_id_of_ones_own_needs_read_committed(dsn: str) -> None:
    with core.session(dsn, autocommit=False) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(InvalidParameterValue, match="repeatable read"):
            publish(core.runner(conn), event=uuid.uuid4())


# -- endpoints


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"url": "http://example.org"}, "must begin with https://"),
        ({"url": "ftp://example.org"}, "must begin with https://"),
        ({"url": "https://"}, "must begin with https://"),
        ({"url": None}, "must begin with https://"),
        ({"url": "https://" + "x" * 2000}, "must begin with https://"),
        ({"events": []}, "1 to 200 types"),
        ({"events": ["*"]}, "types such as"),
        ({"events": ["a*"]}, "types such as"),
        ({"events": ["*.a"]}, "types such as"),
        ({"events": ["a b"]}, "types such as"),
        ({"events": [None]}, "types such as"),
        ({"prefix": ""}, "prefix"),
        ({"prefix": "a_b"}, "prefix"),
        ({"prefix": "x" * 41}, "prefix"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": 301}, "timeout"),
        ({"timeout": None}, "timeout"),
        ({"secrets": []}, "not secrets"),
        ({"tenant": "b"}, "not tenant"),
    ],
)
def test_an_endpoint_that_could_not_work_is_refused(sql: Sql, change: dict[str, Any], words: str) -> None:
    endpoint = add(sql, "acme")
    before = sql("select * from webhook_endpoints")
    with pytest.raises(InvalidParameterValue, match=words):
        sql("select change_endpoint(%s, %s)", [endpoint, json.dumps(change)])
    assert sql("select * from webhook_endpoints") == before


def test_a_refused_url_is_shown_without_what_may_be_secret(sql: Sql) -> None:
    with pytest.raises(InvalidParameterValue) as refused:
        add(sql, url="http://me:hush@example.org/?token=hush")
    assert "hush" not in str(refused.value)


def test_an_endpoint_is_changed_in_what_is_named(sql: Sql) -> None:
    endpoint = add(sql, "acme", ["a"], timeout=5)
    sql("select change_endpoint(%s, %s)", [endpoint, json.dumps({"events": None, "prefix": "BPC", "description": "d"})])
    found = sql("select tenant, url, events, prefix, timeout, description from webhook_endpoint_state")
    assert found == [("acme", "https://example.org/hook", None, "BPC", 5, "d")]


@pytest.mark.parametrize(
    "call", ["change_endpoint(%s, '{}')", "rotate_secret(%s, 'plain:x')", "remove_endpoint(%s)", "disable_endpoint(%s)"]
)
def test_an_endpoint_that_is_not_there_is_reported_as_such(sql: Sql, call: str) -> None:
    assert sql(f"select {call}", [uuid.uuid4()]) == [(False,)]
    assert sql("select test_endpoint(%s, '{}')", [uuid.uuid4()]) == [(None,)]
    assert sql("select * from read_endpoint(%s)", [uuid.uuid4()]) == []


def test_an_endpoint_added_again_with_its_id_is_the_same(sql: Sql) -> None:
    endpoint = add(sql)
    assert sql("select add_endpoint(%s, 'https://example.com', 'plain:two')", [endpoint]) == [(False,)]
    assert secrets(sql, endpoint) == ["plain:one"]


# -- secrets


def test_old_secrets_are_valid_for_a_while(sql: Sql, clock: Clock) -> None:
    endpoint = add(sql)
    sql("select rotate_secret(%s, 'plain:two', '1 day')", [endpoint])
    clock.advance(DAY / 2)
    sql("select rotate_secret(%s, 'plain:three', '1 day')", [endpoint])
    assert secrets(sql, endpoint) == ["plain:three", "plain:two", "plain:one"]
    assert sql("select secrets, old_secrets_until - clock() from webhook_endpoint_state")[0][0] == 3
    clock.advance(DAY / 2)
    assert secrets(sql, endpoint) == ["plain:three", "plain:two"]
    clock.advance(DAY / 2)
    assert secrets(sql, endpoint) == ["plain:three"]
    assert sql("select secrets, old_secrets_until from webhook_endpoint_state") == [(1, None)]
    sql("select rotate_secret(%s, 'plain:four', '0')", [endpoint])
    assert sql("select jsonb_array_length(secrets) from webhook_endpoints") == [(1,)]


def test_rotating_with_the_same_secret_changes_nothing(sql: Sql) -> None:
    endpoint = add(sql)
    for _ in range(2):
        sql("select rotate_secret(%s, 'plain:two', '1 day')", [endpoint])
    assert secrets(sql, endpoint) == ["plain:two", "plain:one"]


def test_no_more_than_ten_secrets_are_kept(sql: Sql) -> None:
    endpoint = add(sql)
    for n in range(30):
        sql("select rotate_secret(%s, %s, '1 day')", [endpoint, f"plain:{n}"])
    assert secrets(sql, endpoint) == [f"plain:{n}" for n in range(29, 19, -1)]


# -- deliveries


def test_a_delivery_is_shown_with_the_columns_that_people_know(sql: Sql) -> None:
    endpoint = add(sql, "acme")
    event, (delivery,), _ = publish(sql, tenant="acme")
    pending = shown(sql, delivery)
    assert (pending["status"], pending["tenant_id"], pending["attempts"]) == ("PENDING", "acme", 0)
    assert (pending["webhook_endpoint_id"], pending["event_id"]) == (str(endpoint), str(event))
    assert (pending["http_status"], pending["response_body"], pending["delivered_at"]) == (None, None, None)
    core.fail(sql, claim(sql), {"type": "E", "message": "no", "details": {"response": RESPONSE}}, delay="1 hour")
    failed = shown(sql, delivery)
    assert (failed["status"], failed["http_status"], failed["error_message"]) == ("PENDING", 503, "no")
    assert (failed["response_headers"], failed["response_body"]) == ({"x": "y"}, "\\x6869")
    assert failed["next_attempt_at"] is not None and failed["job_status"] == "retrying"
    redeliver(sql, delivery)
    core.promote(sql)
    job = claim(sql)
    done = [{"id": str(job.id), "token": job.token, "outcome": "succeeded", "result": {**RESPONSE, "http_status": 200}}]
    sql("select finish('{}', '{}', %s)", [json.dumps(done)])
    delivered = shown(sql, delivery)
    assert (delivered["status"], delivered["http_status"], delivered["error_message"]) == ("DELIVERED", 200, None)
    assert delivered["delivered_at"] is not None and delivered["attempts"] == 2


@pytest.mark.parametrize("how", ["failed", "dead", "canceled"])
def test_a_delivery_that_ended_otherwise_is_failed(sql: Sql, how: str) -> None:
    add(sql)
    _, (delivery,), _ = publish(sql)
    if how == "canceled":
        core.cancel(sql, delivery)
    else:
        core.fail(sql, claim(sql), outcome=how)
    assert (shown(sql, delivery)["status"], shown(sql, delivery)["job_status"]) == ("FAILED", how)


@pytest.mark.parametrize(
    ("payload", "response"),
    [
        ({}, {}),
        ({"endpoint": "x", "event": 7}, {"http_status": "many", "response_body": "%%%"}),
        ({"endpoint": "-" * 36, "event": None}, {"http_status": 10**12, "response_body": "a"}),
        ({"endpoint": ["x"], "event": {}}, {"http_status": None, "response_body": {"a": 1}, "response_headers": 3}),
    ],
)
def test_a_job_made_by_hand_does_not_break_the_view(sql: Sql, payload: Any, response: Any) -> None:
    id_ = core.put(sql, "holdfast.webhook", payload=payload, queue="webhooks")
    core.fail(sql, claim(sql), {"details": {"response": response}}, delay="1 hour")
    found = shown(sql, id_)
    assert (found["webhook_endpoint_id"], found["http_status"], found["response_body"]) == (None, None, None)


@pytest.mark.parametrize("how", ["succeeded", "dead"])
def test_whatever_is_in_a_payload_made_by_hand_its_job_can_end(sql: Sql, how: str) -> None:
    endpoint = random.Random(1).randbytes(9000).hex()
    sql(
        "insert into live (id, queue, task, payload) values (uuid7(), 'webhooks', 'holdfast.webhook', %s::json)",
        [json.dumps({"endpoint": endpoint})],
    )
    job = claim(sql)
    assert core.finish(sql, job) == [] if how == "succeeded" else core.fail(sql, job, outcome=how)


@pytest.mark.parametrize("payload", [{}, {"endpoint": "x" * 400}, {"endpoint": None}])
def test_a_job_made_by_hand_is_not_copied(sql: Sql, payload: Any) -> None:
    id_ = core.put(sql, "holdfast.webhook", payload=payload, queue="webhooks")
    core.finish(sql, claim(sql))
    assert redeliver(sql, id_) == [(id_, "unknown", None)]


def test_a_test_event_goes_to_one_endpoint_once(sql: Sql) -> None:
    endpoint = add(sql, "acme", ["order.paid"])
    add(sql, "acme")
    ((delivery,),) = sql("select test_endpoint(%s, '{}')", [endpoint])
    assert core.firsts(sql("select webhook_delivery_id from webhook_deliveries")) == [delivery]
    assert (shown(sql, delivery)["event_type"], shown(sql, delivery)["max_attempts"]) == ("holdfast.test", 1)


# -- again


def test_deliveries_go_again_wherever_they_are(each_sql: Sql) -> None:
    sql = each_sql
    add(sql)
    dead, ended, later, running, due = (publish(sql)[1][0] for _ in range(5))
    jobs = {job.id: job for job in core.claim(sql, queues=["webhooks"], limit=4)}
    core.fail(sql, jobs[dead], outcome="failed")
    core.finish(sql, jobs[ended])
    core.fail(sql, jobs[later], delay="1 hour")
    other, unknown = core.put(sql, "t", delay="1 hour"), uuid.uuid4()
    results = redeliver(sql, dead, ended, later, running, due, other, unknown, dead)
    copy = results[1][2]
    assert results == [
        (dead, "retried", dead),
        (ended, "copied", copy),
        (later, "due", later),
        (running, "running", None),
        (due, "due", None),
        (other, "unknown", None),
        (unknown, "unknown", None),
        (dead, "retried", dead),
    ]
    assert (core.place(sql, dead), core.place(sql, ended), core.place(sql, later)) == ("live", "history", "later")
    assert core.promote(sql) == [later]
    assert core.place(sql, other) == "later"
    old, new = shown(sql, ended), shown(sql, copy)
    assert {name for name in old if old[name] != new[name]} == {
        "webhook_delivery_id",
        "status",
        "delivered_at",
        "created_at",
        "job_status",
        "attempts",
        "next_attempt_at",
        "finished_at",
    }
    again = core.claim(sql, queues=["webhooks"])
    assert {job.id for job in again} == {dead, copy, later, due}
    assert len({(job.lane, tuple(job.keys)) for job in again}) == 1


def test_a_retried_delivery_has_all_its_attempts_again(sql: Sql) -> None:
    add(sql)
    _, (delivery,), _ = publish(sql)
    core.fail(sql, claim(sql), outcome="dead")
    redeliver(sql, delivery)
    assert claim(sql).attempt == 1


def test_deliveries_of_an_endpoint_are_found_by_an_index(hf: Holdfast, sql: Sql) -> None:
    endpoint = add(sql)
    sql(
        "insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, finished_at, queue, "
        "task, payload) select gen_random_uuid(), 'succeeded', 2, 1, 1, now(), now(), now(), 'webhooks', "
        "'holdfast.webhook', json_build_object('endpoint', gen_random_uuid()) from generate_series(1, 5000)"
    )
    sql("analyze history")
    found = sql("explain select * from webhook_deliveries where endpoint_key = %s", [str(endpoint)])
    assert re.search(r"history_\d+_substring_finished_at_idx", "\n".join(core.firsts(found)))


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a node of a plan and all below it."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes_of(below)


def test_a_page_of_an_endpoints_deliveries_reads_the_responses_of_that_page_only(hf: Holdfast, sql: Sql) -> None:
    """PostgreSQL sorts all deliveries of the endpoint, because the index does not have the order of ids."""
    endpoint = str(add(sql, "acme"))
    sql(
        "insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, finished_at, queue, "
        "task, tenant, payload) select uuid7(), 'succeeded', 2, 1, 1, now(), now(), now(), 'webhooks', "
        "'holdfast.webhook', 'acme', json_build_object('endpoint', %s::text) from generate_series(1, 500)",
        [endpoint],
    )
    sql("analyze history")
    calls, view = hf.database.calls.webhooks, View(tenant="acme")
    page = Page(limit=5, size=PAGE_BYTES)
    call = calls.deliveries(Deliveries(endpoint=endpoint), page, view)
    (((plan,),),) = sql(f"explain (analyze, verbose, format json) {call.sql}", call.params)
    reading = [each for each in nodes_of(plan["Plan"]) if "response_headers" in str(each.get("Output"))]
    assert reading and max(each["Actual Rows"] for each in reading) <= 5
    newest = core.firsts(sql("select id::text from history order by history.id desc limit 10"))
    assert [each.id for each in hf.database.sync_pool.run(call).rows] == newest[:5]


# -- bodies


def bodies(sql: Sql) -> int:
    return core.count(sql, "webhook_bodies")


def test_an_events_body_is_stored_once_however_many_endpoints_there_are(sql: Sql) -> None:
    for _ in range(20):
        add(sql, "acme")
    body = random.Random(1).randbytes(100_000).hex()
    ((deliveries,),) = sql("select deliveries from publish_event('order.paid', %s, 'acme')", [body])
    assert len(deliveries) == 20 and bodies(sql) == 1
    assert sql("select max(length(payload::text)) < 300 from live") == [(True,)]
    assert {shown(sql, each)["body"] for each in deliveries} == {body}


def test_an_event_without_subscribers_and_one_that_is_published_again_store_no_body(sql: Sql) -> None:
    publish(sql, tenant="acme")
    assert bodies(sql) == 0
    add(sql, "acme")
    event, _, _ = publish(sql, tenant="acme")
    publish(sql, tenant="acme", event=event)
    assert bodies(sql) == 1


@pytest.mark.parametrize("other", [None, "evil"])
def test_a_body_is_read_for_its_own_tenant_alone(sql: Sql, other: str | None) -> None:
    add(sql, "acme")
    publish(sql, tenant="acme")
    ((stolen,),) = sql("select id from webhook_bodies")
    assert sql("select read_body(%s, %s)", [stolen, other]) == [(None,)]
    payload = {"endpoint": str(uuid.uuid4()), "event": str(uuid.uuid4()), "type": "a", "body_id": str(stolen)}
    id_ = core.put(sql, "holdfast.webhook", payload=payload, queue="webhooks", tenant=other)
    assert shown(sql, id_)["body"] is None


def test_a_body_goes_when_the_last_of_its_deliveries_is_gone(sql: Sql, clock: Clock) -> None:
    add(sql, "acme"), add(sql, "acme")
    _, deliveries, _ = publish(sql, tenant="acme")
    for job in core.claim(sql, queues=["webhooks"]):
        core.finish(sql, job) if job.id == deliveries[0] else core.fail(sql, job, outcome="dead")
    ((_, _, copy),) = redeliver(sql, deliveries[0])
    core.fail(sql, claim(sql), outcome="dead")
    for gone in (deliveries[1], copy):  # the first is in history, which ends; these are dead, and stay until discarded
        clock.advance(30 * DAY)
        sql("select prune()")
        assert bodies(sql) == 1
        assert shown(sql, gone)["body"] == '{"a":1}'
        sql("select discard_dead(%s)", [[gone]])
    clock.advance(30 * DAY)
    sql("select prune()")
    clock.advance(2 * DAY)
    sql("select prune()")
    assert bodies(sql) == 0


# -- caps


@pytest.fixture
def cap(each_sql: Sql) -> Iterator[Callable[[int], None]]:
    """Set how many endpoints a tenant may have, for one test."""

    def put(most: int) -> None:
        each_sql("update settings set value = %s where name = 'webhook_endpoints_per_tenant'", [str(most)])

    yield put
    put(50)


def test_a_tenant_has_so_many_endpoints_and_no_more(each_sql: Sql, cap: Callable[[int], None]) -> None:
    cap(3)
    for _ in range(3):
        last = add(each_sql, "acme")
    with pytest.raises(InvalidParameterValue, match="'acme' has 3 endpoints, the maximum"):
        add(each_sql, "acme")
    again = "select add_endpoint(%s, 'https://example.org/hook', 'plain:one', 'acme')"
    assert each_sql(again, [last]) == [(False,)]
    add(each_sql, "other")
    for _ in range(5):
        add(each_sql)
    each_sql("select remove_endpoint(%s)", [last])
    add(each_sql, "acme")


def test_endpoints_made_at_once_do_not_exceed_the_cap(each_dsn: str, each_sql: Sql, cap: Callable[[int], None]) -> None:
    dsn, sql = each_dsn, each_sql
    cap(1)
    refused: list[Exception] = []

    def second() -> None:
        with core.session(dsn) as conn:
            try:
                add(core.runner(conn), "acme")
            except InvalidParameterValue as error:
                refused.append(error)

    with core.session(dsn, autocommit=False) as first:
        add(core.runner(first), "acme")
        thread = threading.Thread(target=second)
        thread.start()
        wait_until(lambda: sql("select count(*) from pg_locks where locktype = 'advisory' and not granted") == [(1,)])
        first.commit()
        thread.join()
    assert len(refused) == 1 and core.count(sql, "webhook_endpoints") == 1


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.org/a", "example.org"),
        ("https://example.org", "example.org"),
        ("https://example.org:8443/b?c", "example.org"),
        ("https://[2606:4700::1]:443/", "[2606:4700::1]"),
        ("https://1.1.1.1/", "1.1.1.1"),
    ],
)
def test_a_delivery_is_under_a_limit_of_its_tenant_and_host(sql: Sql, url: str, host: str) -> None:
    endpoint = add(sql, "acme", url=url)
    publish(sql, tenant="acme")
    assert claim(sql).keys == [f"webhook:{endpoint}", f"webhook-host:{host}/acme"]


def test_the_key_of_a_long_host_and_tenant_fits(sql: Sql) -> None:
    add(sql, "t" * 200, url=f"https://{'h' * 200}.example/")
    publish(sql, tenant="t" * 200)
    assert len(claim(sql).keys[1]) == 300


def test_no_more_posts_to_one_host_of_a_tenant_at_once_than_its_limit(sql: Sql) -> None:
    rule = [{"template": HOST_LIMIT.key, "pattern": HOST_LIMIT.pattern, "code": HOST_LIMIT.as_json()}]
    sql("select register_limits(%s)", [json.dumps(rule)])
    for n in range(30):
        add(sql, "acme", url=f"https://victim.example/{n}")
    add(sql, "acme", url="https://other.example/"), add(sql, "evil", url="https://victim.example/")
    for tenant in ("acme", "evil"):
        publish(sql, tenant=tenant)
    jobs = []
    while found := core.claim(sql, limit=100, queues=["webhooks"]):
        jobs += found
    assert sorted((job.keys[1], 1) for job in jobs) == sorted(
        [("webhook-host:victim.example/acme", 1)] * 20
        + [("webhook-host:other.example/acme", 1), ("webhook-host:victim.example/evil", 1)]
    )
