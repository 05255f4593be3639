"""The size of claims: as many jobs as fit, and as many more as start within the prefetch time."""

from __future__ import annotations

from holdfast.model.clock import CLOCK, Clock
from holdfast.settings import Settings
from holdfast.worker.prefetch import PrefetchBuffer

LEAVE_ABOVE = 200.0  # jobs a second


class ClaimSize:
    """How many jobs a worker claims, by its slots and by the rate at which it starts jobs."""

    def __init__(self, settings: Settings, buffer: PrefetchBuffer, clock: Clock = CLOCK) -> None:
        self._settings = settings
        self._buffer = buffer
        self._rate = Rate(clock)

    @property
    def rate_is_high(self) -> bool:
        """Return whether a row in `sleepers` costs more in notifications than in inserts and deletes."""
        return self._rate.value > LEAVE_ABOVE

    @property
    def free(self) -> int:
        """Return the number of free slots."""
        return max(self._settings.concurrency - self._buffer.held, 0)

    def room(self) -> int:
        """Return how many jobs to claim now; 0 while enough are prefetched."""
        self._rate.update(self._buffer.started)
        ahead = self._ahead()
        room = self._settings.concurrency + ahead - self._buffer.held
        enough = self._enough(ahead) if self._buffer.ready else 1
        return min(room, self._settings.claim_size) if room >= enough else 0

    def held_with_room(self) -> int:
        """Return the number of held jobs at which the next claim is worth a round trip."""
        ahead = self._ahead()
        return self._settings.concurrency + ahead - self._enough(ahead)

    def _ahead(self) -> int:
        """Return how many jobs to prefetch: enough for the prefetch time at the present rate."""
        return min(int(self._rate.value * self._settings.prefetch), 4 * self._settings.claim_size)

    def _enough(self, ahead: int) -> int:
        """Return the smallest claim worth a round trip while prefetched jobs are left."""
        return max(1, min(ahead // 2, self._settings.claim_size))


class Rate:
    """Jobs started per second: a moving average over about 0.1 s. After an idle time it begins with the first rate."""

    def __init__(self, clock: Clock = CLOCK) -> None:
        self.value = 0.0
        self._count = 0
        self._clock = clock
        self._since = clock.monotonic()

    def update(self, count: int) -> None:
        """Update the average with the running count."""
        now = self._clock.monotonic()
        if (passed := now - self._since) >= 0.02:
            weight = min(passed / 0.1, 1.0) if self.value else 1.0  # after an idle time there is nothing to average
            self.value += weight * ((count - self._count) / passed - self.value)
            self._count, self._since = count, now
