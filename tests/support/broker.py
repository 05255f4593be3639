"""The real RabbitMQ on this machine, a relay in front of it that tests can cut, and a node that tests can kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import aio_pika
import pytest

from tests.support.running import pump, until

URL = os.environ.get("HOLDFAST_TEST_AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")


def real_broker() -> str:
    """Return its URL; skip with a warning where none is reachable."""
    where = urlsplit(URL)
    try:
        socket.create_connection((where.hostname or "", where.port or 5672), 2).close()
    except OSError as error:
        pytest.skip(
            f"NO RABBITMQ IS REACHABLE on {where.hostname}:{where.port}, so wake-ups through it are NOT TESTED: {error}"
        )
    return URL


class Relay:
    """A port that leads to the broker while it is up."""

    def __init__(self) -> None:
        self.port = _free_port()
        self.url = urlsplit(URL)._replace(netloc=f"guest:guest@127.0.0.1:{self.port}").geturl()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.connections = 0

    async def up(self) -> None:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)

    async def down(self) -> None:
        """Act like a killed broker: connections end at once, and new ones are refused."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._open):
                writer.transport.abort()
            self._server = None

    @property
    def open(self) -> int:
        """Return the number of open connections."""
        return len(self._open) // 2

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        where = urlsplit(URL)
        self.connections += 1
        there, back = await asyncio.open_connection(where.hostname, where.port)
        self._open |= {writer, back}
        await asyncio.gather(pump(reader, back), pump(there, writer))
        self._open -= {writer, back}


@contextlib.asynccontextmanager
async def channel(exchange: str) -> AsyncIterator[aio_pika.abc.AbstractExchange]:
    """Declare the exchange as another program would, and delete it at the end."""
    async with await aio_pika.connect(URL) as connection:
        opened = await connection.channel(publisher_confirms=False)
        declared = await opened.declare_exchange(exchange, "topic", durable=True)
        try:
            yield declared
        finally:
            await declared.delete()


class Node:
    """A RabbitMQ of the test's own, which may be killed: it has its own files, ports and epmd."""

    def __init__(self, folder: Path) -> None:
        self._programs = _programs()
        self._folder = folder
        self._epmd, self._distribution, self.port = (_free_port() for _ in range(3))
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/"
        self._running: list[subprocess.Popen[bytes]] = []

    async def up(self) -> None:
        server, epmd = self._programs
        self._start([epmd, "-port", str(self._epmd), "-address", "127.0.0.1"])
        self._start([server])
        await until(self._is_up, 120)

    async def down(self) -> None:
        """Kill it, as the kernel does when memory runs out; whatever it held is lost."""
        while self._running:
            process = self._running.pop()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, command: list[str]) -> None:
        with (self._folder / "log").open("ab") as log:
            self._running.append(
                subprocess.Popen(command, env=self._environment(), stdout=log, stderr=log, start_new_session=True)
            )

    def _environment(self) -> dict[str, str]:
        here = str(self._folder)
        return os.environ | {
            "HOME": here,
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"holdfast{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_MNESIA_BASE": f"{here}/data",
            "RABBITMQ_LOG_BASE": here,
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": f"{here}/none",
            "RABBITMQ_CONF_ENV_FILE": f"{here}/none",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{here}/none",
            "RABBITMQ_PID_FILE": f"{here}/pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false",
        }

    async def _is_up(self) -> bool:
        assert all(each.poll() is None for each in self._running), (self._folder / "log").read_text()[-2000:]
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(b"AMQP\x00\x00\x09\x01")
            greeting = await reader.read(1)
            writer.close()
            return greeting != b""
        return False


def _programs() -> tuple[str, str]:
    """Return the server's script and epmd. Debian's command requires root, the script behind it does not."""
    behind = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    server = str(behind) if behind.exists() else shutil.which("rabbitmq-server")
    epmd = shutil.which("epmd")
    if server is None or epmd is None:
        pytest.skip("NO RABBITMQ IS INSTALLED (rabbitmq-server and epmd), so the killing of a real one is NOT TESTED")
    return server, epmd


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
