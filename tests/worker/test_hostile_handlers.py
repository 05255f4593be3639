"""Handlers, middleware and resources that misbehave: one attempt fails, its neighbors and the worker do not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from holdfast import CONTEXT, Context, Dead, Holdfast, NewJob, Retry, Status, UsageError
from holdfast.worker import Worker
from tests.support.running import ended, until, working

Sql = Callable[..., list[tuple[Any, ...]]]


class Share(float):
    """As a number of numpy's: a float, and yet not one that every encoder takes."""


# -- progress

REPORTS: dict[str, tuple[Any, Any]] = {
    "a truth value": (True, False),
    "an empty total": (1, ""),
    "a large integer": (2**70, None),
    "an integer no float can hold": (10**400, None),
    "a subclass of float": (Share(0.5), Share(1.0)),
    "a text": ("half", None),
    "minus infinity": (1, float("-inf")),
    "the smallest float there is": (5e-324, 1.7e308),
}


@pytest.mark.parametrize(("done", "total"), REPORTS.values(), ids=REPORTS)
async def test_no_report_of_progress_can_harm_the_worker_or_hide_the_reports_of_others(
    hf: Holdfast, sql: Sql, done: Any, total: Any
) -> None:
    go = asyncio.Event()

    @hf.task(retry=Retry.none())
    async def hostile(*, ctx: Context = CONTEXT) -> None:
        ctx.progress(done, total, "\x00 \ud800 " + "x" * 100_000)
        await go.wait()

    @hf.task(retry=Retry.none())
    async def honest(*, ctx: Context = CONTEXT) -> None:
        ctx.progress(1, 2)
        await go.wait()

    async with working(hf):
        await hostile.aenqueue()
        job = await honest.aenqueue()
        await until(lambda: asyncio.to_thread(sql, "select 1 from progress where id = %s", [job.id]))
        go.set()
        assert (await ended(hf, job.id)).status is Status.SUCCEEDED
        assert (await ended(hf, (await honest.aenqueue()).id)).status is Status.SUCCEEDED


async def test_the_last_report_of_a_thread_is_never_lost(hf: Holdfast) -> None:
    """Threads report while the worker collects: the last report before the end is stored."""

    @hf.task()
    def counts(*, ctx: Context = CONTEXT) -> None:
        for n in range(300):
            ctx.progress(n, 300)
        ctx.progress(300, 300)

    async with working(hf, concurrency=8):
        for id_ in counts.enqueue_many([()] * 60).ids:
            assert ((await ended(hf, id_)).progress or {}).get("done") == 300


# -- middleware


async def broken_before(ctx: Context) -> AsyncIterator[None]:
    raise ValueError("before")
    yield


async def broken_after(ctx: Context) -> AsyncIterator[None]:
    yield
    raise ValueError("after")


async def never_yields(ctx: Context) -> AsyncIterator[None]:
    if ctx.attempt > 99:
        yield


def yields_twice(ctx: Context) -> Iterator[None]:
    yield
    yield


@pytest.mark.parametrize("layer", [broken_before, broken_after, never_yields, yields_twice], ids=lambda f: f.__name__)
async def test_middleware_that_breaks_fails_the_attempt_and_nothing_else(hf: Holdfast, layer: Any) -> None:
    outer: list[str] = []

    @hf.around_attempt
    def watches(ctx: Context) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            outer.append(type(error).__name__)
            raise

    hf.around_attempt(layer)

    @hf.task(retry=Retry.none())
    async def on_loop() -> None: ...

    @hf.task(retry=Retry.none())
    def in_thread() -> None: ...

    async with working(hf):
        for task in (on_loop, in_thread):
            info = await ended(hf, (await task.aenqueue()).id)
            assert info.status is Status.DEAD and info.last_error
    assert outer == [info.last_error["type"]] * 2, "the layers around it have seen it"


