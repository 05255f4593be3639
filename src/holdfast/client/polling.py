"""How callers wait for a job or a batch to end: they poll."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from holdfast.client.operation import Steps, sleep
from holdfast.store.call import Call

T = TypeVar("T")


class Polling:
    """Waits by polling. The test kit has its own, which refuses to wait for a job that nothing runs."""

    def until(self, poll: Call[T | None], ended: Callable[[T], bool], name: str, timeout: float | None) -> Steps[T]:
        """Return what the poll found once it has ended. Raise TimeoutError if that takes too long."""
        for pause in pauses(timeout):
            found: T | None = yield poll
            if found is not None and ended(found):
                return found
            yield sleep(pause)
        raise TimeoutError(f"{name} has not ended within {timeout:g} s")


def pauses(timeout: float | None) -> Iterator[float]:
    """Yield the pauses between polls, from 10 ms up to half a second, until the time is over."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    pause = 0.01
    while (left := deadline - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * 1.5, 0.5)
    yield 0.0  # for one last poll
