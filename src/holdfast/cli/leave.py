"""Ends the process with an exit code, also when a thread that nobody can stop still runs."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time

END_WITHIN = 0.5


def leave(code: int) -> None:
    """Exits. With threads left the interpreter would wait for ever; what is registered at exit still runs."""
    if not threads_left():
        sys.exit(code)
    logging.getLogger("holdfast.cli").warning("a handler's thread still runs and is left behind")
    atexit._run_exitfuncs()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def threads_left() -> list[threading.Thread]:
    """Threads that keep the interpreter from ending, after a moment to end by themselves."""
    deadline = time.monotonic() + END_WITHIN
    others = [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    for thread in others:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [t for t in others if t.is_alive()]
