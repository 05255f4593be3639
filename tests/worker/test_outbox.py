"""Messages from emit to delivery, through a worker (R20, R21)."""

from __future__ import annotations

import asyncio
import datetime as dt
import inspect
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

from holdfast import (
    CONTEXT,
    Breaker,
    Cancel,
    ConfigurationError,
    Context,
    Dead,
    Delivery,
    Fail,
    Holdfast,
    Limit,
    NewJob,
    Retry,
    Snooze,
    UsageError,
)
from tests.support.running import ended, until, waiting, working

SERVED = {"queues": "default,outbox"}
QUICK = Retry.fixed(0, max_attempts=3)


@dataclass
class Email:
    to: str
    n: int = 0


class Event(msgspec.Struct):
    at: dt.datetime
    domain: str


class Loose(TypedDict, total=False):
    domain: str


def delivered(hf: Holdfast, count: int) -> Any:
    return until(lambda: len(hf.outbox.list(status="delivered", limit=1000)) == count)


# -- delivery


async def test_a_message_is_delivered_with_its_payload_as_the_type_it_is_annotated_with(hf: Holdfast) -> None:
    got: list[Delivery[Email]] = []

    @hf.channel("email")
    async def send(delivery: Delivery[Email]) -> None:
        got.append(delivery)

    message = hf.outbox.emit(None, send, Email("a@b.c", 3), key="k/1", tenant="a/b", order="o")
    async with working(hf, **SERVED):
        await delivered(hf, 1)
    (it,) = got
    assert it == Delivery(Email("a@b.c", 3), "k/1", "email", "a/b", "o", message.id, 1, 10, False)
    assert it.idempotency_key == "email/a%2Fb/k/1" == hf.outbox.list()[0].idempotency_key
    assert (it.maybe_sent, it.last_attempt, message.existing) == (False, False, False)


async def test_handlers_may_be_sync_and_take_a_context_and_resources(hf: Holdfast) -> None:
    got: list[Any] = []

    @hf.resource
    def http() -> Iterator[str]:
        yield "session"

    @hf.channel("one")
    def one(delivery: Delivery[dict[str, int]]) -> None:
        got.append(("one", delivery.payload))

    @hf.channel("two")
    async def two(ctx: Context, delivery: Delivery[Event], session: str = http.value) -> None:
        got.append(("two", ctx.job_id == delivery.id, session, delivery.payload.at.year))

    @hf.channel("three", timeout=30)
    def three(delivery, *, ctx: Context = CONTEXT):  # type: ignore[no-untyped-def]
        got.append(("three", ctx.attempt, delivery.payload))

    hf.outbox.emit(None, one, {"n": 1}, key="k")
    hf.outbox.emit(None, two, Event(dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "b.c"), key="k")
    hf.outbox.emit(None, "three", [1, None, "x"], key="k")
    async with working(hf, **SERVED):
        await delivered(hf, 3)
    assert sorted(got) == [("one", {"n": 1}), ("three", 1, [1, None, "x"]), ("two", True, "session", 2026)]


async def test_errors_mean_what_they_mean_in_tasks(hf: Holdfast) -> None:
    verdicts = {"fail": Fail("no"), "dead": Dead("no"), "cancel": Cancel("no"), "error": ValueError("no")}

    @hf.channel("email", retry=QUICK)
    async def send(delivery: Delivery[str]) -> None:
        raise verdicts[delivery.payload]

    for name in verdicts:
        hf.outbox.emit(None, send, name, key=name)
    async with working(hf, **SERVED):
        await until(lambda: all(it.finished_at for it in hf.outbox.list()))
    messages = {it.key: (it.status, it.attempts) for it in hf.outbox.list()}
    assert messages == {"fail": ("failed", 1), "dead": ("dead", 1), "cancel": ("canceled", 1), "error": ("dead", 3)}


