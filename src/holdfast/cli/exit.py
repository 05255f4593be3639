"""Ends the process with an exit code, even if a thread that cannot be stopped still runs."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time

END_WITHIN = 0.5


def exit_process(code: int) -> None:
    """Exit. Running threads would make the interpreter wait forever, so this calls os._exit() after exit handlers."""
    if not remaining_threads():
        sys.exit(code)
    logging.getLogger("holdfast.cli").warning("a handler's thread still runs and is left behind")
    atexit._run_exitfuncs()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def remaining_threads() -> list[threading.Thread]:
    """Return the threads that keep the interpreter from exiting, after giving them END_WITHIN seconds."""
    deadline = time.monotonic() + END_WITHIN
    threads = [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [t for t in threads if t.is_alive()]
