"""Four marketplaces on loopback addresses, each with its own behavior, that record every request and its time."""

from __future__ import annotations

import asyncio
import html
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from aiohttp import web

COINS: list[dict[str, Any]] = [
    {"year": 1909, "mintmark": "S", "denomination": "cent", "series": "Lincoln", "title": "1909-S VDB Lincoln Cent"},
    {"year": 1916, "mintmark": "D", "denomination": "dime", "series": "Mercury", "title": "1916-D Mercury Dime"},
    {"year": 1921, "mintmark": None, "denomination": "dollar", "series": "Peace", "title": "1921 Peace Dollar"},
    {"year": 1878, "mintmark": "CC", "denomination": "dollar", "series": "Morgan", "title": "1878-CC Morgan Dollar"},
]
WORTH = {1909: 110_000, 1916: 95_000, 1921: 18_000, 1878: 32_000}
LOTS = 5  # of each coin at each marketplace


@dataclass
class Request:
    """One request, as the marketplace saw it."""

    at: float
    job_id: str
    status: int
    title: str


@dataclass
class Market:
    """One marketplace; a test may change its behavior while it serves."""

    id: str
    name: str
    address: str
    page: bool = False  # HTML without ids, in place of JSON with them
    delay: float = 0.0
    bucket: tuple[float, float] | None = None  # starts in a second, and at once; a faster client gets 429
    failing: bool = False
    held: set[str] = field(default_factory=set)  # titles whose first request gets no response
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    tokens: float | None = None

    def open_in(self, conn: Any, per_minute: float) -> None:
        """Add it to coins.sources: its jobs may run from now on, this many a minute."""
        conn.execute(
            "insert into coins.sources (id, name, url, enabled, rate_limit_per_minute) values (%s, %s, %s, true, %s)",
            [self.id, self.name, self.url, per_minute],
        )

    def over_limit(self) -> bool:
        """Take a token of the bucket; return whether there was none left."""
        if self.bucket is None:
            return False
        rate, burst = self.bucket
        since = self.requests[-1].at if self.requests else 0.0
        self.tokens = min(burst, burst if self.tokens is None else self.tokens + (time.time() - since) * rate)
        self.tokens -= 1
        return self.tokens < 0

    def count(self, status: int | None = None) -> int:
        """Return the number of requests, or of those with this status."""
        return sum(status in (None, each.status) for each in self.requests)

    async def search(self, request: web.Request) -> web.Response:
        """Handle `/search?year=1909&mintmark=S...`."""
        status, title = 200, request.query.get("title", "")
        if self.over_limit():
            status = 429
        elif self.failing:
            status = 503
        elif title == "nothing of the kind":
            status = 404
        self.requests.append(Request(time.time(), request.headers.get("X-Job-Id", ""), status, title))
        if title in self.held:
            self.held.remove(title)
            await asyncio.sleep(3600)
        await asyncio.sleep(self.delay)
        if status != 200:
            return web.Response(status=status)
        return self.html_page(request) if self.page else self.json_page(request)

    def json_page(self, request: web.Request) -> web.Response:
        """Return every lot with its id; the first one appears twice, the first time with half of its title."""
        lots = [
            {
                "id": f"{self.id}-{coin['year']}-{n}",
                "url": f"{self.url}/item/{coin['year']}-{n}?campaign={n}",
                "title": f"{coin['title']} graded {60 + n}",
                "price": price(coin, n),
                "type": "sold",
                "sold_at": f"2026-01-{n + 10}T18:22:00Z",
            }
            for coin, n in found(request)
        ]
        short = [lots[0] | {"title": lots[0]["title"][:11]}] if lots else []
        return web.json_response({"listings": short + lots})

    def html_page(self, request: web.Request) -> web.Response:
        """Return a page for people: no ids, tracking parameters in links, odd spacing; the last lot is only offered."""
        rows = [
            f'<li class="lot" data-date="2026-02-{n + 10}" data-type="{"ask" if n == LOTS - 1 else "sold"}">'
            f'<a href="{self.url}/lot/{coin["year"]}/{n}?seen={len(self.requests)}#bids">'
            f"{html.escape(coin['title'])}  {n}</a> <b>{price(coin, n)}</b></li>"
            for coin, n in found(request)
        ]
        return web.Response(text=f'<ul class="lots">{"".join(rows)}</ul>', content_type="text/html")


def found(request: web.Request) -> list[tuple[dict[str, Any], int]]:
    """Return the lots of all coins that match the query; a missing field matches."""
    names = [name for name in ("year", "mintmark", "denomination", "series") if name in request.query]
    fitting = [coin for coin in COINS if all(str(coin[name]) == request.query[name] for name in names)]
    return [(coin, n) for coin in fitting for n in range(LOTS)]


def price(coin: dict[str, Any], n: int) -> str:
    """Return a lot's own price, around the value of the coin."""
    return f"${WORTH[coin['year']] * (90 + 5 * n) / 10_000:,.2f}"


def hand_in(conn: Any, coin: dict[str, Any]) -> UUID:
    """Create an intake for a coin and return its id."""
    intake = uuid4()
    conn.execute(
        """insert into coins.coin_intakes (id, year, mintmark, denomination, series, title)
           values (%(id)s, %(year)s, %(mintmark)s, %(denomination)s, %(series)s, %(title)s)""",
        coin | {"id": intake},
    )
    return intake


def four_markets() -> dict[str, Market]:
    """Return one that limits requests, one for people, one that is slow and one that fails."""
    return {
        market.id: market
        for market in (
            Market("auctions", "Grand Auctions", "127.0.0.21", bucket=(5.5, 10)),
            Market("dealers", "Main Street Dealers", "127.0.0.22", page=True),
            Market("archive", "The Slow Archive", "127.0.0.23", delay=0.15),
            Market("flaky", "Flaky Coins", "127.0.0.24", failing=True),
        )
    }


@contextmanager
def serving(*markets: Market) -> Iterator[None]:
    """Serve them from a thread of their own for the length of a block."""
    loop, ready = asyncio.new_event_loop(), threading.Event()

    async def start() -> list[web.AppRunner]:
        runners = [await _start(market) for market in markets]
        ready.set()
        return runners

    async def stop(runners: list[web.AppRunner]) -> None:
        for runner in runners:
            await runner.cleanup()

    def run() -> None:
        runners = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(stop(runners))
        loop.close()

    thread = threading.Thread(target=run, name="marketplaces")
    thread.start()
    if not ready.wait(10):
        raise RuntimeError("the marketplaces did not start")
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _start(market: Market) -> web.AppRunner:
    app = web.Application()
    app.router.add_get("/search", market.search)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, market.address, 0).start()
    market.url = f"http://{market.address}:{runner.addresses[0][1]}"
    return runner
