"""Django's tasks on Holdfast: the interface of a backend, and the request's transaction."""

from __future__ import annotations

import sys
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext, override_settings
from django.utils import timezone

from holdfast.django import HoldfastBackend
from holdfast.django.framework import Task, TaskResultDoesNotExist, TaskResultStatus, task_backends
from tests.support import django_site
from tests.support.shop_site import FRAMEWORK, Sql, finished, shop_fixture, working  # noqa: F401 - fixture

tasks_exceptions = sys.modules[f"{FRAMEWORK}.exceptions"]
InvalidTask = getattr(tasks_exceptions, "InvalidTask", None) or tasks_exceptions.InvalidTaskError
TaskResultMismatch = tasks_exceptions.TaskResultMismatch


# The interface of a backend


def test_the_backend_is_the_one_in_the_settings(shop: Any) -> None:
    backend = task_backends["default"]
    assert isinstance(backend, HoldfastBackend)
    assert (backend.alias, backend.options, backend.queues) == ("default", {}, {"default", "mail"})
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority
    assert list(backend.check()) == []


@pytest.mark.parametrize("name", ["echo", "greet"])
def test_an_enqueued_task_is_ready_and_waits(shop: Any, name: str, sql: Sql) -> None:
    task = getattr(shop, name)
    with CaptureQueriesContext(connection) as queries:
        result = task.enqueue(1, two=[3, (4, "x")])
    assert len(queries) == 1
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.READY, False, 0)
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    assert (result.task, result.args, result.kwargs) == (task, [1], {"two": [3, [4, "x"]]})
    assert (result.backend, result.errors, result.worker_ids) == ("default", [], [])
    assert abs(timezone.now() - result.enqueued_at) < timedelta(seconds=5)
    with pytest.raises(ValueError, match="Task has not finished yet"):
        _ = result.return_value
    rows = sql("select id::text, task, queue, priority, max_attempts, payload -> 'args' from jobs")
    queue, priority = ("mail", 0) if name == "greet" else ("default", 2)
    assert rows == [(result.id, f"shop.tasks.{name}", queue, priority, 1, [1])]


def test_a_result_is_found_again_and_is_the_same(shop: Any) -> None:
    later = timezone.now() + timedelta(hours=1)
    for task in (
        shop.add,
        shop.greet,
        shop.add.using(priority=-7, queue_name="mail", run_after=later),
        shop.add.using(backend="apart"),
    ):
        result = task.enqueue(1)
        assert task.get_result(result.id) == result
        assert task.get_backend().get_result(result.id) == result
        before = repr(result)
        result.refresh()
        assert repr(result) == before


async def test_the_async_twins_do_the_same(shop: Any) -> None:
    result = await shop.add.aenqueue(1, b=2)
    assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [1], {"b": 2})
    assert await shop.add.aget_result(result.id) == result
    await result.arefresh()
    assert await task_backends["default"].aget_result(result.id) == result
    with pytest.raises(TaskResultDoesNotExist):
        await shop.add.aget_result(str(uuid.uuid4()))


@pytest.mark.parametrize("missing", ["123", "-", "0190c9f4-6f3e-7b6a-8f8e-3d1f0c2b4a59", 123, None])
def test_an_unknown_id_has_no_result(shop: Any, missing: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist, match=str(missing)):
        shop.add.get_result(missing)


def test_a_job_that_is_no_django_task_has_no_result_here(shop: Any, sql: Sql) -> None:
    (id_,) = sql("select id::text from enqueue('something.else')")[0]
    with pytest.raises(TaskResultDoesNotExist, match=r"a job of 'something\.else', which is not a known Django task"):
        task_backends["default"].get_result(id_)
    (id_,) = sql("select id::text from enqueue('shop.tasks.add')")[0]
    with pytest.raises(TaskResultDoesNotExist, match=id_):
        task_backends["default"].get_result(id_)


