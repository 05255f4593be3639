"""A service manager for tests: a socket that receives what programs report, as systemd's."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import PATIENCE


class Manager:
    """A socket, and the reports so far."""

    def __init__(self, address: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(address))
        self.address = address
        self.reports: list[str] = []

    def environment(self, watchdog: float) -> dict[str, str]:
        """Return what systemd sets for a unit of Type=notify."""
        return {"NOTIFY_SOCKET": str(self.address), "WATCHDOG_USEC": str(int(watchdog * 1e6))}

    def receive(self, seconds: float = PATIENCE) -> str | None:
        """Return the next report, or None if there is none for so long."""
        self._socket.settimeout(seconds)
        try:
            self.reports.append(self._socket.recv(4096).decode())
        except TimeoutError:
            return None
        return self.reports[-1]

    def until(self, report: str) -> None:
        """Receive reports until this one."""
        ends = time.monotonic() + PATIENCE
        while self.receive(max(0.01, ends - time.monotonic())) != report:
            assert time.monotonic() < ends, f"no {report}; received {self.reports}"

    def is_silent(self, seconds: float) -> bool:
        """Return whether a program stops reporting for so long."""
        ends = time.monotonic() + PATIENCE
        while self.receive(seconds) is not None:
            if time.monotonic() > ends:
                return False
        return True

    def close(self) -> None:
        self._socket.close()


@contextmanager
def manager() -> Iterator[Manager]:
    """Yield a service manager for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="hf") as folder:  # short: a socket's name has 107 bytes
        made = Manager(Path(folder, "notify"))
        try:
            yield made
        finally:
            made.close()
