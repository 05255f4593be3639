"""RabbitMQ: an enqueue publishes a message, and every worker that receives it claims at once. Extra `rabbitmq`.

A message is only a hint: its loss costs latency, never a job. Each worker has its own queue, which holds one message,
so the broker coalesces floods and a worker makes a bounded number of claims. Messages are not persistent, because the
database has all that they contain.
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
PER_SECOND = 200  # most messages that a process sends, and most claims that they cause in a worker
BUFFER = 1000
UNCOMMITTED_DELAY = 0.05  # seconds that a caller's own transaction gets to commit
STALE = 5.0  # seconds after which a hint is useless: every worker has polled
LARGEST = 1000  # bytes
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
SOUND_AFTER = 5.0  # seconds after which a connection resets the backoff
PATIENCE = 5.0  # seconds for connecting, and for each message
HEARTBEAT = 10  # seconds; a broker silent for twice as long is gone
CLOSE_TIMEOUT = 0.5  # seconds that an exiting process waits for its last message
INSTALL = "amqp_enabled needs: pip install 'holdfast-jobs[rabbitmq]'"
Work = Callable[["AbstractChannel", "AbstractExchange"], Awaitable[None]]


class BrokerConnection:
    """One connection to the broker, reopened when it is lost."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._name = name
        self.connected = False
        self.failing = False  # whether an attempt has failed since the last connection

    async def run_on_connection(self, work: Work) -> None:
        """Run the work on a connection, and again on the next one after a loss, until the work returns."""
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                if await self._once(work):
                    return
                self._warn("connection closed")
            except Exception as error:  # the library raises many kinds, more so if the server is no broker
                if (this := asyncio.current_task()) is not None and this.cancelling():
                    raise asyncio.CancelledError from error  # the library replaced the cancellation
                self._warn(_describe(error))
            finally:
                self.connected = False
            if time.monotonic() - began > SOUND_AFTER:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _once(self, work: Work) -> bool:
        """Run the work on one connection; return whether it was completed."""
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

        if (library_log := logging.getLogger("aiormq.connection")).level == logging.NOTSET:
            library_log.setLevel(logging.CRITICAL)  # it logs every attempt as an error; we log an outage once
        connections: list[AbstractConnection] = []

        def make(*args: Any, **kwargs: Any) -> AbstractConnection:
            connections.append(aio_pika.Connection(*args, **kwargs))
            return connections[0]

        kind: Any = make  # the library expects a class, and calls it
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
        finally:  # even if it never connected: the garbage collector would close it in any thread
            for each in connections:
                with contextlib.suppress(Exception):  # it may be broken in many ways
                    async with asyncio.timeout(1):
                        await each.close()

    async def attempt(self) -> None:
        """Connect once and close again, within PATIENCE seconds; raise the error if it fails."""
        async with asyncio.timeout(PATIENCE), self._opened(asyncio.Event()):
            pass

    def mark_connected(self) -> None:
        """Mark the connection as open."""
        self.connected, self.failing = True, False
        logs.event(
            log,
            logging.INFO,
            "message queue connected",
            link=self._name,
            rabbitmq=address(self._settings),
            exchange=self._settings.amqp_exchange,
            routing_key=self._settings.amqp_routing_key,
        )

    def _warn(self, why: str) -> None:
        """Log a warning once per outage."""
        level = logging.DEBUG if self.failing else logging.WARNING
        logs.event(
            log,
            level,
            "message queue unavailable; polling continues",
            link=self._name,
            rabbitmq=address(self._settings),
            error=why,
        )
        self.failing = True


class Consumer:
    """Receives a worker's messages and calls `on_hint` for each hint."""

    def __init__(self, settings: Settings, worker: str, on_hint: Callable[[], None]) -> None:
        if not installed():
            raise ConfigurationError(INSTALL)
        self._settings = settings
        self._on_hint = on_hint
        self._connection = BrokerConnection(settings, worker)

    @property
    def connected(self) -> bool:
        """Return whether messages would reach this worker."""
        return self._connection.connected

    async def run(self) -> None:
        """Listen until canceled."""
        await self._connection.run_on_connection(self._listen)

    async def _listen(self, channel: AbstractChannel, exchange: AbstractExchange) -> None:
        messages: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        await channel.set_qos(prefetch_count=1)
        queue = await channel.declare_queue(exclusive=True, auto_delete=True, arguments={"x-max-length": 1})
        await queue.bind(exchange, self._settings.amqp_routing_key)
        await queue.consume(messages.put)
        self._connection.mark_connected()
        self._on_hint()  # earlier messages were missed
        while True:
            message = await messages.get()
            if is_hint(message.body):
                self._on_hint()
            await asyncio.sleep(1 / PER_SECOND)  # until the ack, the broker keeps only the latest message
            await message.ack()


