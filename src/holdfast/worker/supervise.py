"""Keeps worker processes running: starts them, replaces those that end, and stops them together.

Each child holds the reading end of a pipe as its standard input, and this process the writing end. When this
process goes, however it goes, the kernel closes the pipe, and a child whose input is at its end stops as if
it had been told to. The children have sessions of their own, so that Ctrl-C in a terminal reaches them once:
through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

from holdfast.telemetry import logs

log = logs.get("supervise")
BROKEN = 2  # the exit code of a worker whose setup is wrong: starting it again cannot help
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
SOUND_AFTER = 30.0  # a child that ran for so long was sound, and the pauses start anew
KILL_AFTER_ASKED = 2


class Supervisor:
    """Runs `processes` copies of a command until told to stop.

    With `reload`, a child that ends by itself is started again when `reload()` says that something changed,
    not before: a mistake in the code does not go away by itself.
    """

    def __init__(self, command: Sequence[str], processes: int, *, reload: bool = False) -> None:
        self._command = command
        self._reload = reload
        self._asked = 0
        self._children: dict[int, Process] = {}
        self._stirred = [asyncio.Event() for _ in range(processes)]

    async def run(self) -> int:
        """Works until every child is gone; answers with the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        return max(await asyncio.gather(*(self._keep(place) for place in range(len(self._stirred)))))

    def stop(self) -> None:
        """First: the children finish what they run. Second: they give it back. Third: they are killed."""
        self._asked += 1
        self._tell(signal.SIGKILL if self._asked > KILL_AFTER_ASKED else signal.SIGTERM)

    def reload(self) -> None:
        """Starts every child anew, once what it runs has ended."""
        self._tell(signal.SIGTERM)

    def _tell(self, number: int) -> None:
        for event in self._stirred:
            event.set()
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)

    async def _keep(self, place: int) -> int:
        """Keeps one child running; answers with the exit code for its part."""
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            code = await self._run_child(place)
            if self._asked:
                return 0 if code in (0, -signal.SIGTERM) else 1
            if code == BROKEN and not self._reload:
                self.stop()
                return code
            if time.monotonic() - began > SOUND_AFTER:
                pause = FIRST_PAUSE
            if not self._stirred[place].is_set():
                await self._wait(place, code, None if self._reload else pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            if self._asked:
                return 0
            self._stirred[place].clear()

    async def _run_child(self, place: int) -> int:
        child = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, start_new_session=True)
        self._children[place] = child
        logs.event(log, logging.INFO, "process started", process=place + 1, pid=child.pid)
        if self._asked:  # told to stop while it was being started
            child.terminate()
        code = await child.wait()
        del self._children[place]
        return code

    async def _wait(self, place: int, code: int, seconds: float | None) -> None:
        """Waits before a restart, for so long or until something has changed."""
        again = "when a file changes" if seconds is None else f"in {seconds:g} s"
        logs.event(log, logging.WARNING, "process ended by itself", process=place + 1, code=code, again=again)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stirred[place].wait()


def stop_at_end_of_input() -> None:
    """In a child: stops this process, as SIGTERM does, when its input ends because the parent is gone."""
    threading.Thread(target=_wait_for_end, name="holdfast-parent", daemon=True).start()


def _wait_for_end() -> None:
    # Not through sys.stdin: its lock, held by a daemon thread, would break the end of the interpreter.
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
