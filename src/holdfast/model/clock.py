"""The clock and the random source of a component. Tests pass their own."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Durations on this machine's monotonic clock, and random numbers for jitter."""

    monotonic: Callable[[], float] = time.monotonic
    uniform: Callable[[float, float], float] = random.uniform

    def jitter(self, seconds: float) -> float:
        """Return a duration that differs from the given one by a quarter at most."""
        return seconds * self.uniform(0.75, 1.25)


CLOCK = Clock()
