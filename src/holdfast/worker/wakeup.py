"""The claim loop's wake-up: for new jobs, for room in the buffer, for changed limits, and to stop."""

from __future__ import annotations

import asyncio


class Wakeup(asyncio.Event):
    """An event that the claim loop waits for. `set` wakes the loop; each wait clears the event."""

    def __init__(self) -> None:
        super().__init__()
        self.room: int | None = None  # slots wake the loop when no more jobs than this are held
        self.stopped = False

    def stop(self) -> None:
        """Wake the loop for the last time."""
        self.stopped = True
        self.set()

    async def pause(self, seconds: float) -> bool:
        """Wait until woken or for some seconds; return whether the loop was woken."""
        try:
            async with asyncio.timeout(seconds):
                await self.wait()
            return True
        except TimeoutError:
            return False
        finally:
            self.clear()

    async def pause_for_room(self, held: int, seconds: float) -> None:
        """Wait also until no more than `held` jobs are held."""
        self.room = held
        try:
            await self.pause(seconds)
        finally:
            self.room = None
