"""Live updates: one query a second for all viewers, none while no one looks; results that viewers share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.errors import DatabaseUnavailable
from holdfast.store.call import Call, Row
from holdfast.web.dashboard import live
from holdfast.web.dashboard.live import Broadcaster
from holdfast.web.dashboard.shared import Shared
from tests.conftest import PATIENCE

JOB = "018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f"


class Source:
    """Marks as a database would return them, and how often they were read."""

    def __init__(self) -> None:
        self.at = "1"
        self.jobs: dict[str, str] = {}
        self.reads: list[list[str]] = []
        self.down = False
        self.was_read = asyncio.Event()

    async def read(self, jobs: Sequence[str]) -> tuple[Row, list[str]]:
        self.reads.append(list(jobs))
        self.was_read.set()
        if self.down:
            raise DatabaseUnavailable("away")
        return {"at": self.at}, [self.jobs.get(each, "") for each in jobs]

    async def next_read(self) -> None:
        """Wait until it is read once more, and the followers have heard of it."""
        self.was_read.clear()
        async with asyncio.timeout(PATIENCE):
            await self.was_read.wait()
        await asyncio.sleep(0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "POLL_INTERVAL", 0.01)


async def topics(follower: Any) -> list[str]:
    async with asyncio.timeout(PATIENCE):
        while not (found := await follower.topics(1)):
            pass
    return list(found)


@pytest.mark.usefixtures("quick")
async def test_a_follower_hears_of_new_figures_and_of_its_own_job() -> None:
    source = Source()
    broadcaster = Broadcaster(source.read)
    with broadcaster.follow(JOB) as mine, broadcaster.follow(None) as other:
        await source.next_read()
        source.jobs[JOB] = "2"
        assert await topics(mine) == ["job"]
        source.at = "2"
        assert await topics(mine) == ["figures"] and broadcaster.snapshot() == {"at": "2"}
        assert await topics(other) == ["figures"]


@pytest.mark.usefixtures("quick")
async def test_many_viewers_cost_one_query_and_none_costs_none() -> None:
    source = Source()
    broadcaster = Broadcaster(source.read)
    follows = [broadcaster.follow(JOB if number % 2 else None) for number in range(50)]
    for each in follows:
        each.__enter__()
    await source.next_read()
    await source.next_read()
    assert len(source.reads) <= 3 and source.reads[0] == [JOB]
    for each in follows:
        each.__exit__(None, None, None)
    async with asyncio.timeout(PATIENCE):
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - none is left that could read
            await asyncio.sleep(0.001)


@pytest.mark.usefixtures("quick")
async def test_followers_go_on_after_an_outage() -> None:
    source = Source()
    broadcaster = Broadcaster(source.read)
    with broadcaster.follow(None) as follower:
        await source.next_read()
        source.down = True
        await source.next_read()
        source.down, source.at = False, "2"
        assert await topics(follower) == ["figures"]


async def test_concurrent_readers_share_one_query() -> None:
    calls = 0

    async def run(call: Call[Any]) -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.01)
        return calls

    shared = Shared(run)
    call: Call[int] = Call("select 1", ("a",), lambda rows: 1)
    assert set(await asyncio.gather(*(shared.read(call, 60) for _ in range(50)))) == {1}
    assert await shared.read(Call("select 1", ("b",), lambda rows: 1), 60) == 2
    shared.clear()
    assert await shared.read(call, 60) == 3
    assert await shared.read(Call("select 2", (), lambda rows: 1), 0) == 4