async def test_a_message_that_does_not_fit_the_handler_any_more_fails_for_good(hf: Holdfast) -> None:
    message = Holdfast(hf.settings.dsn).outbox.emit(None, "email", {"to": 5}, key="k")

    @hf.channel("email")
    async def send(delivery: Delivery[Email]) -> None: ...

    async with working(hf, **SERVED):
        info = await ended(hf, message.id)
    assert info.status == "failed"
    assert "channel 'email' takes a payload of type Email" in info.last_error["message"]


async def test_a_channel_may_be_delivered_by_another_service(hf: Holdfast, sql: Any) -> None:
    got: list[str] = []
    message = hf.outbox.emit(None, "sms", "hello", key="k")
    async with working(hf, **SERVED):
        info = await waiting(hf, message.id)
    assert (info.attempts, info.last_error["type"]) == (0, "UnknownTask")
    hf.jobs.cancel(message.id)
    other = Holdfast(hf.settings.dsn)

    @other.channel("sms", queue="texts")
    async def send(delivery: Delivery[str]) -> None:
        got.append(delivery.key)

    async with working(other, queues="texts"):
        await until(lambda: sql("select 1 from tasks where name = 'channel:sms'"))
        hf.outbox.emit(None, "sms", "hello", key="k2")
        await until(lambda: got == ["k2"])
    await other.aclose()


async def test_middleware_sees_emits_and_its_headers_reach_the_delivery(hf: Holdfast) -> None:
    calls: list[Any] = []

    @hf.around_enqueue
    def trace(job: NewJob) -> Iterator[None]:
        job.headers = {"trace": "7"}
        calls.append((job.task, job.payload))
        yield

    @hf.channel("email")
    async def send(ctx: Context, delivery: Delivery[str]) -> None:
        calls.append(ctx.headers)

    hf.outbox.emit(None, send, "x", key="k")
    async with working(hf, **SERVED):
        await delivered(hf, 1)
    assert calls == [("channel:email", b'"x"'), {"trace": "7"}]


async def test_the_limits_of_a_channel_may_name_fields_of_its_payload(hf: Holdfast, sql: Any) -> None:
    @hf.channel("one", limits=[Limit("domain:{domain}", concurrency=1), Limit("tenant:{tenant}", concurrency=9)])
    async def one(delivery: Delivery[Event]) -> None: ...

    @hf.channel("two", limits=[Limit("smtp", breaker=Breaker(after=1, on=[ValueError]))], retry=QUICK)
    async def two(delivery: Delivery[Any]) -> None:
        raise KeyError

    hf.outbox.emit(None, one, Event(dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "b.c"), key="k", tenant="acme", order="o")
    hf.outbox.emit(None, two, 1, key="k")
    rows = sql("select keys from live order by task")
    assert rows == [(["order:one/acme/o", "domain:b.c", "tenant:acme"],), (["smtp"],)]
    async with working(hf, **SERVED):
        await until(lambda: {it.status for it in hf.outbox.list()} == {"delivered", "dead"})
    assert hf.limits.list("smtp")[0].failure_streak == 0
    with pytest.raises(ConfigurationError, match="names 'domain'"):
        hf.channel("three", limits=[Limit("domain:{domain}", concurrency=1)])(_takes_loose)


async def _takes_loose(delivery: Delivery[Loose]) -> None: ...


# -- what may have been sent


async def test_a_retry_learns_that_it_may_have_been_sent(hf: Holdfast) -> None:
    calls: list[Any] = []

    @hf.channel("email", retry=QUICK)
    async def send(delivery: Delivery[str]) -> None:
        calls.append((delivery.attempt, delivery.maybe_sent, delivery.last_attempt, delivery.idempotency_key))
        raise ConnectionError

    hf.outbox.emit(None, send, "x", key="k")
    async with working(hf, **SERVED):
        await until(lambda: hf.outbox.list(status="dead"))
    assert calls == [(1, False, False, "email//k"), (2, True, False, "email//k"), (3, True, True, "email//k")]


