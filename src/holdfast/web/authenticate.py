"""ASGI middleware that authenticates a request before its body is read: tokens, the tick secret, rates, and the number
of concurrent requests of a tenant."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.model.token import Caller
from holdfast.web import secrets
from holdfast.web.guard import route_path
from holdfast.web.problems import Problem, of
from holdfast.web.service import CALLER, SLOT, RequestSlot, Service, token_key, unauthenticated

TENANT_SHARE = 4  # a tenant may use 1/TENANT_SHARE of max_requests
AT_ONCE = 32  # running requests of one tenant; further ones wait for a slot
BURST = 1.0  # seconds of a token's rate that may arrive at once
MOST_RATES = 10_000  # tokens whose rate is tracked
TICK_REFUSED = "send one of HOLDFAST_TICK_SECRETS in the header x-internal-secret"


class AuthenticationMiddleware:
    """Pass on requests with a valid token, and requests to paths that need none or do not exist."""

    def __init__(
        self, inner: ASGIApp, service: Service, prefix: str, guarded: Iterable[str], tick_secrets: Sequence[bytes]
    ) -> None:
        self._inner = inner
        self._service = service
        self._prefix = f"{prefix}/"
        self._guarded = frozenset(guarded)
        self._tick_secrets = tick_secrets
        self._most = max(1, service.hf.settings.max_requests // TENANT_SHARE)
        self._tenants: dict[str, _Tenant] = {}
        self._rates = Rates()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        first = self._first_part(scope)
        if first == "tick" and self._tick_secrets:
            given = _header(scope, b"x-internal-secret")
            if not secrets.knows(given, self._tick_secrets):
                await Problem(401, TICK_REFUSED).response()(scope, receive, send)
                return
        elif first in self._guarded:
            await self._with_token(scope, receive, send)
            return
        await self._inner(scope, receive, send)

    def _first_part(self, scope: Scope) -> str:
        path = route_path(scope)
        return path[len(self._prefix) :].partition("/")[0] if path.startswith(self._prefix) else ""

    async def _with_token(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = _header(scope, b"authorization").decode("latin-1")
        try:
            caller = await self._service.caller(token_key(given))
        except HoldfastError as error:
            await of(error).response()(scope, receive, send)
            return
        if (problem := unauthenticated(given) if caller is None else self._excess(caller)) is not None:
            await problem.response()(scope, receive, send)
            return
        scope[CALLER] = caller
        if (tenant := caller.tenant if caller is not None else None) is None:
            await self._inner(scope, receive, send)
            return
        state = self._tenants.setdefault(tenant, _Tenant())
        state.active += 1
        slot = None
        try:
            await state.slots.acquire()
            slot = scope[SLOT] = RequestSlot(state.slots)
            await self._inner(scope, receive, send)
        finally:
            if slot is not None:
                slot.release()
            state.active -= 1
            if not state.active:
                del self._tenants[tenant]

    def _excess(self, caller: Caller) -> Problem | None:
        state = None if caller.tenant is None else self._tenants.get(caller.tenant)
        if state is not None and state.active >= self._most:
            detail = f"{self._most} of your requests are in progress; retry when one has ended"
            return Problem(429, detail, headers={"Retry-After": "1"})
        if caller.rate is not None and (wait := self._rates.wait(caller.id, caller.rate)) > 0:
            detail = f"this token may send {caller.rate:g} requests a second"
            return Problem(429, detail, "rate", headers={"Retry-After": str(int(wait) + 1)})
        return None


class _Tenant:
    """The requests of one tenant: how many are handled, and the slots of those that run."""

    __slots__ = ("active", "slots")

    def __init__(self) -> None:
        self.active = 0
        self.slots = asyncio.Semaphore(AT_ONCE)


class Rates:
    """Rate limits by GCRA: for each token, the time at which an evenly spaced next request is due."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: OrderedDict[str, float] = OrderedDict()

    def wait(self, id_: str, rate: float) -> float:
        """Count a request and return 0, or return by how many seconds it is too early."""
        now = self._clock()
        due = max(self._due.get(id_, 0.0), now)
        ahead = due - now - max(BURST, 1 / rate) + 1 / rate
        if ahead > 1e-9:
            return ahead
        self._due[id_] = due + 1 / rate
        self._due.move_to_end(id_)
        if len(self._due) > MOST_RATES:
            self._due.popitem(last=False)
        return 0.0


def _header(scope: Scope, name: bytes) -> bytes:
    for each, value in scope["headers"]:
        if each == name:
            found: bytes = value
            return found
    return b""
