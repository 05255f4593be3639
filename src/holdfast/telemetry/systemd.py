"""Report to the service manager: the protocol of sd_notify(3), datagrams to the socket that systemd names.

A process reports when it is ready, that it is alive, and that it stops. A message that cannot be sent is dropped: the
service manager then acts as if the process had not sent it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

from holdfast.model.clock import CLOCK, Clock
from holdfast.settings import ServiceManager, service_manager

READY = "READY=1"
ALIVE = "WATCHDOG=1"
STOPPING = "STOPPING=1"


class Notifier:
    """Sends each state once, and the watchdog's message at a quarter of its time."""

    def __init__(self, manager: ServiceManager, clock: Clock = CLOCK) -> None:
        self._manager = manager
        self._clock = clock
        self._sent: set[str] = set()
        self._alive_at = 0.0

    def ready(self) -> None:
        """Report that the process serves."""
        self._send_once(READY)

    def stopping(self) -> None:
        """Report that the process stops."""
        self._send_once(STOPPING)

    def alive(self, healthy: Callable[[], bool]) -> None:
        """Report that the process is alive, if it is. Called several times a second; it checks only when it is time."""
        now = self._clock.monotonic()
        if self._manager.watchdog and now >= self._alive_at and healthy():
            self._alive_at = now + self._manager.watchdog / 4
            self._send(ALIVE)

    def _send_once(self, state: str) -> None:
        if state not in self._sent:
            self._sent.add(state)
            self._send(state)

    def _send(self, state: str) -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            sending.sendto(state.encode(), self._manager.address)


def notifier() -> Notifier | None:
    """Return what reports to the service manager, or None where none has started this process."""
    manager = service_manager()
    return None if manager is None else Notifier(manager)