async def test_a_snooze_says_that_nothing_was_sent(hf: Holdfast) -> None:
    calls: list[bool] = []

    @hf.channel("email", retry=QUICK)
    async def send(delivery: Delivery[str]) -> None:
        calls.append(delivery.maybe_sent)
        if len(calls) in (1, 3):
            raise Snooze(0)
        if len(calls) == 2:
            raise ConnectionError

    hf.outbox.emit(None, send, "x", key="k")
    async with working(hf, **SERVED):
        await delivered(hf, 1)
    assert calls == [False, False, True, True]


async def test_a_message_that_an_operator_retries_may_have_been_sent(hf: Holdfast) -> None:
    calls: list[Any] = []

    @hf.channel("email", retry=Retry.none())
    async def send(delivery: Delivery[Email]) -> None:
        calls.append((delivery.attempt, delivery.maybe_sent, delivery.payload))
        if len(calls) == 1:
            raise ConnectionError

    message = hf.outbox.emit(None, send, Email("a@b.c"), key="k")
    async with working(hf, **SERVED):
        await until(lambda: hf.outbox.list(status="dead"))
        assert hf.dead.retry([message.id]) == [message.id]
        await delivered(hf, 1)
    assert calls == [(1, False, Email("a@b.c")), (1, True, Email("a@b.c"))]


@pytest.mark.parametrize("runner", ["async", "thread"])
async def test_a_delivery_that_a_stopping_worker_interrupts_counts(hf: Holdfast, runner: Any) -> None:
    """Unlike a task's attempt, which is refunded: the message may be on its way."""
    calls, go_on = [], threading.Event()

    @hf.channel("slow")
    async def slow(delivery: Delivery[str]) -> None:
        calls.append((delivery.attempt, delivery.maybe_sent))
        if len(calls) == 1:
            await asyncio.sleep(60)

    @hf.channel("blocking")
    def blocking(delivery: Delivery[str]) -> None:
        calls.append((delivery.attempt, delivery.maybe_sent))
        if len(calls) == 1:
            go_on.wait(60)

    message = hf.outbox.emit(None, slow if runner == "async" else blocking, "x", key="k")
    async with working(hf, grace=0.0, lease=2.0, renew=0.5, **SERVED):
        await until(lambda: calls)
    info = await hf.outbox.aget(message.id)
    go_on.set()
    assert info is not None
    assert info.attempts == 1
    if runner == "async":  # a thread in a process that goes on keeps its job until the lease has expired
        assert (info.status, info.error["code"]) == ("pending", "INTERRUPTED")
        assert "worker stopped while the job was running" in info.error["message"]
    async with working(hf, **SERVED):
        await delivered(hf, 1)
    assert calls == [(1, False), (2, True)]


async def test_an_interruption_is_not_held_against_a_breaker(hf: Holdfast) -> None:
    started = asyncio.Event()

    @hf.channel("slow", limits=[Limit("smtp", breaker=Breaker(after=1))])
    async def slow(delivery: Delivery[str]) -> None:
        started.set()
        await asyncio.sleep(60)

    hf.outbox.emit(None, slow, "x", key="k")
    async with working(hf, grace=0.0, **SERVED):
        await started.wait()
    (limit,) = hf.limits.list("smtp")
    assert (limit.failure_streak, limit.breaker, limit.running) == (0, "closed", 0)


async def test_a_delivery_that_was_claimed_and_not_begun_is_refunded(hf: Holdfast) -> None:
    started, calls = asyncio.Event(), []

    @hf.channel("slow")
    async def slow(delivery: Delivery[str]) -> None:
        calls.append((delivery.key, delivery.maybe_sent))
        if not started.is_set():
            started.set()
            await asyncio.sleep(60)

    for n in range(5):
        hf.outbox.emit(None, slow, "x", key=str(n))
    async with working(hf, grace=0.0, concurrency=1, prefetch=10.0, **SERVED):
        await started.wait()
    assert {it.key: it.attempts for it in hf.outbox.list()} == {"0": 1, "1": 0, "2": 0, "3": 0, "4": 0}
    async with working(hf, **SERVED):
        await delivered(hf, 5)
    assert sorted(calls[1:]) == [("0", True), ("1", False), ("2", False), ("3", False), ("4", False)]


