"""Workloads of the engine that take long: more processes, other runners, deep backlogs, open transactions, batches."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from holdfast.bench.harness import TEXT, Bench, Result, compared
from holdfast.bench.workloads import drain, latency
from holdfast.client import Holdfast

WORKER = "bench.worker"
RABBITMQ: dict[str, Any] = {"amqp_enabled": True, "amqp_exchange": "holdfast-bench"}


def drain2(bench: Bench) -> Result:
    """Two worker processes; limit: two bare loops."""
    return drain(bench, "drain2", processes=2)


def thread(bench: Bench) -> Result:
    """One worker process, handlers in threads; limit: the bare loop."""
    return drain(bench, "thread", "bench.noop_thread", 60_000, module=WORKER)


def process(bench: Bench) -> Result:
    """One worker process, handlers in its child processes; limit: the bare loop."""
    return drain(bench, "process", "bench.noop_process", 20_000, module=WORKER)


def depth(bench: Bench) -> Result:
    """A drain with a backlog of 2 million; limit: one with 20 thousand."""
    small, large, counted = bench.size(20_000), bench.size(2_000_000), bench.size(100_000)

    def measure(deep: bool) -> float:
        bench.fill(large if deep else small)
        bench.drain(counted if deep else small)
        number, seconds = bench.window(0, counted if deep else None)
        return number / seconds

    rates = bench.alternate(measure, (False,) * 5 + (True,))
    return compared("depth", counted, *rates, note=f"{large:,} waiting")


@contextmanager
def open_transaction(bench: Bench, held: bool) -> Iterator[None]:
    """Hold a transaction with a snapshot open while a block runs."""
    with bench.connection() as holder:
        if held:
            holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM live")
        yield
        if held:
            holder.execute("ROLLBACK")


def pinned(bench: Bench) -> Result:
    """The last fifth of many jobs, one transaction open from before the first; limit: none open."""
    jobs = bench.size(500_000)

    def measure(held: bool) -> float:
        with open_transaction(bench, held):
            bench.fill(jobs)
            bench.drain(jobs)
            number, seconds = bench.window(jobs * 4 // 5, jobs)
            return number / seconds

    return compared("pinned", jobs, *bench.alternate(measure))


def batch(bench: Bench) -> Result:
    """Eight workers, all jobs in one batch; limit: the same jobs in none.

    The workers share two processes, because eight processes on two cores would measure the scheduler. Each has its own
    connections, and so its own counters of the batch.
    """
    jobs = bench.size(100_000)
    calls = [(n, TEXT) for n in range(jobs)]

    def measure(together: bool) -> float:
        if together:
            with bench.hf.batch("bench") as held:
                bench.noop.using(batch=held).enqueue_many(calls)
        else:
            bench.noop.enqueue_many(calls)
        bench.settle()
        bench.drain(jobs, 2, 4, module=WORKER)
        if together:
            info = held.info()
            assert info is not None and info.succeeded == info.total == jobs, f"wrong counters of the batch: {info}"
        number, seconds = bench.window()
        return number / seconds

    return compared("batch", jobs, *bench.alternate(measure, (False, True, True, False) * 2))


def latency_rabbitmq(bench: Bench) -> Result:
    """Latency when only RabbitMQ notifies the worker; limit: INSERT, NOTIFY, claim."""
    where = urlsplit(bench.settings.amqp_url)
    try:
        socket.create_connection((where.hostname or "", where.port or 5672), 2).close()
    except OSError as error:
        why = f"NOT MEASURED: cannot connect to RabbitMQ at {where.hostname}:{where.port}: {error}"
        return Result("latency_rabbitmq", 0, 0.0, 0.0, ratio=0.0, note=why)
    with Holdfast(bench.settings.dsn, schema=bench.settings.schema, **RABBITMQ) as hf:
        return latency(bench, "latency_rabbitmq", hf, notify=False, **RABBITMQ)


ALL: dict[str, Callable[[Bench], Result]] = {
    "drain2": drain2,
    "thread": thread,
    "process": process,
    "depth": depth,
    "pinned": pinned,
    "batch": batch,
    "latency_rabbitmq": latency_rabbitmq,
}