def test_a_result_of_another_task_is_a_mismatch(shop: Any) -> None:
    result = shop.echo.enqueue()
    with pytest.raises(TaskResultMismatch, match="Task does not match"):
        shop.add.get_result(result.id)


@pytest.mark.parametrize("value", [datetime.now(UTC), object(), {1, 2}, lambda: 1, b"\xff"])
def test_arguments_that_json_cannot_carry_are_refused(shop: Any, value: Any, sql: Sql) -> None:
    with pytest.raises((TypeError, ValueError), match="Unsupported"):
        shop.echo.enqueue(value)
    with pytest.raises((TypeError, ValueError), match="Unsupported"):
        shop.echo.enqueue(key=[value])
    assert sql("select count(*) from jobs") == [(0,)]


def test_tasks_that_cannot_run_are_refused(shop: Any) -> None:
    def nested() -> None: ...

    for function in (nested, any, "".join):
        with pytest.raises(InvalidTask, match="must be defined at a module level"):
            Task(func=function, priority=0, backend="default", queue_name="default", run_after=None)
    with pytest.raises(InvalidTask, match="first argument of 'context'"):
        Task(
            func=shop.not_a_task,
            priority=0,
            backend="default",
            queue_name="default",
            run_after=None,
            takes_context=True,
        )
    with pytest.raises(InvalidTask, match="Queue 'elsewhere' is not valid"):
        shop.add.using(queue_name="elsewhere")
    with pytest.raises(InvalidTask, match="must be an aware datetime"):
        shop.add.using(run_after=datetime.now())
    for priority in (-101, 101, 3.1):
        with pytest.raises(InvalidTask, match="priority must be a whole number"):
            shop.add.using(priority=priority)


def test_a_task_is_judged_again_when_it_is_enqueued(shop: Any) -> None:
    task = shop.add.using(queue_name="mail")
    changed = settings.TASKS | {"default": {"BACKEND": django_site.BACKEND, "QUEUES": ["other"]}}
    with override_settings(TASKS=changed), pytest.raises(InvalidTask, match="Queue 'mail' is not valid"):
        task.enqueue(1)


# The request's transaction


def test_a_task_is_enqueued_when_the_requests_transaction_commits(shop: Any, sql: Sql) -> None:
    with transaction.atomic():
        result = shop.add.enqueue(1)
        assert shop.add.get_result(result.id) == result
        assert sql("select count(*) from jobs") == [(0,)]
    assert sql("select id::text from jobs") == [(result.id,)]


def test_a_rolled_back_transaction_leaves_no_task(shop: Any, sql: Sql) -> None:
    class Undo(Exception): ...

    with pytest.raises(Undo), transaction.atomic():  # noqa: PT012 - what happens before the error is the point
        gone = shop.add.enqueue(1)
        shop.store.func(1)
        raise Undo
    with pytest.raises(TaskResultDoesNotExist):
        gone.refresh()
    with transaction.atomic():
        kept = shop.add.enqueue(1)
        with pytest.raises(Undo), transaction.atomic():  # noqa: PT012
            shop.add.enqueue(2)
            raise Undo
    assert sql("select id::text from jobs") == [(kept.id,)]
    assert sql("select count(*) from public.purchases") == [(0,)]


def test_without_a_transaction_a_task_is_enqueued_at_once(shop: Any, sql: Sql) -> None:
    result = shop.add.enqueue(1)
    assert sql("select id::text from jobs") == [(result.id,)]


def test_a_backend_apart_from_the_databases_does_not_care_for_the_transaction(shop: Any, sql: Sql) -> None:
    with transaction.atomic():
        result = shop.add.using(backend="apart").enqueue(1)
        assert sql("select id::text from jobs") == [(result.id,)]
        transaction.set_rollback(True)
    result.refresh()
    assert result.status == TaskResultStatus.READY


def test_the_role_for_enqueueing_is_enough(shop: Any, sql: Sql) -> None:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("set local role holdfast_enqueue")
        shop.add.enqueue(1)
        shop.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(2)
    assert sql("select count(*) from jobs") == [(2,)]
