"""Bounds that uvicorn lacks: the number of connections, the size and duration of a header, and how slowly a client
reads. Pass `server_options(settings)` to uvicorn's Config.

A connection is *quiet* while it has no request under way: it sends a header, or is idle. When there are too many, the
longest quiet ones are closed, those without a valid token first. So clients that send half a request and wait block no
one. A new connection gets a 503 only if every connection has a request under way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from holdfast.settings import Settings
from holdfast.telemetry import logs
from holdfast.web.guard import HEADER_BYTES, LOG_EVERY
from holdfast.web.problems import Problem
from holdfast.web.service import CALLER

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Base
else:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Base
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as Base

log = logs.get("web")
SWEEP = 0.5  # seconds between checks for overdue connections
PIPELINED = 10  # pipelined requests of a connection that has sent a valid token
OVERHEAD = 16  # bytes on the wire for each byte of a body: a chunk of one byte takes six
RESERVED = 100  # open files that are not connections: the database's, logs, the loop


# h11 has no callback for the pieces of a body, and bounds a chunk's frame itself.
_COUNTS_BODIES = hasattr(Base, "on_body")


class Connections:
    """All connections of a server, and their limits."""

    def __init__(self, settings: Settings, open_files: int | None = None) -> None:
        room = settings.max_connections if open_files is None else open_files - RESERVED - 2 * settings.pool_size
        self.most = max(10, min(settings.max_connections, room))
        self.header_timeout = settings.header_timeout
        self.client_timeout = settings.client_timeout
        self._strangers: OrderedDict[Connection, None] = OrderedDict()
        self._known: OrderedDict[Connection, None] = OrderedDict()
        self._all: set[Connection] = set()
        self._logged = -LOG_EVERY
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, connection: Connection) -> bool:
        """Admit a new connection, evicting the longest quiet one if necessary."""
        if len(self._all) >= self.most:
            self._log_full()
            if not self._evict():
                return False
        self._all.add(connection)
        self._strangers[connection] = None
        if self._timer is None:
            self._timer = connection.loop.call_later(SWEEP, self._sweep, connection.loop)
        return True

    def _evict(self) -> bool:
        for quiet in (self._strangers, self._known):
            if quiet:
                oldest = next(iter(quiet))
                self.remove(oldest)
                oldest.transport.abort()
                return True
        return False

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self._all.discard(connection)
        self.busy(connection)

    def busy(self, connection: Connection) -> None:
        """Mark a connection as having a request under way."""
        self._strangers.pop(connection, None)
        self._known.pop(connection, None)

    def quiet(self, connection: Connection) -> None:
        """Mark a connection as having no request under way."""
        if connection in self._all:
            (self._known if connection.known else self._strangers)[connection] = None

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for each in [each for each in self._all if each.overdue(now)]:
            self.remove(each)
            each.transport.abort()
        self._timer = loop.call_later(SWEEP, self._sweep, loop) if self._all else None

    def _log_full(self) -> None:
        if (now := time.monotonic()) - self._logged >= LOG_EVERY:
            self._logged = now
            remedy = "HOLDFAST_MAX_CONNECTIONS, and the limit of open files"
            logs.event(log, logging.WARNING, "connections are full", connections=len(self._all), remedy=remedy)


class Connection(Base):
    """uvicorn's connection, with limits. server_options() makes a subclass for each Connections."""

    owner: Connections
    known = False  # whether it has sent a valid token
    _since: float | None = None  # when the current header began
    _pending = 0  # bytes of the current header
    _wire = 0  # bytes of the current body with its framing
    _body = 0
    _stuck: float | None = None  # when the client stopped reading
    _closing: float | None = None
    _in_header = True  # false for the trailers of a body
    _wrong = "the request is not valid HTTP/1.1"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self.owner.admit(self):
            self._refuse(Problem(503, "all connections are in use; try again", "full", headers={"Retry-After": "1"}))
            return
        self._since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self.owner.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():  # rejected, and the client keeps sending
            return
        cycle: Any = self.cycle
        in_body = cycle is not None and cycle.more_body
        if in_body:
            self._wire += len(data) * _COUNTS_BODIES
        elif self._since is None:
            self._since = self.loop.time()
        super().data_received(data)
        if self.cycle is not cycle:
            self._since, self._pending, self._wire, self._body = None, 0, 0, 0
            self.owner.busy(self)
        elif not in_body:
            self._pending += len(data)
        if self._pending > HEADER_BYTES or self._wire > HEADER_BYTES + OVERHEAD * self._body:
            self._refuse(Problem(431, f"a header has at most {HEADER_BYTES:,} bytes"))

    def on_message_begin(self) -> None:
        self._in_header = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_header:  # uvicorn would add trailers, which proxies do not check, to the headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_header = False
        if self.parser.should_upgrade() and any(map(_announces_body, self.headers)):
            # httptools skips such a body, which would then be parsed as the next request.
            self._wrong = "a request with a body cannot ask for another protocol; send it without Upgrade"
            raise ValueError(self._wrong)
        cycle: Any = self.cycle
        waits = cycle is not None and not cycle.response_complete
        if waits and len(self.pipeline) >= (PIPELINED if self.known else 0):
            # The data may hold thousands of requests. Raising stops the parser and closes the connection.
            raise ValueError("too many requests wait on one connection")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        self.known = self.known or CALLER in self.cycle.scope
        super().on_response_complete()
        if self.cycle.response_complete:
            self.owner.quiet(self)

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem(400, self._wrong))

    def pause_writing(self) -> None:
        self._stuck = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck = None
        super().resume_writing()

    def overdue(self, now: float) -> bool:
        """Return whether the client takes too long to send a header, to read a response, or to close."""
        if self.transport.is_closing():
            self._closing = self._closing or now
            return now - self._closing > self.owner.header_timeout
        slow_header = self._since is not None and now - self._since > self.owner.header_timeout
        return slow_header or (self._stuck is not None and now - self._stuck > self.owner.client_timeout)

    def _refuse(self, problem: Problem) -> None:
        """Send an error without calling the application, and close."""
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            response = problem.response()
            lines = [f"HTTP/1.1 {problem.status} {problem.name}".encode(), b"connection: close"]
            lines += [name + b": " + value for name, value in response.raw_headers]
            self.transport.write(b"\r\n".join([*lines, b"", b""]) + bytes(response.body))
        self.transport.close()


def _announces_body(field: tuple[bytes, bytes]) -> bool:
    name, value = field
    return name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0") != b"")


def _is_ours(record: logging.LogRecord) -> bool:
    """Return whether to keep a log line of uvicorn. Lines about invalid requests would let clients fill the log."""
    return record.levelno > logging.WARNING or not record.getMessage().startswith(("Invalid HTTP", "Unsupported up"))


def server_options(settings: Settings) -> dict[str, Any]:
    """Return options of uvicorn.Config that bound what clients may cost, and keep the address of the peer."""
    logging.getLogger("uvicorn.error").addFilter(_is_ours)
    protocol = type("Connection", (Connection,), {"owner": Connections(settings, _open_files(settings))})
    # The dashboard believes the header of a trusted proxy. With the option, X-Forwarded-For could name that proxy.
    return {"http": protocol, "h11_max_incomplete_event_size": HEADER_BYTES, "proxy_headers": False}


def _open_files(settings: Settings) -> int | None:
    """Raise the limit of open files to what the connections need, as far as allowed; return it, or None."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_connections + RESERVED + 2 * settings.pool_size
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return None if soft == resource.RLIM_INFINITY else soft
