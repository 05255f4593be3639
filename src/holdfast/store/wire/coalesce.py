"""Request coalescing: requests that arrive while a database call is under way share the next one.

A call for a hundred costs little more than a call for one, so throughput grows with load. A request that arrives while
no call is under way is served at once, by itself, and pays nothing for this.

Only one call is under way, so that many requests share the next. A second call starts only when the first is slow, and
then takes over. Threads and coroutines wait differently, so each has a class of its own; which requests go together,
and what happens to them if their call fails, is decided in one place for both.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from holdfast.errors import DatabaseUnavailable
from holdfast.store.wire.halves_async import aserve
from holdfast.store.wire.halves_sync import serve

W = TypeVar("W")
A = TypeVar("A")
AT_ONCE = 2  # calls under way: a slow one and its successor
MOST = 200  # requests in one call
MOST_BYTES = 262_144  # in one call, so that small requests do not wait for many large ones
PATIENCE = 0.05  # seconds after which a call under way counts as slow


class LoopCoalescer(Generic[W, A]):
    """For each event loop, the waiting requests and the calls that serve them.

    `act` returns a result or an exception for each request, in order. If `act` raises, each half of the requests is
    tried again, until only the faulty request fails. The error of an unreachable database goes to all."""

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
        if (waiting := self._loops.get(loop)) is None:
            waiting = self._loops[loop] = _Waiting()
        if waiting.newest is None and not waiting.calls and not waiting.requests:
            return await self._ask_alone(loop, waiting, request)
        future: asyncio.Future[A] = loop.create_future()
        waiting.requests.append((request, future))
        if waiting.newest is None and len(waiting.calls) < self._at_once:
            self._begin(loop, waiting)
        elif waiting.alarm is None:
            waiting.alarm = loop.call_later(PATIENCE, self._look, loop, waiting)
        return await future

    async def _ask_alone(self, loop: asyncio.AbstractEventLoop, waiting: _Waiting[W, A], request: W) -> A:
        """Serve the only request in its caller's own task. A canceled caller ends only its own request."""
        me = waiting.newest = object()
        waiting.calls.add(me)
        waiting.taken = loop.time()
        try:
            (result,) = await self._act([request])
        finally:
            waiting.leave(me)
            if waiting.requests and waiting.newest is None and len(waiting.calls) < self._at_once:
                self._begin(loop, waiting)
        if isinstance(result, Exception):
            raise result
        return result

    def _begin(self, loop: asyncio.AbstractEventLoop, waiting: _Waiting[W, A]) -> None:
        me = waiting.newest = object()
        waiting.calls.add(me)
        waiting.taken = loop.time()
        task = loop.create_task(self._serve_waiting(loop, waiting, me))
        waiting.tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(waiting.tasks.discard)

    def _look(self, loop: asyncio.AbstractEventLoop, waiting: _Waiting[W, A]) -> None:
        """Start another call if requests wait behind a slow one."""
        waiting.alarm = None
        if not waiting.requests:
            return
        if len(waiting.calls) < self._at_once and loop.time() - waiting.taken >= PATIENCE:
            self._begin(loop, waiting)
        waiting.alarm = loop.call_later(PATIENCE, self._look, loop, waiting)

    async def _serve_waiting(self, loop: asyncio.AbstractEventLoop, waiting: _Waiting[W, A], me: object) -> None:
        try:
            while waiting.newest in (me, None):
                waiting.forget_canceled()
                if not waiting.requests:
                    break
                waiting.newest = me
                count = fitting([request for request, _ in waiting.requests[:MOST]], self._size)
                some, waiting.requests = waiting.requests[:count], waiting.requests[count:]
                waiting.taken = loop.time()
                await self._serve(some)
        finally:
            waiting.leave(me)

    async def _serve(self, some: list[tuple[W, asyncio.Future[A]]]) -> None:
        try:
            results = await aserve(self._act, [request for request, _ in some])
        except asyncio.CancelledError:
            for _, future in some:
                future.cancel()
            raise
        except Exception as error:  # not ours: a fault of `act`
            results = [error] * len(some)
        for (_, future), result in zip(some, results, strict=True):
            _resolve(future, result)


@dataclass
class _Waiting(Generic[W, A]):
    requests: list[tuple[W, asyncio.Future[A]]] = field(default_factory=list)
    calls: set[object] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    newest: object | None = None  # the call that takes the next requests; all earlier ones are slow
    taken: float = 0.0  # when a call last took requests
    alarm: asyncio.TimerHandle | None = None

    def leave(self, call: object) -> None:
        """Note that a call has ended, and forget requests whose callers were canceled meanwhile."""
        self.calls.discard(call)
        if self.newest is call:
            self.newest = None
        self.forget_canceled()

    def forget_canceled(self) -> None:
        self.requests = [each for each in self.requests if not each[1].done()]
        if self.alarm is not None and not self.requests:  # a pending timer keeps the loop alive
            self.alarm.cancel()
            self.alarm = None


