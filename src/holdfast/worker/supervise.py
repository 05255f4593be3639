"""Supervise worker processes: start them, replace those that end, and stop them together.

Each child has one end of a socket as its standard input, and this process the other. When this process dies, the kernel
closes its end, and a child stops at end of input as it does on SIGTERM. The children have their own sessions, so Ctrl-C
in a terminal reaches them once, through this process.

Through the same socket a child sends its worker id and the beats of its event loop. A child that is silent for longer
than its `loop_timeout` gets SIGTERM and then SIGKILL. Usually such a child ends itself first (beat.py). This process
handles the rest: a handler that holds the GIL, or a child that was stopped. Once a child has ended, its jobs are
reclaimed at once, without waiting for its leases to expire.
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
from typing import Any, Protocol

from holdfast.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.telemetry import logs, systemd

log = logs.get("supervise")
BROKEN = 2  # exit code of a worker that is configured wrongly: a restart cannot help
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
SOUND_AFTER = 30.0  # seconds after which a running child resets the backoff
KILL_AFTER_ASKED = 2
CHECK_INTERVAL = 0.5  # seconds between checks of a child's beats
PATIENCE = 2.0  # seconds a child has beyond its loop_timeout, and again after SIGTERM
LAST_WORDS = 0.1  # seconds to read a dead child's last messages; its descendants may keep the socket open
RECLAIM_AGAIN = 1.0  # seconds until the second reclaim: a claim may commit after the child has ended
_NEEDED = ("schema", "pooler", "connect_timeout", "call_timeout")  # settings for the child's database
_BEATS_EVERY = 0.5


class Supervisor:
    """Runs `processes` copies of a command until stopped.

    A child that an operator has stopped (`holdfast workers stop`) is not started again; when none is left, the
    supervisor ends. With `reload`, a child that ends by itself is started again only when `reload()` is called: an
    error in the code persists until a file changes.
    """

    def __init__(self, command: Sequence[str], processes: int, *, reload: bool = False) -> None:
        self._command = command
        self._reload = reload
        self._stop_requests = 0
        self._children: dict[int, Process] = {}
        self._stirred = [asyncio.Event() for _ in range(processes)]
        self._reclaiming: set[asyncio.Task[None]] = set()
        self._states: dict[int, ChildState] = {}
        self._notifier = systemd.notifier()

    async def run(self) -> int:
        """Run until every child has ended; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        reporting = asyncio.create_task(self._report())
        code = max(await asyncio.gather(*(self._keep(place) for place in range(len(self._stirred)))))
        reporting.cancel()
        if self._reclaiming:
            await asyncio.wait(self._reclaiming, timeout=RECLAIM_AGAIN + PATIENCE)
        return code

    def stop(self) -> None:
        """Stop the children. At the first call they finish their jobs, at the second they release them, and at the
        third they are killed."""
        self._stop_requests += 1
        if self._notifier is not None:
            self._notifier.stopping()
        self._signal(signal.SIGKILL if self._stop_requests > KILL_AFTER_ASKED else signal.SIGTERM)

    def reload(self) -> None:
        """Restart every child once its running jobs have ended."""
        self._signal(signal.SIGTERM)

    async def _report(self) -> None:
        """Report to the service manager: ready once every child has been, and alive while this loop runs. It watches
        over the children itself."""
        while (notifier := self._notifier) is not None:
            if len(self._states) == len(self._stirred) and all(each.ready for each in self._states.values()):
                notifier.ready()
            notifier.alive(lambda: True)
            await asyncio.sleep(CHECK_INTERVAL)

    def _signal(self, number: int) -> None:
        for event in self._stirred:
            event.set()
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)

    async def _keep(self, place: int) -> int:
        """Keep one child running; return its share of the exit code."""
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            code, by_operator = await self._run_child(place)
            if by_operator and not self._reload:
                logs.event(log, logging.INFO, "process stopped by an operator", process=place + 1, code=code)
                return 0
            if self._stop_requests:
                return 0 if code in (0, -signal.SIGTERM) else 1
            if code == BROKEN and not self._reload:
                self.stop()
                return code
            if time.monotonic() - began > SOUND_AFTER:
                pause = FIRST_PAUSE
            if not self._stirred[place].is_set():
                await self._wait(place, code, None if self._reload else pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            if self._stop_requests:
                return 0
            self._stirred[place].clear()

    async def _run_child(self, place: int) -> tuple[int, bool]:
        """Run a child to its end. Return its exit code, and whether it ended because an operator stopped it."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            child = await asyncio.create_subprocess_exec(*self._command, stdin=theirs.fileno(), start_new_session=True)
            theirs.close()
            self._children[place] = child
            logs.event(log, logging.INFO, "process started", process=place + 1, pid=child.pid)
            if self._stop_requests:  # stop() was called during the start
                child.terminate()
            reader, writer = await asyncio.open_connection(sock=ours)
            state = self._states[place] = ChildState()
            reading = asyncio.create_task(_read_messages(reader, state))
            watching = asyncio.create_task(_end_if_silent(child, state))
            try:
                code = await child.wait()
                del self._children[place]
                await asyncio.wait({reading}, timeout=LAST_WORDS)
            finally:
                reading.cancel()
                watching.cancel()
                writer.close()
        if state.worker is not None:
            reclaiming = asyncio.create_task(_reclaim_jobs(state))
            self._reclaiming.add(reclaiming)
            reclaiming.add_done_callback(self._reclaiming.discard)
        return code, state.by_operator

    async def _wait(self, place: int, code: int, seconds: float | None) -> None:
        """Wait before a restart, until the time has passed or `stop()` or `reload()` is called."""
        again = "when a file changes" if seconds is None else f"in {seconds:g} s"
        logs.event(log, logging.WARNING, "process ended by itself", process=place + 1, code=code, again=again)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stirred[place].wait()


class ChildState:
    """A supervisor's state for a child: its worker id, how to reach its database, and how long it was silent."""

    def __init__(self) -> None:
        self.worker: str | None = None  # None: there is nothing to reclaim
        self.settings: dict[str, Any] = {}
        self.ready = False  # whether one of its claims has worked
        self.longest = 0.0  # seconds it may be silent; 0 means no limit
        self.silent = 0.0
        self.by_operator = False  # whether it stopped because an operator asked for it


async def _read_messages(reader: asyncio.StreamReader, state: ChildState) -> None:
    with contextlib.suppress(OSError, ValueError):
        while line := await reader.readline():
            state.silent = 0.0
            message = json.loads(line)
            state.ready = state.ready or bool(message.get("ready"))
            if "worker" in message:
                state.worker, state.settings = message["worker"], message["settings"]
            elif "longest" in message:
                state.longest = message["longest"]
            elif "holds" in message:
                state.longest = 0.0
                state.worker = state.worker if message["holds"] else None
                state.by_operator = message["by_operator"]


async def _end_if_silent(child: Process, state: ChildState) -> None:
    """End a child whose event loop does not beat. Short steps leave out time when the machine slept."""
    while not (state.longest and state.silent > state.longest + PATIENCE):
        await asyncio.sleep(CHECK_INTERVAL)
        state.silent += CHECK_INTERVAL
    logs.event(
        log,
        logging.ERROR,
        "process ended: its event loop is stuck",
        pid=child.pid,
        worker=state.worker,
        seconds=round(state.silent, 1),
    )
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGUSR2)  # it writes its stack to standard error
        child.terminate()
        await asyncio.sleep(PATIENCE)
        child.kill()


