"""Read by mypy and pyright, never run. A line that ends in `# error: MYPY CODES / PYRIGHT RULES` must be refused by
both, with just those, and no other line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, assert_type

import attrs
import psycopg
import pydantic

from holdfast import (
    CONTEXT,
    Batch,
    BatchInfo,
    Breaker,
    Context,
    Cron,
    Dead,
    Delivery,
    Emitted,
    Handle,
    Handles,
    Holdfast,
    Limit,
    MessageInfo,
    NewJob,
    Resource,
    Retry,
)

hf = Holdfast("postgresql://nowhere/none")


@dataclass
class Receipt:
    number: int


class Order(pydantic.BaseModel):
    number: int


@attrs.define
class Corner:
    x: int


class Pool: ...


@hf.resource
async def pool() -> AsyncIterator[Pool]:
    yield Pool()


@hf.resource
def word() -> Iterator[str]:
    yield "a"


@hf.task(retry=Retry.fixed(1))
async def send(to: str, copies: int = 1, *, ctx: Context = CONTEXT) -> str:
    return to


@hf.task()
def in_thread(to: str) -> int:
    return 1


@hf.task(runner="process")
async def in_process(to: str) -> int:
    return 1


@hf.task()
async def ship(order: Order, corner: Corner) -> Order:
    return order


@hf.task()
async def context_first(ctx: Context, number: int) -> None: ...


@hf.task()
async def pay(amount: int, *, db: Pool = pool.value, ctx: Context = CONTEXT) -> Receipt:
    async with ctx.transaction() as conn:
        assert_type(conn, psycopg.AsyncConnection[Any])
    ctx.progress(1, 2, "half")
    ctx.log.info("paid")
    return Receipt(amount)


@hf.task()
def in_thread_too(n: int, ctx: Context = CONTEXT) -> None:
    with ctx.transaction() as conn:
        assert_type(conn, psycopg.Connection[Any])
    ctx.raise_if_canceled()
    raise Dead("robots", code="ROBOTS", block="example.org")


@hf.task(
    limits=[
        Limit("domain:{domain}", concurrency=2, breaker=Breaker(after=5, pause=300, on=[ConnectionError, "HTTP_503"])),
        Limit("source:{tenant}", rate=30, per=60, burst=5),
    ]
)
async def crawl(domain: str) -> int:
    return 1


@hf.around_enqueue
def outer(job: NewJob) -> Iterator[None]:
    job.headers = {"trace": "1"}
    yield


@hf.around_attempt
async def around(ctx: Context) -> AsyncIterator[None]:
    yield


hf.classify({"DB_UNAVAILABLE": "retry", ValueError: "fail"})

assert_type(send.enqueue("a"), Handle[str])
assert_type(send.enqueue("a", copies=2), Handle[str])
assert_type(in_thread.using(delay=3, tenant="acme").enqueue(to="a"), Handle[int])
assert_type(in_process.enqueue("a"), Handle[int])
assert_type(crawl.using(tenant="acme").enqueue("a"), Handle[int])
assert_type(hf.registry.limits, list[Limit])
assert_type(send.enqueue_many([("a",), {"to": "b"}]), Handles[str])
assert_type(send.enqueue_many([("a",)])[0], Handle[str])
assert_type(send.enqueue_many([("a",)])[1:].ids, list[str])
assert_type([each.result() for each in pay.enqueue_many([3])], list[Receipt])
assert_type(ship.enqueue(Order(number=1), Corner(x=1)).result(), Order)
assert_type(pay.enqueue(3).result(timeout=1), Receipt)
assert_type(pool, Resource[Pool])
assert_type(word.value, str)
context_first.enqueue(3)
send.schedule("nightly", "0 3 * * *", "a", copies=2)
in_thread.using(tenant="acme").schedule("hourly", Cron("0 * * * *", zone="Europe/Berlin", missed="skip"), to="a")
context_first.schedule("often", "* * * * *", 3)
with hf.batch("import", tenant="acme", on_done=send.using(priority=1)) as batch:
    assert_type(batch, Batch)
    send.using(batch=batch, deadline=60).enqueue("a")
assert_type(batch.join(1), BatchInfo)


@hf.channel("email", retry=Retry.fixed(5), limits=[Limit("smtp", concurrency=2)])
async def post(delivery: Delivery[Receipt], ctx: Context = CONTEXT) -> None:
    assert_type(delivery.payload, Receipt)
    assert_type(delivery.maybe_sent, bool)
    assert_type(delivery.idempotency_key, str)


@hf.channel("sms", runner="thread")
def text(ctx: Context, delivery: Delivery[str]) -> int:
    with ctx.transaction():
        assert_type(ctx.emit(post, 3, key="a", order="b"), Emitted)
    return delivery.attempt


assert_type(hf.outbox.emit(None, "email", {"any": "thing"}, key="a", tenant="acme", order="b"), Emitted)
assert_type(hf.outbox.emit(None, text, "hello", key="a"), Emitted)
assert_type(text(CONTEXT, Delivery("hello")), int)
assert_type(Delivery("hello", "a", maybe_sent=True).payload, str)
assert_type(hf.outbox.list(channel="email"), list[MessageInfo])
assert_type(hf.limits.set("domain:a", concurrency=2, rate=None, breaker_pause=1.5, by="ann"), int)


async def coroutine() -> None:
    assert_type(await send.aenqueue("a"), Handle[str])
    assert_type(await (await pay.aenqueue(3)).aresult(), Receipt)
    async with hf.batch("import") as other:
        assert_type(await other.ajoin(), BatchInfo)
    assert_type(await hf.outbox.aemit(None, text, "hello", key="a"), Emitted)
    await send.aenqueue(3)  # error: arg-type / reportArgumentType


send.enqueue(1)  # error: arg-type / reportArgumentType
send.enqueue("a", copys=2)  # error: call-arg / reportCallIssue
ship.enqueue({"number": 1}, Corner(x=1))  # error: arg-type / reportArgumentType
in_thread.enqueue()  # error: call-arg / reportCallIssue
context_first.enqueue("x")  # error: arg-type / reportArgumentType
context_first.enqueue(CONTEXT, 3)  # error: call-arg, arg-type / reportCallIssue
send.using(dely=3)  # error: call-arg / reportCallIssue
hf.task(retry="often")  # error: arg-type / reportArgumentType
hf.classify({"GONE": "perhaps"})  # error: dict-item / reportArgumentType
hf.batch("import", on_done=print)  # error: arg-type / reportArgumentType
pay.using(batch=3)  # error: arg-type / reportArgumentType
CONTEXT.progress("half")  # error: arg-type / reportArgumentType
send.schedule("nightly", "0 3 * * *", 1)  # error: arg-type / reportArgumentType
send.schedule("nightly", "0 3 * * *")  # error: call-arg / reportCallIssue
send.schedule("nightly", "0 3 * * *", "a", zone="UTC")  # error: call-arg / reportCallIssue
send.schedule("nightly", 3, "a")  # error: arg-type / reportArgumentType
Cron("0 3 * * *", missed="never")  # error: arg-type / reportArgumentType
hf.task(runner="proces")  # error: arg-type / reportArgumentType
Limit("a", 2)  # error: call-arg / reportCallIssue
hf.limits.set("a", concurency=2)  # error: call-arg / reportCallIssue
hf.limits.set("a", concurrency="2")  # error: arg-type / reportArgumentType
Limit("a", concurrency="2")  # error: arg-type / reportArgumentType
Breaker(on=[503])  # error: list-item / reportArgumentType
hf.task(limits=["smtp"])  # error: list-item / reportArgumentType
hf.outbox.emit(None, text, 3, key="a")  # error: misc / reportArgumentType
hf.outbox.emit(None, "email", 3)  # error: call-arg / reportCallIssue
hf.channel("email", retry=3)  # error: arg-type / reportArgumentType
