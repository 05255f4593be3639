"""ASGI middleware that bounds every request under any server: the header, the size and duration of the body, the number
of concurrent requests, and how slowly a client may read the response."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.settings import Settings
from holdfast.telemetry import logs
from holdfast.web.problems import ClientGone, Problem

log = logs.get("web")
HEADERS = 100  # fields of a request's header
HEADER_BYTES = 32_768  # of a request's header, and of its first line
PIECE = 65_536  # bytes of a response that are sent at once
LINGER = 1.0  # seconds for which the rest of a rejected body is discarded, so that the client reads the response
LOG_EVERY = 60.0  # seconds between two equal log lines
ALWAYS = ("/v1/health/live",)
ON_EVERY_RESPONSE = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


def route_path(scope: Scope) -> str:
    """Return a request's path without the root path, as the router does.

    Some servers and applications leave the root path out of the path themselves, and some the slash at its end."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return (path[len(root) :] if root and (path == root or path.startswith(f"{root}/")) else path) or "/"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one request."""

    max_body: int
    max_requests: int
    client_timeout: float

    @classmethod
    def of(cls, settings: Settings) -> Bounds:
        """Return the bounds of the settings."""
        return cls(settings.max_body, settings.max_requests, settings.client_timeout)

    def too_large(self) -> Problem:
        """Return the error for a body that is too large."""
        remedy = "send fewer jobs, or raise HOLDFAST_MAX_BODY"
        return Problem(413, f"the body is larger than {self.max_body:,} bytes; {remedy}")


class Guard:
    """The outermost middleware except for the counters."""

    def __init__(self, inner: ASGIApp, bounds: Bounds) -> None:
        self._inner = inner
        self._bounds = bounds
        self._active = 0
        self._logged = -LOG_EVERY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        exchange = _Exchange(self._bounds, scope, receive, send)
        if (problem := self._refusal(scope, exchange)) is not None:
            await problem.response()(scope, exchange.receive, exchange.send)
            await exchange.close()
            return
        self._active += 1
        try:
            await self._inner(scope, exchange.receive, exchange.send)
        except ClientGone:
            pass
        finally:
            self._active -= 1
        await exchange.close()

    def _refusal(self, scope: Scope, exchange: _Exchange) -> Problem | None:
        if len(scope["headers"]) > HEADERS or exchange.header > HEADER_BYTES:
            return Problem(431, f"a header has at most {HEADERS} fields and {HEADER_BYTES:,} bytes")
        if exchange.claimed > self._bounds.max_body:
            return self._bounds.too_large()
        if self._active >= self._bounds.max_requests and route_path(scope) not in ALWAYS:
            self._log_full()
            detail = f"{self._active} requests are being handled; try again"
            return Problem(503, detail, "full", headers={"Retry-After": "1"})
        return None

    def _log_full(self) -> None:
        if (now := time.monotonic()) - self._logged >= LOG_EVERY:
            self._logged = now
            logs.event(log, logging.WARNING, "requests refused", active=self._active, remedy="HOLDFAST_MAX_REQUESTS")


class _Exchange:
    """One request and its response."""

    def __init__(self, bounds: Bounds, scope: Scope, receive: Receive, send: Send) -> None:
        self._bounds = bounds
        self._receive = receive
        self._send = send
        self._size = 0
        self._deadline = 0.0
        self._final: Message | None = None  # held back until the rest of the body is discarded
        self.claimed, self.header, chunked = 0, 0, False
        for name, value in scope["headers"]:
            self.header += len(name) + len(value)
            if name == b"content-length" and value.isdigit():
                self.claimed = int(value)
            elif name == b"transfer-encoding":
                chunked = True
        self._can_close = scope.get("http_version", "1.1") < "2"  # HTTP/2 has no "Connection" header
        # Whether the whole body was received. HTTP/2 bodies need neither of the two headers.
        self._ended = not (self.claimed or chunked) and self._can_close

    async def receive(self) -> Message:
        if self._ended:
            return await self._receive()
        loop = asyncio.get_running_loop()
        self._deadline = self._deadline or loop.time() + self._bounds.client_timeout
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self._size = self._bounds.max_body + 1  # close() reads no more
            late = f"the body did not arrive within {self._bounds.client_timeout:g} s"
            raise Problem(408, f"{late}; HOLDFAST_CLIENT_TIMEOUT is how long it may take") from None
        self._ended = not message.get("more_body", False)
        self._size += len(message.get("body", b""))
        if self._size > self._bounds.max_body:
            raise self._bounds.too_large()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = any(name == b"cache-control" for name, _ in message["headers"])
            message["headers"] = [*message["headers"], *ON_EVERY_RESPONSE[kept:]]
            if self._can_close and not self._ended:
                message["headers"].append((b"connection", b"close"))
            await self._send(message)  # small, so the server buffers it without waiting
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if not more and self._ended and len(body) <= PIECE:
            await self._send(message)
            return
        while len(body) > PIECE:
            await self._put({"type": "http.response.body", "body": body[:PIECE], "more_body": True})
            body = body[PIECE:]
        if more or self._ended:
            await self._put({"type": "http.response.body", "body": body, "more_body": more})
        else:
            await self._put({"type": "http.response.body", "body": body, "more_body": True})
            self._final = {"type": "http.response.body", "body": b"", "more_body": False}

    async def _put(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._bounds.client_timeout):
                await self._send(message)
        except TimeoutError:
            raise ClientGone from None

    async def close(self) -> None:
        """End a response that was sent before the whole body arrived, discarding the rest for up to LINGER seconds.

        Closing a connection with unread bytes resets it, and the client may never see the response."""
        if self._final is None:
            return
        try:
            async with asyncio.timeout(LINGER):
                while not self._ended and self._size <= self._bounds.max_body:
                    message = await self._receive()
                    self._size += len(message.get("body", b""))
                    self._ended = not message.get("more_body", False)
        except TimeoutError:
            pass
        await self._send(self._final)
