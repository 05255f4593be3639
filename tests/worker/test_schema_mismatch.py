"""A database that is migrated under a running worker of an older release: no job fails for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import Holdfast, Retry, SchemaError, Status
from holdfast.worker import Worker
from tests.support.children import app_fixture  # noqa: F401 - fixture
from tests.support.running import QUICK, ended, until

import crunch  # isort: skip - children.py has put it on the path

Sql = Callable[..., list[tuple[Any, ...]]]
ONCE = Retry.fixed(0, max_attempts=1)


@pytest.fixture(name="migrate")
def migrate_fixture(sql: Sql) -> Iterator[Callable[[], None]]:
    """What a newer release's migrate leaves behind."""
    yield lambda: sql("INSERT INTO schema_info VALUES (9999, now())") and None
    sql("DELETE FROM schema_info WHERE version = 9999")


def with_relays(hf: Holdfast) -> None:
    @hf.task(name="target")
    async def target() -> None: ...

    @hf.task(name="async", retry=ONCE)
    async def relay() -> None:
        await target.aenqueue()

    @hf.task(name="thread", retry=ONCE)
    def relay_in_thread() -> None:
        target.enqueue()

    @hf.task(name="wrapped", retry=ONCE)
    async def wrapped() -> None:
        try:
            await target.aenqueue()
        except SchemaError:
            raise ValueError("something of the application's own") from None

    @hf.task(name="borrowed", retry=ONCE)
    async def borrowed() -> None:
        raise SchemaError("not set up in the connection's database")

    @hf.task(name="grouped", retry=ONCE)
    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(target.aenqueue())


async def run_one(hf: Holdfast, sql: Sql, migrate: Callable[[], None], task: str, payload: str = "{}") -> Worker:
    """Migrate under a worker that has no pool open yet, and give it a job that needs one."""
    worker = Worker(hf, **QUICK)
    running = asyncio.create_task(worker.run())
    await until(lambda: sql("SELECT 1 FROM sleepers"))
    migrate()
    sql("SELECT enqueue(%s, %s::jsonb)", [task, payload])
    with pytest.raises(SchemaError, match=r"at version 9999, newer than .*upgrade holdfast"):
        await running
    return worker


@pytest.mark.parametrize("task", ["async", "thread", "wrapped", "grouped", "borrowed"])
async def test_a_job_that_meets_a_newer_schema_is_given_back_and_the_worker_stops(
    hf: Holdfast, sql: Sql, migrate: Callable[[], None], task: str
) -> None:
    with_relays(hf)
    worker = await run_one(hf, sql, migrate, task)
    assert sql("SELECT status::text, attempts, last_error FROM jobs") == [("queued", 0, None)]
    assert worker.counts.failed == 0
    assert "at version 9999" in worker.health.ready()["schema"] and "at version 9999" in worker.health.live()["schema"]


async def test_a_job_in_a_child_process_is_given_back_too(app: Holdfast, sql: Sql, migrate: Callable[[], None]) -> None:
    assert "crunch.enqueues" in app.registry.tasks
    await run_one(app, sql, migrate, crunch.enqueues.name, '{"n": 5}')
    assert sql("SELECT status::text, attempts FROM jobs") == [("queued", 0)]


async def test_a_worker_whose_finish_is_gone_stops(hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="plain")
    async def plain() -> None: ...

    sql("ALTER FUNCTION finish(uuid[], bigint[], jsonb, bigint[], text) RENAME TO finish_of_next_year")
    try:
        await plain.aenqueue()
        async with asyncio.timeout(30):
            with pytest.raises(SchemaError, match=r"for this release of holdfast .*finish"):
                await Worker(hf, **QUICK | {"grace": 0.2}).run()
    finally:
        sql("ALTER FUNCTION finish_of_next_year(uuid[], bigint[], jsonb, bigint[], text) RENAME TO finish")


@pytest.mark.parametrize("whose", [("postgresql://elsewhere", "holdfast"), None])
async def test_another_databases_schema_is_the_handlers_own_affair(hf: Holdfast, whose: tuple[str, str] | None) -> None:
    @hf.task(name="elsewhere", retry=ONCE)
    async def elsewhere() -> None:
        raise SchemaError("not set up", whose)

    worker = Worker(hf, **QUICK)
    running = asyncio.create_task(worker.run())
    info = await ended(hf, (await elsewhere.aenqueue()).id)
    assert (info.status, info.attempts) == (Status.DEAD, 1)
    worker.stop()
    await running


async def test_enqueue_from_an_old_process_says_what_to_do(hf: Holdfast, sql: Sql, migrate: Callable[[], None]) -> None:
    with_relays(hf)
    migrate()
    with pytest.raises(SchemaError, match=r"at version 9999, newer than .*upgrade holdfast"):
        hf.registry.tasks["target"].enqueue()
    assert sql("SELECT count(*) FROM jobs") == [(0,)]
