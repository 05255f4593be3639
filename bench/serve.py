"""Workloads of the service: throughput and latency of requests to one `holdfast serve` process."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.bench.bare import run_async
from holdfast.bench.harness import TEXT, Bench, Result

AT_ONCE = 24
KNOWN = 3000  # jobs to read
READS, CREATES = 2000.0, 1000.0  # targets a second for one process on two cores, one of which the clients use
SLOWEST = 50.0  # ms, the target of p99


def reads(bench: Bench) -> Result:
    """The status of jobs, read by concurrent callers."""
    bench.fill(KNOWN)
    with bench.connection() as conn:
        ids = [str(row[0]) for row in conn.execute("SELECT id FROM live LIMIT %s", [KNOWN])]
    requests = itertools.cycle(f"GET /v1/jobs/{id_} HTTP/1.1\r\n" for id_ in ids)
    return measured(bench, "serve_reads", 20_000, READS, lambda: (next(requests), b""), b"200")


def creates(bench: Bench) -> Result:
    """Jobs created one by one, by concurrent callers."""
    numbers = itertools.count()

    def one() -> tuple[str, bytes]:
        body = f'{{"task":"bench.noop","args":{{"n":{next(numbers)},"text":"{TEXT}"}}}}'.encode()
        return f"POST /v1/jobs HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n", body

    return measured(bench, "serve_creates", 10_000, CREATES, one, b"201")


def measured(
    bench: Bench, name: str, number: int, target: float, request: Callable[[], tuple[str, bytes]], status: bytes
) -> Result:
    """Send `number` requests after a warm-up: first as fast as possible, then at the target rate, where each is sent
    when it is due, whether or not earlier ones have ended."""
    number = bench.size(number)
    token, _ = bench.hf.tokens.create("bench", tenant=None, scopes=["jobs:read", "jobs:write"])
    with serving(bench) as port:
        load = Load(port, token, request, status)
        load.run(number // 10)
        seconds, crowded = load.run(number)
        _, took = load.run(number, target)
    bench.empty()
    rate = number / seconds
    problems = [f"{load.wrong} responses were not {status.decode()}"] if load.wrong else []
    p50, p99 = slowest(took, 0.5), slowest(took, 0.99)
    note = f"limit: the target, with a p99 of {SLOWEST:g} ms"
    note += f"; at full load {AT_ONCE} callers have {slowest(crowded, 0.99):.0f} ms"
    return Result(name, number, seconds, rate, p50, p99, target, rate / target, note, problems)


def slowest(took: list[float], share: float) -> float:
    """Return the milliseconds that this share of requests does not exceed."""
    return took[int(len(took) * share)] * 1000


@contextmanager
def serving(bench: Bench) -> Iterator[int]:
    """Run the service in its own process. Yield its port."""
    command = [sys.executable, "-m", "holdfast.cli", "serve", "holdfast.bench.app:hf", "--port", "0"]
    env = os.environ | {"HOLDFAST_DSN": bench.settings.dsn, "HOLDFAST_SCHEMA": bench.settings.schema}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if found := re.search(r"http://127\.0\.0\.1:(\d+)/v1", line):
                    yield int(found[1])
                    return
            raise AssertionError("the service did not start")
        finally:
            process.terminate()


class Load:
    """Callers with persistent connections. No HTTP library, which would take more time than the service."""

    def __init__(self, port: int, token: str, request: Callable[[], tuple[str, bytes]], status: bytes) -> None:
        self._port = port
        self._rest = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        self._request = request
        self._status = status
        self.wrong = 0

    def run(self, number: int, rate: float | None = None) -> tuple[float, list[float]]:
        """Return the total seconds of `number` requests, and each one's, sorted. With a rate, a request's time counts
        from when it was due, even if no caller was free to send it."""
        took: list[float] = []

        async def all_of_them() -> float:
            began = time.perf_counter()
            due = iter([None if rate is None else began + n / rate for n in range(number)])
            await asyncio.gather(*(self._call(due, took) for _ in range(AT_ONCE)))
            return (time.perf_counter() - began) * number / len(took)

        seconds: float = run_async(all_of_them())
        return seconds, sorted(took)

    async def _call(self, due: Iterator[float | None], took: list[float]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        for at in due:
            head, body = self._request()
            if at is not None:
                await asyncio.sleep(at - time.perf_counter())
            began = time.perf_counter() if at is None else at
            writer.write((head + self._rest).encode() + body)
            header = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", header)
            assert length is not None
            await reader.readexactly(int(length[1]))
            took.append(time.perf_counter() - began)
            self.wrong += header[9:12] != self._status
        writer.close()
        await writer.wait_closed()


ALL: dict[str, Callable[[Bench], Result]] = {"serve_reads": reads, "serve_creates": creates}
