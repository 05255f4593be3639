"""How much of something scarce each tenant has at once; the rest of its requests wait, and those of others do not."""

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
    users: int = 0  # that have a place or wait for one


class Shares:
    """For each event loop and tenant its places, while they are in use. Callers for all tenants share one tenant's."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: ContextVar[bool] = ContextVar("held", default=False)
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str | None, _Share]] = (
            weakref.WeakKeyDictionary()
        )

    @asynccontextmanager
    async def of(self, tenant: str | None) -> AsyncIterator[None]:
        """Take one of the tenant's places for the length of a block. A request that has one needs no second."""
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
