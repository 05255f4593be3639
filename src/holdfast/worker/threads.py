"""Threads for sync handlers, one per slot at most, started when first needed.

The standard pool spends more on a call than the rest of the worker does: a lock and a condition for its future, another
future on the loop, and a wake-up of the loop for each. Here a call is one object and one future, and calls that end
while the loop is busy are taken up together.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class ThreadCall:
    """One call in a thread; `future` is done when it has ended, and may be canceled by whoever waits for it."""

    __slots__ = ("_args", "_error", "_function", "_kwargs", "_result", "ended", "future", "outlasted")

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._function = function
        self._args = args
        self._kwargs = kwargs
        self._result: Any = None
        self._error: BaseException | None = None
        self.ended = False
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.outlasted: asyncio.Future[None] | None = None

    def run(self) -> None:
        """In the thread."""
        try:
            self._result = self._function(*self._args, **self._kwargs)
        except BaseException as error:
            self._error = error
        self.ended = True

    def result(self) -> Any:
        """What the function returned or raised."""
        error, self._error = self._error, None  # the error's traceback leads back here
        if error is not None:
            raise error
        return self._result

    def left_behind(self) -> asyncio.Future[None] | None:
        """For one who waits no more: a future of the thread's end, None when it has ended."""
        if not self.ended:
            self.outlasted = asyncio.get_running_loop().create_future()
        return self.outlasted

    def tell(self) -> None:
        """On the loop, when it has ended."""
        for future in (self.future, self.outlasted):
            if future is not None and not future.done():
                future.set_result(None)


class Threads:
    """The pool of one worker. Everything but `_serve` happens on the event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[ThreadCall | None] = queue.SimpleQueue()
        self._ended: deque[ThreadCall] = deque()
        self._told = False
        self._busy = 0
        self._number = 0

    def start(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> ThreadCall:
        """Calls the function in a thread that is free, or in a new one."""
        call = ThreadCall(function, args, kwargs)
        if self._busy == self._number:
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._serve, args=(loop,), name=f"{self._name}-{self._number}").start()
            self._number += 1
        self._busy += 1
        self._calls.put(call)
        return call

    def shutdown(self) -> None:
        """Ends the threads that are free, and the others when their call has ended; what has not begun never will."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._calls.get_nowait()
        for _ in range(self._number):
            self._calls.put(None)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
            self._ended.append(call)
            del call  # a free thread holds on to nothing
            if not self._told:
                self._told = True
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                    loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._told = False  # first: what ends from now on is told again
        while self._ended:
            self._busy -= 1
            self._ended.popleft().tell()
