"""A receiver in a process of its own, which no fault reaches: it records what arrives before it responds.

It acts as two kinds of receivers at once. One without idempotency keys acts on every arrival; one that honors
them acts on the first of each key (`acted`). Now and then it is busy, takes nothing and responds so.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Arrival:
    """One message that the receiver took."""

    key: str
    n: int
    channel: str
    order: str | None
    number: int
    attempt: int
    maybe_sent: bool
    pid: int = 0
    acted: bool = True
    at: float = 0.0


class Receiver:
    """The test's side: its address and its record."""

    def __init__(self, port: int, journal: Path) -> None:
        self.port = port
        self._journal = journal

    def lines(self, word: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self._journal.read_text().splitlines())
        return [entry for what, entry in lines if what == word]

    @property
    def arrivals(self) -> list[Arrival]:
        """Return the messages in the order in which they arrived."""
        return [Arrival(**entry) for entry in self.lines("took")]


@contextmanager
def receiver(folder: Path, seed: int = 0) -> Iterator[Receiver]:
    """Run a receiver for the length of a block."""
    journal = folder / "journal"
    journal.touch()
    command = [sys.executable, __file__, str(journal), str(seed)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        try:
            yield Receiver(int(process.stdout.readline()), journal)
        finally:
            process.stdin.close()  # it ends with its starter, however that ends
            process.wait(10)


class _Server:
    def __init__(self, journal: str, seed: int) -> None:
        self._file = os.open(journal, os.O_WRONLY | os.O_APPEND)
        self._rng = random.Random(seed)
        self._keys: set[str] = set()

    def _write(self, word: str, message: dict[str, Any]) -> None:
        os.write(self._file, json.dumps([word, message]).encode() + b"\n")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request, send one response. The sender may be killed at any moment; only a whole line counts."""
        try:
            line = await reader.readline()
            if line.endswith(b"\n"):
                writer.write((await self._respond(json.loads(line)) + "\n").encode())
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    async def _respond(self, message: dict[str, Any]) -> str:
        if message.pop("lookup", False):
            known = message["key"] in self._keys
            self._write("lookup", message | {"known": known})
            return "known" if known else "new"
        if self._rng.random() < 0.03:
            self._write("busy", message)
            return "busy"
        self._write("took", message | {"acted": message["key"] not in self._keys, "at": time.time()})
        self._keys.add(message["key"])
        await asyncio.sleep(self._rng.uniform(0, 0.03))  # long enough for the sender to be killed without a response
        return "took"


async def _main(journal: str, seed: int) -> None:
    server = await asyncio.start_server(_Server(journal, seed).serve, "127.0.0.1", 0, backlog=500)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
