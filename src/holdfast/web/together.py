"""Many wishes in one call to the database: what is asked for while one is under way goes into the next one.

A call for a hundred costs little more than a call for one, so a busy service asks less often and answers more.
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
AT_ONCE = 2  # calls under way, of which one is slow
MOST = 200  # wishes in one call
MOST_BYTES = 262_144  # in one call: what is large waits for the next one, and what is small does not wait for it
PATIENCE = 0.05  # seconds after which those who wait no longer rely on the call that is under way


@dataclass
class _Waiting(Generic[W, A]):
    wishes: list[tuple[W, asyncio.Future[A]]] = field(default_factory=list)
    calls: set[asyncio.Task[None]] = field(default_factory=set)
    newest: asyncio.Task[None] | None = None  # the call that brings the next answers; others are slow
    taken: float = 0.0  # when a call last took wishes with it
    alarm: asyncio.TimerHandle | None = None


class Together(Generic[W, A]):
    """For each event loop, the wishes that wait and the calls that fulfil them. `act` returns a result for each wish in
    its place, or an error for that one. If it raises, halves of the wishes are tried again, down to the one that
    is at fault and fails alone; an unreachable database is nobody's fault, and its error goes to all.

    One call is under way, so that many wishes go into the next: with two, a service at two thirds of its load made
    calls for two or three. Only beside one that is slow another begins, and goes on in its stead."""

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

    async def ask(self, wish: W) -> A:
        """The answer to one wish."""
        loop = asyncio.get_running_loop()
        waiting = self._loops.setdefault(loop, _Waiting())
        told: asyncio.Future[A] = loop.create_future()
        waiting.wishes.append((wish, told))
        if waiting.newest is None and len(waiting.calls) < self._at_once:
            self._begin(loop, waiting)
        elif waiting.alarm is None:
            waiting.alarm = loop.call_later(PATIENCE, self._look, loop, waiting)
        return await told

    def _begin(self, loop: asyncio.AbstractEventLoop, waiting: _Waiting[W, A]) -> None:
        waiting.newest = call = loop.create_task(self._call(loop, waiting))
        waiting.taken = loop.time()
        waiting.calls.add(call)
        call.add_done_callback(waiting.calls.discard)

    def _look(self, loop: asyncio.AbstractEventLoop, waiting: _Waiting[W, A]) -> None:
        """Begins another call if wishes wait behind one that is slow."""
        waiting.alarm = None
        if not waiting.wishes:
            return
        if len(waiting.calls) < self._at_once and loop.time() - waiting.taken >= PATIENCE:
            self._begin(loop, waiting)
        waiting.alarm = loop.call_later(PATIENCE, self._look, loop, waiting)

    async def _call(self, loop: asyncio.AbstractEventLoop, waiting: _Waiting[W, A]) -> None:
        me = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            while waiting.wishes and waiting.newest in (me, None):
                waiting.newest = me
                count = self._fitting(waiting.wishes)
                some, waiting.wishes = waiting.wishes[:count], waiting.wishes[count:]
                waiting.taken = loop.time()
                await self._answer(some)
        finally:  # at once: until the callback runs, others would take it for one that still brings answers
            waiting.calls.discard(me)
            if waiting.newest is me:
                waiting.newest = None
            if waiting.alarm is not None and not waiting.wishes:  # what is left over would keep the loop alive
                waiting.alarm.cancel()
                waiting.alarm = None

    def _fitting(self, wishes: list[tuple[W, asyncio.Future[A]]]) -> int:
        """Return how many of the first wishes go into one call."""
        if self._size is None:
            return MOST
        left = MOST_BYTES
        for count, (wish, _) in enumerate(wishes[:MOST]):
            left -= self._size(wish)
            if left < 0:
                return max(1, count)
        return MOST

    async def _results(self, wishes: list[W]) -> Sequence[A | Exception]:
        """Fulfil wishes in one call; if that fails, each half by itself, down to the one that is at fault."""
        try:
            return await self._act(wishes)
        except DatabaseUnavailable as error:
            return [error] * len(wishes)
        except Exception as error:
            if len(wishes) == 1:
                return [error]
        half = len(wishes) // 2
        return [*await self._results(wishes[:half]), *await self._results(wishes[half:])]

    async def _answer(self, some: list[tuple[W, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._results([wish for wish, _ in some])
        except asyncio.CancelledError:
            for _, told in some:
                told.cancel()
            raise
        for (_, told), answer in zip(some, answers, strict=True):
            _tell(told, answer)


def _tell(told: asyncio.Future[A], answer: A | Exception) -> None:
    if told.done():  # whoever asked has gone
        return
    if isinstance(answer, Exception):
        told.set_exception(answer)
    else:
        told.set_result(answer)
