"""A small HTTP server in its own threads, for health checks and metrics.

It can report a handler that blocks the event loop. Imported only where a port is configured.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from typing import Any

import msgspec

from holdfast.errors import ConfigurationError
from holdfast.telemetry import logs

PORTS = 16  # ports to try, from the configured one on: each worker process of a machine needs its own
PATIENCE = 5.0  # seconds a client may take for its request
POLL_INTERVAL = 0.25  # seconds between checks for slow clients
MOST_ASKING = 100  # open connections: each takes a file descriptor and a thread, which the worker needs elsewhere
LONGEST_LINE = 1000


Page = Callable[[str], tuple[bytes, str] | tuple[bytes, str, HTTPStatus]]
"""Returns a page: its content, its type, and a status other than 200. The argument is the request's Accept header."""


def json_page(content: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> tuple[bytes, str, HTTPStatus]:
    """Return a page in JSON."""
    return msgspec.json.encode(content) + b"\n", "application/json", status


@contextlib.contextmanager
def served(what: str, host: str, port: int, pages: Mapping[str, Page]) -> Iterator[int]:
    """Serve pages by path on this port, or the next free one, while a block runs. Yields the port. `what` names the
    setting and the log lines: health, or metrics."""
    server = _open(what, host, port, pages)
    number = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(POLL_INTERVAL,), name=f"holdfast-{what}", daemon=True)
    thread.start()
    logs.event(logs.get(what), logging.INFO, f"{what} shown", host=host, port=number)
    try:
        yield number
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)


def _open(what: str, host: str, port: int, pages: Mapping[str, Page]) -> Server:
    problem: Exception | None = None
    for number in range(port, port + PORTS):
        try:
            return Server(host, number, pages)
        except (OSError, OverflowError) as error:
            problem = error
    raise ConfigurationError(
        f"{what}_port: none of {port} to {port + PORTS - 1} can be opened on {host}: {problem}; set another"
    )


class Server(socketserver.ThreadingTCPServer):
    """A server with a thread for each connection. It closes the oldest where there are too many, and slow ones."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST_ASKING

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        self.pages = pages
        self._clients: dict[socket.socket, float] = {}  # since when; oldest first
        self._lock = threading.Lock()
        (family, _, _, _, address), *_ = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        self.address_family = family
        super().__init__(address, Handler)  # type: ignore[arg-type]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._clients[request] = time.monotonic()
            oldest = next(iter(self._clients)) if len(self._clients) > MOST_ASKING else None
        if oldest is not None:  # so that fast clients are served
            self._hang_up(oldest)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Disconnect slow clients."""
        long_ago = time.monotonic() - PATIENCE
        with self._lock:
            slow = [client for client, since in self._clients.items() if since < long_ago]
        for client in slow:
            self._hang_up(client)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        for client in list(self._clients):
            self._hang_up(client)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of one connection: a client that has gone, or has sent too much."""

    def _hang_up(self, client: socket.socket) -> None:
        with self._lock:
            self._clients.pop(client, None)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and closes it


class BoundedReader:
    """The lines of a request. A long one is an error; http.client bounds their number."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._file = file

    def readline(self, size: int = -1) -> bytes:
        """Read one line."""
        line = self._file.readline(LONGEST_LINE + 1)
        if len(line) > LONGEST_LINE:
            raise ConnectionError(f"a line is longer than {LONGEST_LINE} bytes")
        return line

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed


class Handler(BaseHTTPRequestHandler):
    """Serves GET requests for the server's pages, and nothing else."""

    server: Server
    timeout = PATIENCE

    def setup(self) -> None:
        super().setup()
        self.rfile = BoundedReader(self.rfile)  # type: ignore[assignment]

    def do_GET(self) -> None:
        """Send a page."""
        page = self._page()
        self._send(*(self._not_found() if page is None else page(self.headers.get("accept", ""))))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send an error of the base class: a request it cannot read, or a method other than GET."""
        if code != HTTPStatus.NOT_IMPLEMENTED:
            self._send(*json_page({"error": message or HTTPStatus(code).phrase}, HTTPStatus(code)))
        elif self._page() is None:
            self._send(*self._not_found())
        else:
            self._send(*json_page({"error": "method not allowed; use GET"}, HTTPStatus.METHOD_NOT_ALLOWED))

    def _page(self) -> Page | None:
        return self.server.pages.get(self.path.partition("?")[0])

    def _not_found(self) -> tuple[bytes, str, HTTPStatus]:
        known = " or ".join(name for name in self.server.pages if name != "/")
        return json_page({"error": f"not found; use {known}"}, HTTPStatus.NOT_FOUND)

    def _send(self, body: bytes, content_type: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response_only(status)
        self.send_header("content-type", content_type)
        self.send_header("cache-control", "no-store")
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
