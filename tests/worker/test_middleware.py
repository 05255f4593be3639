"""Middleware around enqueues and attempts."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from holdfast import Context, Dedupe, DuplicateJob, Fail, Holdfast, NewJob, Status, UsageError
from holdfast.client.middleware import Around
from tests.support.running import ended, working

trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")


async def test_middleware_runs_in_order_and_carries_headers_from_enqueue_to_handler(hf: Holdfast) -> None:
    order: list[str] = []

    @hf.around_enqueue
    def outer(job: NewJob) -> Iterator[None]:
        job.headers = {"trace": "t-1"}
        order.append("outer in")
        yield
        order.append("outer out")

    @hf.around_enqueue
    def inner(job: NewJob) -> Iterator[None]:
        order.append(f"inner in {job.headers}")
        yield
        order.append("inner out")

    @hf.around_attempt
    async def trace_it(ctx: Context) -> AsyncIterator[None]:
        token = trace.set((ctx.headers or {})["trace"])
        try:
            yield
        finally:
            order.append("attempt out")
            trace.reset(token)

    @hf.around_attempt
    def sync_layer(ctx: Context) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise Fail(f"seen: {error}") from error

    @hf.task()
    async def on_loop() -> str:
        return trace.get()

    @hf.task()
    def in_thread(n: int) -> str:
        if n < 0:
            raise ValueError("negative")
        return trace.get()

    async with working(hf):
        job = on_loop.enqueue()
        assert order == ["outer in", "inner in {'trace': 't-1'}", "inner out", "outer out"]
        assert await job.aresult(40) == "t-1"
        assert await (await in_thread.aenqueue(1)).aresult(40) == "t-1"
        (id_,) = in_thread.enqueue_many([2]).ids
        assert (await ended(hf, id_)).result == "t-1"
        (id_,) = (await in_thread.using(delay=0.01).aenqueue_many([2])).ids
        assert (await ended(hf, id_)).result == "t-1"
        failed = await ended(hf, (await in_thread.aenqueue(-1)).id)
        assert failed.status is Status.FAILED and failed.last_error and failed.last_error["message"] == "seen: negative"


async def test_middleware_cannot_make_an_enqueue_of_one_that_failed(hf: Holdfast) -> None:
    @hf.around_enqueue
    def careless(job: NewJob) -> Iterator[None]:
        with contextlib.suppress(Exception):
            yield

    @hf.task(dedupe=Dedupe(on_conflict="raise"))
    async def each(n: int) -> None: ...

    each.enqueue(1)
    with pytest.raises(DuplicateJob):
        each.enqueue(1)
    with pytest.raises(DuplicateJob):
        await each.aenqueue(1)
    with pytest.raises(DuplicateJob):
        each.enqueue_many([2, 1])
    with pytest.raises(DuplicateJob):
        await each.aenqueue_many([2, 1])
    assert [job.payload for job in hf.jobs.list()] == [{"n": 1}]


async def test_async_middleware_around_enqueue_needs_aenqueue(hf: Holdfast) -> None:
    @hf.around_enqueue
    async def checks(job: NewJob) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        if job.tenant is None:
            raise PermissionError("who are you?")
        yield

    @hf.task()
    async def each() -> None: ...

    assert (await each.using(tenant="acme").aenqueue()).id
    with pytest.raises(PermissionError, match="who are you"):
        await each.aenqueue()
    with pytest.raises(UsageError, match="is async: use aenqueue"):
        each.enqueue()
    assert len(hf.jobs.list()) == 1


def swallows(value: int) -> Iterator[None]:
    with contextlib.suppress(BaseException):
        yield


def replaces(value: int) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        raise KeyError(value) from error


def ends_badly(value: int) -> Iterator[None]:
    try:
        yield
    finally:
        raise KeyError(value)


def begins_badly(value: int) -> Iterator[None]:
    raise KeyError(value)
    yield


def yields_never(value: int) -> Iterator[None]:
    yield from ()


def yields_twice(value: int) -> Iterator[None]:
    yield
    yield


def does_nothing(value: int) -> Iterator[None]:
    yield


LAYERS = [swallows, replaces, ends_badly, begins_badly, yields_never, yields_twice, does_nothing]
RAISED = [None, ValueError("v"), asyncio.CancelledError(), GeneratorExit(), KeyboardInterrupt(), StopIteration(1)]


@pytest.mark.parametrize("raised", RAISED, ids=repr)
@pytest.mark.parametrize("layer", LAYERS)
async def test_a_layer_alone_does_what_it_does_among_others(
    layer: Callable[[int], Iterator[None]], raised: BaseException | None
) -> None:
    async def tried(*layers: Callable[[int], Iterator[None]]) -> tuple[Any, ...]:
        around = Around(may_swallow=True)
        for each in layers:
            around.add(each)
        try:
            async with around.aentered(7):
                if raised is not None:
                    raise raised
                return ("returned",)
            return ("swallowed",)
        except BaseException as error:
            return (type(error), str(error), type(error.__cause__), error is raised)

    assert await tried(layer) == await tried(does_nothing, layer)
