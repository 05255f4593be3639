"""HTTP for the worker: it respects robots.txt, caps what it reads, and dials public addresses only."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.robotparser import RobotFileParser

import aiohttp

from holdfast import Dead, RetryLater
from holdfast.effects import refusal
from links.bookmarks import domain
from links.head import Head, read_head

AGENT = "LinksBot"
MOST_READ = 262_144  # bytes of a page: its head is at the beginning
MOST_HOPS = 5
MOST_WAIT = 3600.0  # longest Retry-After in seconds
ROBOTS_KEPT = 86_400.0


class FetchError(Exception):
    """The page could not be read now; `code` says why. It is tried again as the task's policy says."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Elsewhere:
    """The link leads to a page of another host, which has a limit of its own."""

    url: str


class Web:
    """One worker's session; robots.txt of a site is read once a day. `private` allows internal addresses."""

    def __init__(self, timeout: float = 15.0, private: bool = False) -> None:
        self._timeout, self._private = timeout, private
        self._robots: dict[str, tuple[float, RobotFileParser]] = {}
        self._reading: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def __aenter__(self) -> Web:
        connector = aiohttp.TCPConnector(limit=0, socket_factory=self._socket)
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), headers={"User-Agent": f"{AGENT}/1.0"}
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    def _socket(self, info: Any) -> socket.socket:
        """The user who imports a file chooses where we connect to. Each address is checked when it is dialed, whatever
        name or redirect led to it."""
        family, kind, protocol, _, peer = info
        if reason := refusal(ipaddress.ip_address(peer[0]), self._private):
            raise Dead(f"{peer[0]} is {reason}: only public pages are fetched", code="ADDRESS_REFUSED")
        return socket.socket(family, kind, protocol)

    async def read(self, url: str) -> Head | Elsewhere:
        """Return the head of the page, or its place on another host. Redirects within the host are followed."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(url)
        except TimeoutError:
            raise FetchError("TIMEOUT", f"{url} did not respond within {self._timeout:g} s") from None
        except aiohttp.ClientError as error:
            raise FetchError("CONNECTION", f"{url} cannot be read: {type(error).__name__}") from error

    async def _follow(self, url: str) -> Head | Elsewhere:
        host = domain(url)
        for _ in range(MOST_HOPS + 1):
            if not await self._allowed(url):
                raise Dead(f"robots.txt forbids {_page(url)}", code="ROBOTS", block=host)
            async with self._session.get(url, allow_redirects=False) as response:
                if not 300 <= response.status < 400:
                    return await _understand(response, url)
                url = urljoin(url, response.headers.get("Location", ""))
            if domain(url) != host:
                return Elsewhere(url)
        raise FetchError("REDIRECTS", f"{url} leads round in circles")

    async def _allowed(self, url: str) -> bool:
        site = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        async with self._reading[site]:
            until, rules = self._robots.get(site, (0.0, RobotFileParser()))
            if until < time.monotonic():
                rules.parse((await self._robots_text(f"{site}/robots.txt")).splitlines())
                self._robots[site] = time.monotonic() + ROBOTS_KEPT, rules
        return rules.can_fetch(AGENT, url)

    async def _robots_text(self, url: str) -> str:
        """Follow RFC 9309: a missing file forbids nothing, a server error is retried. A redirect counts as missing:
        the pages of such a site redirect as well, and the rules of their target apply."""
        async with self._session.get(url, allow_redirects=False) as response:
            if response.status >= 500:
                raise FetchError("ROBOTS_UNAVAILABLE", f"{url} answered {response.status}")
            return (await _some(response)).decode("utf-8", "replace") if response.status == 200 else ""


async def _understand(response: aiohttp.ClientResponse, url: str) -> Head:
    """Return the head of the page, or raise the error for the response."""
    status = response.status
    if status == 403:
        raise Dead(f"{_page(url)} answered 403", code="HTTP_403", block=domain(url))
    wait = response.headers.get("Retry-After", "")
    if status in (429, 503) and wait.isdigit():
        raise RetryLater(min(float(wait), MOST_WAIT), f"{url} answered {status}", code=f"HTTP_{status}")
    if status >= 400:
        raise FetchError(f"HTTP_{status}", f"{url} answered {status}")
    head = Head()
    if response.content_type in ("text/html", "application/xhtml+xml"):
        head = read_head(await _some(response), response.charset, url)
    if head.captcha:
        raise Dead(f"{_page(url)} wants a human", code="CAPTCHA", block=domain(url))
    head.content_type = response.content_type
    return head


def _page(url: str) -> str:
    """Return the URL as operators may read it: without the query, which is private to the user."""
    return url.partition("?")[0]


async def _some(response: aiohttp.ClientResponse) -> bytes:
    """Return the first bytes. Leaving the response's block closes the connection, so the rest is not read."""
    data = bytearray()
    while len(data) < MOST_READ and (more := await response.content.readany()):
        data += more
    return bytes(data[:MOST_READ])
