"""Many wishes in one call to the database: what is asked for while one is under way goes into the next one.

A call for a hundred costs little more than a call for one, so a busy service asks less often and answers more.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

W = TypeVar("W")
A = TypeVar("A")
AT_ONCE = 2  # calls under way
MOST = 200  # wishes in one call


@dataclass
class _Waiting(Generic[W, A]):
    wishes: list[tuple[W, asyncio.Future[A]]] = field(default_factory=list)
    calls: set[asyncio.Task[None]] = field(default_factory=set)


class Together(Generic[W, A]):
    """For each event loop, those who wait for an answer and the calls that bring it. `act` answers each wish in its
    place, or with an error for that one; what it raises is for all of them."""

    def __init__(self, act: Callable[[list[W]], Awaitable[Sequence[A | Exception]]], *, at_once: int = AT_ONCE) -> None:
        self._act = act
        self._at_once = at_once
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting[W, A]] = weakref.WeakKeyDictionary()

    async def ask(self, wish: W) -> A:
        """The answer to one wish."""
        loop = asyncio.get_running_loop()
        waiting = self._loops.setdefault(loop, _Waiting())
        told: asyncio.Future[A] = loop.create_future()
        waiting.wishes.append((wish, told))
        if len(waiting.calls) < self._at_once:
            call = loop.create_task(self._call(waiting))
            waiting.calls.add(call)
            call.add_done_callback(waiting.calls.discard)
        return await told

    async def _call(self, waiting: _Waiting[W, A]) -> None:
        try:
            await self._answer_all(waiting)
        finally:  # at once: until the callback runs, others would take it for one that still brings answers
            waiting.calls.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _answer_all(self, waiting: _Waiting[W, A]) -> None:
        while waiting.wishes:
            some, waiting.wishes = waiting.wishes[:MOST], waiting.wishes[MOST:]
            answers: Sequence[A | Exception]
            try:
                answers = await self._act([wish for wish, _ in some])
            except Exception as error:  # told to those who asked
                answers = [error] * len(some)
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
