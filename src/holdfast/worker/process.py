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
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from holdfast.worker.child_socket import ChildSocket
from holdfast.worker.messages import Leave, ToWorker, pack
from holdfast.worker.output import Output

if TYPE_CHECKING:
    from holdfast.worker.processes import ProcessCall

BOOT = (
    "import sys; path, *numbers = sys.argv[1:]; del sys.argv[1:]; sys.path[:] = path.splitlines(); "
    "from holdfast.worker.child import main; main(*map(int, numbers))"
)
LEAVE_WITHIN = 5.0  # seconds a leaving child may take to clean up


class Process:
    """A child process. `call` is the job it runs, `known` are the tasks it has imported. A `leaving` child exits by
    itself and has given up its place in the pool; an `ending` one is killed if it does not exit in time."""

    def __init__(
        self, setup: bytes, on_message: Callable[[Process, ToWorker], None], on_end: Callable[[Process, str], None]
    ) -> None:
        self.call: ProcessCall | None = None
        self.known: set[str] = set()
        self.answered = self.leaving = self.ending = self._garbled = False
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._opened = contextlib.ExitStack()  # descriptors, and callbacks of the loop
        with contextlib.ExitStack() as stack:  # an error means: out of descriptors, processes or threads
            stack.callback(self._opened.close)
            self.line = ChildSocket(self._loop, partial(on_message, self), self._distrust)
            self._opened.callback(self.line.close)
            with contextlib.ExitStack() as childs:
                self._start(childs)
            self.line.start()
            threading.Thread(target=self._await_end, name=f"holdfast-child-{self.pid}", daemon=True).start()
            stack.pop_all()
        self.line.send(setup)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def leave(self) -> None:
        """Ask an idle child to exit."""
        self.line.send(pack(Leave()))
        self.end_within(LEAVE_WITHIN)

    def terminate(self, grace: float) -> None:
        """Send SIGTERM to the child and its descendants, and kill them after the grace time."""
        self._signal(signal.SIGTERM)
        self.end_within(grace)

    def end_within(self, seconds: float) -> None:
        """Kill the child unless it exits within this time."""
        self.ending = True
        self._opened.callback(self._loop.call_later(seconds, self.kill).cancel)

    def kill(self) -> None:
        """Kill the child and its descendants."""
        self.ending = True
        self._signal(signal.SIGKILL)

    def how_it_ended(self) -> str:
        """Describe the exit code or the signal."""
        code = self._popen.returncode
        if self._garbled:
            return "sent invalid data to its worker and was killed"
        if code >= 0:
            return f"exited with code {code}"
        try:
            name = f"{signal.Signals(-code).name} ({signal.strsignal(-code)})"
        except ValueError:
            name = f"signal {-code}"
        hint = ", as the kernel does when memory runs out," if -code == signal.SIGKILL else ""
        return f"killed by {name}{hint}"

    def _start(self, childs: contextlib.ExitStack) -> None:
        """Start the child, with its ends of two pipes: one ends when the worker does, the other is for its output."""
        life, _ = self._pipe(childs)
        written, read = self._pipe(childs, reading=True)
        numbers = (os.getpid(), self.line.childs_descriptor, life)
        self._popen = subprocess.Popen(
            [sys.executable, "-u", "-c", BOOT, "\n".join(sys.path), *map(str, numbers)],
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            pass_fds=numbers[1:],
            start_new_session=True,
        )
        self.output = Output(read, self._loop)
        self._opened.callback(self.output.close)

    def _pipe(self, childs: contextlib.ExitStack, *, reading: bool = False) -> tuple[int, int]:
        """Return a pipe as (the child's end, our end); with reading, ours is the read end."""
        ends = os.pipe()
        theirs, ours = ends[::-1] if reading else ends
        childs.callback(os.close, theirs)
        self._opened.callback(os.close, ours)
        return theirs, ours

    def _distrust(self) -> None:
        self._garbled = True
        self.kill()

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
        while self.line.read():
            pass
        self._on_end(self, self.output.text())
        self._opened.close()
