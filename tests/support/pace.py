"""How fast this machine is: for bounds on time that must hold on a slow one too."""

from __future__ import annotations

import functools
import time

USUAL = 0.019  # CPU seconds of the yardstick on the machine where the bounds were measured


def yardstick() -> float:
    """Return the CPU seconds of a fixed piece of work: other load on the machine matters less than in wall time."""
    began = time.process_time()
    sum(n * n % 7 for n in range(300_000))
    return time.process_time() - began


@functools.cache
def slower() -> float:
    """Return how many times slower this machine is than the one where the bounds were measured; at least 1."""
    return max(1.0, min(yardstick() for _ in range(5)) / USUAL)
