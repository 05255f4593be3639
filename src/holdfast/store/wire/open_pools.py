"""Open and close psycopg's pools: one set for the threads of a process, and one for each event loop.

This is the part in which threads and coroutines really differ, so it is written by hand. The rest of the pools is in
pools_async.py, from which pools_sync.py is generated.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import random
import threading
import time
import weakref
from abc import ABC, abstractmethod
from typing import Any

from psycopg_pool import AsyncConnectionPool, ConnectionPool

from holdfast.settings import Settings
from holdfast.store.wire.connect_once import connect_once
from holdfast.store.wire.connection_async import AsyncConnection
from holdfast.store.wire.connection_sync import Connection
from holdfast.store.wire.opener import CALLS, LOANS, Opener

log = logging.getLogger("holdfast.pools")
_RECONNECT = 0.4  # seconds, jittered, after which a pool that cannot connect tries afresh
_POOL = "holdfast"


class ThreadPools(ABC):
    """The open pools of a process, by purpose. A thread that opens one locks out only those that want the same."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._openers = _openers(settings)
        self._locks = {CALLS: threading.Lock(), LOANS: threading.Lock()}  # a handler may wait far longer than a call
        self._pools: dict[str, ConnectionPool[Any]] = {}

    @abstractmethod
    def _make(self, purpose: str, conninfo: str) -> ConnectionPool[Any]:
        """Return a pool that is not open yet."""

    def _opened(self, purpose: str = CALLS, patience: float | None = None) -> ConnectionPool[Any]:
        """Return the pool for a purpose; the first call opens it, and waits for the primary for `patience` seconds."""
        ends = time.monotonic() + (self._settings.connect_timeout if patience is None else patience)
        with self._locks[purpose]:
            if (pool := self._pools.get(purpose)) is None:
                pool = self._make(purpose, connect_once(self._settings, purpose, ends - time.monotonic()))
                pool.open()
                self._pools[purpose] = pool
                atexit.register(_close_quietly, weakref.ref(self))
            return pool

    def _existing(self, purpose: str) -> ConnectionPool[Any] | None:
        """Return the pool for a purpose if it is open."""
        return self._pools.get(purpose)

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()


class LoopPools(ABC):
    """The open pools of each event loop, by purpose: a connection belongs to the loop that opened it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._openers = _openers(settings)
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, AsyncConnectionPool[Any]]] = (
            weakref.WeakKeyDictionary()
        )

    @abstractmethod
    def _make(self, purpose: str, conninfo: str) -> AsyncConnectionPool[Any]:
        """Return a pool that is not open yet."""

    async def _opened(self, purpose: str = CALLS, patience: float | None = None) -> AsyncConnectionPool[Any]:
        """Return the running loop's pool for a purpose; the first call opens it, as above, and waits in a thread."""
        seconds = self._settings.connect_timeout if patience is None else patience
        pools = self._pools.setdefault(asyncio.get_running_loop(), {})
        if purpose not in pools:
            conninfo = await asyncio.to_thread(connect_once, self._settings, purpose, seconds)
            if purpose not in pools:  # another coroutine may have been faster
                pools[purpose] = self._make(purpose, conninfo)
                await pools[purpose].open()
        return pools[purpose]

    def _existing(self, purpose: str) -> AsyncConnectionPool[Any] | None:
        """Return the running loop's pool for a purpose if it is open."""
        return self._pools.get(asyncio.get_running_loop(), {}).get(purpose)

    async def close(self) -> None:
        """Close this event loop's connections."""
        for pool in self._pools.pop(asyncio.get_running_loop(), {}).values():
            await pool.close()


def pool_options(opener: Opener) -> dict[str, Any]:
    """Return the arguments of both kinds of pool besides the conninfo and the callbacks."""
    settings = opener.settings
    logging.getLogger("psycopg.pool").addFilter(_not_ours)  # adding the same filter again has no effect
    return {
        "kwargs": opener.kwargs(),
        "min_size": 0,
        "max_size": settings.pool_size,
        "timeout": settings.connect_timeout,
        "name": _POOL,
        # The pool doubles its backoff of a second while the server is away; starting over keeps it short.
        "reconnect_timeout": _RECONNECT * random.uniform(0.5, 1.5),
    }


def _openers(settings: Settings) -> dict[str, Opener]:
    return {CALLS: Opener(settings, CALLS), LOANS: Opener(settings, LOANS, lent=True)}


def _not_ours(record: logging.LogRecord) -> bool:
    """Return whether a log record is of another pool. Our pool's failures reach callers as errors."""
    args = record.args if isinstance(record.args, tuple) else ()
    ours = any(each == _POOL or isinstance(each, Connection | AsyncConnection) for each in args)
    if ours:
        log.debug(record.getMessage())
    return not ours


def _close_quietly(pool: weakref.ref[ThreadPools]) -> None:
    if (alive := pool()) is not None:
        alive.close()