class ThreadCoalescer(Generic[W, A]):
    """The same for threads. A call is made by the thread of one of its requests, so there is no thread besides."""

    def __init__(
        self, act: Callable[[list[W]], Sequence[A | Exception]], *, size: Callable[[W], int] | None = None
    ) -> None:
        self._act = act
        self._size = size
        self._reset()

    def _reset(self) -> None:
        """Begin anew in a process; a forked child has none of the threads that the parent waits for."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._requests: list[_Turn[W, A]] = []
        self._calls = 0
        self._newest: object | None = None  # the call that takes the next requests; all earlier ones are slow

    def ask(self, request: W) -> A:
        """Return the result of one request."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            alone = self._newest is None and self._calls < AT_ONCE and not self._requests
            if alone:
                self._newest = me = object()
                self._calls += 1
            else:
                turn: _Turn[W, A] = _Turn(request)
                self._requests.append(turn)
        return self._ask_alone(request, me) if alone else self._ask_together(turn)

    def _ask_alone(self, request: W, me: object) -> A:
        try:
            (result,) = self._act([request])
        finally:
            self._end(me)
        if isinstance(result, Exception):
            raise result
        return result

    def _ask_together(self, turn: _Turn[W, A]) -> A:
        self._wait(turn)
        if turn.leads is not None:
            self._serve(turn)
        if isinstance(turn.result, BaseException):
            raise turn.result
        result: A = turn.result
        return result

    @property
    def waiting(self) -> int:
        """Return how many requests wait for a call."""
        return len(self._requests)

    def _wait(self, turn: _Turn[W, A]) -> None:
        """Wait until another thread has served the request, or has left the next call to this one."""
        try:
            while not turn.wait(PATIENCE):
                self._take_over(turn)
        except BaseException:  # interrupted
            self._withdraw(turn)
            raise

    def _serve(self, turn: _Turn[W, A]) -> None:
        some = turn.leads or []
        results: Sequence[Any] = [DatabaseUnavailable("the thread that made this call was interrupted")] * len(some)
        try:
            results = serve(self._act, [each.request for each in some])
        finally:
            self._end(turn)
            for each, result in zip(some, results, strict=True):
                each.resolve(result)

    def _end(self, call: object) -> None:
        """End a call. If it is the newest, leave the next one to the thread that waits longest."""
        with self._lock:
            self._calls -= 1
            if self._newest in (call, None):
                self._newest = None
                if self._requests and self._calls < AT_ONCE:
                    self._take().wake()

    def _take_over(self, turn: _Turn[W, A]) -> None:
        """Make a call beside a slow one."""
        with self._lock:
            if self._calls < AT_ONCE and self._requests and self._requests[0] is turn:
                self._take().wake()

    def _take(self) -> _Turn[W, A]:
        """Begin a call of the first requests; return the turn that makes it."""
        count = fitting([each.request for each in self._requests[:MOST]], self._size)
        some, self._requests = self._requests[:count], self._requests[count:]
        self._calls += 1
        self._newest = some[0]
        some[0].leads = some
        return some[0]

    def _withdraw(self, turn: _Turn[W, A]) -> None:
        """Take back the request of an interrupted thread; leave its call to another one."""
        with self._lock:
            if turn in self._requests:
                self._requests.remove(turn)
            if turn.leads is None:
                return
            self._requests[:0] = turn.leads[1:]
        self._end(turn)


class _Turn(Generic[W, A]):
    """A request, and its thread, which sleeps until the request is served or it is to make a call."""

    __slots__ = ("_lock", "leads", "request", "result")

    def __init__(self, request: W) -> None:
        self.request = request
        self.leads: list[_Turn[W, A]] | None = None  # the turns that the call of this one serves
        self.result: Any = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> bool:
        """Return whether the turn was woken in time."""
        return self._lock.acquire(timeout=seconds)

    def wake(self) -> None:
        self._lock.release()

    def resolve(self, result: Any) -> None:
        self.result = result
        if self.leads is None:
            self.wake()


def fitting(requests: list[W], size: Callable[[W], int] | None) -> int:
    """Return how many of the first requests fit into one call."""
    if size is None:
        return len(requests)
    left = MOST_BYTES
    for count, request in enumerate(requests):
        left -= size(request)
        if left < 0:
            return max(1, count)
    return len(requests)


def _resolve(future: asyncio.Future[A], result: A | Exception) -> None:
    if future.done():  # the caller was canceled
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
