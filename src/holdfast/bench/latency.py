"""Latency of an idle worker, woken by NOTIFY or RabbitMQ, against a bare INSERT, NOTIFY and claim."""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from holdfast.bench import bare
from holdfast.bench.workloads import Bench, Result, timed
from holdfast.client import Holdfast

GAP = 0.02  # seconds between jobs, so that the worker is idle before each
WARM = 20  # jobs that do not count
RABBITMQ: dict[str, Any] = {"amqp_enabled": True, "amqp_exchange": "holdfast-bench"}


def latency(bench: Bench) -> Result:
    """From the call of enqueue to the start of the handler; the note has the part after the commit."""
    return _measured("latency", bench, bench.hf)


def latency_rabbitmq(bench: Bench) -> Result:
    """Latency when only RabbitMQ notifies the worker."""
    where = urlsplit(bench.settings.amqp_url)
    try:
        socket.create_connection((where.hostname or "", where.port or 5672), 2).close()
    except OSError as error:
        why = f"NOT MEASURED: cannot connect to RabbitMQ at {where.hostname}:{where.port}: {error}"
        return Result("latency_rabbitmq", 0, 0.0, 0.0, ratio=0.0, note=why)
    with Holdfast(bench.settings.dsn, schema=bench.settings.schema, **RABBITMQ) as hf:
        return _measured("latency_rabbitmq", bench, hf, notify=False, **RABBITMQ)


def _measured(name: str, bench: Bench, hf: Holdfast, **settings: object) -> Result:
    number = max(50, int(1000 * min(bench.scale, 1)))
    bench.fill(0)  # ends in a checkpoint, so that none falls into the measurement
    limits = asyncio.run(bare.notify_round_trip(bench.settings, number // 4, GAP))
    bench.empty()
    calls: list[float] = []  # seconds that each enqueue took
    stamp = hf.tasks.get("bench.stamp") or hf.task(name="bench.stamp")(bench.stamp.handler)

    def step() -> bool:
        if not calls and not _waits(bench, "sleepers" if settings.get("notify", True) else "workers"):
            return False
        for _ in range(10):
            if len(calls) < number + WARM:
                began = time.time_ns()
                stamp.enqueue(began)
                calls.append((time.time_ns() - began) / 1e9)
                time.sleep(GAP)
        return len(calls) >= number + WARM and bench.counted() >= len(calls)

    bench.run_processes("holdfast.bench.worker", 1, step, **settings)
    with bench.connection() as conn:
        rows = conn.execute("SELECT result::text::float8 FROM history ORDER BY created_at").fetchall()
    bench.empty()
    taken = [row[0] / 1000 for row in rows]
    result = timed(name, taken[WARM:], limits)
    since = statistics.median(all_ - call for all_, call in zip(taken[WARM:], calls[WARM:], strict=True)) * 1000
    result.note += f"; ours {since:.2f} ms from the return of enqueue"
    return result


def _waits(bench: Bench, table: str) -> bool:
    """Return whether the worker has started and is idle. Workers without NOTIFY are not in the table sleepers."""
    with bench.connection() as conn:
        return conn.execute(f"SELECT 1 FROM {table} LIMIT 1".encode()).fetchone() is not None


ALL: dict[str, Callable[[Bench], Result]] = {"latency": latency, "latency_rabbitmq": latency_rabbitmq}
