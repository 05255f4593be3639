"""A deadline for database calls.

libpq waits as long as the socket is open. Neither statement_timeout nor TCP timeouts help when a proxy or a failing
host accepts our bytes and sends nothing. So one thread per process watches the running calls and shuts down the socket
of an overdue one, which then fails with Overdue.

The server may continue such a call: neither statement_timeout nor the loss of its client ends a COMMIT that waits for a
synchronous standby. If each call opened another connection, backends would accumulate until the server has none left.
So the process ids of abandoned calls are recorded, and `store/wire/opener.py` opens no further connection while
MOST_ABANDONED of them still run.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import psycopg

CHECK_INTERVAL = 0.25
MOST_ABANDONED = 4
Server = tuple[str, int]


class Overdue(psycopg.OperationalError):
    """A call passed its deadline and its connection was shut down; the server may still execute it."""


class StalePlan(psycopg.OperationalError):
    """A prepared call does not fit the schema that a migration has changed. Nothing was done; the connection is closed,
    because its other prepared calls may be stale as well. The same call succeeds on a new one."""


class TooManyAbandoned(psycopg.OperationalError):
    """The server still runs calls that this process abandoned, so no further connection is opened."""


class DeadlineWatch:
    """The running calls, and the thread that checks their deadlines."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, RunningCall] = {}
        self._pid = 0
        self._abandoned: dict[Server, set[int]] = {}

    def within(self, conn: Any, seconds: float) -> RunningCall:
        """Let a block use the connection for some seconds; then shut down its socket."""
        if self._pid != os.getpid():
            self._start()
        return RunningCall(self._calls, conn, seconds)

    def abandoned(self, conn: Any) -> list[int]:
        """Return the process ids of abandoned calls on this connection's server."""
        return list(self._abandoned.get(_server(conn), ()))

    def forget(self, conn: Any, pids: Iterable[int]) -> None:
        """Remove abandoned calls that the server has ended."""
        self._abandoned.get(_server(conn), set()).difference_update(pids)

    def _start(self) -> None:
        with self._lock:
            if self._pid != os.getpid():  # a forked child does not inherit threads
                self._pid = os.getpid()
                threading.Thread(target=self._watch, name="holdfast-deadline", daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(CHECK_INTERVAL)
            now = time.monotonic()
            for key, call in list(self._calls.items()):
                if call.deadline < now and self._calls.get(key) is call:
                    self._calls.pop(key, None)
                    self._abandon(call)

    def _abandon(self, call: RunningCall) -> None:
        call.shut = True
        with contextlib.suppress(OSError, psycopg.Error):  # already closed
            self._abandoned.setdefault(_server(call.conn), set()).add(call.conn.info.backend_pid)
            _shut(call.conn.fileno())


class RunningCall:
    """The block of a running call. A class, because a generator would cost each call three times as much."""

    __slots__ = ("_calls", "_seconds", "conn", "deadline", "shut")

    def __init__(self, calls: dict[int, RunningCall], conn: Any, seconds: float) -> None:
        self._calls = calls
        self._seconds = seconds
        self.conn = conn
        self.deadline = 0.0
        self.shut = False

    def __enter__(self) -> None:
        self.deadline = time.monotonic() + self._seconds
        self._calls[id(self.conn)] = self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._calls.pop(id(self.conn), None)
        if isinstance(error, psycopg.Error):
            if self.shut:
                raise Overdue(f"no reply within {self._seconds:g} s") from error
            if _is_stale(error):
                self.conn.pgconn.finish()
                raise StalePlan(f"the schema was migrated meanwhile ({error})") from error


def _is_stale(error: psycopg.Error) -> bool:
    """Return whether a plan was made before a migration: its result has other columns, or its function is gone."""
    if error.sqlstate == "0A000":
        return error.diag.source_function == "RevalidateCachedQuery"
    text = error.diag.message_primary or ""
    return error.sqlstate == "XX000" and text.startswith("cache lookup failed for function")


def _server(conn: Any) -> Server:
    return conn.info.host, conn.info.port


def _shut(fd: int) -> None:
    with socket.socket(fileno=os.dup(fd)) as twin:
        twin.shutdown(socket.SHUT_RDWR)


watch = DeadlineWatch()
