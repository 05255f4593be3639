"""Connections of the service under uvicorn: bounded in number, and ended when their clients take too long."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from holdfast.settings import Settings
from holdfast.web import connections
from holdfast.web.connections import Connections
from holdfast.web.guard import HEADER_BYTES
from holdfast.web.service import CALLER

PATIENCE = 40.0
HALF = b"GET / HTTP/1.1\r\nHost: x\r\nX: "


class Application:
    """Respond at once; /known as to a valid token, /held when it is released, /large with 8 MB, others with nothing."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/known":
            scope[CALLER] = object()
        self.scopes.append(scope)
        self.begun.release()
        while scope["path"] == "/held" and not self.go.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.01)
        if scope["path"] == "/body":
            while (await receive()).get("more_body"):
                pass
        length = b"%d" % (128 * 65_536 if scope["path"] == "/large" else 0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        for _ in range(128 if scope["path"] == "/large" else 0):
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class Served:
    """A server with such an application."""

    def __init__(self, port: int, application: Application, owner: Connections) -> None:
        self.port = port
        self.application = application
        self.owner = owner
        self.clients: list[socket.socket] = []

    def connect(self, data: bytes = b"") -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        self.clients.append(sock)
        sock.sendall(data)
        return sock

    def status(self, sock: socket.socket) -> int:
        """Return the status that comes; 0 if the connection was closed without one."""
        try:
            return int((sock.recv(65_536) or b"x 0").split()[1])
        except ConnectionResetError:
            return 0

    def get(self, path: str = "/") -> socket.socket:
        """Return a connection on which a request was responded to, and that is kept."""
        sock = self.connect(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert self.status(sock) == 200
        return sock


@contextmanager
def serving(**settings: Any) -> Iterator[Served]:
    application = Application()
    options = connections.server_options(Settings(**settings))
    config = uvicorn.Config(application, log_config=None, lifespan="off", ws="none", timeout_keep_alive=60, **options)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        served = Served(listening.getsockname()[1], application, options["http"].owner)
        try:
            yield served
        finally:
            for sock in served.clients:
                sock.close()
            application.go.set()
            server.should_exit = server.force_exit = True
            thread.join(PATIENCE)


def eventually(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)


def is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def sent(sock: socket.socket, piece: bytes, pieces: int) -> int:
    """Send until the connection is closed; return how many bytes that were."""
    for n in range(pieces):
        try:
            sock.sendall(piece)
        except OSError:
            return n * len(piece)
    return pieces * len(piece)


CHUNKED = b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "one field": (HALF, b"a" * 65_536),
    "many fields": (b"GET / HTTP/1.1\r\nHost: x\r\n", b"a: b\r\n" * 10_000),
    "a path": (b"GET /", b"a" * 65_536),
    "a chunk's extension": (CHUNKED + b"1;", b"x" * 65_536),
    "trailers": (CHUNKED + b"1\r\nx\r\n0\r\n", b"a: b\r\n" * 10_000),
    "one trailer": (CHUNKED + b"1\r\nx\r\n0\r\na: ", b"a" * 65_536),
    "a second request": (b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n" + HALF, b"a" * 65_536),
}


@pytest.mark.parametrize(("head", "piece"), ENDLESS.values(), ids=ENDLESS)
def test_an_endless_request_is_ended(head: bytes, piece: bytes) -> None:
    with serving() as served, served.connect(head) as sock:
        assert sent(sock, piece, 1000) < 30 * 2**20  # the kernel's buffers; the service takes far less
        eventually(lambda: not served.owner._all)


def test_a_header_that_is_too_large_is_reported() -> None:
    with serving() as served, served.connect(HALF + b"a" * (HEADER_BYTES + 1)) as sock:
        assert served.status(sock) == 431


def test_a_body_in_the_smallest_chunks_is_taken() -> None:
    with serving() as served, served.connect(CHUNKED) as sock:
        sent(sock, b"1\r\nx\r\n" * 1000, 100)
        sock.sendall(b"0\r\n\r\n")
        assert served.status(sock) == 200


def test_trailers_are_no_headers() -> None:
    """A proxy that checks or removes headers does not look at them."""
    with serving() as served, served.connect(CHUNKED + b"1\r\nx\r\n0\r\nAuthorization: Bearer hf_x\r\n\r\n") as sock:
        assert served.status(sock) == 200
        sock.sendall(b"GET / HTTP/1.1\r\nHost: y\r\n\r\n")
        assert served.status(sock) == 200
        names = [[name for name, _ in each["headers"]] for each in served.application.scopes]
        assert names == [[b"host", b"transfer-encoding"], [b"host"]]


@pytest.mark.parametrize("path", ["/", "/known", "/body"])
@pytest.mark.parametrize("length", [b"Content-Length: 37", b"Transfer-Encoding: chunked"], ids=["length", "chunked"])
def test_a_body_is_never_taken_for_the_next_request(path: str, length: bytes) -> None:
    """httptools skips the body of a request that wants another protocol."""
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n%b\r\n\r\n" % (path.encode(), length)
    with serving() as served, served.connect(head) as sock:
        assert served.status(sock) == 400
        with contextlib.suppress(OSError):
            sock.sendall(b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
        eventually(lambda: not is_open(sock))
        assert served.application.scopes == []


def test_an_upgrade_without_a_body_is_not_taken_up() -> None:
    with serving() as served:
        upgrade = b"POST / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n"
        with served.connect(upgrade) as sock:
            assert served.status(sock) == 200
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert served.status(sock) == 200
        with served.connect(b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n") as sock:
            assert served.status(sock) == 400


def test_a_header_that_does_not_come_in_time_ends_the_connection() -> None:
    with serving(header_timeout=0.2) as served:
        slow, idle = served.connect(HALF), served.connect()
        kept = served.get()
        eventually(lambda: not is_open(slow) and not is_open(idle))
        assert is_open(kept)  # between two requests the keep-alive timeout applies
        kept.setblocking(True)
        kept.sendall(HALF)
        eventually(lambda: not is_open(kept))


def test_a_client_that_reads_nothing_is_ended() -> None:
    with serving(client_timeout=0.3) as served, served.connect(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"):
        assert served.application.begun.acquire(timeout=PATIENCE)
        eventually(lambda: not served.owner._all)


def test_when_connections_are_full_the_longest_quiet_stranger_gives_way(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"), serving(max_connections=10) as served:
        known = [served.get("/known") for _ in range(3)]
        strangers = [served.connect(HALF) for _ in range(50)]
        late = served.get("/known")
        eventually(lambda: sum(map(is_open, strangers)) == 6)
        assert all(map(is_open, strangers[-6:])) and all(map(is_open, known)) and is_open(late)
    assert ["connections are full" in each.getMessage() for each in caplog.records] == [True]


def test_a_new_connection_is_refused_while_all_others_are_at_work() -> None:
    with serving(max_connections=10) as served:
        held = [served.connect(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(10)]
        for _ in held:
            assert served.application.begun.acquire(timeout=PATIENCE)
        with served.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as refused:
            assert served.status(refused) == 503
        served.application.go.set()
        assert [served.status(each) for each in held] == [200] * 10
        served.get().close()


def test_requests_that_wait_on_one_connection_are_bounded() -> None:
    one = b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n"
    with serving() as served, served.connect(one * 1000) as sock:
        eventually(lambda: not is_open(sock))


def test_behind_a_valid_token_some_requests_may_wait_and_not_more() -> None:
    one = b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n"
    with serving() as served:
        some, many = served.get("/known"), served.get("/known")
        many.sendall(one * (connections.PIPELINED + 2))
        eventually(lambda: not is_open(many))
        some.sendall(one * (connections.PIPELINED + 1))
        served.application.go.set()
        received = b""
        while received.count(b"HTTP/1.1 200") <= connections.PIPELINED:
            piece = some.recv(65_536)
            assert piece, received
            received += piece


def test_what_clients_send_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), serving() as served, served.connect(b"\x00\x01\r\n\r\n") as sock:
        assert served.status(sock) == 400
    assert caplog.records == []


def test_no_header_changes_the_address_of_a_client() -> None:
    """By default uvicorn believes X-Forwarded-For of loopback, which could name a proxy that the dashboard trusts."""
    with serving() as served, served.connect(b"GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 10.0.0.7\r\n\r\n") as sock:
        assert served.status(sock) == 200
        assert served.application.scopes[0]["client"][0] == "127.0.0.1"


def test_without_httptools_the_bounds_hold_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn.protocols.http.httptools_impl", None)
    spec = importlib.util.spec_from_file_location("connections_with_h11", connections.__file__)
    assert spec is not None and spec.loader is not None
    with_h11 = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(with_h11)
    assert with_h11.Base.__name__ == "H11Protocol"
    monkeypatch.setattr(connections, "server_options", with_h11.server_options)
    with serving(max_connections=10, header_timeout=0.2) as served:
        with served.connect(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n") as sock:
            sent(sock, b"x" * 1000, 1000)
            assert served.status(sock) == 200
        known = served.get("/known")
        with served.connect(HALF) as endless:
            assert sent(endless, b"a" * 65_536, 1000) < 30 * 2**20
        strangers = [served.connect(HALF) for _ in range(50)]
        assert is_open(known)
        eventually(lambda: not any(map(is_open, strangers)))


def test_open_files_bound_the_connections() -> None:
    settings = Settings(max_connections=2000, pool_size=10)
    assert Connections(settings, 1024).most == 1024 - 100 - 20
    assert Connections(settings, 100_000).most == Connections(settings).most == 2000
