"""Send one POST to an untrusted receiver.

These guarantees do not depend on the receiver. A name is resolved once. Only the addresses found then and allowed by
address.py are dialed, and each is checked again before its socket is created. Redirects, proxies and cookies are
disabled. One deadline covers everything from name resolution to the last byte of the response. At most 16 kB of the
response body are kept, without decompression. The bytes before a body are limited too, because a flood of interim
responses or empty chunks would block the event loop.

Connections are reused. Development endpoints have connections of their own: otherwise another endpoint could reuse one
to an address that it must not reach.
"""

from __future__ import annotations

import asyncio
import base64
import io
import ipaddress
import os
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache, partial
from http import HTTPStatus
from types import TracebackType
from typing import Any, NoReturn

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from holdfast.effects.address import CheckedUrl, Rule, check_address, check_url, refusal
from holdfast.effects.resolve import CheckedResolver, Lookup, Names
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.outcome import clean
from holdfast.settings import VERSION
from holdfast.telemetry import logs

_refusals = logs.RateLimitedLog(logs.get("webhooks"))
MOST_BODY = 16_384
MOST_HEADERS = 8_192
_MOST_READ = 131_072  # bytes read of one response
_KEEPALIVE = 4.0  # seconds an idle connection is kept: many servers close theirs after five
_DNS_TTL = 10  # seconds that a name's checked addresses are used
_REQUEST_HEADERS = {
    "Accept": "*/*",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": f"Holdfast/{VERSION}",
}


@dataclass(frozen=True)
class Answer:
    """The receiver's response. Header names are in lower case; `cut` means that the body was truncated."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float
    cut: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the response as the dict that is stored as JSON."""
        return {
            "http_status": self.status,
            "response_headers": self.headers,
            "response_body": base64.b64encode(self.body).decode(),
            "seconds": round(self.seconds, 6),
        } | ({"cut": True} if self.cut else {})


class DeliveryError(HoldfastError):
    """The receiver did not accept what was posted.

    `code` is one of ADDRESS_REFUSED (that in the URL), DNS (the name has no public address), CONNECT, TLS,
    DISCONNECTED, TIMEOUT, BAD_ANSWER, REDIRECT, or HTTP_ with the status. `answer` is the response, which may be
    incomplete, or None.
    """

    def __init__(self, code: str, message: str, answer: Answer | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.answer = answer

    @property
    def details(self) -> dict[str, Any]:
        """Return what is stored with the error besides its message."""
        return {} if self.answer is None else {"response": self.answer.as_json()}


@dataclass
class _Exchange:
    """One POST in progress, and what has been received so far."""

    target: CheckedUrl
    began: float = field(default_factory=time.perf_counter)
    dialled: bool = False
    flooded: bool = False
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)

    def response(self) -> Answer | None:
        if not self.status:
            return None
        seconds, cut = time.perf_counter() - self.began, len(self.body) > MOST_BODY
        return Answer(self.status, self.headers, bytes(self.body[:MOST_BODY]), seconds, cut)


_exchange: ContextVar[_Exchange] = ContextVar("_exchange")


class Sender:
    """Posts to receivers on reused connections, in one event loop: `async with Sender() as sender`."""

    def __init__(
        self, *, rule: Rule = refusal, lookup: Lookup | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.rule = rule
        self._lookup = lookup or Names().lookup
        self._tls = tls
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def __aenter__(self) -> Sender:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout: float = 30.0, dev: bool = False
    ) -> Answer:
        """Return the response if its status is 2xx, or raise DeliveryError."""
        try:
            exchange = _Exchange(check_url(url, dev, self.rule))
        except UsageError as error:
            raise DeliveryError("ADDRESS_REFUSED", str(error)) from None
        try:
            async with asyncio.timeout(timeout):
                await self._send(exchange, body, headers, dev)
        except TimeoutError:
            raise _timeout_error(exchange, timeout) from None
        except UsageError as error:
            raise _refusal_error(exchange.target, error) from None
        except (aiohttp.ClientError, OSError) as error:
            _explain(error, exchange)
        return _successful(exchange)

    async def _send(self, exchange: _Exchange, body: bytes, headers: Mapping[str, str], dev: bool) -> None:
        _exchange.set(exchange)
        try:
            await self._once(exchange, body, headers, dev)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            # The receiver may close an idle connection while we write to it, so try once more on a new one.
            if exchange.dialled or exchange.flooded or exchange.status:
                raise
            await self._once(exchange, body, headers, dev)

    async def _once(self, exchange: _Exchange, body: bytes, headers: Mapping[str, str], dev: bool) -> None:
        # aiohttp warns about bytes above 1 MB, which it would copy at once.
        data = body if len(body) < 1_000_000 else io.BytesIO(body)
        session = self._sessions.get(dev) or self._open(dev)
        url = _parse(exchange.target.url)
        async with session.post(url, data=data, headers=headers, allow_redirects=False) as response:
            exchange.status, exchange.headers = response.status, _storable(response.raw_headers)
            while len(exchange.body) <= MOST_BODY and (chunk := await response.content.readany()):
                exchange.body += chunk
            # If the body was not read to its end, leaving this block closes the connection.

    def _open(self, dev: bool) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            resolver=CheckedResolver(self._lookup, self.rule, dev),
            socket_factory=lambda info: self._socket(info, dev),
            ttl_dns_cache=_DNS_TTL,
            keepalive_timeout=_KEEPALIVE,
            limit=0,
            ssl=self._tls or True,
        )
        handler: Any = partial(_Capped, loop=asyncio.get_running_loop())
        connector._factory = handler
        session = aiohttp.ClientSession(
            connector=connector,
            headers=_REQUEST_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            auto_decompress=False,
            trust_env=False,
            read_bufsize=MOST_BODY,
        )
        return self._sessions.setdefault(dev, session)

    def _socket(self, info: Any, dev: bool) -> socket.socket:
        """Return a socket for the next address to dial. This is the last place to refuse the address."""
        family, kind, protocol, _, peer = info
        exchange = _exchange.get()
        exchange.dialled = True
        check_address(exchange.target.host, ipaddress.ip_address(peer[0]), dev, self.rule)
        sock = socket.socket(family, kind, protocol)
        # Each read is parsed at once, so a small receive buffer limits the cost of a flood.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MOST_BODY)
        return sock


