"""Request coalescing: requests that arrive while a database call is under way share the next one.

A call for a hundred costs little more than a call for one, so throughput grows with load.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from holdfast.errors import DatabaseUnavailable

W = TypeVar("W")
A = TypeVar("A")
AT_ONCE = 2  # calls under way: a slow one and its successor
MOST = 200  # requests in one call
MOST_BYTES = 262_144  # in one call, so that small requests do not wait for many large ones
PATIENCE = 0.05  # seconds after which a call under way counts as slow


@dataclass
class _Waiting(Generic[W, A]):
    requests: list[tuple[W, asyncio.Future[A]]] = field(default_factory=list)
    calls: set[asyncio.Task[None]] = field(default_factory=set)
    newest: asyncio.Task[None] | None = None  # the call that takes the next requests; all earlier ones are slow
    taken: float = 0.0  # when a call last took requests
    alarm: asyncio.TimerHandle | None = None


class Coalescer(Generic[W, A]):
    """For each event loop, the waiting requests and the calls that serve them.

    `act` returns a result or an exception for each request, in order. If `act` raises, each half of the requests is
    tried again, until only the faulty request fails. The error of an unreachable database goes to all.

    Only one call is under way, so that many requests share the next. A second call starts only when the first is slow,
    and then takes over."""

    def __init__(
        self,
        act: Callable[[list[W]], Awaitable[Sequence[A | Exception]]],
        *,
        at_once: int = AT_ONCE,
        size: Callable[[W], int] | None = None,
    ) -> None:
        self._act = act
        self._size = size
        self._at_once = at_once
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting[W, A]] = weakref.WeakKeyDictionary()

    async def ask(self, request: W) -> A:
        """Return the result of one request."""
        loop = asyncio.get_running_loop()
        waiting = self._loops.setdefault(loop, _Waiting())
        future: asyncio.Future[A] = loop.create_future()
        waiting.requests.append((request, future))
        if waiting.newest is None and len(waiting.calls) < self._at_once:
            self._begin(loop, waiting)
        elif waiting.alarm is None:
            waiting.alarm = loop.call_later(PATIENCE, self._look, loop, waiting)
        return await future

    def _begin(self, loop: asyncio.AbstractEventLoop, waiting: _Waiting[W, A]) -> None:
        waiting.newest = call = loop.create_task(self._call(loop, waiting))
        waiting.taken = loop.time()
        waiting.calls.add(call)
        call.add_done_callback(waiting.calls.discard)

    def _look(self, loop: asyncio.AbstractEventLoop, waiting: _Waiting[W, A]) -> None:
        """Start another call if requests wait behind a slow one."""
        waiting.alarm = None
        if not waiting.requests:
            return
        if len(waiting.calls) < self._at_once and loop.time() - waiting.taken >= PATIENCE:
            self._begin(loop, waiting)
        waiting.alarm = loop.call_later(PATIENCE, self._look, loop, waiting)

    async def _call(self, loop: asyncio.AbstractEventLoop, waiting: _Waiting[W, A]) -> None:
        me = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            while waiting.requests and waiting.newest in (me, None):
                waiting.newest = me
                count = self._fitting(waiting.requests)
                some, waiting.requests = waiting.requests[:count], waiting.requests[count:]
                waiting.taken = loop.time()
                await self._serve(some)
        finally:  # the done callback runs too late: until then ask() would rely on this call
            waiting.calls.discard(me)
            if waiting.newest is me:
                waiting.newest = None
            if waiting.alarm is not None and not waiting.requests:  # a pending timer keeps the loop alive
                waiting.alarm.cancel()
                waiting.alarm = None

    def _fitting(self, requests: list[tuple[W, asyncio.Future[A]]]) -> int:
        """Return how many of the first requests fit into one call."""
        if self._size is None:
            return MOST
        left = MOST_BYTES
        for count, (request, _) in enumerate(requests[:MOST]):
            left -= self._size(request)
            if left < 0:
                return max(1, count)
        return MOST

    async def _results(self, requests: list[W]) -> Sequence[A | Exception]:
        """Serve requests in one call; if it fails, serve each half by itself."""
        try:
            return await self._act(requests)
        except DatabaseUnavailable as error:
            return [error] * len(requests)
        except Exception as error:
            if len(requests) == 1:
                return [error]
        half = len(requests) // 2
        return [*await self._results(requests[:half]), *await self._results(requests[half:])]

    async def _serve(self, some: list[tuple[W, asyncio.Future[A]]]) -> None:
        try:
            results = await self._results([request for request, _ in some])
        except asyncio.CancelledError:
            for _, future in some:
                future.cancel()
            raise
        for (_, future), result in zip(some, results, strict=True):
            _resolve(future, result)


def _resolve(future: asyncio.Future[A], result: A | Exception) -> None:
    if future.done():  # the caller was canceled
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
