"""One child process as its worker sees it: started, spoken to, listened to, and ended.

All of it happens on the event loop's thread, also the start: Linux ties a child to the thread that started it. Only
the wait for its end has a thread of its own, and leaves the reaping to the loop: while nobody has reaped the child,
its number belongs to it and a signal cannot reach a stranger.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from holdfast.worker.messages import Leave, Stream, ToWorker, in_worker, pack

if TYPE_CHECKING:
    from holdfast.worker.processes import ProcessCall

BOOT = (
    "import sys; path, *numbers = sys.argv[1:]; del sys.argv[1:]; sys.path[:] = path.splitlines(); "
    "from holdfast.worker.child import main; main(*map(int, numbers))"
)
LEAVE_WITHIN = 5.0  # what a child that was told to leave may take for its own clearing up
OUTPUT_KEPT = 8192
_CHUNK = 1 << 16
_MOST_CHUNKS = 64


class Process:
    """A child process. `call` is the job it runs, `known` are the tasks it has imported; when it is `leaving` it ends
    by itself and its place among the worker's processes is free; when it is `ending` its end is near."""

    def __init__(
        self, setup: bytes, hear: Callable[[Process, ToWorker], None], ended: Callable[[Process, str], None]
    ) -> None:
        self.call: ProcessCall | None = None
        self.known: set[str] = set()
        self._tenants: set[str | None] = set()
        self.answered = self.leaving = self.ending = self.garbled = False
        self._loop = asyncio.get_running_loop()
        self._hear = hear
        self._ended = ended
        self._stream = Stream(in_worker)
        self._unsent = bytearray()
        self._writing = False
        self._tail = bytearray()
        self._ours = contextlib.ExitStack()
        try:
            with contextlib.ExitStack() as theirs:
                self._start(theirs)
            self._listen()
        except (
            OSError,
            RuntimeError,
        ):  # no more descriptors, processes or threads; a child that did start ends by itself
            self._ours.close()
            raise
        self.send(setup)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def send(self, data: bytes) -> None:
        """Sends now what the child takes now, and the rest when it takes more."""
        self._unsent += data
        if not self._writing:
            self._push()

    def leave(self) -> None:
        """Tells an idle child to end."""
        self.send(pack(Leave()))
        self.end_within(LEAVE_WITHIN)

    def terminate(self, grace: float) -> None:
        """Asks the child and all that it started to end, and ends them after the grace time."""
        self._signal(signal.SIGTERM)
        self.end_within(grace)

    def end_within(self, seconds: float) -> None:
        """Leaves the child this much time to end by itself."""
        self.ending = True
        self._ours.callback(self._loop.call_later(seconds, self.kill).cancel)

    def kill(self) -> None:
        """Ends the child and all that it started."""
        self.ending = True
        self._signal(signal.SIGKILL)

    def has_unread(self) -> bool:
        """Whether the child has not read the last that was sent. The worker keeps the child's end of the socket open
        too, so that this can still be told when the child is gone."""
        with contextlib.suppress(BlockingIOError):
            return bool(self._unsent or self._childs.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return False

    def runs_only(self, tenant: str | None) -> bool:
        """Return whether no job of another tenant has run here."""
        return self._tenants <= {tenant}

    def begin(self, tenant: str | None) -> None:
        """Another job begins: what earlier ones wrote is not its own."""
        if self._tenants:
            self._read_all()
        self._tail.clear()
        self._tenants.add(tenant)

    def output(self) -> str:
        """The end of what was written since the job began. A thread that an earlier job has left behind may write at
        any time, so nothing is kept of a child that has run jobs of several tenants; the worker's own standard error
        has all of it."""
        self._read_all()
        return self._tail.decode("utf-8", "backslashreplace") if len(self._tenants) <= 1 else ""

    def _read_all(self) -> None:
        for _ in range(_MOST_CHUNKS):
            if not self._read_output():
                break

    def how_it_ended(self) -> str:
        """For people: the exit code or the signal."""
        code = self._popen.returncode
        if self.garbled:
            return "broke the line to its worker and was killed"
        if code >= 0:
            return f"exited with code {code}"
        try:
            name = f"{signal.Signals(-code).name} ({signal.strsignal(-code)})"
        except ValueError:
            name = f"signal {-code}"
        hint = ", as the kernel does when memory runs out," if -code == signal.SIGKILL else ""
        return f"killed by {name}{hint}"

    def _start(self, theirs: contextlib.ExitStack) -> None:
        self._socket, self._childs = socket.socketpair()
        self._ours.callback(self._socket.close)
        self._ours.callback(self._childs.close)
        life = self._pipe(theirs)[0]
        output, self._output = self._pipe(theirs, reading=True)
        numbers = (os.getpid(), self._childs.fileno(), life)
        self._popen = subprocess.Popen(
            [sys.executable, "-u", "-c", BOOT, "\n".join(sys.path), *map(str, numbers)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=numbers[1:], start_new_session=True,
        )  # fmt: skip

    def _pipe(self, theirs: contextlib.ExitStack, *, reading: bool = False) -> tuple[int, int]:
        """A pipe as their end and ours; which of them reads is ours to say."""
        ends = os.pipe()
        their, our = ends[::-1] if reading else ends
        theirs.callback(os.close, their)
        self._ours.callback(os.close, our)
        return their, our

    def _listen(self) -> None:
        self._socket.setblocking(False)
        os.set_blocking(self._output, False)
        for number, read in ((self._socket.fileno(), self._read), (self._output, self._read_output)):
            self._loop.add_reader(number, read)
            self._ours.callback(self._loop.remove_reader, number)
        self._ours.callback(self._loop.remove_writer, self._socket.fileno())
        threading.Thread(target=self._await_end, name=f"holdfast-child-{self.pid}", daemon=True).start()

    def _push(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # the handler has shut it
            self._unsent.clear()
            self._distrust()
        if self._unsent and not self._writing:
            self._loop.add_writer(self._socket.fileno(), self._push)
        elif self._writing and not self._unsent:
            self._loop.remove_writer(self._socket.fileno())
        self._writing = bool(self._unsent)

    def _read(self) -> bool:
        """Takes up what the child says; answers whether there may be more."""
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return False
        try:
            for message in self._stream.feed(data):
                self._hear(self, message)
        except msgspec.DecodeError:
            data = b""
        if not data:  # or the handler has shut it
            self._distrust()
        return bool(data)

    def _distrust(self) -> None:
        self.garbled = True
        self.kill()

    def _read_output(self) -> bool:
        try:
            data = os.read(self._output, _CHUNK)
        except OSError:
            return False
        if not data:
            self._loop.remove_reader(self._output)
            return False
        self._tail += data
        del self._tail[:-OUTPUT_KEPT]
        _forward(data)
        return True

    def _signal(self, number: int) -> None:
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _await_end(self) -> None:
        """In a thread. Where the system cannot wait without reaping, the loop finds the child already reaped."""
        with contextlib.suppress(ChildProcessError):
            if hasattr(os, "waitid"):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            else:
                self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed, and this process at its end
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._signal(signal.SIGKILL)  # meant for what it started and left behind
        self._popen.wait()
        while self._read():
            pass
        self._ended(self, self.output())
        self._ours.close()


def _forward(data: bytes) -> None:
    stream = getattr(sys.stderr, "buffer", None)
    if stream is not None:
        with contextlib.suppress(OSError, ValueError):
            stream.write(data)
            stream.flush()
