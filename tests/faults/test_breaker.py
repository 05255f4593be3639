"""A destination that fails, then heals: while its breaker is open it gets probes only, and others are unaffected."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast import Breaker, Holdfast, Limit, Retry
from tests.support import flow
from tests.support.flow import Sql
from tests.support.running import until, working

PAUSE = 0.5


class Destination:
    """An HTTP server on the loopback device that can be broken, and records its requests."""

    def __init__(self) -> None:
        self.broken = True
        self.requests: list[tuple[str, float, bool]] = []  # path, when, whether it failed

    async def respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readline()).split()[1].decode()
        failed = self.broken and path == "/bad"
        self.requests.append((path, time.monotonic(), failed))
        writer.write(b"HTTP/1.1 503 Down\r\n\r\n" if failed else b"HTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    def since(self, moment: float) -> list[float]:
        return [at for path, at, _ in self.requests if path == "/bad" and at >= moment]


@asynccontextmanager
async def destination() -> AsyncIterator[tuple[Destination, int]]:
    it = Destination()
    async with await asyncio.start_server(it.respond, "127.0.0.1", 0) as server:
        yield it, server.sockets[0].getsockname()[1]


def breaker(sql: Sql) -> tuple[Any, ...]:
    """Return how many run, failure_streak, opens, and whether it is open."""
    assert flow.drift(sql) == []
    rows = sql("select failure_streak, opens, open_until is not null from limits where key = 'site:bad'")
    return (flow.held(sql).get("site:bad", 0), *(rows[0] if rows else (0, 0, False)))


async def test_while_a_breaker_is_open_its_destination_gets_probes_only(hf: Holdfast, sql: Sql) -> None:
    async with destination() as (there, port):

        @hf.task(
            name="fetch",
            retry=Retry.fixed(0.05, max_attempts=1000),
            limits=[Limit("site:{site}", breaker=Breaker(after=5, pause=PAUSE, cap=2 * PAUSE))],
        )
        async def fetch(site: str) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET /{site} HTTP/1.1\r\n\r\n".encode())
            status = await reader.readline()
            writer.close()
            if b"200" not in status:
                raise ConnectionError(status.decode().strip())

        async def opened() -> bool:
            return breaker(sql)[3] and breaker(sql)[0] == 0

        async def all_ended() -> bool:
            return sql("select count(*) from history") == [(80,)]

        fetch.enqueue_many([("bad",)] * 40 + [("good",)] * 40)
        async with working(hf, concurrency=8), working(hf, concurrency=8):
            await until(opened)  # and running jobs have ended: from here on each request is a probe
            began, opens = time.monotonic(), breaker(sql)[2]
            assert len([1 for path, *_ in there.requests if path == "/bad"]) >= 5
            await until(lambda: asyncio.sleep(0, breaker(sql)[2] >= opens + 3))
            probes = there.since(began)
            assert breaker(sql)[2] - opens <= len(probes) <= breaker(sql)[2] - opens + 1
            gaps = [b - a for a, b in itertools.pairwise(probes)]
            assert min(gaps) > PAUSE * 0.9 and gaps[-1] > 2 * PAUSE * 0.9, "each failed probe doubles the pause"
            assert len([1 for path, *_ in there.requests if path == "/good"]) == 40, "others were not held up"
            there.broken = False
            await until(all_ended)
        flow.fold(sql)
        assert breaker(sql) == (0, 0, 0, False)
        made = sum(row[0] for row in sql("select attempt from history where payload ->> 'site' = 'bad'"))
        assert made == len(there.since(0)), "waiting costs no attempts"


async def test_only_the_errors_that_the_task_names_count(hf: Holdfast, sql: Sql) -> None:
    @hf.task(
        retry=Retry.fixed(0, max_attempts=8),
        limits=[Limit("site:{site}", breaker=Breaker(after=3, pause=60, on=[TimeoutError]))],
    )
    async def fetch(site: str, error: str) -> None:
        raise {"value": ValueError, "timeout": TimeoutError}[error]

    async with working(hf, concurrency=4):
        fetch.enqueue("ours", "value")
        await until(lambda: asyncio.sleep(0, sql("select count(*) from dead") == [(1,)]))
        flow.fold(sql)
        assert sql("select failure_streak, open_until from limits where key = 'site:ours'") == [(0, None)]
        fetch.enqueue("bad", "timeout")
        await until(lambda: asyncio.sleep(0, breaker(sql)[3]))
    assert breaker(sql) == (0, 3, 1, True)
