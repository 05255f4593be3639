"""One child process of a worker: starting it, exchanging messages with it, and ending it.

Everything runs on the event loop's thread, because Linux ties a child to the thread that started it. Only the wait for
its exit has a separate thread, which leaves the reaping to the loop: until the child is reaped its process id cannot be
reused, so a signal cannot reach another process.
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
LEAVE_WITHIN = 5.0  # seconds a leaving child may take to clean up
OUTPUT_KEPT = 8192
_CHUNK = 1 << 16
_MOST_CHUNKS = 64


class Process:
    """A child process. `call` is the job it runs, `known` are the tasks it has imported. A `leaving` child exits by
    itself and has given up its place in the pool; an `ending` one is killed if it does not exit in time."""

    def __init__(
        self, setup: bytes, on_message: Callable[[Process, ToWorker], None], on_end: Callable[[Process, str], None]
    ) -> None:
        self.call: ProcessCall | None = None
        self.known: set[str] = set()
        self._tenants: set[str | None] = set()
        self.answered = self.leaving = self.ending = self.garbled = False
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_end = on_end
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
        ):  # out of descriptors, processes or threads; a child that did start exits by itself
            self._ours.close()
            raise
        self.send(setup)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def send(self, data: bytes) -> None:
        """Send what the socket accepts now, and the rest when it accepts more."""
        self._unsent += data
        if not self._writing:
            self._push()

    def leave(self) -> None:
        """Ask an idle child to exit."""
        self.send(pack(Leave()))
        self.end_within(LEAVE_WITHIN)

    def terminate(self, grace: float) -> None:
        """Send SIGTERM to the child and its descendants, and kill them after the grace time."""
        self._signal(signal.SIGTERM)
        self.end_within(grace)

    def end_within(self, seconds: float) -> None:
        """Kill the child unless it exits within this time."""
        self.ending = True
        self._ours.callback(self._loop.call_later(seconds, self.kill).cancel)

    def kill(self) -> None:
        """Kill the child and its descendants."""
        self.ending = True
        self._signal(signal.SIGKILL)

    def has_unread(self) -> bool:
        """Return whether the child has not read the last message. The worker keeps the child's end of the socket open,
        so this works after the child has exited."""
        with contextlib.suppress(BlockingIOError):
            return bool(self._unsent or self._childs.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return False

    def runs_only(self, tenant: str | None) -> bool:
        """Return whether no job of another tenant has run here."""
        return self._tenants <= {tenant}

    def begin(self, tenant: str | None) -> None:
        """Begin another job: discard the output of earlier ones."""
        if self._tenants:
            self._read_all()
        self._tail.clear()
        self._tenants.add(tenant)

    def output(self) -> str:
        """Return the end of the output since the job began. It is empty for a child that has run jobs of several
        tenants, because a thread of an earlier job may still write. The worker's standard error has all output."""
        self._read_all()
        return self._tail.decode("utf-8", "backslashreplace") if len(self._tenants) <= 1 else ""

    def _read_all(self) -> None:
        for _ in range(_MOST_CHUNKS):
            if not self._read_output():
                break

    def how_it_ended(self) -> str:
        """Describe the exit code or the signal."""
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
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=numbers[1:],
            start_new_session=True,
        )

    def _pipe(self, theirs: contextlib.ExitStack, *, reading: bool = False) -> tuple[int, int]:
        """Return a pipe as (their end, our end); with reading, ours is the read end."""
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
        except OSError:  # the handler has closed it
            self._unsent.clear()
            self._distrust()
        if self._unsent and not self._writing:
            self._loop.add_writer(self._socket.fileno(), self._push)
        elif self._writing and not self._unsent:
            self._loop.remove_writer(self._socket.fileno())
        self._writing = bool(self._unsent)

    def _read(self) -> bool:
        """Handle the child's messages; return whether there may be more."""
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return False
        try:
            for message in self._stream.feed(data):
                self._on_message(self, message)
        except msgspec.DecodeError:
            data = b""
        if not data:  # invalid data, or the handler has closed the socket
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
        """Wait for the exit; runs in a thread. Without os.waitid() the wait itself reaps the child."""
        with contextlib.suppress(ChildProcessError):
            if hasattr(os, "waitid"):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            else:
                self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: this process exits
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._signal(signal.SIGKILL)  # for processes that it left behind
        self._popen.wait()
        while self._read():
            pass
        self._on_end(self, self.output())
        self._ours.close()


def _forward(data: bytes) -> None:
    stream = getattr(sys.stderr, "buffer", None)
    if stream is not None:
        with contextlib.suppress(OSError, ValueError):
            stream.write(data)
            stream.flush()
