"""One POST to a receiver that nobody trusts.

What holds whatever the receiver does: a name is resolved once, what is dialled is one of the addresses found then and
allowed by address.py, and the socket is made only after its address was looked at once more. Redirects, proxies and
cookies are not followed, used or kept. One deadline covers everything from the name to the last byte of the answer. Of
the answer 16 kB are kept, as they came: nothing is decompressed, so 16 kB cannot become more. What goes before a body
has an end too: a flood of interim answers or of empty chunks would keep the event loop from everybody else.

Connections are kept and used again. Those for development are kept apart, or an endpoint that is not for development
could be served by a connection to an address that it must not reach.
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

from holdfast.effects.address import Rule, Target, check_address, check_url, refusal
from holdfast.effects.resolve import CheckedResolver, Lookup, Names
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.outcome import clean
from holdfast.settings import VERSION
from holdfast.telemetry import logs

_refusals = logs.Seldom(logs.get("webhooks"))
MOST_BODY = 16_384
MOST_HEADERS = 8_192
_MOST_READ = 131_072  # bytes of an answer that are looked at at all
_KEPT = 4.0  # seconds that an idle connection is kept: many servers close theirs after five
_NAMES_KEPT = 10  # seconds that a name's checked addresses are used
_REQUEST_HEADERS = {
    "Accept": "*/*",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": f"Holdfast/{VERSION}",
}


@dataclass(frozen=True)
class Answer:
    """What the receiver answered. Header names are in lower case; `cut` when there was more than is kept."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float
    cut: bool = False

    def told(self) -> dict[str, Any]:
        """As it is stored, in JSON."""
        return {
            "http_status": self.status,
            "response_headers": self.headers,
            "response_body": base64.b64encode(self.body).decode(),
            "seconds": round(self.seconds, 6),
        } | ({"cut": True} if self.cut else {})


class DeliveryError(HoldfastError):
    """The receiver did not accept what was posted.

    `code` is one of ADDRESS_REFUSED (that in the URL), DNS (the name has no public address), CONNECT, TLS,
    DISCONNECTED, TIMEOUT, BAD_ANSWER, REDIRECT, or HTTP_ with the status. `answer` is what came back, as far as it
    came; None when nothing did.
    """

    def __init__(self, code: str, message: str, answer: Answer | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.answer = answer

    @property
    def details(self) -> dict[str, Any]:
        """What is kept with the error beside its text."""
        return {} if self.answer is None else {"response": self.answer.told()}


@dataclass
class _Exchange:
    """One POST on its way, and what has come back so far."""

    target: Target
    began: float = field(default_factory=time.perf_counter)
    dialled: bool = False
    flooded: bool = False
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)

    def answer(self) -> Answer | None:
        if not self.status:
            return None
        seconds, cut = time.perf_counter() - self.began, len(self.body) > MOST_BODY
        return Answer(self.status, self.headers, bytes(self.body[:MOST_BODY]), seconds, cut)


_exchange: ContextVar[_Exchange] = ContextVar("_exchange")


