"""Every Python call that makes a job due publishes a message through RabbitMQ, by one mechanism in the pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest

from holdfast import Cron, Dedupe, Delivery, Event, Fail, Holdfast
from holdfast.wakeups.rabbitmq import Publisher
from holdfast.web import app as service
from tests.support.running import ended, until, working

Messages = list[tuple[str, bool]]


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> Messages:
    """The messages that would be sent: the job's id, and whether it is committed."""
    sent: Messages = []
    monkeypatch.setattr(Publisher, "publish", lambda _, job_id, *, committed=True: sent.append((job_id, committed)))
    return sent


@pytest.fixture
def app(dsn: str, messages: Messages) -> Iterator[Holdfast]:
    with Holdfast(dsn, amqp_enabled=True, amqp_url="amqp://guest:guest@127.0.0.1:1/") as hf:

        @hf.task(name="note")
        async def note(number: int) -> None:
            if number < 0:
                raise Fail("refused")

        @hf.channel("mail")
        async def mail(delivery: Delivery[object]) -> None: ...

        yield hf


WAYS: dict[str, Callable[[Holdfast], Any]] = {
    "enqueue": lambda hf: hf.registry.tasks["note"].enqueue(1).id,
    "enqueue, delayed": lambda hf: hf.registry.tasks["note"].using(delay=9).enqueue(1).id,
    "enqueue, replaced": lambda hf: [
        hf.registry.tasks["note"].using(dedupe=Dedupe(on_conflict="replace", key="k")).enqueue(n).id for n in (1, 2)
    ][-1],
    "enqueue_many, copied": lambda hf: hf.registry.tasks["note"].enqueue_many([1, 2]).ids[-1],
    "enqueue_many, by a call": lambda hf: hf.registry.tasks["note"].using(delay=9).enqueue_many([1, 2]).ids[-1],
    "emit": lambda hf: hf.outbox.emit(None, "mail", {}, key="k").id,
    "publish": lambda hf: hf.webhooks.publish(None, Event("order.paid", {}, tenant="acme")).deliveries[-1],
    "test of an endpoint": lambda hf: hf.webhooks.test(hf.webhooks.list()[0].id),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_make_a_job_publishes_a_message(app: Holdfast, messages: Messages, way: str) -> None:
    app.webhooks.add("https://example.org/hook", tenant="acme")
    messages.clear()
    job = WAYS[way](app)
    assert messages[-1] == (job, True)


async def test_async_calls_publish_too_and_mark_uncommitted_jobs(app: Holdfast, messages: Messages, dsn: str) -> None:
    note = app.registry.tasks["note"]
    jobs = [
        (await note.aenqueue(1)).id,
        (await note.aenqueue_many([1, 2])).ids[-1],
        (await app.outbox.aemit(None, "mail", {}, key="a")).id,
    ]
    assert messages == [(job, True) for job in jobs]
    messages.clear()
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        jobs = [
            (await note.using(conn=conn).aenqueue(1)).id,
            (await note.using(conn=conn).aenqueue_many([1])).ids[-1],
            (await app.outbox.aemit(conn, "mail", {}, key="b")).id,
        ]
    assert messages == [(job, False) for job in jobs]
    await app.aclose()


def test_what_makes_no_job_publishes_nothing(app: Holdfast, messages: Messages) -> None:
    keyed = app.registry.tasks["note"].using(dedupe="k")
    job = keyed.enqueue(1)
    app.outbox.emit(None, "mail", {}, key="k")
    messages.clear()
    assert keyed.enqueue(1).id == job.id and app.outbox.emit(None, "mail", {}, key="k").existing
    assert app.registry.tasks["note"].enqueue_many([]).ids == [] and app.dead.retry([job.id]) == []
    assert app.webhooks.publish(None, Event("order.paid", {}, tenant="nobody")).deliveries == []
    app.jobs.cancel(job.id)
    assert messages == []


async def test_retries_redeliveries_and_fired_schedules_publish_a_message(app: Holdfast, messages: Messages) -> None:
    note = app.registry.tasks["note"]
    note.schedule("often", Cron("* * * * * *"), 1)
    async with working(app):
        dead = await note.aenqueue(-1)
        await ended(app, dead.id)
        messages.clear()
        fired = await until(lambda: messages)
        assert (await ended(app, fired[0][0])).task == "note", "the leader publishes what a schedule made"
        ran = app.schedules.run("often")
        assert (ran, True) in messages
    messages.clear()
    assert app.dead.retry([dead.id]) == [dead.id] and messages == [(dead.id, True)]


async def test_jobs_made_over_http_publish_a_message(app: Holdfast, messages: Messages) -> None:
    body = {"task": "note", "args": {"number": 1}}
    bearer = app.tokens.create("test", tenant="acme", scopes=["jobs:write"])[0]
    way, headers = httpx.ASGITransport(service(app)), {"Authorization": f"Bearer {bearer}"}
    async with httpx.AsyncClient(transport=way, base_url="http://service/v1", headers=headers) as http:
        one = (await http.post("/jobs", json=body)).json()["id"]
        keyed = (await http.post("/jobs", json=body, headers={"Idempotency-Key": "k"})).json()["id"]
        many = (await http.post("/jobs/many", json={"jobs": [body, body]})).json()["ids"]
    assert messages == [(one, True), (keyed, False), (many[-1], False)]
    await app.aclose()
