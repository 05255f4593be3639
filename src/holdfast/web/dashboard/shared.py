"""Results that all viewers of a process share for some seconds, so that 50 viewers cost one query."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.store.call import Call

T = TypeVar("T")
MOST = 200  # results kept
FRESH_FACTOR = 10  # a result is kept this many times as long as its query took, to bound the load of slow queries


@dataclass(slots=True)
class _Entry:
    value: Any = None
    until: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Shared:
    """Results by statement and parameters."""

    def __init__(self, run: Callable[[Call[Any]], Awaitable[Any]]) -> None:
        self._run = run
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()

    async def read(self, call: Call[T], fresh: float) -> T:
        """Return the result of a call, at most `fresh` seconds old unless its query is slow."""
        key = call.sql, repr(call.params)
        entry = self._entries.setdefault(key, _Entry())
        self._entries.move_to_end(key)
        if len(self._entries) > MOST:
            self._entries.popitem(last=False)
        if time.monotonic() >= entry.until:
            async with entry.lock:
                if (began := time.monotonic()) >= entry.until:
                    entry.value = await self._run(call)
                    ended = time.monotonic()
                    entry.until = ended + max(fresh, FRESH_FACTOR * (ended - began))
        value: T = entry.value
        return value

    def clear(self) -> None:
        """Forget all results."""
        self._entries.clear()
