"""Threads for sync handlers, at most one per slot, started on demand.

The standard pool costs more per call than the rest of the worker: a lock and a condition for its future, a second
future on the loop, and a wake-up of the loop. Here a call is one object and one future, and calls that end while the
loop is busy share one wake-up.
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
    """One call in a thread; `future` is done when it has ended, and its waiter may cancel it."""

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
        """Call the function; runs in the thread."""
        try:
            self._result = self._function(*self._args, **self._kwargs)
        except BaseException as error:
            self._error = error
        self.ended = True

    def result(self) -> Any:
        """Return or raise what the function returned or raised."""
        error, self._error = self._error, None  # avoids a cycle: the error's traceback refers to this call
        if error is not None:
            raise error
        return self._result

    def left_behind(self) -> asyncio.Future[None] | None:
        """Return a future of the thread's end, for a caller that stops waiting; None if it has ended."""
        if not self.ended:
            self.outlasted = asyncio.get_running_loop().create_future()
        return self.outlasted

    def complete(self) -> None:
        """Complete the futures; runs on the loop after the call has ended."""
        for future in (self.future, self.outlasted):
            if future is not None and not future.done():
                future.set_result(None)


class Threads:
    """The pool of one worker. Everything but `_serve` runs on the event loop."""

    def __init__(self, name: str, at_once: Callable[[], bool] = lambda: False) -> None:
        self._name = name
        self.at_once = at_once  # whether the worker has stopped waiting for running jobs
        self._calls: queue.SimpleQueue[ThreadCall | None] = queue.SimpleQueue()
        self._ended: deque[ThreadCall] = deque()
        self._collect_pending = False  # whether _collect is scheduled on the loop
        self._busy = 0
        self._number = 0

    def start(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> ThreadCall:
        """Call the function in a free thread, or in a new one."""
        call = ThreadCall(function, args, kwargs)
        if self._busy == self._number:
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._serve, args=(loop,), name=f"{self._name}-{self._number}").start()
            self._number += 1
        self._busy += 1
        self._calls.put(call)
        return call

    def shutdown(self) -> None:
        """Drop calls that have not started, and end each thread after its current call."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._calls.get_nowait()
        for _ in range(self._number):
            self._calls.put(None)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
            self._ended.append(call)
            del call  # a free thread keeps no references
            if not self._collect_pending:
                self._collect_pending = True
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._collect_pending = False  # first: a call that ends from now on schedules another run
        while self._ended:
            self._busy -= 1
            self._ended.popleft().complete()