async def test_a_delivery_canceled_while_it_runs_ends_as_canceled(hf: Holdfast) -> None:
    started = asyncio.Event()

    @hf.channel("slow")
    async def slow(delivery: Delivery[str]) -> None:
        started.set()
        await asyncio.sleep(60)

    message = hf.outbox.emit(None, slow, "x", key="k")
    async with working(hf, **SERVED):
        await started.wait()
        await hf.jobs.acancel(message.id)
        await ended(hf, message.id)
    assert hf.outbox.list()[0].status == "canceled"
    assert hf.outbox.emit(None, slow, "x", key="k").existing


# -- inside a handler's transaction


async def test_a_job_emits_in_the_transaction_that_ends_it(hf: Holdfast) -> None:
    got: list[Any] = []

    @hf.channel("email")
    async def send(delivery: Delivery[int]) -> None:
        got.append((delivery.key, delivery.payload, delivery.tenant, delivery.order))

    @hf.task()
    async def buy(ctx: Context, n: int) -> None:
        async with ctx.transaction():
            first = await ctx.aemit("email", n, key=f"async-{n}", order="o")
            assert (await ctx.aemit(send, n, key=f"async-{n}")) == type(first)(first.id, existing=True)

    @hf.task()
    def buy_sync(ctx: Context, n: int) -> None:
        with ctx.transaction():
            ctx.emit("email", n, key=f"sync-{n}")

    await buy.using(tenant="acme").aenqueue(1)
    await buy_sync.aenqueue(2)
    async with working(hf, **SERVED):
        await delivered(hf, 2)
    assert sorted(got) == [("async-1", 1, "acme", "o"), ("sync-2", 2, None, None)]


async def test_an_attempt_that_fails_emits_nothing(hf: Holdfast) -> None:
    @hf.task(retry=QUICK)
    async def buy(ctx: Context) -> None:
        async with ctx.transaction():
            await ctx.aemit("email", ctx.attempt, key="k")
            if not ctx.last_attempt:
                raise ConnectionError

    handle = await buy.aenqueue()
    async with working(hf):
        await ended(hf, handle.id)
    assert [it.payload for it in hf.outbox.list()] == [3]


async def test_emitting_outside_of_a_transaction_is_an_error_that_says_what_to_do(hf: Holdfast) -> None:
    errors: dict[str, str] = {}

    async def refused(name: str, call: Any) -> None:
        try:
            result = call()
            if inspect.iscoroutine(result):
                await result
        except UsageError as error:
            errors[name] = str(error)

    @hf.task()
    async def buy(ctx: Context) -> None:
        await refused("outside", lambda: ctx.emit("email", 1, key="k"))
        await refused("outside async", lambda: ctx.aemit("email", 1, key="k"))
        async with ctx.transaction():
            await refused("not awaited", lambda: ctx.emit("email", 1, key="k"))
        await refused("after", lambda: ctx.aemit("email", 1, key="k"))

    @hf.task()
    def buy_sync(ctx: Context) -> None:
        with ctx.transaction():
            asyncio.run(refused("not async", lambda: ctx.aemit("email", 1, key="k")))

    handles = [await buy.aenqueue(), await buy_sync.aenqueue()]
    async with working(hf):
        assert [(await ended(hf, each.id)).status for each in handles] == ["succeeded", "succeeded"]
    await refused("by hand", lambda: Context().emit("email", 1, key="k"))
    await refused("by hand, async", lambda: Context().aemit("email", 1, key="k"))
    for name in ("outside", "outside async", "after"):
        assert "outside of an open ctx.transaction()" in errors[name]
    assert "await ctx.aemit(...)" in errors["not awaited"]
    assert "use ctx.emit(...)" in errors["not async"]
    assert "made by hand" in errors["by hand"]
    assert "made by hand" in errors["by hand, async"]
    assert hf.outbox.list() == []
