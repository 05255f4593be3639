"""Live updates: one query a second for all viewers, none while no one looks; results that viewers share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Message

from holdfast import Holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.store.call import Call, Row
from holdfast.web import admission
from holdfast.web.dashboard import live
from holdfast.web.dashboard.live import Broadcaster
from holdfast.web.dashboard.shared import Shared
from tests.conftest import PATIENCE
from tests.support import serving
from tests.support.looking import Browser, browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture

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


def broadcaster_of(viewer: Browser) -> Broadcaster:
    assert viewer.app.dashboard is not None
    return viewer.app.dashboard.broadcaster


@asynccontextmanager
async def following(viewer: Browser) -> AsyncIterator[asyncio.Queue[bytes]]:
    """Follow the changes as a page does, for the length of a block; yield the events, and b"" at the end."""
    events: asyncio.Queue[bytes] = asyncio.Queue()
    gone = asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        assert message.get("status", 200) == 200
        if message["type"] == "http.response.body":
            events.put_nowait(message["body"])

    cookies = "; ".join(f"{name}={value}" for name, value in viewer.http.cookies.items())
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/live",
        "query_string": b"",
        "headers": [(b"cookie", cookies.encode())],
    }
    stream = asyncio.create_task(viewer.app(scope, receive, send))
    async with asyncio.timeout(PATIENCE):
        assert await events.get() == b"retry: 3000\n\n"
        yield events
        gone.set()
        await stream


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
        assert await topics(mine) == ["job"]
        source.jobs[JOB] = "2"
        assert await topics(mine) == ["job"]
        source.at = "2"
        assert await topics(mine) == ["figures"] and broadcaster.snapshot() == {"at": "2"}
        assert await topics(other) == ["figures"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("mark", ["1", ""])  # empty: the job has ended
async def test_a_follower_hears_of_its_job_when_it_begins(mark: str) -> None:
    """The job may have changed, or ended, between the page and its stream."""
    source = Source()
    source.jobs[JOB] = mark
    broadcaster = Broadcaster(source.read)
    with broadcaster.follow(JOB) as mine:
        assert await topics(mine) == ["job"]


@pytest.mark.usefixtures("quick")
async def test_a_stream_outlives_the_check_of_an_expiring_token(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With each look-up such a token has fewer seconds left."""
    monkeypatch.setattr(live, "CHECK", 0.0)
    monkeypatch.setattr(live, "STILL_HERE", 0.0)
    with Holdfast(dsn, token_cache=0) as hf:
        async with browser(hf, serving.token(hf, lifetime=3600)) as viewer, following(viewer) as events:
            for _ in range(3):
                assert await events.get() == b": still here\n\n"
        await hf.aclose()


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


async def test_too_many_viewers_get_an_error_before_the_stream_and_no_tenant_takes_all_places(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_VIEWERS", 4)
    monkeypatch.setattr(live, "MOST_OF_ONE", 2)
    async with browser(shop, serving.token(shop)) as mine, contextlib.AsyncExitStack() as streams:
        for _ in range(2):
            await streams.enter_async_context(following(mine))
        assert "too many viewers of your tenant (2)" in words(await mine.get("/live", 429))
        await mine.act("/sign-out")
        await mine.sign_in(serving.token(shop, None))
        for _ in range(2):
            await streams.enter_async_context(following(mine))
        full = await mine.http.get("/live")
        assert full.status_code == 503 and full.headers["retry-after"] == "5"
        await streams.aclose()
        assert not broadcaster_of(mine)._followers
        async with following(mine):
            pass


async def test_a_stream_holds_no_slot_of_its_tenant(shop: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "AT_ONCE", 1)
    async with browser(shop, serving.token(shop)) as viewer, following(viewer), asyncio.timeout(PATIENCE):
        await viewer.get("/jobs")


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