class Sender:
    """Posts to receivers, on connections that it keeps; used in one event loop, as `async with Sender() as sender`."""

    def __init__(
        self, *, rule: Rule = refusal, lookup: Lookup | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._rule = rule
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
        """Closes all connections."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout: float = 30.0, dev: bool = False
    ) -> Answer:
        """The receiver's answer if its status is 2xx; DeliveryError for anything else."""
        try:
            exchange = _Exchange(check_url(url, dev, self._rule))
        except UsageError as refused:
            raise DeliveryError("ADDRESS_REFUSED", str(refused)) from None
        try:
            async with asyncio.timeout(timeout):
                await self._send(exchange, body, headers, dev)
        except TimeoutError:
            raise _late(exchange, timeout) from None
        except UsageError as refused:
            raise _refused(exchange.target, refused) from None
        except (aiohttp.ClientError, OSError) as error:
            _explain(error, exchange)
        return _accepted(exchange)

    async def _send(self, exchange: _Exchange, body: bytes, headers: Mapping[str, str], dev: bool) -> None:
        _exchange.set(exchange)
        try:
            await self._once(exchange, body, headers, dev)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            # The receiver closed a kept connection while we wrote to it. That is no failure; a new one will tell.
            if exchange.dialled or exchange.flooded or exchange.status:
                raise
            await self._once(exchange, body, headers, dev)

    async def _once(self, exchange: _Exchange, body: bytes, headers: Mapping[str, str], dev: bool) -> None:
        # aiohttp warns of bytes above 1 MB, which it would copy at once.
        data = body if len(body) < 1_000_000 else io.BytesIO(body)
        session = self._sessions.get(dev) or self._open(dev)
        url = _parsed(exchange.target.url)
        async with session.post(url, data=data, headers=headers, allow_redirects=False) as response:
            exchange.status, exchange.headers = response.status, _kept(response.raw_headers)
            while len(exchange.body) <= MOST_BODY and (some := await response.content.readany()):
                exchange.body += some
            # A body that was not read to its end closes the connection when this block ends.

    def _open(self, dev: bool) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            resolver=CheckedResolver(self._lookup, self._rule, dev),
            socket_factory=lambda info: self._socket(info, dev),
            ttl_dns_cache=_NAMES_KEPT,
            keepalive_timeout=_KEPT,
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
        """A socket for an address that is dialled next: the last place at which it can be refused."""
        family, kind, protocol, _, peer = info
        exchange = _exchange.get()
        exchange.dialled = True
        check_address(exchange.target.host, ipaddress.ip_address(peer[0]), dev, self._rule)
        made = socket.socket(family, kind, protocol)
        # Answers are small. What one read brings is parsed at once, so it bounds what a flood costs.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MOST_BODY)
        return made


class _Capped(ResponseHandler):
    """aiohttp's protocol, which hangs up when an exchange has brought far more than an answer has."""

    _room = 0
    _exchange: _Exchange | None = None

    def set_response_params(self, **params: Any) -> None:
        """Called when a request is about to be sent, in its task."""
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
def _parsed(url: str) -> URL:
    return URL(url, encoded=True)  # check_url() has written it as it is to be sent


def _kept(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers as they are stored: text that fits into JSON, those that come twice joined, no more than a cap."""
    kept: dict[str, str] = {}
    room = MOST_HEADERS
    for name, value in raw:
        if room <= len(name):
            break
        key = clean(name.decode("ascii", "backslashreplace").lower(), 200)
        text = clean(value.decode("utf-8", "backslashreplace"), room - len(name))
        room -= len(name) + len(text) + 2
        kept[key] = f"{kept[key]}, {text}" if key in kept else text
    return kept


def _accepted(exchange: _Exchange) -> Answer:
    answer = exchange.answer()
    assert answer is not None  # noqa: S101 - a status is what _once() ends with
    if 200 <= answer.status < 300:
        return answer
    location = answer.headers.get("location")
    if 300 <= answer.status < 400 and location is not None:
        where = clean(location.split("?", 1)[0], 200)
        message = f"the receiver answered {answer.status}, which leads to {where!r}; redirects are not followed"
        raise DeliveryError("REDIRECT", f"{message}: change the endpoint's URL", answer)
    raise DeliveryError(f"HTTP_{answer.status}", f"the receiver answered {_phrase(answer.status)}", answer)


def _late(exchange: _Exchange, timeout: float) -> DeliveryError:
    answer = exchange.answer()
    if answer is None:
        return DeliveryError("TIMEOUT", f"the receiver did not answer within {timeout:g} s")
    came = f"its answer, {_phrase(answer.status)}, had not ended, {len(answer.body)} bytes of the body had come"
    return DeliveryError("TIMEOUT", f"the receiver took longer than {timeout:g} s: {came}", answer)


def _explain(error: aiohttp.ClientError | OSError, exchange: _Exchange) -> NoReturn:
    """Raises what aiohttp met in words for people; its own would name classes, and bytes that the receiver chose."""
    where = f"{exchange.target.host}:{exchange.target.port}"
    answer = exchange.answer()
    if exchange.flooded:
        code, message = "BAD_ANSWER", f"{where} sent {_MOST_READ // 1024} kB and more in which there is no whole answer"
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
    elif isinstance(error, aiohttp.ClientPayloadError) and answer is not None:
        code, message = "BAD_ANSWER", f"the answer, {_phrase(answer.status)}, broke off or is malformed"
    elif isinstance(error, aiohttp.ClientResponseError):
        code, message = "BAD_ANSWER", f"the answer of {where} is not HTTP: {' '.join(error.message.split())[:200]!r}"
    else:
        code, message = "DISCONNECTED", f"{where} closed the connection without an answer"
    raise DeliveryError(code, clean(message, 1000), answer) from None


def _refused(target: Target, refused: UsageError) -> DeliveryError:
    """Return the error of an address that must not be dialled. Operators read the address of a name in the log.

    The error, which tenants see, must neither tell it nor that there is one: with names of its choice a tenant could
    map the network inside.
    """
    if target.address is not None:  # the tenant wrote it
        return DeliveryError("ADDRESS_REFUSED", str(refused))
    _refusals.warn("webhook address refused", target.host, reason=str(refused))
    return DeliveryError("DNS", _no_public_address(target.host))


def _no_public_address(host: str) -> str:
    return f"the name {host!r} does not resolve to a public address"


def _reason(error: OSError) -> str:
    """What the system says, without the address and the name of the call that asyncio puts around it."""
    return os.strerror(error.errno) if error.errno else error.strerror or str(error)


def _phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
