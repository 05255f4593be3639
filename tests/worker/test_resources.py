"""Resources: opened before the first job, shared by all, closed in reverse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast import Holdfast, InvalidPayload, Resource, Status
from holdfast.worker import Worker
from tests.support.running import working


async def test_resources_are_opened_once_and_closed_in_reverse(hf: Holdfast) -> None:
    events: list[str] = []

    @hf.resource
    async def pool() -> AsyncIterator[str]:
        events.append("pool opened")
        yield "a pool"
        events.append("pool closed")

    @hf.resource
    def model() -> Iterator[dict[str, int]]:
        events.append("model opened")
        yield {"weights": 3}
        events.append("model closed")

    @hf.task()
    async def uses(n: int, *, db: str = pool.value) -> str:
        return f"{db} {n}"

    @hf.task()
    def in_thread(model_: dict[str, int] = model.value) -> int:
        return model_["weights"]

    async with working(hf):
        assert await (await uses.aenqueue(1)).aresult(40) == "a pool 1"
        assert await (await in_thread.aenqueue()).aresult(40) == 3
    assert events == ["pool opened", "model opened", "model closed", "pool closed"]
    assert await uses(2, db="a fake") == "a fake 2"
    with pytest.raises(InvalidPayload, match="'db' is given to task"):
        uses.enqueue(1, db="mine")


async def test_a_resource_that_only_a_task_knows_is_opened_too(hf: Holdfast) -> None:
    def shared() -> Iterator[str]:
        yield "opened"

    pool = Resource(shared)

    @hf.task()
    async def each(*, given: str = pool.value) -> str:
        return given

    async with working(hf):
        assert await (await each.aenqueue()).aresult(40) == "opened"


async def test_a_resource_that_cannot_be_opened_stops_the_worker_before_it_claims(hf: Holdfast) -> None:
    @hf.resource
    async def broken() -> AsyncIterator[None]:
        raise RuntimeError("no such host")
        yield

    @hf.task()
    async def each() -> None: ...

    job = each.enqueue()
    with pytest.raises(RuntimeError, match="no such host"):
        await Worker(hf).run()
    info = job.info()
    assert info is not None and info.status is Status.QUEUED
