"""The output of a child process: forwarded to the worker's standard error, and its end kept for failed jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

OUTPUT_KEPT = 8192
_CHUNK = 1 << 16
_MOST_CHUNKS = 64


class Output:
    """The read end of a child's standard output and error, and the end of what was written since its job began."""

    def __init__(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        self._descriptor = descriptor
        self._loop = loop
        self._tail = bytearray()
        self._tenants: set[str | None] = set()
        os.set_blocking(descriptor, False)
        loop.add_reader(descriptor, self.read)

    def close(self) -> None:
        """Stop reading; the descriptor belongs to the caller."""
        self._loop.remove_reader(self._descriptor)

    def runs_only(self, tenant: str | None) -> bool:
        """Return whether all jobs so far were of this tenant."""
        return self._tenants <= {tenant}

    def begin(self, tenant: str | None) -> None:
        """Drop the output of earlier jobs, and keep that of the imports before the first."""
        if self._tenants:
            self._read_all()
        self._tail.clear()
        self._tenants.add(tenant)

    def text(self) -> str:
        """Return the end of the output since the job began. It is empty for a child that has run jobs of several
        tenants, because a thread of an earlier job may still write. The worker's standard error has all output."""
        self._read_all()
        return self._tail.decode("utf-8", "backslashreplace") if len(self._tenants) <= 1 else ""

    def _read_all(self) -> None:
        for _ in range(_MOST_CHUNKS):
            if not self.read():
                break

    def read(self) -> bool:
        """Read what there is; return whether there may be more."""
        try:
            data = os.read(self._descriptor, _CHUNK)
        except OSError:
            return False
        if not data:
            self.close()
            return False
        self._tail += data
        del self._tail[:-OUTPUT_KEPT]
        _forward(data)
        return True


def _forward(data: bytes) -> None:
    stream = getattr(sys.stderr, "buffer", None)
    if stream is not None:
        with contextlib.suppress(OSError, ValueError):
            stream.write(data)
            stream.flush()
