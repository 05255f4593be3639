"""Webhooks from publish to the receiver, with real workers and a receiver on this machine (R22)."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import psycopg
import pytest
from aiohttp import web
from psycopg.conninfo import make_conninfo
from standardwebhooks import Webhook

from holdfast import DeliveryInfo, Event, Holdfast, Retry, Status
from holdfast.effects import SignatureRefused, verify
from holdfast.effects.deliver import LONGEST_WAIT, retry_after
from holdfast.testing import Kit
from tests.support.hooked import HUSH, ORDER, add, delivering, ended, quick_fixture, respond_with, sent, tried  # noqa: F401 - a fixture
from tests.support.receiver import receiving, verify_signature
from tests.support.running import until

# -- what the receiver gets


async def test_a_delivery_is_accepted_by_the_documents_verifier_and_by_ours(hf: Holdfast) -> None:
    async with receiving() as receiver:
        add(hf, receiver, prefix="BPC")
        info = await sent(hf)
    (got,) = receiver.got
    assert verify_signature(HUSH, got.body, got.headers["X-BPC-Signature"])
    assert verify(got.body, got.headers, HUSH).id == info.event
    assert Webhook(HUSH).verify(got.body, got.headers) == json.loads(got.body)
    assert json.loads(got.body) == {"order": 7, "note": "é 漢 🙂 \u0000"}
    assert got.headers["X-BPC-Event-Type"] == "order.paid"
    assert (got.delivery, got.event) == (info.id, info.event)
    assert got.headers["Content-Type"] == "application/json"
    assert (info.status, info.http_status, info.response_body, info.error) == ("DELIVERED", 200, b"thanks", None)
    assert info.response_headers is not None and info.response_headers["content-length"] == "6"
    for place in range(0, len(got.body), 7):
        flipped = bytearray(got.body)
        flipped[place] ^= 1
        assert not verify_signature(HUSH, bytes(flipped), got.headers["X-BPC-Signature"])
        with pytest.raises(SignatureRefused):
            verify(bytes(flipped), got.headers, HUSH)


@pytest.mark.parametrize(("most", "status"), [(500, 200), (2, None)])
async def test_a_delivery_succeeds_whatever_the_size_of_the_response(
    hf: Holdfast, most: int, status: int | None
) -> None:
    async with receiving(respond_with(200, body=b"x" * 5000)) as receiver:
        add(hf, receiver)
        (delivery,) = hf.webhooks.publish(None, ORDER).deliveries
        async with delivering(hf, max_result=most):
            info = await ended(hf, delivery)
    assert (info.status, info.http_status, info.error, len(receiver.got)) == ("DELIVERED", status, None, 1)


async def test_bytes_are_sent_as_they_are(hf: Holdfast) -> None:
    body = b'{ "a" :1.0,\n\t"b":"\\u0000"}\r\n'
    async with receiving() as receiver:
        add(hf, receiver)
        await sent(hf, Event("a", body, tenant="acme"))
    assert receiver.got[0].body == body
    verify(body, receiver.got[0].headers, HUSH)


async def test_while_a_secret_is_exchanged_either_verifies(hf: Holdfast) -> None:
    async with receiving() as receiver:
        endpoint = add(hf, receiver)
        new = hf.webhooks.rotate(endpoint.id)
        await sent(hf)
        (both,) = receiver.got
        newer = hf.webhooks.rotate(endpoint.id, keep_old_for=0)
        await asyncio.sleep(0)
        await sent(Holdfast(hf.settings.dsn))
    for secret in (new, HUSH):
        verify(both.body, both.headers, secret)
    assert verify_signature(new, both.body, both.headers["X-Holdfast-Signature"])
    verify(receiver.got[1].body, receiver.got[1].headers, newer)
    for secret in (new, HUSH):
        with pytest.raises(SignatureRefused):
            verify(receiver.got[1].body, receiver.got[1].headers, secret)


async def test_one_event_goes_to_all_endpoints_of_its_tenant_and_no_others(hf: Holdfast) -> None:
    async with receiving() as mine, receiving() as mine_too, receiving() as other, receiving() as nobodys:
        add(hf, mine, events=["order.*"])
        add(hf, mine_too, secret="another one, longer")
        add(hf, other, "other")
        add(hf, nobodys, None)
        published = hf.webhooks.publish(None, ORDER)
        async with delivering(hf):
            for delivery in published.deliveries:
                await ended(hf, delivery)
    assert [len(each.got) for each in (mine, mine_too, other, nobodys)] == [1, 1, 0, 0]
    assert {mine.got[0].event, mine_too.got[0].event} == {published.event}
    assert sorted([mine.got[0].delivery, mine_too.got[0].delivery]) == sorted(published.deliveries)
    verify(mine_too.got[0].body, mine_too.got[0].headers, "another one, longer")


# -- when it does not work


async def test_a_failed_delivery_is_tried_again_under_the_same_ids(hf: Holdfast) -> None:
    async with receiving(lambda n: web.Response(status=500 if n < 3 else 204)) as receiver:
        add(hf, receiver)
        info = await sent(hf)
    assert (info.status, info.http_status, info.attempts, info.error) == ("DELIVERED", 204, 3, None)
    assert {(got.delivery, got.event, got.body) for got in receiver.got} == {
        (info.id, info.event, receiver.got[0].body)
    }
    for got in receiver.got:
        verify(got.body, got.headers, HUSH)


@pytest.mark.parametrize("status", [301, 400, 404, 500, 599])
async def test_what_is_refused_every_time_ends_as_failed_with_the_response(hf: Holdfast, status: int) -> None:
    async with receiving(respond_with(status, {"X-Why": "no"}, b"\x00\xff sorry")) as receiver:
        add(hf, receiver)
        info = await sent(hf)
    assert len(receiver.got) == 3
    assert (info.status, info.job_status, info.http_status, info.attempts) == ("FAILED", "dead", status, 3)
    assert info.response_headers is not None and info.response_headers["x-why"] == "no"
    assert info.response_body == b"\x00\xff sorry" and str(status) in str(info.error)


async def test_a_refused_connection_is_retried_and_then_fails(hf: Holdfast) -> None:
    async with receiving() as receiver:
        add(hf, receiver)
    info = await sent(hf)
    assert (info.status, info.http_status, info.attempts) == ("FAILED", None, 3)
    job = await hf.jobs.aget(info.id)
    assert job is not None and job.last_error is not None and job.last_error["code"] == "CONNECT"


async def test_a_receiver_that_does_not_respond_is_given_up(hf: Holdfast) -> None:
    hf.webhooks.retry = Retry.none()
    async with receiving(lambda _: asyncio.sleep(60)) as receiver:
        add(hf, receiver, timeout=0.3)
        info = await sent(hf)
    assert "did not respond within 0.3 s" in str(info.error)


async def test_gone_disables_the_endpoint(hf: Holdfast) -> None:
    async with receiving(respond_with(410, body=b"bye")) as receiver:
        endpoint = add(hf, receiver)
        first, second = (hf.webhooks.publish(None, ORDER).deliveries[0] for _ in range(2))
        async with delivering(hf, concurrency=1):
            info, after = await ended(hf, first), await ended(hf, second)
    assert len(receiver.got) == 1
    assert (info.status, info.job_status, info.http_status, info.attempts) == ("FAILED", "failed", 410, 1)
    assert info.response_body == b"bye"
    assert "disabled: it returned 410 Gone" in str(after.error)
    now = hf.webhooks.get(endpoint.id)
    assert (now.enabled, now.disabled_reason) == (False, "it returned 410 Gone")
    assert hf.webhooks.publish(None, ORDER).deliveries == []
    hf.webhooks.enable(endpoint.id)
    assert len(hf.webhooks.publish(None, ORDER).deliveries) == 1


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_receiver_that_asks_for_time_gets_it(hf: Holdfast, status: int, form: str) -> None:
    at = datetime.now(UTC) + timedelta(minutes=30)
    header = "1800" if form == "seconds" else format_datetime(at, usegmt=True)
    async with receiving(respond_with(status, {"Retry-After": header})) as receiver:
        add(hf, receiver)
        (delivery,) = hf.webhooks.publish(None, ORDER).deliveries
        async with delivering(hf):
            info = await tried(hf, delivery)
    assert (info.status, info.http_status, info.attempts) == ("PENDING", status, 1)
    assert info.next_attempt_at is not None and abs(info.next_attempt_at - at) < timedelta(seconds=20)
    assert info.response_headers is not None and info.response_headers["retry-after"] == header


async def test_a_receiver_that_asks_for_little_time_does_not_use_up_the_attempts(hf: Holdfast) -> None:
    hf.webhooks.retry = Retry.fixed(3600, max_attempts=3)
    async with receiving(respond_with(503, {"Retry-After": "1"})) as receiver:
        add(hf, receiver)
        (delivery,) = hf.webhooks.publish(None, ORDER).deliveries
        async with delivering(hf):
            info = await tried(hf, delivery)
    assert info.next_attempt_at is not None
    assert info.next_attempt_at - datetime.now(UTC) > timedelta(minutes=30)


@pytest.mark.parametrize(("status", "header"), [(500, "1800"), (503, "soon"), (429, "")])
async def test_other_responses_are_retried_by_the_policy(hf: Holdfast, status: int, header: str) -> None:
    async with receiving(respond_with(status, {"Retry-After": header})) as receiver:
        add(hf, receiver)
        assert (await sent(hf)).attempts == 3


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("0", 1),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("1" * 5000, LONGEST_WAIT),
        ("999999999999999999999", LONGEST_WAIT),
        ("Mon, 16 Nov 2026 05:01:00 GMT", 60),
        ("Mon, 16 Nov 2026", None),
        ("Mon, 16 Nov 2026 04:00:00 GMT", 1),
        ("Monday, 16-Nov-26 05:01:00 GMT", 60),
        ("Mon Nov 16 05:01:00 2026", 60),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_WAIT),
        ("Mon, 16 Nov 2026 06:01:00 +0100", 60),
        ("٣", None),
        ("\x00", None),
        ("Mon, 99 Nov 2026 05:01:00 GMT", None),
        ("Mon, 16 Nov 2026 05:01:00 +9999999999", None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(header: str, seconds: float | None) -> None:
    assert retry_after(header, datetime(2026, 11, 16, 5, 0, tzinfo=UTC)) == seconds


async def test_an_endpoint_that_fails_time_after_time_is_left_alone_for_a_while(hf: Holdfast) -> None:
    hf.webhooks.retry = Retry.fixed(3600, max_attempts=2)
    async with receiving(respond_with(500)) as receiver, receiving() as well:
        endpoint, other = add(hf, receiver), add(hf, well)
        for _ in range(20):
            hf.webhooks.publish(None, ORDER)
        async with delivering(hf, concurrency=1):
            await until(lambda: len(well.got) == 20)
            await until(lambda: hf.webhooks.get(endpoint.id).breaker_open_until)
    tries = len(receiver.got)
    assert 10 <= tries < 15  # some had been claimed already
    assert hf.webhooks.get(endpoint.id).failure_streak == tries
    assert hf.webhooks.get(other.id).breaker_open_until is None
    waiting = [d for d in hf.webhooks.deliveries(endpoint=endpoint.id) if d.attempts == 0]
    assert len(waiting) == 20 - tries
    assert "breaker" in hf.jobs.why(waiting[0].id).sentence
    hf.webhooks.enable(endpoint.id)  # the endpoint is repaired
    assert hf.webhooks.get(endpoint.id).breaker_open_until is None


async def test_deliveries_to_a_disabled_endpoint_fail_and_do_not_open_its_breaker(hf: Holdfast) -> None:
    async with receiving() as receiver:
        endpoint = add(hf, receiver)
        deliveries = [hf.webhooks.publish(None, ORDER).deliveries[0] for _ in range(15)]
        hf.webhooks.disable(endpoint.id, "on holiday")
        async with delivering(hf):
            infos = [await ended(hf, each) for each in deliveries]
    assert receiver.got == []
    assert {info.error for info in infos} == {f"endpoint {endpoint.id} is disabled: on holiday"}
    assert {info.attempts for info in infos} == {1}
    assert hf.webhooks.get(endpoint.id).failure_streak == 0


async def test_deliveries_to_a_removed_endpoint_fail(hf: Holdfast) -> None:
    async with receiving() as receiver:
        endpoint = add(hf, receiver)
        (delivery,) = hf.webhooks.publish(None, ORDER).deliveries
        hf.webhooks.remove(endpoint.id)
        async with delivering(hf):
            info = await ended(hf, delivery)
    assert receiver.got == [] and info.error == f"endpoint {endpoint.id} has been removed"


async def test_nothing_of_one_tenant_is_signed_for_anothers_endpoint(hf: Holdfast, sql: Any) -> None:
    async with receiving() as receiver:
        endpoint = add(hf, receiver)
        made = {"endpoint": endpoint.id, "event": endpoint.id, "type": "a", "body_id": endpoint.id}
        ((id_,),) = sql(
            "select id::text from enqueue('holdfast.webhook', %s, 'webhooks', p_tenant => 'other')", [json.dumps(made)]
        )
        async with delivering(hf):
            info = await ended(hf, id_)
    assert receiver.got == [] and "belongs to another tenant" in str(info.error)


async def test_a_delivery_made_by_hand_that_makes_no_sense_fails(hf: Holdfast, sql: Any) -> None:
    rows = [
        sql("select id::text from enqueue('holdfast.webhook', %s, 'webhooks')", [json.dumps(made)])
        for made in ({}, {"endpoint": "x", "event": "y", "type": "a", "body_id": "z"})
    ]
    async with delivering(hf):
        for ((id_,),) in rows:
            assert (await ended(hf, id_)).status == "FAILED"


async def test_an_inward_address_is_refused_in_words(hf: Holdfast, sql: Any) -> None:
    async with receiving() as receiver:
        add(hf, receiver)
        sql("update webhook_endpoints set dev = false, url = replace(url, 'http:', 'https:')")
        info = await sent(hf)
    assert receiver.got == [] and info.attempts == 3
    assert "127.0.0.1 is a loopback address" in str(info.error)


@pytest.mark.parametrize("status", [b"200 OK", b"500 \xff\x01"])
async def test_a_hostile_response_is_stored_as_readable_text(hf: Holdfast, status: bytes) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"".join(b"X-%d: \xff\xfe \xc3\x28 %s\r\n" % (n, b"y" * 500) for n in range(60))
        body = b"\x00\xff\xed\xa0\x80" * 20_000
        writer.write(b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n" % (status, head, len(body)) + body)
        await writer.drain()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        hf.webhooks.add(f"http://127.0.0.1:{port}/", tenant="acme", dev=True)
        info = await sent(hf)
    assert info.status in ("DELIVERED", "FAILED")
    assert info.response_body is None or info.response_body == (b"\x00\xff\xed\xa0\x80" * 20_000)[:16_384]
    assert len(json.dumps(info.response_headers)) < 20_000
    if status.startswith(b"200"):
        assert info.status == "DELIVERED" and info.response_body is not None


# -- again


async def test_one_delivery_goes_again_under_a_new_id_and_the_same_event(hf: Holdfast) -> None:
    async with receiving() as receiver:
        add(hf, receiver)
        first = await sent(hf)
        (again,) = hf.webhooks.redeliver(first.id)
        assert (again.id, again.outcome) == (first.id, "copied") and again.delivery is not None
        async with delivering(hf):
            assert (await ended(hf, again.delivery)).status == "DELIVERED"
    assert [got.event for got in receiver.got] == [first.event] * 2
    assert [got.delivery for got in receiver.got] == [first.id, again.delivery]
    assert receiver.got[0].body == receiver.got[1].body
    verify(receiver.got[1].body, receiver.got[1].headers, HUSH)


async def test_a_range_of_failed_deliveries_goes_again(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.client.webhooks.STEP", 3)
    hf.webhooks.retry = Retry.none()
    down = True
    async with receiving(lambda _: web.Response(status=500 if down else 200)) as receiver, receiving() as other:
        endpoint, _ = add(hf, receiver), add(hf, other, "other")
        failed = [hf.webhooks.publish(None, ORDER).deliveries[0] for _ in range(8)]
        hf.webhooks.publish(None, Event("a", {}, tenant="other"))
        async with delivering(hf):
            for each in failed:
                await ended(hf, each)
            await until(lambda: len(other.got) == 1)
            down = False
            began = datetime.now(UTC) - timedelta(minutes=5)
            assert list(hf.webhooks.redeliver_all(endpoint=endpoint.id, until=began)) == []
            redeliveries = list(hf.webhooks.redeliver_all(endpoint=endpoint.id, since=began))
            assert sorted(each.id for each in redeliveries) == sorted(failed)
            assert {each.outcome for each in redeliveries} == {"retried"}
            for each in failed:
                await until(lambda each=each: hf.webhooks.delivery(each).status == "DELIVERED")  # type: ignore[union-attr]
            copies = []
            for each in hf.webhooks.redeliver_all(tenant="acme", status="DELIVERED"):
                copies.append(each.outcome)
                assert len(copies) <= 8  # what it makes is not sent again
                await ended(hf, str(each.delivery))
    assert copies == ["copied"] * 8 and len(receiver.got) == 24
    assert len(other.got) == 1


async def test_a_delivery_that_waits_need_not_wait_longer(hf: Holdfast) -> None:
    hf.webhooks.retry = Retry.fixed(3600, max_attempts=2)
    async with receiving(lambda n: web.Response(status=500 if n == 1 else 200)) as receiver:
        add(hf, receiver)
        (delivery,) = hf.webhooks.publish(None, ORDER).deliveries
        async with delivering(hf):
            await tried(hf, delivery)
            assert [(each.outcome, each.delivery) for each in hf.webhooks.redeliver(delivery)] == [("due", delivery)]
            assert (await ended(hf, delivery)).attempts == 2


async def test_an_endpoint_can_be_tested(hf: Holdfast) -> None:
    async with receiving() as receiver:
        endpoint = add(hf, receiver, events=["never"])
        delivery = hf.webhooks.test(endpoint.id)
        async with delivering(hf):
            info = await ended(hf, delivery)
    assert (info.event_type, info.status) == ("holdfast.test", "DELIVERED")
    assert json.loads(receiver.got[0].body)["type"] == "holdfast.test"


# -- around it


async def test_each_role_has_the_rights_it_needs(hf: Holdfast, dsn: str) -> None:
    def as_role(role: str) -> Holdfast:
        made = Holdfast(make_conninfo(dsn, options=f"-c role=holdfast_{role}"))
        made.webhooks.retry = Retry.fixed(0, max_attempts=3)
        return made

    app, worker, reader, admin = (as_role(role) for role in ("enqueue", "worker", "reader", "admin"))
    async with receiving(lambda n: web.Response(status=200 if n == 1 else 410)) as receiver:
        endpoint = add(admin, receiver)
        async with delivering(worker):
            first, second = (app.webhooks.publish(None, ORDER).deliveries[0] for _ in range(2))
            await ended(reader, first)
            await ended(reader, second)
        assert reader.webhooks.get(endpoint.id).enabled is False
        admin.webhooks.enable(endpoint.id)
        assert len(admin.webhooks.redeliver(first, second)) == 2
        admin.webhooks.update(endpoint.id, timeout=5)
        admin.webhooks.rotate(endpoint.id)
        admin.webhooks.test(endpoint.id)
        admin.webhooks.remove(endpoint.id)
    for each in (app, worker, reader, admin):
        await each.aclose()


async def test_the_async_twins_do_the_same(hf: Holdfast, dsn: str) -> None:
    async with receiving() as receiver:
        endpoint = add(hf, receiver)
        async with await psycopg.AsyncConnection.connect(dsn) as conn, conn.transaction():
            published = await hf.webhooks.apublish(conn, ORDER)
            assert await hf.webhooks.adeliveries(event=published.event) == []
        (delivery,) = await hf.webhooks.adeliveries(event=published.event)
        assert delivery.id == published.deliveries[0]
        assert await hf.webhooks.aget(endpoint.id) == hf.webhooks.get(endpoint.id)
    await hf.aclose()


def test_a_pass_delivers_too(hf: Holdfast) -> None:
    async def run() -> DeliveryInfo:
        async with receiving() as receiver:
            add(hf, receiver)
            (delivery,) = hf.webhooks.publish(None, ORDER).deliveries
            await hf.atick(queues=["webhooks"])
            await hf.aclose()
            found = hf.webhooks.delivery(delivery)
            assert found is not None
            return found

    assert asyncio.run(run()).status == "DELIVERED"


async def test_the_test_kit_delivers_what_a_test_has_published(kit: Kit) -> None:
    kit.hf.webhooks.retry = Retry.fixed(60, max_attempts=3)
    async with receiving(lambda n: web.Response(status=500 if n == 1 else 200)) as receiver:
        add(kit.hf, receiver)
        kit.hf.webhooks.publish(None, ORDER)
        drained = await kit.adrain(with_retries=True)
    assert [attempt.status for attempt in drained] == [Status.RETRYING, Status.SUCCEEDED]
    assert len(receiver.got) == 2
