"""A customer's server on a loopback address. It checks signatures as the customer's own code does."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = "made-up-secret-of-the-customer"  # noqa: S105


def verify_signature(secret: str, body_bytes: bytes, signature_header: str) -> bool:
    expected = hmac.new(secret.encode(), body_bytes, hashlib.sha256).hexdigest()
    provided = signature_header.removeprefix("sha256=")
    return hmac.compare_digest(expected, provided)


class Receiver(ThreadingHTTPServer):
    """Keep each request. `statuses` are the next responses; after them every response is 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.statuses: list[int] = []
        self.got: list[tuple[bytes, dict[str, str], int]] = []
        self.times: list[float] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/webhooks/bpc"

    @property
    def accepted(self) -> list[tuple[bytes, dict[str, str]]]:
        return [(body, headers) for body, headers, status in self.got if status == 200]


class _Request(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if not verify_signature(SECRET, body, self.headers["X-BPC-Signature"]):
            status = 401
        self.server.times.append(time.monotonic())
        self.server.got.append((body, dict(self.headers), status))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
