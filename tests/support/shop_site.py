"""The project of tests/support/apps/shop: its tasks, a worker of it, and their results."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from holdfast import Holdfast
from holdfast.django import app
from holdfast.django.framework import Task, TaskResult
from holdfast.worker import Worker
from tests.conftest import wait_until
from tests.support import django_site

Sql = Callable[..., list[tuple[Any, ...]]]
FRAMEWORK = Task.__module__.removesuffix(".base")


@pytest.fixture(name="shop")
def shop_fixture(dsn: str, sql: Sql) -> Iterator[Any]:
    """The project's tasks, its tables empty; its connections end with the test."""
    django_site.set_up(dsn)
    sql("create table if not exists public.purchases (id integer)")
    sql("truncate public.purchases")
    from shop import tasks

    yield tasks
    connections.close_all()
    asyncio.run(sync_to_async(connections.close_all)())


@contextmanager
def working(backend: str = "default", **options: Any) -> Iterator[Holdfast]:
    """Run a worker of the project for the length of a block, on a loop of its own."""
    hf = app(backend)
    worker = Worker(hf, **({"poll": 0.1, "upkeep": 0.2, "grace": 5.0} | options))
    loop: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loop.append(asyncio.get_running_loop())
        await worker.run()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield hf
    finally:
        wait_until(lambda: loop)
        loop[0].call_soon_threadsafe(worker.stop)
        thread.join(60)


def finished(result: TaskResult) -> TaskResult:
    """Return the result once its task has ended."""

    def ended() -> bool:
        result.refresh()
        return bool(result.is_finished)

    wait_until(ended)
    return result
