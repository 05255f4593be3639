"""The workloads: each starts a peer's adapter as a process of its own, and returns what it measured."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench.peers.install import BUILD, HERE, environment, program
from bench.peers.peers import Peer

LONGEST = 90.0  # seconds of a drain; what is left then counts as not done
SETTLED = 0.3  # seconds between READY and the start
Figures = dict[str, float]


class Servers:
    """The PostgreSQL and the Redis that all peers share."""

    def __init__(self, postgres: str, redis: str) -> None:
        self.postgres = postgres
        self.redis = redis

    def sql(self, database: str, *statements: str) -> str:
        """Run statements; return the first value of the last one."""
        row: Any = None
        with psycopg.connect(f"{self.postgres}/{database}", autocommit=True) as conn:
            for each in statements:
                cursor = conn.execute(each.encode())
                row = cursor.fetchone() if cursor.description else None
        return str(row[0]) if row else ""


class Process:
    """A worker or a watcher, whose lines are awaited."""

    def __init__(self, peer: Peer, env: dict[str, str], command: str) -> None:
        self._lines: list[list[str]] = []
        self._changed = threading.Condition()
        self._log = (BUILD / "log.txt").open("ab")
        self._process = subprocess.Popen(
            argv(peer, command),
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=BUILD,
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(line.decode(errors="replace").split())
                self._changed.notify_all()
        with self._changed:
            self._lines.append(["ENDED"])
            self._changed.notify_all()

    def wait(self, word: str, seconds: float) -> list[str] | None:
        """Return the line that begins with a word, or None."""

        def found() -> list[str] | None:
            return next((line for line in self._lines if line and line[0] in (word, "ENDED")), None)

        with self._changed:
            self._changed.wait_for(lambda: found() is not None, seconds)
            line = found()
        return line if line and line[0] == word else None

    def start(self) -> None:
        """Give the starting signal."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End it and its children."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(5)
        self._log.close()


def argv(peer: Peer, *arguments: object) -> list[str]:
    """Return the command that runs a peer's adapter."""
    return [program(peer), str(HERE / "adapters" / peer.adapter), *map(str, arguments)]


