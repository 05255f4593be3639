"""Wake-ups through a real RabbitMQ: they cut latency, and nothing depends on them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aio_pika
import psycopg
import pytest

from holdfast import ConfigurationError, Holdfast
from holdfast.model.job import ids
from holdfast.settings import Settings
from holdfast.wakeups import rabbitmq
from holdfast.wakeups.rabbitmq import Consumer, Publisher, is_hint
from tests.support.broker import Relay, channel, real_broker
from tests.support.running import ended, until, working

DEAF: dict[str, Any] = {"notify": False, "poll": 30.0}  # nothing but a message wakes these in the time of a test


@pytest.fixture
def exchange() -> str:
    return f"holdfast-test-{os.urandom(4).hex()}"


@pytest.fixture
def wired(dsn: str, exchange: str) -> Iterator[Holdfast]:
    with Holdfast(dsn, amqp_enabled=True, amqp_url=real_broker(), amqp_exchange=exchange) as app:
        yield app


@pytest.fixture
async def broker(exchange: str) -> AsyncIterator[aio_pika.abc.AbstractExchange]:
    real_broker()
    async with channel(exchange) as declared:
        yield declared


@pytest.fixture
async def relay() -> AsyncIterator[Relay]:
    real_broker()
    made = Relay()
    yield made
    await made.down()


async def connected_to_broker(worker: Any) -> None:
    """Wait until the worker is connected to the broker."""
    await until(lambda: worker.consumer.connected)


async def asleep(worker: Any) -> None:
    """Wait until the worker receives messages and sleeps for long: its first looks are short."""
    await connected_to_broker(worker)
    wakeup, naps = worker.claimer.wakeup, [0.0]
    pause = type(wakeup).pause

    async def watched(seconds: float) -> bool:
        naps.append(seconds)
        return bool(await pause(wakeup, seconds))

    wakeup.pause = watched
    wakeup.set()
    await until(lambda: naps[-1] > 5 and not wakeup.is_set())


def runs(hf: Holdfast) -> tuple[Any, asyncio.Queue[int]]:
    ran: asyncio.Queue[int] = asyncio.Queue()

    @hf.task(name="note")
    async def note(number: int) -> None:
        ran.put_nowait(number)

    return note, ran


async def soon(ran: asyncio.Queue[int]) -> int:
    async with asyncio.timeout(10):  # far less than the poll of a deaf worker
        return await ran.get()


async def test_an_enqueue_wakes_a_worker_that_does_not_listen_to_the_database(
    wired: Holdfast, broker: aio_pika.abc.AbstractExchange
) -> None:
    note, ran = runs(wired)
    async with working(wired, **DEAF) as worker:
        await asleep(worker)
        await note.aenqueue(1)
        assert await soon(ran) == 1
        await asleep(worker)
        await asyncio.to_thread(note.enqueue, 2)
        assert await soon(ran) == 2
        await asleep(worker)
        await note.aenqueue_many([3, 4])
        assert {await soon(ran), await soon(ran)} == {3, 4}


async def test_an_enqueue_in_a_transaction_is_published_a_moment_later(
    wired: Holdfast, dsn: str, broker: aio_pika.abc.AbstractExchange
) -> None:
    note, ran = runs(wired)
    async with working(wired, **DEAF) as worker:
        await asleep(worker)
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            await note.using(conn=conn).aenqueue(1)
        assert await soon(ran) == 1


async def test_claimed_jobs_start_before_the_worker_claims_more(
    wired: Holdfast, broker: aio_pika.abc.AbstractExchange
) -> None:
    order: list[str] = []

    @wired.task()
    async def note() -> None:
        order.append("started")

    async with working(wired, **DEAF) as worker:
        await asleep(worker)
        run = worker.claimer.intake.session.run

        async def recording_run(call: Any) -> Any:
            order.append("claim")
            return await run(call)

        worker.claimer.intake.session.run = recording_run  # type: ignore[method-assign]
        await note.aenqueue()
        await until(lambda: "started" in order)
    assert order[:2] == ["claim", "started"], "a claim before the start would cost the job a third of a millisecond"


async def test_messages_are_as_documented(
    wired: Holdfast, exchange: str, broker: aio_pika.abc.AbstractExchange
) -> None:
    note, _ = runs(wired)
    async with await aio_pika.connect(real_broker()) as connection:
        opened = await connection.channel()
        queue = await opened.declare_queue(exclusive=True)
        await queue.bind(exchange, "jobs.trigger")
        job = await note.aenqueue(1)
        message = await until(lambda: queue.get(fail=False))
        assert json.loads(message.body) == {"job_id": job.id}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"null",
        b"[]",
        b'{"job_id": 5}',
        b'{"job_id": "1; drop table live"}',
        b"[" * 900,
        b'{"job_id": "' + b"a" * 100_000 + b'"}',
        json.dumps({"job_id": ids.make(), "x": "y" * 2000}).encode(),
    ],
    ids=range(10),
)
def test_foreign_messages_are_ignored(body: bytes) -> None:
    assert not is_hint(body)
    assert is_hint(json.dumps({"job_id": ids.make()}).encode())


HOSTILE = [
    b"",
    b"\xff\xfe\x00",
    b"{",
    b"null",
    b"[" * 900,
    b'{"job_id": 5}',
    b'{"job_id": ["a"]}',
    b'{"job_id": "../../x"}',
    b"\x00garbage" * 1000,
    b'{"job_id": "' + b"a" * 5_000_000 + b'"}',
]


async def test_hostile_messages_cost_no_look_no_line_of_log_and_no_memory(
    wired: Holdfast, broker: aio_pika.abc.AbstractExchange, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    note, ran = runs(wired)
    async with working(wired, **DEAF) as worker:
        await asleep(worker)
        caplog.clear()
        looks = counted(worker)
        for body in HOSTILE * 3:  # slowly enough for each to be read
            await broker.publish(aio_pika.Message(body), "jobs.trigger", mandatory=False)
            await asyncio.sleep(0.02)
        assert looks == []
        began, before = time.monotonic(), resident()
        for n in range(10_000):  # an unknown job, one of another tenant with extra fields, rubbish
            body = (hint(), hint(tenant="rival", task="os.system"), b"\x00")[n % 3]
            await broker.publish(aio_pika.Message(body), "jobs.trigger", mandatory=False)
        await until(lambda: looks and time.monotonic() - looks[-1] > 0.3)
        took, claims = looks[-1] - began, len(looks)
        # A look that finds nothing may be two claims: behind the cursor, then everywhere.
        assert 0 < claims <= 2 * (rabbitmq.PER_SECOND * (took + 0.1) + 2)
        assert resident() - before < 30_000_000
        assert [line for line in caplog.records if line.name.startswith("holdfast")] == []
        await asleep(worker)
        await note.aenqueue(1)
        assert await soon(ran) == 1, "the next true message is received"


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def hint(**more: str) -> bytes:
    return json.dumps({"job_id": ids.make(), **more}).encode()


def counted(worker: Any) -> list[float]:
    """Record when the worker claims, from now on."""
    looks: list[float] = []
    claim = worker.claimer.intake.claim

    async def noted(*args: Any, **kwargs: Any) -> int:
        looks.append(time.monotonic())
        return int(await claim(*args, **kwargs))

    worker.claimer.intake.claim = noted
    return looks


async def test_a_broker_may_be_absent_at_the_start_die_and_come_back(
    dsn: str, exchange: str, relay: Relay, broker: aio_pika.abc.AbstractExchange, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.rabbitmq")
    with Holdfast(dsn, amqp_enabled=True, amqp_url=relay.url, amqp_exchange=exchange) as hf:
        note, ran = runs(hf)
        async with working(hf, notify=False, poll=0.2) as worker:
            for number in range(3):
                began = time.monotonic()
                await note.aenqueue(number)  # the broker is away: no error, no delay, and polling finds it
                assert time.monotonic() - began < 2
                assert await soon(ran) == number
                assert worker.consumer is not None and not worker.consumer.connected
                await relay.up()
                before = relay.connections
                await connected_to_broker(worker)
                line = f"rabbitmq=127.0.0.1:{relay.port} exchange={exchange} routing_key=jobs.trigger"
                await until(lambda line=line: "message queue connected" in caplog.text and line in caplog.text)
                assert relay.connections >= before
                caplog.clear()
                await relay.down()
                await until(lambda: not worker.consumer.connected)
                await until(lambda: "message queue unavailable; polling continues" in caplog.text)
            await relay.up()
            await connected_to_broker(worker)


async def test_a_worker_is_woken_again_when_the_broker_is_back(
    dsn: str, exchange: str, relay: Relay, broker: aio_pika.abc.AbstractExchange
) -> None:
    await relay.up()
    with Holdfast(dsn, amqp_enabled=True, amqp_url=relay.url, amqp_exchange=exchange) as hf:
        note, ran = runs(hf)
        async with working(hf, **DEAF) as worker:
            await asleep(worker)
            await note.aenqueue(1)
            assert await soon(ran) == 1
            await relay.down()
            await until(lambda: not worker.consumer.connected)
            await note.aenqueue(2)  # not announced: the worker looks when it is connected again
            await relay.up()
            assert await soon(ran) == 2
            await until(lambda: hf.database.publisher.thread and hf.database.publisher.thread.connection.connected)
            await asleep(worker)
            await note.aenqueue(3)
            assert await soon(ran) == 3


async def test_a_port_that_is_no_broker_does_no_harm(dsn: str, exchange: str) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(range(256)))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        url = f"amqp://u:s3cr3t@127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with Holdfast(dsn, amqp_enabled=True, amqp_url=url, amqp_exchange=exchange) as hf:
            note, ran = runs(hf)
            async with working(hf, notify=False) as worker:
                job = await note.aenqueue(1)
                assert await soon(ran) == 1
                await ended(hf, job.id)
                assert not worker.consumer.connected


async def test_a_try_that_fails_leaves_no_connection_behind(
    relay: Relay, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library closes what it finds open when it is collected, on whatever loop there is by then."""
    made: list[aio_pika.Connection] = []

    class Noted(aio_pika.Connection):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(aio_pika, "Connection", Noted)
    settings = Settings(amqp_enabled=True, amqp_url=f"amqp://guest:guest@127.0.0.1:{relay.port}/")
    hearing = asyncio.create_task(Consumer(settings, "w", lambda: None).run())
    await until(lambda: len(made) >= 2)
    hearing.cancel()
    await asyncio.wait({hearing})
    assert all(each.is_closed for each in made)


