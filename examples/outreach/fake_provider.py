"""A provider of e-mail and texts on loopback: slow to respond, and it remembers every idempotency key."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Receipt:
    """One message. It counts as sent from `began` on; the response goes out at `ends`."""

    worker: int  # the sender's pid
    began: float
    ends: float


@dataclass
class Provider:
    delay: float = 0.05  # seconds until it responds
    url: str = ""
    receipts: dict[str, Receipt] = field(default_factory=dict)
    refused: int = 0  # messages whose key it had already: sent twice
    lookups: list[float] = field(default_factory=list)  # times of the lookups of a key

    async def take(self, request: web.Request) -> web.Response:
        key, began, delay = request.headers["Idempotency-Key"], time.monotonic(), self.delay
        if key in self.receipts:
            self.refused += 1
            return web.json_response({"error": "duplicate", "key": key}, status=409)
        pid = int(request.headers["User-Agent"].partition("/")[2])
        self.receipts[key] = Receipt(pid, began, began + delay)
        await asyncio.sleep(delay)
        return web.json_response({"accepted": key}, status=202)

    async def lookup(self, request: web.Request) -> web.Response:
        self.lookups.append(time.monotonic())
        return web.Response(status=200 if request.query["key"] in self.receipts else 404)

    def open_of(self, pid: int) -> int:
        """Return how many messages of a worker it has taken without having responded yet."""
        now = time.monotonic()
        return sum(each.worker == pid and each.ends > now for each in list(self.receipts.values()))

    def is_busy(self, pid: int, messages: int) -> bool:
        return self.open_of(pid) >= messages

    def count(self, campaign: str) -> int:
        """Return how many messages of a campaign it has."""
        return sum(f"/{campaign}:" in key for key in list(self.receipts))

    def rate(self, since: float, until: float) -> float:
        """Return the messages a second in a window; those that cross its edges count in part."""
        parts = (
            max(0.0, min(each.ends, until) - max(each.began, since)) / (each.ends - each.began)
            for each in list(self.receipts.values())
        )
        return sum(parts) / (until - since)

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.add_routes([web.post("/email", self.take), web.post("/sms", self.take), web.get("/sent", self.lookup)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner


async def stop(runner: web.AppRunner) -> None:
    await runner.cleanup()
    left = asyncio.all_tasks() - {asyncio.current_task()}  # responses that no client waits for any more
    for each in left:
        each.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@contextlib.contextmanager
def running(delay: float = 0.05) -> Iterator[Provider]:
    """Run a provider in a thread of its own, for the length of a block."""
    made, loop = Provider(delay), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="provider", daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(made.start(), loop).result(30)
    try:
        yield made
    finally:
        asyncio.run_coroutine_threadsafe(stop(runner), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
