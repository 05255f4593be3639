"""A minimal receiver of webhooks: `python -m bench.receiver`. It prints its port when it listens, and on
SIGTERM the number of connections and requests."""

from __future__ import annotations

import asyncio
import signal
import sys

from holdfast.bench.bare import run_async

RESPONSE = b"HTTP/1.1 204 No Content\r\n\r\n"
END = b"\r\n\r\n"


class Receiver(asyncio.Protocol):
    """Respond to each complete request of a connection."""

    connections = requests = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Receiver.connections += 1
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(END)) >= 0:
            size = end + len(END) + _length(self._data[:end])
            if len(self._data) < size:
                return
            self._data = self._data[size:]
            Receiver.requests += 1
            self._transport.write(RESPONSE)  # type: ignore[attr-defined]


def _length(head: bytes) -> int:
    return int(head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])


async def serve() -> None:
    """Serve until SIGTERM."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    server = await loop.create_server(Receiver, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await over.wait()
    sys.stdout.write(f"{Receiver.connections} {Receiver.requests}\n")


if __name__ == "__main__":
    run_async(serve())
