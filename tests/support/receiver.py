"""A receiver of webhooks on this machine: it records requests and responds as configured."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


def verify_signature(secret: str, body_bytes: bytes, signature_header: str) -> bool:
    """Verify by document 004's own code, letter for letter."""
    expected = hmac.new(secret.encode(), body_bytes, hashlib.sha256).hexdigest()
    provided = signature_header.removeprefix("sha256=")
    return hmac.compare_digest(expected, provided)


@dataclass(frozen=True)
class Got:
    """One request."""

    headers: dict[str, str]
    body: bytes

    @property
    def delivery(self) -> str:
        return next(value for name, value in self.headers.items() if name.lower().endswith("-delivery-id"))

    @property
    def event(self) -> str:
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    """`respond` makes the response to each request from its number."""

    url: str = ""
    got: list[Got] = field(default_factory=list)
    respond: Callable[[int], Any] = lambda _: web.Response(text="thanks")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.got.append(Got(dict(request.headers), await request.read()))
        respond = self.respond(len(self.got))
        return await respond if asyncio.iscoroutine(respond) else respond


@asynccontextmanager
async def receiving(respond: Callable[[int], Any] | None = None) -> AsyncIterator[Receiver]:
    """Run a receiver for the length of a block."""
    made = Receiver()
    if respond is not None:
        made.respond = respond
    app = web.Application()
    app.router.add_post("/hook", made.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        made.url = f"http://127.0.0.1:{port}/hook"
        yield made
    finally:
        await runner.cleanup()
