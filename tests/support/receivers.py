"""Receivers of webhooks with scripted behavior, on loopback addresses that stand for public and inner ones.

Nothing but loopback is dialed in tests: 127.0.0.2 stands for a public address, 127.0.0.1 for one inside.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdfast.effects.address import Address, refusal

PUBLIC, INSIDE = "127.0.0.2", "127.0.0.1"
NAME = "hooks.example"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nfine"


def rule(address: Address, dev: bool) -> str | None:
    """Apply the real rule, except that 127.0.0.2 is public; inner addresses stay refused in development too."""
    return None if str(address) == PUBLIC else refusal(address)


@dataclass
class Receiver:
    host: str
    port: int = 0
    scheme: str = "http"
    connections: int = 0
    requests: list[tuple[str, bytes]] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)  # those of SNI
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return self.at(self.host)

    def at(self, host: str) -> str:
        return f"{self.scheme}://{host}:{self.port}/hook"


Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Receiver], Awaitable[None]]


async def request(reader: asyncio.StreamReader, receiver: Receiver) -> None:
    """Read one request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:"))
    receiver.requests.append((head, await reader.readexactly(length)))


def respond_with(*responses: bytes) -> Behaviour:
    """Send these responses in turn on each connection; the last one repeats."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, receiver: Receiver) -> None:
        turn = 0
        while True:
            await request(reader, receiver)
            response = responses[min(turn, len(responses) - 1)]
            turn += 1
            if not response:
                return
            writer.write(response)
            await writer.drain()

    return behave


def repeating(head: bytes, piece: bytes, pause: float = 0.0) -> Behaviour:
    """Send the head after one request, then the piece forever."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, receiver: Receiver) -> None:
        await request(reader, receiver)
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await reader.read()  # ends when the other side has closed
                    return

    return behave


@asynccontextmanager
async def receiving(
    behave: Behaviour, host: str = PUBLIC, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    """Run a receiver that listens until the block ends."""
    receiver = Receiver(host, scheme="http" if tls is None else "https")
    running: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        receiver.connections += 1
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await behave(reader, writer, receiver)
        finally:
            receiver.closed.set()
            running.discard(task)
            writer.transport.abort()

    if tls is not None:
        tls.sni_callback = lambda sock, name, context: receiver.names.append(name)
    server = await asyncio.start_server(connected, host, 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def certificate(folder: Path, *names: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return TLS contexts for a receiver of these names, and for a sender that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver")])
    now = datetime.datetime.now(datetime.UTC)
    alternatives = [x509.IPAddress(ipaddress.ip_address(n)) if n[0].isdigit() else x509.DNSName(n) for n in names]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = made.public_bytes(serialization.Encoding.PEM)
    (folder / "receiver.pem").write_bytes(secret + public)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "receiver.pem")
    return server, ssl.create_default_context(cadata=public.decode())