class _Capped(ResponseHandler):
    """aiohttp's protocol, which aborts the connection after _MOST_READ bytes."""

    _room = 0
    _exchange: _Exchange | None = None

    def set_response_params(self, **params: Any) -> None:
        """Reset the limit. aiohttp calls this in the request's task, before it sends."""
        self._room, self._exchange = _MOST_READ, _exchange.get(None)
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if self._room > 0:
            self._room -= len(data)
            super().data_received(data)
        elif self.transport is not None:
            if self._exchange is not None:
                self._exchange.flooded = True
            self.transport.abort()


@lru_cache(maxsize=2048)
def _parse(url: str) -> URL:
    return URL(url, encoded=True)  # check_url() has encoded it


def _storable(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers as text that JSON can hold, repeated ones joined, up to MOST_HEADERS characters."""
    headers: dict[str, str] = {}
    room = MOST_HEADERS
    for name, value in raw:
        if room <= len(name):
            break
        key = clean(name.decode("ascii", "backslashreplace").lower(), 200)
        text = clean(value.decode("utf-8", "backslashreplace"), room - len(name))
        room -= len(name) + len(text) + 2
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _successful(exchange: _Exchange) -> Answer:
    response = exchange.response()
    assert response is not None  # noqa: S101 - _once() sets a status
    if 200 <= response.status < 300:
        return response
    location = response.headers.get("location")
    if 300 <= response.status < 400 and location is not None:
        where = clean(location.split("?", 1)[0], 200)
        message = f"the receiver returned {response.status}, a redirect to {where!r}; redirects are not followed"
        raise DeliveryError("REDIRECT", f"{message}: change the endpoint's URL", response)
    raise DeliveryError(f"HTTP_{response.status}", f"the receiver returned {_phrase(response.status)}", response)


def _timeout_error(exchange: _Exchange, timeout: float) -> DeliveryError:
    response = exchange.response()
    if response is None:
        return DeliveryError("TIMEOUT", f"the receiver did not respond within {timeout:g} s")
    progress = f"its response, {_phrase(response.status)}, was incomplete after {len(response.body)} bytes of the body"
    return DeliveryError("TIMEOUT", f"the receiver took longer than {timeout:g} s: {progress}", response)


def _explain(error: aiohttp.ClientError | OSError, exchange: _Exchange) -> NoReturn:
    """Raise a readable error: aiohttp's own messages name classes and quote bytes that the receiver chose."""
    where = f"{exchange.target.host}:{exchange.target.port}"
    response = exchange.response()
    if exchange.flooded:
        code, message = "BAD_ANSWER", f"{where} sent more than {_MOST_READ // 1024} kB without a complete response"
    elif isinstance(error, aiohttp.ClientConnectorDNSError):
        code, message = "DNS", _no_public_address(exchange.target.host)
        if isinstance(error.os_error, socket.gaierror) and error.os_error.errno == socket.EAI_AGAIN:
            message = f"the name {exchange.target.host!r} cannot be resolved at the moment"
    elif isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        code, message = "TLS", f"the certificate of {where} is not accepted: {why}"
    elif isinstance(error, aiohttp.ClientSSLError):
        code, message = "TLS", f"no TLS with {where}: {getattr(error.os_error, 'reason', None) or error.os_error}"
    elif isinstance(error, aiohttp.ClientConnectorError):
        code, message = "CONNECT", f"no connection to {where}: {_reason(error.os_error)}"
    elif isinstance(error, aiohttp.ClientPayloadError) and response is not None:
        code, message = "BAD_ANSWER", f"the response, {_phrase(response.status)}, is incomplete or malformed"
    elif isinstance(error, aiohttp.ClientResponseError):
        code, message = "BAD_ANSWER", f"the response of {where} is not HTTP: {' '.join(error.message.split())[:200]!r}"
    else:
        code, message = "DISCONNECTED", f"{where} closed the connection without a response"
    raise DeliveryError(code, clean(message, 1000), response) from None


def _refusal_error(target: CheckedUrl, error: UsageError) -> DeliveryError:
    """Return the error for an address that must not be dialed, and log the address for operators.

    Tenants see the error. It does not reveal whether a name has a private address, because a tenant could use that to
    map the internal network.
    """
    if target.address is not None:  # the tenant wrote it
        return DeliveryError("ADDRESS_REFUSED", str(error))
    _refusals.warn("webhook address refused", target.host, reason=str(error))
    return DeliveryError("DNS", _no_public_address(target.host))


def _no_public_address(host: str) -> str:
    return f"the name {host!r} does not resolve to a public address"


def _reason(error: OSError) -> str:
    """Return the system's message, without the address and the call that asyncio adds to it."""
    return os.strerror(error.errno) if error.errno else error.strerror or str(error)


def _phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