async def test_middleware_that_breaks_after_a_transaction_does_not_undo_it(hf: Holdfast) -> None:
    hf.around_attempt(broken_after)

    @hf.task()
    async def insert(*, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction():
            pass

    async with working(hf) as worker:
        assert (await ended(hf, (await insert.aenqueue()).id)).status is Status.SUCCEEDED
        await until(lambda: not worker.buffer.leases)


async def test_a_canceled_handler_is_canceled_through_its_middleware(hf: Holdfast) -> None:
    entered = asyncio.Event()

    @hf.around_attempt
    async def cleans_up(ctx: Context) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.sleep(0.01)

    @hf.task()
    async def slow() -> None:
        entered.set()
        await asyncio.sleep(60)

    async with working(hf):
        job = await slow.aenqueue()
        await entered.wait()
        await hf.jobs.acancel(job.id)
        assert (await ended(hf, job.id)).status is Status.CANCELED


async def test_middleware_that_breaks_before_an_enqueue_prevents_it(hf: Holdfast) -> None:
    @hf.around_enqueue
    def refuses(job: NewJob) -> Iterator[None]:
        raise PermissionError("no")
        yield

    @hf.task()
    async def each(n: int) -> None: ...

    for call in (lambda: each.enqueue(1), lambda: each.enqueue_many([1, 2])):
        with pytest.raises(PermissionError):
            call()
    with pytest.raises(PermissionError):
        await each.aenqueue_many([1, 2])
    assert hf.jobs.list() == []


HEADERS: dict[str, Any] = {
    "not JSON": {"a": object()},
    "no number of JSON's": {"a": float("nan")},
    "a NUL": {"a": "\x00"},
    "lone surrogate": {"a": "\ud800"},
    "too large": {"a": "x" * 2_000_000},
    "no object": ["a"],
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("way", ["one", "delayed", "many", "many delayed"])
async def test_headers_that_cannot_be_carried_are_refused_by_every_way_in(hf: Holdfast, headers: Any, way: str) -> None:
    @hf.around_enqueue
    def sets(job: NewJob) -> Iterator[None]:
        job.headers = headers
        yield

    @hf.task()
    async def each(n: int) -> None: ...

    using = each.using(delay=60) if "delayed" in way else each
    with pytest.raises(UsageError, match="header"):
        using.enqueue_many([1]) if "many" in way else using.enqueue(1)
    with pytest.raises(UsageError, match="header"):
        await (using.aenqueue_many([1]) if "many" in way else using.aenqueue(1))
    assert hf.jobs.list() == []


# -- resources


async def test_a_resource_that_fails_at_its_close_leaves_no_other_open(hf: Holdfast, sql: Sql) -> None:
    closed: list[str] = []

    @hf.resource
    async def first() -> AsyncIterator[int]:
        yield 1
        closed.append("first")

    @hf.resource
    async def broken() -> AsyncIterator[int]:
        yield 2
        raise RuntimeError("cannot close")

    @hf.resource
    def last() -> Iterator[int]:
        yield 3
        closed.append("last")

    @hf.task()
    async def uses(a: int = first.value, b: int = broken.value, c: int = last.value) -> int:
        return a + b + c

    job = uses.enqueue()
    worker = Worker(hf)
    running = asyncio.create_task(worker.run())
    assert await job.aresult(40) == 6
    worker.stop()
    with pytest.raises(RuntimeError, match="cannot close"):
        await running
    assert closed == ["last", "first"]
    assert sql("select count(*) from workers") == [(0,)] and sql("select count(*) from claims") == [(0,)]


# -- batches and blocks


def test_a_batch_whose_name_or_tenant_cannot_be_stored_is_refused(hf: Holdfast) -> None:
    for name, tenant in (
        ("a\x00b", None),
        ("\ud800", None),
        ("x" * 201, None),
        (5, None),
        (None, None),
        ("x", ""),
        ("x", "a\x00b"),
        ("x", "x" * 201),
        ("x", 5),
    ):
        with pytest.raises(UsageError, match=r"batch's name|tenant"):
            hf.batch(name, tenant=tenant)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", ["", "nobody", "\x00", 5, 5.5], ids=repr)
def test_a_batch_that_is_none_is_refused_when_it_is_named(hf: Holdfast, batch: Any) -> None:
    @hf.task()
    async def each(n: int) -> None: ...

    with pytest.raises(UsageError, match="batch"):
        each.using(batch=batch).enqueue(1)
    with pytest.raises(UsageError, match="batch"):
        each.using(batch=batch).enqueue_many([1])
    assert hf.jobs.list() == []


async def test_a_block_of_any_text_is_recorded(hf: Holdfast) -> None:
    keys: list[Any] = ["a\x00b", "\ud800", "k" * 100_000, "k" * 100_001, "ü" * 600, 5, ("a", "b"), "'; drop table"]

    @hf.task()
    async def fetch(n: int) -> None:
        raise Dead("r" * 100_000, code="c\x00" * 1000, block=keys[n])

    async with working(hf):
        ids = fetch.enqueue_many(range(len(keys))).ids
        assert {(await ended(hf, id_)).status for id_ in ids} == {Status.DEAD}
    blocks = {each.key: each.count for each in hf.dead.blocks()}
    assert sum(blocks.values()) == len(keys)
    assert blocks["a\\x00b"] == 1 and blocks["5"] == 1


async def test_a_block_whose_text_cannot_be_made_fails_the_attempt_only(hf: Holdfast) -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @hf.task()
    async def fetch() -> None:
        raise Dead("no", block=Mute())  # type: ignore[arg-type]

    async with working(hf):
        assert (await ended(hf, (await fetch.aenqueue()).id)).status is Status.DEAD


# -- results after the fact


async def test_a_result_that_cannot_be_kept_after_a_transaction_does_no_harm(hf: Holdfast) -> None:
    """1e999999 is JSON, and no number of PostgreSQL's."""
    entered = threading.Event()

    @hf.task()
    async def odd(*, ctx: Context = CONTEXT) -> Any:
        async with ctx.transaction():
            pass
        entered.set()
        return {"a": "\x00"} if ctx.tenant is None else object()

    async with working(hf):
        for tenant in (None, "acme"):
            job = await odd.using(tenant=tenant).aenqueue()
            assert (await ended(hf, job.id)).status is Status.SUCCEEDED
        assert (await ended(hf, (await odd.aenqueue()).id)).result is None
