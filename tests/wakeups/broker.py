"""The real RabbitMQ on this machine, and a relay in front of it that tests take away and bring back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aio_pika
import pytest
from running import pump

URL = os.environ.get("HOLDFAST_TEST_AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")


def real_broker() -> str:
    """Its URL; skips, loudly, where none answers."""
    where = urlsplit(URL)
    try:
        socket.create_connection((where.hostname or "", where.port or 5672), 2).close()
    except OSError as error:
        pytest.skip(
            f"NO RABBITMQ ANSWERS on {where.hostname}:{where.port}, so wake-ups through it are NOT TESTED: {error}"
        )
    return URL


class Relay:
    """A port that leads to the broker while it is up."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = urlsplit(URL)._replace(netloc=f"guest:guest@127.0.0.1:{self.port}").geturl()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.connections = 0

    async def up(self) -> None:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)

    async def down(self) -> None:
        """Like a broker that is killed: connections end at once, and new ones are refused."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._open):
                writer.transport.abort()
            self._server = None

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        where = urlsplit(URL)
        self.connections += 1
        there, back = await asyncio.open_connection(where.hostname, where.port)
        self._open |= {writer, back}
        await asyncio.gather(pump(reader, back), pump(there, writer))
        self._open -= {writer, back}


@contextlib.asynccontextmanager
async def channel(exchange: str) -> AsyncIterator[aio_pika.abc.AbstractExchange]:
    """The exchange, as another program of the broker's has it; gone at the end."""
    async with await aio_pika.connect(URL) as connection:
        opened = await connection.channel()
        declared = await opened.declare_exchange(exchange, "topic", durable=True)
        try:
            yield declared
        finally:
            await declared.delete()
