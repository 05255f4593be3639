"""When a worker stops, and why: a signal, a request of its program or of an operator, or a schema that does not fit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable

from holdfast.errors import SchemaError
from holdfast.store.workers import Wanted
from holdfast.telemetry import logs

log = logs.get("worker")
STUCK = 75  # exit code of a process whose event loop is stuck (EX_TEMPFAIL): a restart may help


class Shutdown:
    """The requests to stop. The first one ends claiming, a second one cancels what still runs."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._loop: asyncio.AbstractEventLoop | None = None
        self._requests = 0
        self.by_operator = False
        self.requested = asyncio.Event()
        self.at_once = asyncio.Event()
        self.mismatch: SchemaError | None = None
        self.owns_process = False  # whether the process exits when the worker has stopped

    def attach(self, *, owns_process: bool) -> None:
        """Use the running event loop. A worker that owns its process also stops on SIGTERM and SIGINT."""
        self._loop = asyncio.get_running_loop()
        self.owns_process = owns_process
        if owns_process and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self.request)

    def request(self) -> None:
        """Stop claiming; called again, cancel what still runs."""
        self._requests += 1
        self.requested.set()
        if self.repeated:
            self.at_once.set()

    def obey(self, wanted: Wanted) -> None:
        """Do what an operator has asked for in the database: "drain" stops as the first signal does, "now" as the
        second. A signal that follows a request to drain is still the first."""
        if not self.by_operator:
            self.by_operator = True
            logs.event(log, logging.INFO, "worker stops: an operator asked for it", worker=self._worker, how=wanted)
        self.requested.set()
        if wanted == "now":
            self.at_once.set()
            self._requests = max(self._requests, 2)

    @property
    def repeated(self) -> bool:
        """Return whether a second stop was requested."""
        return self._requests > 1

    def call_soon(self, function: Callable[..., None], argument: object) -> None:
        """Call a function on the event loop, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: no job runs
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function, argument)

    def refuse(self, error: SchemaError) -> None:
        """Stop, because this release cannot work with the current schema; called from any thread. No job counts this as
        a failure."""
        self.call_soon(self.note_mismatch, error)

    def note_mismatch(self, error: SchemaError) -> None:
        """Log a schema that does not fit, and stop claiming."""
        if self.mismatch is None:
            self.mismatch = error
            logs.event(
                log, logging.ERROR, "worker stops: the schema does not fit", worker=self._worker, error=str(error)
            )
            self.requested.set()

    def on_stuck(self) -> None:
        """Exit if the process is the worker's own; called by the loop monitor. With a stuck loop no handler can be
        stopped and no outcome stored."""
        if self.owns_process:
            logs.event(log, logging.ERROR, "process ends: its event loop is stuck", worker=self._worker, code=STUCK)
            logging.shutdown()
            os._exit(STUCK)
        text = "leases are not renewed: the event loop is stuck; restart this process"
        logs.event(log, logging.ERROR, text, worker=self._worker)