async def _reclaim_jobs(state: ChildState) -> None:
    """Reclaim the jobs of a child that has ended. If this fails, its leases expire."""
    for pause in (RECLAIM_AGAIN, 0.0):
        try:
            jobs = await asyncio.to_thread(_reclaim, state)
        except HoldfastError as error:
            logs.event(log, logging.WARNING, "jobs not reclaimed", worker=state.worker, error=str(error))
        else:
            if jobs:
                logs.event(log, logging.WARNING, "jobs reclaimed", worker=state.worker, jobs=jobs)
        await asyncio.sleep(pause)


def _reclaim(state: ChildState) -> int:
    from holdfast.store.calls import Calls  # imported late: a supervisor seldom needs the database
    from holdfast.store.wire.session import ThreadSession

    session = ThreadSession(Settings(**state.settings), "supervisor")
    try:
        return session.run(Calls(state.settings["schema"]).workers.reclaim(str(state.worker)))
    finally:
        session.close()


class HasClaimed(Protocol):
    """A worker's health, as far as its supervisor wants to know it."""

    @property
    def has_claimed(self) -> bool: ...


class Lifeline:
    """A child's end of the socket to its supervisor. Messages are lines of JSON; one that does not fit is dropped."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=os.dup(0))
        self._beat_at = 0.0

    def enter(self, worker: str, settings: Settings) -> None:
        """Send the worker id and how to reach its database; called before the worker is registered there."""
        from holdfast.store.wire.connect import server_dsn

        connection = {name: getattr(settings, name) for name in _NEEDED} | {"dsn": server_dsn(settings)}
        self._send({"worker": worker, "settings": connection})

    def watch(self, loop_timeout: float) -> None:
        """Announce beats, and how long a silence may last."""
        self._send({"longest": loop_timeout})

    def beat(self, health: HasClaimed) -> None:
        """Report that the event loop runs, and whether a claim has worked."""
        if (now := time.monotonic()) - self._beat_at >= _BEATS_EVERY:
            self._beat_at = now
            self._send({"ready": health.has_claimed})

    def leave(self, holds: bool, *, by_operator: bool) -> None:
        """Report that the worker has stopped, whether it still holds leases, and whether an operator stopped it."""
        self._send({"holds": holds, "by_operator": by_operator})

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps(message).encode() + b"\n", socket.MSG_DONTWAIT)


def stop_at_end_of_input() -> Lifeline | None:
    """Send SIGTERM to this process, a child, when its input ends, because the parent is gone. Return the connection
    to the supervisor, if the input is a socket."""
    threading.Thread(target=_wait_for_end, name="holdfast-parent", daemon=True).start()
    try:
        lifeline = Lifeline()
    except OSError:  # not a socket: started without a supervisor
        return None
    faulthandler.register(signal.SIGUSR2, all_threads=True)  # the signal may reach any thread
    return lifeline


def _wait_for_end() -> None:
    # Not sys.stdin: a daemon thread that holds its lock breaks the interpreter's shutdown.
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
