"""The worker's end of the socket to a child process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

import msgspec

from holdfast.worker.messages import Stream, ToWorker, in_worker

_CHUNK = 1 << 16


class ChildSocket:
    """Sends messages without blocking, and receives them. `on_broken` is called when the child's end was closed or has
    sent what is no message."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_message: Callable[[ToWorker], None], on_broken: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._on_message = on_message
        self._on_broken = on_broken
        self._socket, self._childs = socket.socketpair()
        self._socket.setblocking(False)
        self._stream = Stream(in_worker)
        self._unsent = bytearray()
        self._writing = False

    @property
    def childs_descriptor(self) -> int:
        """Return the child's end, which it inherits."""
        return self._childs.fileno()

    def start(self) -> None:
        """Receive messages from now on."""
        self._loop.add_reader(self._socket.fileno(), self.read)

    def close(self) -> None:
        """Close both ends."""
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._childs.close()

    def send(self, data: bytes) -> None:
        """Send what the socket accepts now, and the rest when it accepts more."""
        self._unsent += data
        if not self._writing:
            self._push()

    def has_unread(self) -> bool:
        """Return whether the child has not read the last message. The worker keeps the child's end open, so this works
        after the child has exited."""
        with contextlib.suppress(BlockingIOError):
            return bool(self._unsent or self._childs.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return False

    def _push(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # the handler has closed it
            self._unsent.clear()
            self._on_broken()
        if self._unsent and not self._writing:
            self._loop.add_writer(self._socket.fileno(), self._push)
        elif self._writing and not self._unsent:
            self._loop.remove_writer(self._socket.fileno())
        self._writing = bool(self._unsent)

    def read(self) -> bool:
        """Handle the child's messages; return whether there may be more."""
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return False
        try:
            for message in self._stream.feed(data):
                self._on_message(message)
        except msgspec.DecodeError:
            data = b""
        if not data:  # invalid data, or the handler has closed the socket
            self._on_broken()
        return bool(data)