class Bench:
    """Measures one peer."""

    def __init__(self, peer: Peer, servers: Servers, size: float) -> None:
        self._peer = peer
        self._servers = servers
        self._size = size

    def call(self, *arguments: object) -> dict[str, Any]:
        """Run a sub-command of the adapter; return what it printed."""
        with (BUILD / "log.txt").open("ab") as log:
            command, env = argv(self._peer, *arguments), self._env()
            done = subprocess.run(
                command, env=env, stdout=subprocess.PIPE, stderr=log, timeout=300, cwd=BUILD, check=False
            )
        lines = [line for line in done.stdout.decode().splitlines() if line.startswith("{")]
        if done.returncode or not lines:
            raise RuntimeError(f"{self._peer.name}: {arguments} failed with {done.returncode}; see {BUILD / 'log.txt'}")
        result: dict[str, Any] = json.loads(lines[-1])
        return result

    def set_up(self) -> None:
        """Make the peer's database and schema."""
        name = self._peer.database
        if name and not self._servers.sql("postgres", f"select 1 from pg_database where datname = '{name}'"):
            self._servers.sql("postgres", f"create database {name}")
        self.call("setup")

    def enqueue(self) -> Figures:
        """One client, one durable call for each job."""
        self.call("reset")
        number = self._sized(1000)
        found = self.call("one", number)
        return {
            "jobs": number,
            "per_s": number / found["seconds"],
            "p50_ms": found["p50_ms"],
            "p99_ms": found["p99_ms"],
        }

    def bulk(self) -> Figures:
        """The fastest call for many jobs."""
        self.call("reset")
        number = self._sized(self._peer.bulk)
        return {"jobs": number, "per_s": number / self.call("bulk", number)["seconds"]}

    def drain(self) -> Figures:
        """Queued no-op jobs, one worker process."""
        return self._drain(1, "bulk", self._sized(self._peer.drain))

    def drain2(self) -> Figures:
        """The same with two worker processes."""
        return self._drain(2, "bulk", self._sized(self._peer.drain))

    def tenants(self) -> Figures:
        """Jobs of 100 tenants, each tenant with a limit of its own; one worker process."""
        return self._drain(1, "tenants", self._sized(self._peer.limited), 100)

    def latency(self) -> Figures:
        """An idle worker, a job every 20 ms: from the call of enqueue to the start of the handler."""
        self.call("reset")
        self._settle()
        seen = BUILD / "seen.txt"
        seen.unlink(missing_ok=True)
        number = self._sized(150)
        with self._working(1, PEERS_SEEN=str(seen)):
            time.sleep(2)  # its first polls and connections
            calls = self.call("pace", number, 20)["calls"]
            self._wait_for_lines(seen, number)
        return waits(calls, seen)

    def _drain(self, workers: int, command: str, *numbers: int) -> Figures:
        self.call("reset")
        self.call(command, *numbers)
        self._settle()
        limited = {"PEERS_LIMITED": "1"} if command == "tenants" else {}
        watcher = Process(self._peer, self._env(), "wait")
        try:
            watcher.wait("WATCHING", 30)
            with self._working(workers, **limited) as started:
                done = watcher.wait("DONE", LONGEST)
        finally:
            watcher.stop()
        if done is None:
            raise RuntimeError(f"{self._peer.name}: {numbers[0]} jobs were not done after {LONGEST} s")
        return {"jobs": numbers[0], "per_s": numbers[0] / ((int(done[1]) - started) / 1e9)}

    @contextmanager
    def _working(self, number: int, **more: str) -> Iterator[int]:
        """Run workers; yield the time of their starting signal."""
        workers = [Process(self._peer, self._env(**more), "work") for _ in range(number)]
        try:
            if not all(each.wait("READY", 40) for each in workers):
                raise RuntimeError(f"{self._peer.name}: a worker did not start; see {BUILD / 'log.txt'}")
            time.sleep(SETTLED)
            started = time.time_ns()
            for each in workers:
                each.start()
            yield started
        finally:
            for each in workers:
                each.stop()

    @staticmethod
    def _wait_for_lines(path: Path, number: int) -> None:
        end = time.monotonic() + 5
        while time.monotonic() < end and (not path.exists() or path.read_bytes().count(b"\n") < number):
            time.sleep(0.05)

    def _settle(self) -> None:
        """Let the server finish what the load left to do."""
        if self._peer.database:
            self._servers.sql(self._peer.database, "vacuum analyze", "checkpoint")

    def _sized(self, number: int) -> int:
        return max(100, int(number * self._size))

    def _env(self, **more: str) -> dict[str, str]:
        servers = {"PEERS_POSTGRES": self._servers.postgres, "PEERS_REDIS": self._servers.redis}
        return environment(self._peer) | servers | more


def waits(calls: dict[str, list[int]], seen: Path) -> Figures:
    """Return the median and the 99th percentile from each call to the start of its handler."""
    starts: dict[str, int] = {}
    for line in seen.read_text().splitlines():
        number, at = line.split()
        starts.setdefault(number, int(at))
    found = sorted((starts[number] - called) / 1e6 for number, (called, _) in calls.items() if number in starts)
    if len(found) < len(calls):
        raise RuntimeError(f"only {len(found)} of {len(calls)} jobs were started")
    return {"jobs": len(found), "p50_ms": found[len(found) // 2], "p99_ms": found[len(found) * 99 // 100]}


WORKLOADS: dict[str, Callable[[Bench], Figures]] = {
    "enqueue": Bench.enqueue,
    "bulk": Bench.bulk,
    "drain": Bench.drain,
    "drain2": Bench.drain2,
    "latency": Bench.latency,
    "tenants": Bench.tenants,
}
