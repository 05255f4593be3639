"""What each token and tenant may ask of the service at once: requests a second, concurrent requests, and how many of
them run. The API and the dashboard share the counts."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import Scope

from holdfast.model.token import Caller
from holdfast.web.problems import Problem
from holdfast.web.service import CALLER, SLOT, RequestSlot

TENANT_SHARE = 4  # a tenant may use 1/TENANT_SHARE of max_requests
AT_ONCE = 32  # running requests of one tenant; further ones wait for a slot
BURST = 1.0  # seconds of a token's rate that may arrive at once
MOST_RATES = 10_000  # tokens whose rate is tracked


class Admission:
    """The callers whose requests are being handled."""

    def __init__(self, max_requests: int) -> None:
        self._most = max(1, max_requests // TENANT_SHARE)
        self._tenants: dict[str, _Tenant] = {}
        self._rates = Rates()

    async def enter(self, scope: Scope, caller: Caller) -> None:
        """Count a request until leave(), and wait for a slot of its tenant. Raise a 429 if it is one too many."""
        if (problem := self._excess(caller)) is not None:
            raise problem
        scope[CALLER] = caller
        if caller.tenant is None:
            return
        state = self._tenants.setdefault(caller.tenant, _Tenant())
        state.active += 1
        await state.slots.acquire()
        scope[SLOT] = RequestSlot(state.slots)

    def leave(self, scope: Scope) -> None:
        """End a request, if it has entered."""
        caller: Caller | None = scope.get(CALLER)
        if caller is None or caller.tenant is None:
            return
        if (slot := scope.get(SLOT)) is not None:
            slot.release()
        state = self._tenants[caller.tenant]
        state.active -= 1
        if not state.active:
            del self._tenants[caller.tenant]

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
