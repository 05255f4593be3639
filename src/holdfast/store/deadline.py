"""A deadline for database calls.

libpq waits for as long as the socket lives, and neither the server's statement_timeout nor TCP's own limits help when a
proxy or a half-dead host takes our bytes and says nothing. So one thread per process watches the calls under way and
shuts the socket of an overdue one, which then fails like any lost connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

EVERY = 0.25


class Watch:
    """The calls under way and the thread that looks at them; it lives only while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, tuple[float, int]] = {}
        self._pid = 0

    @contextlib.contextmanager
    def within(self, conn: Any, seconds: float) -> Iterator[None]:
        """Lets a block use the connection for so long; then its socket is shut."""
        key = id(conn)
        self._calls[key] = (time.monotonic() + seconds, conn.fileno())
        if self._pid != os.getpid():
            self._start()
        try:
            yield
        finally:
            self._calls.pop(key, None)

    def _start(self) -> None:
        with self._lock:
            if self._pid != os.getpid():  # a forked child has no threads of its parent's
                self._pid = os.getpid()
                threading.Thread(target=self._look, name="holdfast-deadline", daemon=True).start()

    def _look(self) -> None:
        while True:
            time.sleep(EVERY)
            now = time.monotonic()
            for key, (deadline, fd) in list(self._calls.items()):
                if deadline < now and key in self._calls:
                    del self._calls[key]
                    _shut(fd)


def _shut(fd: int) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as twin:
        twin.shutdown(socket.SHUT_RDWR)


watch = Watch()
