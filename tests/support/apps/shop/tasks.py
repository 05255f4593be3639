"""Tasks of every kind that Django knows."""

from __future__ import annotations

import asyncio
from typing import Any

from django.db import connection

try:
    from django.tasks import TaskContext, task
except ModuleNotFoundError:
    from django_tasks import TaskContext, task


class OutOfStock(Exception):
    """An error of the project's own."""


@task
def add(a: int, b: int = 2) -> int:
    return a + b


@task
def echo(*args: Any, **kwargs: Any) -> list[Any]:
    return [args, kwargs]


@task(queue_name="mail", priority=60)
async def greet(name: str) -> str:
    await asyncio.sleep(0)
    return f"hello {name}"


@task
def store(n: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("insert into public.purchases values (%s)", [n])


@task
async def store_async(n: int) -> None:
    from asgiref.sync import sync_to_async

    await sync_to_async(store.func)(n)


@task
def fail(message: str) -> None:
    raise OutOfStock(message)


@task
def fail_plainly() -> None:
    raise ValueError(ValueError("inner"))


@task
async def fail_async() -> None:
    raise ValueError("async")


@task
def leave() -> None:
    raise SystemExit("leaving")


@task
async def hang() -> None:
    await asyncio.Event().wait()


@task
def unserializable() -> Any:
    return lambda: True


@task(takes_context=True)
def inspect_context(context: TaskContext, n: int) -> list[Any]:
    result = context.task_result
    return [result.id, context.attempt, str(result.status), result.args, result.task.name, n]


@task(takes_context=True)
def fail_until(context: TaskContext, attempt: int) -> int:
    if context.attempt < attempt:
        raise OutOfStock(f"attempt {context.attempt}")
    return context.attempt


@task(backend="immediate")
def on_another_backend(n: int) -> int:
    return n * 2


def not_a_task() -> None: ...
