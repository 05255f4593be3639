"""RabbitMQ: whoever enqueues says so, and every worker that hears it looks at once. Extra `rabbitmq`.

A message is a hint and nothing else: its loss costs latency, never a job. Each worker has a queue of its own that holds
one message, so a flood is thinned out by the broker and costs a worker a bounded number of looks. No message is kept:
there is nothing in it that the database does not know better.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib.util
import logging
import os
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import ConfigurationError, UsageError
from holdfast.model.job import parse_id
from holdfast.settings import Settings
from holdfast.telemetry import logs

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange, AbstractIncomingMessage

log = logs.get("rabbitmq")
PER_SECOND = 200  # most messages that a process sends, and most looks that they cause in a worker
BUFFER = 1000
LATER = 0.05  # seconds by which a caller's own transaction is given time to commit
STALE = 5.0  # seconds after which a hint is worth nothing: everybody has polled
LARGEST = 1000  # bytes
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
SOUND_AFTER = 5.0  # a connection that lasted so long was sound, and the pauses start anew
PATIENCE = 5.0  # seconds for connecting, and for each message
HEARTBEAT = 10  # seconds; a broker silent for twice as long is gone
FAREWELL = 0.5  # seconds that a process which ends gives its last message
INSTALL = "queue_enabled needs: pip install 'holdfast[rabbitmq]'"
Work = Callable[["AbstractChannel", "AbstractExchange"], Awaitable[None]]


class Link:
    """One connection to the broker, opened again for as long as it is wanted."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._name = name
        self.connected = False
        self.failing = False  # since the last time that it worked

    async def keep(self, work: Work) -> None:
        """Does the work on a connection, and again on the next one when it is lost; ends when the work does."""
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                if await self._once(work):
                    return
                self._warn("connection closed")
            except Exception as error:  # whatever a broker, or what is no broker, may lead the library to raise
                if (this := asyncio.current_task()) is not None and this.cancelling():
                    raise asyncio.CancelledError from error  # the library made an error of it
                self._warn(_told(error))
            finally:
                self.connected = False
            if time.monotonic() - began > SOUND_AFTER:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _once(self, work: Work) -> bool:
        """One connection's life; answers whether the work came to its end."""
        lost = asyncio.Event()
        async with self._opened(lost) as (channel, exchange):
            parts = {asyncio.ensure_future(work(channel, exchange)), asyncio.ensure_future(lost.wait())}
            try:
                done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
                return not lost.is_set()
            finally:
                for each in parts:
                    each.cancel()
                await asyncio.wait(parts)

    @contextlib.asynccontextmanager
    async def _opened(self, lost: asyncio.Event) -> AsyncIterator[tuple[AbstractChannel, AbstractExchange]]:
        import aio_pika

        def closed(*_: Any) -> None:
            lost.set()

        if (theirs := logging.getLogger("aiormq.connection")).level == logging.NOTSET:
            theirs.setLevel(logging.CRITICAL)  # it calls every try an error; we tell of an outage once
        made: list[AbstractConnection] = []

        def make(*args: Any, **kwargs: Any) -> AbstractConnection:
            made.append(aio_pika.Connection(*args, **kwargs))
            return made[0]

        kind: Any = make  # the library wants a class, and calls it
        try:
            connection = await aio_pika.connect(
                self._settings.amqp_url, timeout=PATIENCE, name=self._name, heartbeat=HEARTBEAT, connection_class=kind
            )
            async with asyncio.timeout(PATIENCE):
                connection.close_callbacks.add(closed)
                channel = await connection.channel(publisher_confirms=False)
                channel.close_callbacks.add(closed)
                (await channel.get_underlay_channel()).on_consumer_cancel_callbacks.add(closed)
                exchange = await channel.declare_exchange(self._settings.amqp_exchange, "topic", durable=True)
            yield channel, exchange
        finally:  # one that never connected too: else it would close itself when it is collected, wherever that is
            for each in made:
                with contextlib.suppress(Exception):  # it may be gone in any of a dozen ways
                    async with asyncio.timeout(1):
                        await each.close()

    async def attempt(self) -> None:
        """Connects once as for work, for so long and no longer, and closes again; raises what goes wrong."""
        async with asyncio.timeout(PATIENCE), self._opened(asyncio.Event()):
            pass

    def up(self) -> None:
        """The work has begun."""
        self.connected, self.failing = True, False
        logs.event(log, logging.INFO, "message queue connected", link=self._name, rabbitmq=address(self._settings),
                   exchange=self._settings.amqp_exchange, routing_key=self._settings.amqp_routing_key)  # fmt: skip

    def _warn(self, why: str) -> None:
        """Once for each outage."""
        level = logging.DEBUG if self.failing else logging.WARNING
        logs.event(log, level, "message queue unavailable; polling goes on", link=self._name,
                   rabbitmq=address(self._settings), error=why)  # fmt: skip
        self.failing = True


class Consumer:
    """A worker's ear: calls `stir` when somebody says that there is work."""

    def __init__(self, settings: Settings, worker: str, stir: Callable[[], None]) -> None:
        if not installed():
            raise ConfigurationError(INSTALL)
        self._settings = settings
        self._stir = stir
        self._link = Link(settings, worker)

    @property
    def connected(self) -> bool:
        """Whether messages would reach this worker."""
        return self._link.connected

    async def run(self) -> None:
        """Listens for ever."""
        await self._link.keep(self._listen)

    async def _listen(self, channel: AbstractChannel, exchange: AbstractExchange) -> None:
        heard: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        await channel.set_qos(prefetch_count=1)
        queue = await channel.declare_queue(exclusive=True, auto_delete=True, arguments={"x-max-length": 1})
        await queue.bind(exchange, self._settings.amqp_routing_key)
        await queue.consume(heard.put)
        self._link.up()
        self._stir()  # nobody listened until now
        while True:
            message = await heard.get()
            if is_hint(message.body):
                self._stir()
            await asyncio.sleep(1 / PER_SECOND)  # unacknowledged: meanwhile the broker keeps the latest and no more
            await message.ack()