class Publisher:
    """Publishes an application's hints from a separate thread: no caller waits for the broker or gets its errors."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._starting = threading.Lock()
        self.thread: PublisherThread | None = None

    def publish(self, job_id: str, *, committed: bool = True) -> None:
        """Publish a hint for a job; if the job is not committed yet, UNCOMMITTED_DELAY seconds from now."""
        self._running_thread().put(job_id, 0 if committed else UNCOMMITTED_DELAY)

    async def wait_connected(self, patience: float) -> bool:
        """Return whether the broker is connected; wait for the first attempt only. This uses the connection for
        messages, which stays open, so frequent calls are cheap."""
        broker = self._running_thread().connection
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not (broker.connected or broker.failing) and installed():  # noqa: ASYNC110 - another thread sets them
                    await asyncio.sleep(0.01)
        return broker.connected

    def _running_thread(self) -> PublisherThread:
        if self._pid != os.getpid():  # a fork has no threads, and the lock may be held forever
            self._reset()
        return self.thread or self._start()

    def close(self) -> None:
        """End the thread; wait half a second for its last message."""
        if self._pid == os.getpid() and (thread := self.thread) is not None:
            self.thread = None
            thread.close()

    def _start(self) -> PublisherThread:
        with self._starting:
            if self.thread is None:
                self.thread = PublisherThread(self._settings)
                if installed():
                    self.thread.start()
                else:
                    logs.event(log, logging.WARNING, INSTALL)
                atexit.register(_close_quietly, weakref.ref(self))
            return self.thread


class PublisherThread(threading.Thread):
    """The thread that sends a publisher's messages until closed."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="holdfast-rabbitmq", daemon=True)
        self._settings = settings
        self.connection = BrokerConnection(settings, "holdfast publisher")
        self.queued: deque[tuple[float, str]] = deque(maxlen=BUFFER)
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False

    def put(self, job_id: str, delay: float) -> None:
        """Queue a message; safe to call from any thread."""
        self.queued.append((time.monotonic() + delay, job_id))
        self._wake_loop()

    def close(self) -> None:
        """End the thread once everything is sent, or after CLOSE_TIMEOUT seconds."""
        self._closing = True
        self._wake_loop()
        if self.is_alive():
            self.join(CLOSE_TIMEOUT)

    def run(self) -> None:
        asyncio.run(self._main())

    def _wake_loop(self) -> None:
        if (loop := self._loop) is not None:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                loop.call_soon_threadsafe(self._wake.set)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        keeping = asyncio.ensure_future(self.connection.run_on_connection(self._send_all))
        while not keeping.done():
            await asyncio.wait({keeping}, timeout=0.1)
            if self._closing and self.connection.failing:  # the broker is unavailable
                keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping

    async def _send_all(self, _: AbstractChannel, exchange: AbstractExchange) -> None:
        """Send until closed. Hints that are due together become one message, which wakes every worker anyway."""
        self.connection.mark_connected()
        waiting: list[tuple[float, str]] = []
        while True:
            self._wake.clear()
            while self.queued:
                waiting.append(self.queued.popleft())
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
    """The body of a message."""

    job_id: str


def is_hint(body: bytes) -> bool:
    """Return whether a message is a valid hint. Its content is not used further."""
    try:
        parse_id(msgspec.json.decode(body, type=Hint).job_id) if len(body) <= LARGEST else parse_id("")
    except (msgspec.DecodeError, UsageError, RecursionError):
        logs.event(log, logging.DEBUG, "message ignored", bytes=len(body))
        return False
    return True


def why_not(settings: Settings) -> str | None:
    """Return why messages would not reach workers; None if they would."""
    if not installed():
        return INSTALL
    try:
        asyncio.run(BrokerConnection(settings, "holdfast doctor").attempt())
    except Exception as error:  # as in BrokerConnection.run_on_connection
        return _describe(error)
    return None


def address(settings: Settings) -> str:
    """Return the broker's host and port, without user and password; "?" if the URL is ambiguous."""
    try:
        url = urlsplit(settings.amqp_url)
        usual = 5671 if url.scheme == "amqps" else 5672
        text = f"{url.hostname}:{url.port or usual}"
    except ValueError:
        return "?"
    return "?" if "@" in url.path + url.query + url.fragment else text  # a password with a slash, for example


def installed() -> bool:
    """Return whether the extra `rabbitmq` is installed."""
    return importlib.util.find_spec("aio_pika") is not None


def _describe(error: Exception) -> str:
    """Return an error without the library's text, which may contain the URL and its password."""
    return f"{type(error).__name__}: {error}" if isinstance(error, OSError) else type(error).__name__


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _close_quietly(publisher: weakref.ref[Publisher]) -> None:
    if (alive := publisher()) is not None:
        alive.close()
