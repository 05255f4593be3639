"""Webhooks are an extra: without aiohttp everything else works, and a worker that needs them says so (R22)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Event, Holdfast, Status

Sql = Callable[..., list[tuple[Any, ...]]]


def test_neither_the_client_nor_a_worker_for_other_queues_needs_aiohttp(dsn: str) -> None:
    code = (
        "import asyncio, sys; from holdfast import Event, Holdfast; from holdfast.worker import Worker; "
        f"hf = Holdfast({dsn!r}); "
        "hf.webhooks.publish(None, Event('a', {})); "
        "asyncio.run(Worker(hf).run(until_idle=True)); "
        "print([m for m in ('aiohttp', 'cryptography') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def without_aiohttp(dsn: str, queues: str, rest: str = "pass") -> str:
    """Return the output of a worker that runs until it is idle, on a machine without the library."""
    code = (
        "import asyncio, sys; sys.modules['aiohttp'] = None; "
        "from holdfast import Holdfast; from holdfast.telemetry import logs; from holdfast.worker import Worker; "
        f"logs.configure('console', 'info'); hf = Holdfast({dsn!r}); {rest}; "
        f"asyncio.run(Worker(hf, queues={queues!r}).run(until_idle=True))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return ran.stderr + ran.stdout


@pytest.mark.parametrize("queues", ["", "default,webhooks"])
def test_a_worker_without_aiohttp_says_so_once_and_leaves_deliveries_alone(
    dsn: str, hf: Holdfast, sql: Sql, queues: str
) -> None:
    hf.webhooks.add("https://example.org/hook")
    hf.webhooks.publish(None, Event("a", {}))
    before = sql("select id, run_at, xmin::text from live")
    output = without_aiohttp(dsn, queues)
    assert output.count("webhooks are not delivered here") == 1, output
    assert "worker started" in output
    assert sql("select id, run_at, xmin::text from live") == before


def test_a_worker_without_aiohttp_logs_nothing_where_webhooks_are_not_used(dsn: str, hf: Holdfast) -> None:
    output = without_aiohttp(dsn, "")
    assert "worker started" in output and "webhooks" not in output


def test_a_worker_for_webhooks_alone_needs_aiohttp(dsn: str, hf: Holdfast) -> None:
    output = without_aiohttp(dsn, "webhooks")
    assert "ConfigurationError" in output and "pip install 'holdfast-jobs[webhooks]'" in output


def test_tasks_of_ones_own_in_the_queue_of_webhooks_need_no_aiohttp(dsn: str, hf: Holdfast) -> None:
    output = without_aiohttp(
        dsn, "webhooks", "mine = hf.task(name='mine', queue='webhooks')(lambda: None); mine.enqueue()"
    )
    assert "worker started" in output, output
    assert [job.status for job in hf.jobs.list(task="mine")] == [Status.SUCCEEDED]
