"""A bound on how much of a scarce resource each tenant uses at once. Its other requests wait."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class _Share:
    places: asyncio.Semaphore
    users: int = 0  # requests that hold a place or wait for one


class Shares:
    """The places of each tenant, for each event loop. All callers for all tenants together count as one tenant."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: ContextVar[bool] = ContextVar("held", default=False)
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str | None, _Share]] = (
            weakref.WeakKeyDictionary()
        )

    @asynccontextmanager
    async def of(self, tenant: str | None) -> AsyncIterator[None]:
        """Hold one of the tenant's places for the length of a block. A request that holds one takes no second."""
        if self._held.get():
            yield
            return
        tenants = self._loops.setdefault(asyncio.get_running_loop(), {})
        share = tenants.setdefault(tenant, _Share(asyncio.Semaphore(self._most)))
        share.users += 1
        try:
            async with share.places:
                held = self._held.set(True)
                try:
                    yield
                finally:
                    self._held.reset(held)
        finally:
            share.users -= 1
            if not share.users:
                del tenants[tenant]
