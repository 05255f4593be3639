"""Access to the dashboard: by session, by a user that a trusted proxy names, or, in development, from loopback."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict, deque
from dataclasses import dataclass

from starlette.requests import Request

from holdfast.model.token import Caller
from holdfast.web.dashboard import session as sessions
from holdfast.web.problems import Problem
from holdfast.web.service import Service

SESSION = "holdfast_session"
VISITOR = "holdfast_visitor"  # the random number of a browser without a session
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
FAILURES = 10  # of one address in WINDOW
ALL_FAILURES = 200  # of all addresses
WINDOW = 60.0  # seconds
MOST_ADDRESSES = 10_000


@dataclass(frozen=True, slots=True)
class Viewer:
    """The browser of a request: its caller, if it may see anything; its CSRF nonce; whether it can sign out."""

    caller: Caller | None
    nonce: bytes
    session: sessions.BrowserSession | None = None
    new: bool = False
    """Whether the browser does not know its nonce yet."""


class Access:
    """Finds the viewer of a request."""

    def __init__(self, service: Service, *, open_on_loopback: bool = False) -> None:
        settings = service.hf.settings
        self._service = service
        self._header = settings.dashboard_header.lower()
        self._proxies = [ipaddress.ip_network(each.strip()) for each in settings.dashboard_proxies.split(",") if each]
        self._scopes = frozenset(each.strip() for each in settings.dashboard_scopes.split(",") if each.strip())
        self._open = open_on_loopback
        self.failures = SignInFailures()

    async def viewer(self, request: Request, key: bytes) -> Viewer:
        """Return the viewer of a request."""
        found = sessions.unseal(key, request.cookies.get(SESSION, ""))
        if found is not None and (caller := await self._service.caller(found.token)) is not None:
            return Viewer(caller, found.nonce, found)
        known = sessions.decode(request.cookies.get(VISITOR, ""))
        nonce = known or sessions.new_nonce()
        return Viewer(self._without_session(request), nonce, new=not known)

    def _without_session(self, request: Request) -> Caller | None:
        if self._open and _is_loopback(address(request)) and _host(request) in LOOPBACK_NAMES:
            return Caller("", "development", None, frozenset({"admin"}), None)
        names = request.headers.getlist(self._header) if self._header and self.is_proxy(request) else []
        return Caller("", names[0][:200], None, self._scopes, None) if len(names) == 1 and names[0] else None

    def is_proxy(self, request: Request) -> bool:
        """Return whether a request comes from one of the trusted proxies."""
        peer = _ip(address(request))
        return peer is not None and any(peer in each for each in self._proxies)

    def is_https(self, request: Request) -> bool:
        """Return whether the browser speaks HTTPS, to the service or to a trusted proxy."""
        forwarded = request.headers.get("x-forwarded-proto", "") if self.is_proxy(request) else ""
        return request.url.scheme == "https" or forwarded == "https"


class SignInFailures:
    """Failed sign-ins of the last minute, by address and in all."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, deque[float]] = OrderedDict()
        self._all: deque[float] = deque()

    def add(self, address: str) -> None:
        """Count a failure, or raise a 429 after too many."""
        now = time.monotonic()
        mine = self._times.setdefault(address, deque())
        self._times.move_to_end(address)
        if len(self._times) > MOST_ADDRESSES:
            self._times.popitem(last=False)
        if _recent(mine, now) >= FAILURES or _recent(self._all, now) >= ALL_FAILURES:
            detail = "too many failed sign-ins; try again in a minute"
            raise Problem(429, detail, headers={"Retry-After": str(int(WINDOW))})
        mine.append(now)
        self._all.append(now)


def _recent(times: deque[float], now: float) -> int:
    while times and now - times[0] > WINDOW:
        times.popleft()
    return len(times)


def address(request: Request) -> str:
    """Return the address of the peer; an empty text for a Unix socket."""
    return request.client.host if request.client is not None else ""


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_loopback(text: str) -> bool:
    found = _ip(text)
    return found is not None and found.is_loopback


def _host(request: Request) -> str:
    """Return the name that the browser asked for. Another site's name may lead to loopback, too (DNS rebinding)."""
    name = request.headers.get("host", "")
    return name.rpartition(":")[0] if name.rpartition(":")[2].isdigit() else name
