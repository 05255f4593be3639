"""Django's tasks run by a worker: results, errors, retries, signals, connections."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from django.test.utils import override_settings
from django.utils import timezone

from holdfast import Retry, Status
from holdfast.django import HoldfastBackend, app
from holdfast.django import results as django_results
from holdfast.django.framework import TaskResult, TaskResultStatus, task_enqueued, task_finished, task_started
from tests.conftest import wait_until
from tests.support import django_site
from tests.support.shop_site import FRAMEWORK, Sql, finished, shop_fixture, working  # noqa: F401 - fixture


def test_a_worker_runs_sync_and_async_tasks_and_their_results_are_read_back(shop: Any) -> None:
    with working() as hf:
        for task, args, kwargs, value in (
            (shop.add, (1,), {"b": 5}, 6),
            (shop.greet, ("Ada",), {}, "hello Ada"),
            (shop.echo, (1, None, {"a": ["é🙂", 0.5]}), {"k": True}, [[1, None, {"a": ["é🙂", 0.5]}], {"k": True}]),
            (shop.store, (3,), {}, None),
        ):
            result = finished(task.enqueue(*args, **kwargs))
            assert (result.status, result.return_value, result.errors) == (TaskResultStatus.SUCCESSFUL, value, [])
            assert result.enqueued_at <= result.started_at <= result.finished_at
            assert (result.last_attempted_at, result.attempts) == (result.started_at, 1)
            info = hf.jobs.get(result.id)
            assert info is not None
            assert result.worker_ids == [info.locked_by]
            assert str(info.locked_by).startswith("worker-")


@pytest.mark.parametrize(
    ("name", "args", "kind", "end"),
    [
        ("fail", ("none left",), "shop.tasks.OutOfStock", "OutOfStock: none left\n"),
        ("fail_plainly", (), "builtins.ValueError", "ValueError: inner\n"),
        ("fail_async", (), "builtins.ValueError", "ValueError: async\n"),
        ("leave", (), "builtins.SystemExit", "SystemExit: leaving\n"),
        ("unserializable", (), "builtins.TypeError", "Unsupported type: <class 'function'>\n"),
        ("add", (), "builtins.TypeError", "missing 1 required positional argument: 'a'\n"),
    ],
)
def test_a_task_that_raises_has_failed_at_once(shop: Any, name: str, args: Any, kind: str, end: str) -> None:
    with working():
        result = finished(getattr(shop, name).enqueue(*args))
        assert finished(shop.add.enqueue(1)).return_value == 3  # the worker goes on
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.FAILED, 1, 1)
    module, _, qualname = kind.rpartition(".")
    assert result.errors[0].exception_class is getattr(sys.modules[module], qualname)
    assert result.errors[0].traceback.endswith(end)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_a_task_knows_its_context(shop: Any) -> None:
    with working():
        result = finished(shop.inspect_context.enqueue(7))
    assert result.return_value == [result.id, 1, "RUNNING", [7], "inspect_context", 7]


def test_a_task_that_a_stopping_worker_gives_back_is_ready_and_not_finished(shop: Any) -> None:
    ends: list[Any] = []
    receiver = lambda sender, **_: ends.append(sender)  # noqa: E731 - signals hold receivers weakly
    task_finished.connect(receiver)
    try:
        result = shop.hang.enqueue()
        with working(grace=0):
            wait_until(lambda: result.refresh() or result.status == TaskResultStatus.RUNNING)
            assert result.attempts == 1
        result.refresh()
    finally:
        task_finished.disconnect(receiver)
    assert (result.status, result.attempts, ends) == (TaskResultStatus.READY, 0, [])


def test_a_retry_policy_in_the_options_makes_a_task_ready_again(shop: Any) -> None:
    ends: list[str] = []

    def see(sender: Any, task_result: TaskResult, **_: Any) -> None:
        ends.append(f"{task_result.status} {task_result.attempts}")

    task_finished.connect(see)
    try:
        with working("patient"):
            result = finished(shop.fail_until.using(backend="patient").enqueue(3))
            hopeless = finished(shop.fail_until.using(backend="patient").enqueue(9))
    finally:
        task_finished.disconnect(see)
    assert (result.return_value, result.attempts, result.worker_ids[:2]) == (3, 3, ["unknown", "unknown"])
    assert result.errors[0].traceback.endswith("OutOfStock: attempt 2\n")
    assert (hopeless.status, hopeless.attempts) == (TaskResultStatus.FAILED, 3)
    assert ends == ["SUCCESSFUL 3", "FAILED 3"]  # nothing was finished in between


def test_a_task_that_waits_for_a_retry_is_ready(shop: Any) -> None:
    policy = {"retry": Retry.fixed(3600, max_attempts=2)}
    changed = settings.TASKS | {"patient": {"BACKEND": django_site.BACKEND, "OPTIONS": policy}}
    with override_settings(TASKS=changed), working("patient"):
        result = shop.fail.using(backend="patient").enqueue("x")
        wait_until(lambda: result.refresh() or result.errors)
    assert (result.status, result.attempts, result.is_finished) == (TaskResultStatus.READY, 1, False)


def test_a_canceled_task_has_failed(shop: Any) -> None:
    result = shop.add.enqueue(1)
    assert app().jobs.cancel(result.id) == {result.id: "canceled"}
    result.refresh()
    assert (result.status, result.errors, result.attempts) == (TaskResultStatus.FAILED, [], 0)


def test_a_deferred_task_runs_when_its_time_has_come(shop: Any, sql: Sql) -> None:
    at = timezone.now() + timedelta(seconds=0.6)
    far = shop.add.using(run_after=timezone.now() + timedelta(days=1)).enqueue(1)
    with working():
        result = finished(shop.add.using(run_after=at).enqueue(1))
        far.refresh()
    assert result.task.run_after == at
    assert result.started_at >= at
    assert far.status == TaskResultStatus.READY
    assert sql("select count(*) from later where run_at > now() + interval '20 hours'") == [(1,)]


@pytest.mark.parametrize(("priority", "expected"), [(100, 0), (50.0, 0), (49, 1), (1, 1), (0, 2), (-1, 3), (-100, 3)])
def test_priorities_keep_their_order_in_four_levels(shop: Any, priority: int, expected: int, sql: Sql) -> None:
    result = shop.add.using(priority=priority).enqueue(1)
    assert sql("select priority from jobs") == [(expected,)]
    assert shop.add.get_result(result.id).task.priority == priority
    assert django_results.level(priority) == expected


def test_tasks_of_higher_priority_are_claimed_first(shop: Any, sql: Sql) -> None:
    waiting = {shop.add.using(priority=priority).enqueue(1).id: priority for priority in (-5, 0, 5, 70)}
    claimed = sql("select id::text from claim('me', '{default}', 10, '60 s')")
    assert [waiting[id_] for (id_,) in claimed] == [70, 5, 0, -5]


def test_a_task_of_another_backend_may_be_sent_here(shop: Any) -> None:
    with working():
        assert finished(shop.on_another_backend.using(backend="default").enqueue(4)).return_value == 8


def test_a_receiver_that_raises_harms_no_task(shop: Any) -> None:
    def broken(sender: Any, **_: Any) -> None:
        raise RuntimeError("receiver")

    for signal in (task_started, task_finished):
        signal.connect(broken)
    try:
        with working():
            assert finished(shop.add.enqueue(1)).return_value == 3
            assert finished(shop.greet.enqueue("Ada")).return_value == "hello Ada"
    finally:
        for signal in (task_started, task_finished):
            signal.disconnect(broken)


def test_a_tasks_database_connections_end_with_it(shop: Any, sql: Sql) -> None:
    connections.close_all()
    with working(concurrency=4):
        results = [task.enqueue(n) for n in range(5) for task in (shop.store, shop.store_async)]
        assert all(finished(result).status == TaskResultStatus.SUCCESSFUL for result in results)
        connections.close_all()
        others = "select count(*) from pg_stat_activity where application_name = 'django site'"
        wait_until(lambda: sql(others) == [(0,)])
    assert sql("select count(*) from public.purchases") == [(10,)]


def test_a_name_that_is_no_task_is_never_imported(shop: Any, sql: Sql, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    payload = json.dumps({"args": [["touch", str(witness)]], "kwargs": {}})
    for name in ("subprocess.check_output", "shop.tasks.not_a_task", "antigravity"):
        sql("select enqueue(%s, %s)", [name, payload])
    query = "select last_error ->> 'message' from jobs where last_error is not null"
    with working() as hf:
        wait_until(lambda: len(sql(query)) == 3)
        assert all("no task named" in message for (message,) in sql(query))
        assert all(info.status is Status.RETRYING for info in hf.jobs.list())
    assert not witness.exists()
    assert "antigravity" not in sys.modules


# Signals


@contextmanager
def record_signals() -> Iterator[list[tuple[str, str, str]]]:
    """Record the signals of a block, in the order in which they were sent: signal, task, status."""
    signals: list[tuple[str, str, str]] = []

    def see(name: str) -> Callable[..., None]:
        return lambda sender, task_result, **_: signals.append((name, task_result.id, str(task_result.status)))

    receivers = {
        signal: see(name)
        for name, signal in [("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)]
    }
    for signal, receiver in receivers.items():
        signal.connect(receiver, sender=HoldfastBackend)
    try:
        yield signals
    finally:
        for signal, receiver in receivers.items():
            signal.disconnect(receiver, sender=HoldfastBackend)


def steps(signals: list[Any], enqueued: Any) -> list[Any]:
    """Return the signals of a task except "enqueued", which is sent once. Its order is not defined: by then the task is
    committed, and a worker may have started it, or even ended it."""
    assert signals.count(enqueued) == 1
    return [each for each in signals if each != enqueued]


@pytest.mark.parametrize(
    ("name", "args", "end"),
    [
        ("add", (1,), "SUCCESSFUL"),
        ("greet", ("Ada",), "SUCCESSFUL"),
        ("fail", ("no",), "FAILED"),
        ("fail_async", (), "FAILED"),
    ],
)
def test_signals_are_sent_for_every_step_and_the_log_has_them(
    shop: Any, caplog: pytest.LogCaptureFixture, name: str, args: tuple[Any, ...], end: str
) -> None:
    with record_signals() as calls, caplog.at_level(logging.DEBUG, FRAMEWORK), working():
        id_ = finished(getattr(shop, name).enqueue(*args)).id
    assert steps(calls, ("enqueued", id_, "READY")) == [("started", id_, "RUNNING"), ("finished", id_, end)]
    records = [r for r in caplog.records if r.name.startswith(FRAMEWORK) and id_ in r.getMessage()]
    states = [r.getMessage().rpartition(" ")[2] for r in records]
    assert steps(states, "backend=default") == ["state=RUNNING", f"state={end}"]
    assert [r.getMessage().rpartition(" ")[2] for r in records if r.exc_info and r.exc_info[0]] == (
        ["state=FAILED"] if end == "FAILED" else []
    )


def test_a_worker_may_have_ended_a_task_before_its_sender_gets_the_enqueued_signal(shop: Any) -> None:
    """The order that a slow sender sees: the tests above must hold in it too."""

    def wait(sender: Any, task_result: TaskResult, **_: Any) -> None:
        wait_until(lambda: len(calls) == 2)

    task_enqueued.connect(wait, sender=HoldfastBackend)
    try:
        with record_signals() as calls, working():
            id_ = finished(shop.add.enqueue(1)).id
    finally:
        task_enqueued.disconnect(wait, sender=HoldfastBackend)
    assert calls == [("started", id_, "RUNNING"), ("finished", id_, "SUCCESSFUL"), ("enqueued", id_, "READY")]
