"""End a process together with the process that started it.

The parent holds the write end of a pipe that nothing else holds: end of file means that it is gone. A thread waits for
that. On Linux the kernel also kills the process, which works even while a handler holds the GIL.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

PR_SET_PDEATHSIG = 1


def die_with(parent: int, lifeline: int) -> None:
    """End this process when the parent ends, which has the write end of the pipe `lifeline`."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before prctl()
        os._exit(1)
    threading.Thread(target=_outlast, args=(lifeline,), name="holdfast-lifeline", daemon=True).start()


def _outlast(lifeline: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(lifeline, 1024):
            pass
    os.killpg(0, signal.SIGKILL)
