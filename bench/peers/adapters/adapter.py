"""What an adapter is: a script that drives one peer through its public interface, in the peer's own environment.

It needs nothing but the standard library, and psycopg where the peer keeps its jobs in PostgreSQL. Sub-commands:

    facts            versions and settings, as JSON
    setup, reset     make the peer's schema; delete all jobs
    one N            enqueue N jobs by one durable call each: seconds, p50 and p99
    bulk N           enqueue N jobs by the fastest call that there is for many: seconds
    tenants N K      the same, over K tenants, each with a limit of its own
    pace N GAP       enqueue N jobs, one every GAP milliseconds: when each call began and returned
    work             run one worker process until SIGTERM: prints READY, then waits for the starting signal
    wait             print DONE and the time when nothing is left to do in the store
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

POSTGRES = os.environ.get("PEERS_POSTGRES", "postgresql://postgres@127.0.0.1:5432")
REDIS = os.environ.get("PEERS_REDIS", "redis://127.0.0.1:6379")
LIMITED = os.environ.get("PEERS_LIMITED") == "1"  # the worker of jobs with a limit for each tenant
TENANTS = 100
RUNNING = 10  # jobs of one tenant at once, where the peer lets us choose
WARM_UP = 20
PADDING = "x" * 80  # a payload of about 0.1 KB


def payload(number: int) -> dict[str, Any]:
    """Return the arguments of a job."""
    return {"seq": number, "pad": PADDING}


def database(name: str) -> str:
    """Return the DSN of a peer's own database."""
    return f"{POSTGRES}/{name}"


def versions_of(*packages: str) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


_seen = os.environ.get("PEERS_SEEN")
_file = os.open(_seen, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if _seen else None


def handled(number: int) -> None:
    """Note that a handler has begun. Every no-op handler calls it; it costs nothing unless latency is measured."""
    if _file is not None:
        os.write(_file, b"%d %d\n" % (number, time.time_ns()))


def ready() -> None:
    """Say that a worker is about to claim, and wait for the starting signal, so that two start together."""
    os.write(1, b"READY\n")  # not print: some workers redirect sys.stdout
    os.read(0, 1)


class Adapter:
    """One peer. `open`, `enqueue`, `close`, `bulk` and `setup` may be coroutines."""

    settings = ""
    packages: tuple[str, ...] = ()

    def setup(self) -> Any: ...
    def reset(self) -> Any: ...
    def open(self) -> Any: ...
    def close(self) -> Any: ...

    def enqueue(self, job: dict[str, Any]) -> Any:
        raise NotImplementedError

    def bulk(self, number: int) -> Any:
        """Enqueue jobs; return the seconds without those for connecting."""
        raise NotImplementedError

    def bulk_tenants(self, number: int, tenants: int) -> Any:
        raise NotImplementedError

    def work(self) -> Any:
        raise NotImplementedError

    def pending(self) -> int:
        """Return how many jobs have not ended."""
        raise NotImplementedError


class PostgresAdapter(Adapter):
    """A peer whose jobs are in PostgreSQL, in a database of its own."""

    database = ""
    pending_sql = ""
    reset_sql = ""
    _watching: Any = None

    def reset(self) -> None:
        self.execute(self.database, self.reset_sql)

    def execute(self, name: str, sql: str) -> None:
        import psycopg

        with psycopg.connect(database(name), autocommit=True) as conn:
            conn.execute(sql)

    def pending(self) -> int:
        import psycopg

        if self._watching is None:
            self._watching = psycopg.connect(database(self.database), autocommit=True)
        return int(self._watching.execute(self.pending_sql).fetchone()[0])


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _one(peer: Adapter, number: int) -> dict[str, Any]:
    await _awaited(peer.open())
    try:
        for n in range(WARM_UP):
            await _awaited(peer.enqueue(payload(n)))
        took = []
        start = time.perf_counter()
        for n in range(number):
            before = time.perf_counter()
            await _awaited(peer.enqueue(payload(n)))
            took.append(time.perf_counter() - before)
        seconds = time.perf_counter() - start
    finally:
        await _awaited(peer.close())
    took.sort()
    return {"seconds": seconds, "p50_ms": took[number // 2] * 1e3, "p99_ms": took[number * 99 // 100] * 1e3}


async def _pace(peer: Adapter, number: int, gap: float) -> dict[str, Any]:
    await _awaited(peer.open())
    calls = {}
    try:
        start = time.perf_counter() + 0.2
        for n in range(number):
            await asyncio.sleep(max(0.0, start + n * gap / 1e3 - time.perf_counter()))
            before = time.time_ns()
            await _awaited(peer.enqueue(payload(n)))
            calls[n] = (before, time.time_ns())
    finally:
        await _awaited(peer.close())
    return {"calls": calls}


def _wait(peer: Adapter) -> None:
    """Poll rarely while the end is far and often near it, so that the polls load the store little."""
    peer.pending()
    print("WATCHING", flush=True)
    first, start = 0, time.monotonic()
    while left := peer.pending():
        if left >= first:
            first, start = left, time.monotonic()
            time.sleep(0.05)
        else:
            time.sleep(min(0.5, max(0.005, left * (time.monotonic() - start) / (first - left) / 4)))
    print("DONE", time.time_ns(), flush=True)


def main(peer: Adapter) -> None:
    """Run a sub-command."""
    command, numbers = sys.argv[1], [float(each) for each in sys.argv[2:]]
    if command == "facts":
        result: Any = {"versions": versions_of(*peer.packages), "settings": peer.settings}
    elif command in ("setup", "reset", "work"):
        asyncio.run(_awaited(made)) if inspect.isawaitable(made := getattr(peer, command)()) else None
        result = {}
    elif command == "one":
        result = asyncio.run(_one(peer, int(numbers[0])))
    elif command == "pace":
        result = asyncio.run(_pace(peer, int(numbers[0]), numbers[1]))
    elif command in ("bulk", "tenants"):
        call = peer.bulk if command == "bulk" else peer.bulk_tenants
        made = call(*map(int, numbers))
        result = {"seconds": asyncio.run(_awaited(made)) if inspect.isawaitable(made) else made}
    elif command == "wait":
        _wait(peer)
        return
    else:
        sys.exit(f"unknown sub-command {command}")
    print(json.dumps(result), flush=True)
