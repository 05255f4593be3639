"""A deadline for database calls.

libpq waits for as long as the socket lives, and neither the server's statement_timeout nor TCP's own limits help when a
proxy or a half-dead host takes our bytes and says nothing. So one thread per process watches the calls under way and
shuts the socket of an overdue one, which then fails as Overdue.

The server may go on with such a call: a COMMIT that waits for a synchronous standby is ended neither by
statement_timeout nor by the loss of its client. If each call opened another connection, backends would pile up until
the server has none left. So the connections that were shut are kept in mind, and `store/opener.py` opens no further one
while the server is busy with MOST_ABANDONED of them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import psycopg

EVERY = 0.25
MOST_ABANDONED = 4
Server = tuple[str, int]


class Overdue(psycopg.OperationalError):
    """A call's deadline has passed and its connection was shut; the server may still do what it asked for."""


class TooManyAbandoned(psycopg.OperationalError):
    """The server is busy with calls that this process has given up, so no further connection is opened."""


class Watch:
    """The calls under way and the thread that looks at them; it lives only while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, _Call] = {}
        self._pid = 0
        self._abandoned: dict[Server, set[int]] = {}

    @contextlib.contextmanager
    def within(self, conn: Any, seconds: float) -> Iterator[None]:
        """Lets a block use the connection for so long; then its socket is shut."""
        key = id(conn)
        call = self._calls[key] = _Call(time.monotonic() + seconds, conn)
        if self._pid != os.getpid():
            self._start()
        try:
            yield
        except psycopg.Error as error:
            if call.shut:
                raise Overdue(f"no reply within {seconds:g} s") from error
            raise
        finally:
            self._calls.pop(key, None)

    def abandoned(self, conn: Any) -> list[int]:
        """Return the process ids of this connection's server whose calls were given up."""
        return list(self._abandoned.get(_server(conn), ()))

    def forget(self, conn: Any, pids: Iterable[int]) -> None:
        """Forget calls that the server has ended meanwhile."""
        self._abandoned.get(_server(conn), set()).difference_update(pids)

    def _start(self) -> None:
        with self._lock:
            if self._pid != os.getpid():  # a forked child has no threads of its parent's
                self._pid = os.getpid()
                threading.Thread(target=self._look, name="holdfast-deadline", daemon=True).start()

    def _look(self) -> None:
        while True:
            time.sleep(EVERY)
            now = time.monotonic()
            for key, call in list(self._calls.items()):
                if call.deadline < now and self._calls.get(key) is call:
                    self._calls.pop(key, None)
                    self._give_up(call)

    def _give_up(self, call: _Call) -> None:
        call.shut = True
        with contextlib.suppress(OSError, psycopg.Error):  # closed at this moment
            self._abandoned.setdefault(_server(call.conn), set()).add(call.conn.info.backend_pid)
            _shut(call.conn.fileno())


class _Call:
    """A call under way."""

    __slots__ = ("conn", "deadline", "shut")

    def __init__(self, deadline: float, conn: Any) -> None:
        self.deadline = deadline
        self.conn = conn
        self.shut = False


def _server(conn: Any) -> Server:
    return conn.info.host, conn.info.port


def _shut(fd: int) -> None:
    with socket.socket(fileno=os.dup(fd)) as twin:
        twin.shutdown(socket.SHUT_RDWR)


watch = Watch()