async def test_a_cancellation_stops_it_though_the_library_makes_an_error_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()

    async def connect(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise ConnectionError("not connected") from None

    monkeypatch.setattr(aio_pika, "connect", connect)
    hearing = asyncio.create_task(Consumer(Settings(amqp_enabled=True), "w", lambda: None).run())
    await begun.wait()
    hearing.cancel()
    async with asyncio.timeout(20):
        await asyncio.wait({hearing})
    assert hearing.cancelled()


async def test_an_outage_is_logged_once_and_without_the_password(
    relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "holdfast")
    await relay.up()
    url = f"amqp://nobody:s3cr3t@127.0.0.1:{relay.port}/"
    settings = Settings(amqp_enabled=True, amqp_url=url)
    hearing = asyncio.create_task(Consumer(settings, "worker", lambda: None).run())
    await until(lambda: caplog.text.count("message queue unavailable") >= 2)
    hearing.cancel()
    await asyncio.wait({hearing})
    assert {record.name for record in caplog.records} == {"holdfast.rabbitmq"}, "nor does the library add its own"
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    assert f"rabbitmq=127.0.0.1:{relay.port} error=" in caplog.text
    assert "s3cr3t" not in caplog.text and "s3cr3t" not in repr(settings)


async def test_whether_a_broker_can_be_used_is_found_out_and_no_connection_stays(
    relay: Relay, exchange: str, broker: aio_pika.abc.AbstractExchange
) -> None:
    settings = Settings(amqp_enabled=True, amqp_url=relay.url, amqp_exchange=exchange)
    assert "Connect call failed" in str(await asyncio.to_thread(rabbitmq.why_not, settings))
    await relay.up()
    assert await asyncio.to_thread(rabbitmq.why_not, settings) is None
    assert relay.connections == 1
    await until(lambda: relay.open == 0)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://ann:s3cr3t@broker", "broker:5672"),
        ("amqps://ann:s3cr3t@broker/v", "broker:5671"),
        ("amqp://ann:s3/cr3t@broker/", "?"),
        ("amqp://ann:99/s3cr3t@broker", "?"),
        ("amqp://[::1", "?"),
    ],
)
def test_the_logged_address_has_no_password(url: str, shown: str) -> None:
    assert rabbitmq.address(Settings(amqp_url=url)) == shown


