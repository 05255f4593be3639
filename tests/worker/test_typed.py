"""Objects as arguments and results, through the database and each kind of runner."""

from __future__ import annotations

import datetime
import sys
import uuid
from collections.abc import Iterator
from decimal import Decimal

import pytest

from holdfast import Holdfast, NewJob, Status
from holdfast.client.database import Database
from holdfast.model.job import ids
from holdfast.settings import Settings
from tests.conftest import PATIENCE
from tests.support.running import ended, working
from tests.support.workers import APPS

sys.path.append(str(APPS))
import typed

LINE = typed.Line(sku="a", price=Decimal("1.10"), count=2)
ORDER = typed.Order(id=uuid.UUID(int=7), orderedAt=datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), lines=[LINE])


@pytest.fixture(name="app")
def app_fixture(dsn: str) -> Iterator[Holdfast]:
    """The application of tests/support/apps/typed.py on the test's database."""
    typed.hf.database = Database(Settings.load(dsn=dsn))
    yield typed.hf
    typed.hf.close()


async def test_every_runner_gets_objects_and_its_result_is_one(app: Holdfast) -> None:
    loop = await typed.on_the_loop.aenqueue(ORDER, typed.Point(1), typed.Address("Bonn"), typed.Parcel(ORDER))
    thread = await typed.in_a_thread.aenqueue(typed.Point(1, 2), typed.Address("Bonn", (LINE,)))
    pets: list[typed.Cat | typed.Dog] = [typed.Cat(), typed.Dog(name="Rex")]
    process = await typed.in_a_process.aenqueue(ORDER, typed.Address("Bonn"), pets, typed.Percent(7))
    async with working(app, child_processes=1):
        assert await loop.aresult(PATIENCE) == ORDER
        assert await thread.aresult(PATIENCE) == [typed.Point(1, 2), typed.Point(2, 2)]
        assert await process.aresult(PATIENCE) == typed.Address("Bonn", (LINE,))


async def test_many_jobs_take_objects_too(app: Holdfast) -> None:
    handles = await typed.many.aenqueue_many([({"a": typed.Cat()},), {"pets": {"b": typed.Dog(name="Rex")}}])
    async with working(app):
        assert [await each.aresult(PATIENCE) for each in handles] == [{}, {}]


async def test_a_payload_that_no_longer_fits_fails_at_once_with_its_place(app: Holdfast) -> None:
    old = NewJob(ids.make(), "typed.in_a_thread", b'{"point": {"x": -1}, "to": {"city": "Bonn"}}')
    await app.database.async_pool.run(app.database.calls.jobs.enqueue(old, "existing", fresh=False))
    async with working(app):
        info = await ended(app, old.id)
    assert info.status is Status.FAILED and info.last_error is not None
    assert "'x' must be >= 0" in info.last_error["message"]
