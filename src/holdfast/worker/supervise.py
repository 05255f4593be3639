"""Keeps worker processes running: starts them, replaces those that end, and stops them together.

Each child holds one end of a socket as its standard input, and this process the other. When this process goes,
however it goes, the kernel closes its end, and a child whose input is at its end stops as if it had been told to.
The children have sessions of their own, so that Ctrl-C in a terminal reaches them once: through here.

Through the same socket a child says who it is and that its event loop beats. One that was silent for longer than its
`loop_timeout` is ended, by SIGTERM and then by SIGKILL. Usually such a child ends itself before (beat.py); what is left
to this process is a handler that holds the interpreter's lock, or a child that was stopped. When a child has ended,
and only then, what it still holds is given back at once: no lease has to run out.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import json
import logging
import os
import signal
import socket
import threading
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.telemetry import logs

log = logs.get("supervise")
BROKEN = 2  # the exit code of a worker whose setup is wrong: starting it again cannot help
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
SOUND_AFTER = 30.0  # a child that ran for so long was sound, and the pauses start anew
KILL_AFTER_ASKED = 2
LOOK_EVERY = 0.5  # seconds between looks at a child's beats
PATIENCE = 2.0  # seconds beyond its loop_timeout in which a child ends by itself, and then after SIGTERM
LAST_WORDS = 0.1  # seconds: what a child said last is here, but programs that it started may hold its end open
GIVE_BACK_AGAIN = 1.0  # seconds: a claim that was under way when the child ended may be there only now
_NEEDED = ("schema", "pooler", "connect_timeout", "call_timeout")  # settings, to reach the child's database
_BEATS_EVERY = 0.5


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
        self._giving_back: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Works until every child is gone; answers with the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        code = max(await asyncio.gather(*(self._keep(place) for place in range(len(self._stirred)))))
        if self._giving_back:
            await asyncio.wait(self._giving_back, timeout=GIVE_BACK_AGAIN + PATIENCE)
        return code

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
        ours, theirs = socket.socketpair()
        with ours, theirs:
            child = await asyncio.create_subprocess_exec(*self._command, stdin=theirs.fileno(), start_new_session=True)
            theirs.close()
            self._children[place] = child
            logs.event(log, logging.INFO, "process started", process=place + 1, pid=child.pid)
            if self._asked:  # told to stop while it was being started
                child.terminate()
            reader, writer = await asyncio.open_connection(sock=ours)
            about = About()
            hearing = [asyncio.create_task(_hear(reader, about)), asyncio.create_task(_end_if_silent(child, about))]
            try:
                code = await child.wait()
                del self._children[place]
                await asyncio.wait(hearing[:1], timeout=LAST_WORDS)
            finally:
                for task in hearing:
                    task.cancel()
                writer.close()
        if about.worker is not None:
            giving_back = asyncio.create_task(_give_back(about))
            self._giving_back.add(giving_back)
            giving_back.add_done_callback(self._giving_back.discard)
        return code

    async def _wait(self, place: int, code: int, seconds: float | None) -> None:
        """Waits before a restart, for so long or until something has changed."""
        again = "when a file changes" if seconds is None else f"in {seconds:g} s"
        logs.event(log, logging.WARNING, "process ended by itself", process=place + 1, code=code, again=again)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stirred[place].wait()


class About:
    """What a supervisor knows of a child: the worker it is, where its leases are, and how long it was silent."""

    def __init__(self) -> None:
        self.worker: str | None = None  # None: nothing is to be given back
        self.settings: dict[str, Any] = {}
        self.longest = 0.0  # seconds it may be silent; 0 is for ever
        self.silent = 0.0


async def _hear(reader: asyncio.StreamReader, about: About) -> None:
    with contextlib.suppress(OSError, ValueError):
        while line := await reader.readline():
            about.silent = 0.0
            message = json.loads(line)
            if "worker" in message:
                about.worker, about.settings = message["worker"], message["settings"]
            elif "longest" in message:
                about.longest = message["longest"]
            elif "holds" in message:
                about.longest = 0.0
                about.worker = about.worker if message["holds"] else None


async def _end_if_silent(child: Process, about: About) -> None:
    """Ends a child whose event loop does not beat. Counted in short steps: while the machine slept, nobody beat."""
    while not (about.longest and about.silent > about.longest + PATIENCE):
        await asyncio.sleep(LOOK_EVERY)
        about.silent += LOOK_EVERY
    logs.event(log, logging.ERROR, "process ended: its event loop is stuck", pid=child.pid, worker=about.worker,
               seconds=round(about.silent, 1))  # fmt: skip
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGUSR2)  # it writes its stack to standard error
        child.terminate()
        await asyncio.sleep(PATIENCE)
        child.kill()


async def _give_back(about: About) -> None:
    """Gives back what a child held that has ended. If it fails, its leases run out."""
    for pause in (GIVE_BACK_AGAIN, 0.0):
        try:
            jobs = await asyncio.to_thread(_reclaim, about)
        except HoldfastError as error:
            logs.event(log, logging.WARNING, "leases not given back", worker=about.worker, error=str(error))
        else:
            if jobs:
                logs.event(log, logging.WARNING, "leases given back", worker=about.worker, jobs=jobs)
        await asyncio.sleep(pause)


def _reclaim(about: About) -> int:
    from holdfast.store.calls import Calls  # a supervisor whose children live needs no database
    from holdfast.store.session import ThreadSession

    session = ThreadSession(Settings(**about.settings), "supervisor")
    try:
        return session.run(Calls(about.settings["schema"]).reclaim_worker(str(about.worker)))
    finally:
        session.close()


class Lifeline:
    """A child's end of the socket to its supervisor. Messages are lines of JSON; one that does not fit is dropped."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=os.dup(0))
        self._beat_at = 0.0

    def enter(self, worker: str, settings: Settings) -> None:
        """Say which worker this process is and where its leases are, before the database knows the worker."""
        from holdfast.store.connect import server_dsn

        reach = {name: getattr(settings, name) for name in _NEEDED} | {"dsn": server_dsn(settings)}
        self._say({"worker": worker, "settings": reach})

    def watch(self, loop_timeout: float) -> None:
        """Say that beats follow, and how long a silence may last."""
        self._say({"longest": loop_timeout})

    def beat(self) -> None:
        """Say that the event loop runs."""
        if (now := time.monotonic()) - self._beat_at >= _BEATS_EVERY:
            self._beat_at = now
            self._say({})

    def leave(self, holds: bool) -> None:
        """Say that the worker has stopped, and whether it still holds leases."""
        self._say({"holds": holds})

    def _say(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps(message).encode() + b"\n", socket.MSG_DONTWAIT)


def stop_at_end_of_input() -> Lifeline | None:
    """In a child: stops this process, as SIGTERM does, when its input ends because the parent is gone. Returns the way
    to the supervisor, where the input is one."""
    threading.Thread(target=_wait_for_end, name="holdfast-parent", daemon=True).start()
    try:
        lifeline = Lifeline()
    except OSError:  # a pipe, say: started by hand
        return None
    faulthandler.register(signal.SIGUSR2, all_threads=True)  # the signal may reach any thread
    return lifeline


def _wait_for_end() -> None:
    # Not through sys.stdin: its lock, held by a daemon thread, would break the end of the interpreter.
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