class Publisher:
    """An application's voice, in a thread of its own: no caller ever waits for a broker or hears of its errors."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._starting = threading.Lock()
        self._voice: Voice | None = None

    def publish(self, job_id: str, *, committed: bool = True) -> None:
        """Tells the workers of a job, soon. One that is not committed yet is told of a moment later."""
        self._speaking().say(job_id, 0 if committed else LATER)

    async def reached(self, patience: float) -> bool:
        """Whether the broker is connected to; waits for the first try, not for those after a failed one. The connection
        is that of its messages, kept open: asking often costs nothing."""
        link = self._speaking().link
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not (link.connected or link.failing) and installed():  # noqa: ASYNC110 - of another thread
                    await asyncio.sleep(0.01)
        return link.connected

    def _speaking(self) -> Voice:
        if self._pid != os.getpid():  # a fork has no threads, and whoever held the lock is not here
            self._forget()
        return self._voice or self._start()

    def close(self) -> None:
        """Ends the thread; its last message has half a second."""
        if self._pid == os.getpid() and (voice := self._voice) is not None:
            self._voice = None
            voice.close()

    def _start(self) -> Voice:
        with self._starting:
            if self._voice is None:
                self._voice = Voice(self._settings)
                if installed():
                    self._voice.start()
                else:
                    logs.event(log, logging.WARNING, INSTALL)
                atexit.register(_close_quietly, weakref.ref(self))
            return self._voice


class Voice(threading.Thread):
    """Sends what it is told to, until closed."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="holdfast-rabbitmq", daemon=True)
        self._settings = settings
        self.link = Link(settings, "holdfast publisher")
        self._told: deque[tuple[float, str]] = deque(maxlen=BUFFER)
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False

    def say(self, job_id: str, delay: float) -> None:
        """Takes a message; from any thread."""
        self._told.append((time.monotonic() + delay, job_id))
        self._stir()

    def close(self) -> None:
        """Ends the thread once everything is sent, or soon."""
        self._closing = True
        self._stir()
        if self.is_alive():
            self.join(FAREWELL)

    def run(self) -> None:
        asyncio.run(self._main())

    def _stir(self) -> None:
        if (loop := self._loop) is not None:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                loop.call_soon_threadsafe(self._wake.set)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        keeping = asyncio.ensure_future(self.link.keep(self._send_all))
        while not keeping.done():
            await asyncio.wait({keeping}, timeout=0.1)
            if self._closing and self.link.failing:  # nobody is there to be told
                keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping

    async def _send_all(self, _: AbstractChannel, exchange: AbstractExchange) -> None:
        """Sends until closed. What has come due together goes as one message: it wakes everybody anyway."""
        self.link.up()
        waiting: list[tuple[float, str]] = []
        while True:
            self._wake.clear()
            while self._told:
                waiting.append(self._told.popleft())
            now = time.monotonic()
            due = [each for each in waiting if each[0] <= now]
            waiting = [each for each in waiting if each[0] > now][-BUFFER:]
            if due and due[-1][0] > now - STALE:
                await self._send(exchange, due[-1][1])
                await asyncio.sleep(1 / PER_SECOND)
            elif self._closing and not waiting:
                return
            else:
                await _wait(self._wake, min(waiting)[0] - now if waiting else None)

    async def _send(self, exchange: AbstractExchange, job_id: str) -> None:
        import aio_pika

        body = msgspec.json.encode({"job_id": job_id})
        message = aio_pika.Message(body, content_type="application/json", expiration=STALE)
        async with asyncio.timeout(PATIENCE):  # a broker short of memory stops reading
            await exchange.publish(message, self._settings.amqp_routing_key, mandatory=False)


class Hint(msgspec.Struct):
    """What a message says."""

    job_id: str


def is_hint(body: bytes) -> bool:
    """Whether a message is one of ours, or looks like it. What it says is not used: the database knows better."""
    try:
        parse_id(msgspec.json.decode(body, type=Hint).job_id) if len(body) <= LARGEST else parse_id("")
    except (msgspec.DecodeError, UsageError, RecursionError):
        logs.event(log, logging.DEBUG, "message ignored", bytes=len(body))
        return False
    return True


def why_not(settings: Settings) -> str | None:
    """Why workers would not hear of jobs through the broker; None where they would."""
    if not installed():
        return INSTALL
    try:
        asyncio.run(Link(settings, "holdfast doctor").attempt())
    except Exception as error:  # as in Link.keep
        return _told(error)
    return None


def address(settings: Settings) -> str:
    """Where the broker is, without user and password; "?" where the URL may be read in two ways."""
    try:
        url = urlsplit(settings.amqp_url)
        usual = 5671 if url.scheme == "amqps" else 5672
        told = f"{url.hostname}:{url.port or usual}"
    except ValueError:
        return "?"
    return "?" if "@" in url.path + url.query + url.fragment else told  # a password with a slash, say


def installed() -> bool:
    """Whether the extra is."""
    return importlib.util.find_spec("aio_pika") is not None


def _told(error: Exception) -> str:
    """An error without the library's own words: they may hold the URL, and with it a password."""
    return f"{type(error).__name__}: {error}" if isinstance(error, OSError) else type(error).__name__


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _close_quietly(publisher: weakref.ref[Publisher]) -> None:
    if (alive := publisher()) is not None:
        alive.close()