def test_a_caller_never_waits_and_the_buffer_is_bounded() -> None:
    publisher = Publisher(Settings(amqp_enabled=True, amqp_url="amqp://guest:guest@127.0.0.1:1/"))
    began = time.monotonic()
    for _ in range(5 * rabbitmq.BUFFER):
        publisher.publish(ids.make())
    assert time.monotonic() - began < 2
    thread = publisher.thread
    assert thread is not None and len(thread.queued) <= rabbitmq.BUFFER
    publisher.close()
    thread.join(5)
    assert not thread.is_alive()


def test_without_the_extra_an_enqueue_succeeds_and_a_worker_says_what_is_missing(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rabbitmq, "installed", lambda: False)
    publisher = Publisher(Settings(amqp_enabled=True))
    publisher.publish(ids.make())
    publisher.publish(ids.make())
    assert caplog.text.count("pip install 'holdfast-jobs[rabbitmq]'") == 1
    publisher.close()
    with pytest.raises(ConfigurationError, match=r"holdfast-jobs\[rabbitmq\]"):
        Consumer(Settings(amqp_enabled=True), "worker", lambda: None)


def test_nothing_is_published_unless_it_is_enabled(hf: Holdfast) -> None:
    note, _ = runs(hf)
    note.enqueue(1)
    assert hf.database.publisher.thread is None


@pytest.mark.parametrize("wrong", [{"amqp_url": "http://x"}, {"amqp_exchange": ""}, {"amqp_routing_key": ""}])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="amqp_"):
        Settings(amqp_enabled=True, **wrong)
