"""Django's tasks on Holdfast: what Django asks of a backend, the request's transaction, and a worker that runs them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import django_site
import pytest
from asgiref.sync import sync_to_async
from conftest import wait_until
from django.conf import settings
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext, override_settings
from django.utils import timezone
from psycopg.conninfo import conninfo_to_dict

from holdfast import ConfigurationError, Holdfast, Retry, Status
from holdfast.django import HoldfastBackend, app, framework
from holdfast.django import results as django_results
from holdfast.django.framework import (
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from holdfast.worker import Worker

Sql = Callable[..., list[tuple[Any, ...]]]
FRAMEWORK = Task.__module__.removesuffix(".base")
tasks_exceptions = sys.modules[f"{FRAMEWORK}.exceptions"]
InvalidTask = getattr(tasks_exceptions, "InvalidTask", None) or tasks_exceptions.InvalidTaskError
TaskResultMismatch = tasks_exceptions.TaskResultMismatch
ROOT = Path(__file__).parent.parent.parent
PATH = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "src")])
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}


@pytest.fixture
def shop(dsn: str, sql: Sql) -> Iterator[Any]:
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
    """A worker of the project for the length of a block, on a loop of its own."""
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


def project(folder: Path, database: dict[str, Any], tasks: dict[str, Any], *command: str) -> list[str]:
    """Writes a project of its own, and answers how a command of it is run."""
    (folder / "site_settings.py").write_text(
        f"DATABASES = {{'default': {database!r}}}\nTASKS = {tasks!r}\nUSE_TZ = True\nSECRET_KEY = 'x'\n"
        "INSTALLED_APPS = ['shop', 'holdfast.django']\n"
    )
    (folder / "manage.py").write_text(
        "import os, sys\nfrom django.core.management import execute_from_command_line\n"
        "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'site_settings')\nexecute_from_command_line(sys.argv)\n"
    )
    return [sys.executable, "manage.py", *command]


def manage(
    folder: Path, database: dict[str, Any], command: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command of a project, run to its end."""
    tasks = {
        "default": {"BACKEND": django_site.BACKEND, "QUEUES": ["default", "mail"]},
        "immediate": {"BACKEND": f"{FRAMEWORK}.backends.immediate.ImmediateBackend"},
    }
    return subprocess.run(
        project(folder, database, tasks, command), cwd=folder, env=os.environ | {"PYTHONPATH": PATH} | environment,
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


def finished(result: TaskResult) -> TaskResult:
    """The result once its task has ended."""

    def ended() -> bool:
        result.refresh()
        return bool(result.is_finished)

    wait_until(ended)
    return result


# What Django asks of a backend


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
    with pytest.raises(TaskResultDoesNotExist, match=r"a job of 'something\.else', which is no Django task known here"):
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
        Task(func=shop.not_a_task, priority=0, backend="default", queue_name="default", run_after=None,
             takes_context=True)  # fmt: skip
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


@contextmanager
def signals_seen() -> Iterator[list[tuple[str, str, str]]]:
    """The signals of a block, in the order in which they were sent: which, of which task, at which status."""
    seen: list[tuple[str, str, str]] = []

    def see(name: str) -> Callable[..., None]:
        return lambda sender, task_result, **_: seen.append((name, task_result.id, str(task_result.status)))

    receivers = {signal: see(name) for name, signal in
                 [("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)]}  # fmt: skip
    for signal, receiver in receivers.items():
        signal.connect(receiver, sender=HoldfastBackend)
    try:
        yield seen
    finally:
        for signal, receiver in receivers.items():
            signal.disconnect(receiver, sender=HoldfastBackend)


def steps(told: list[Any], enqueued: Any) -> list[Any]:
    """What was told of a task without its "enqueued", which is told once. Nobody promises when: by then the task is
    committed, and a worker may have started it, or even ended it."""
    assert told.count(enqueued) == 1
    return [each for each in told if each != enqueued]


@pytest.mark.parametrize(
    ("name", "args", "end"),
    [("add", (1,), "SUCCESSFUL"), ("greet", ("Ada",), "SUCCESSFUL"), ("fail", ("no",), "FAILED"),
     ("fail_async", (), "FAILED")],
)  # fmt: skip
def test_signals_tell_of_every_step_and_the_log_has_them(
    shop: Any, caplog: pytest.LogCaptureFixture, name: str, args: tuple[Any, ...], end: str
) -> None:
    with signals_seen() as seen, caplog.at_level(logging.DEBUG, FRAMEWORK), working():
        id_ = finished(getattr(shop, name).enqueue(*args)).id
    assert steps(seen, ("enqueued", id_, "READY")) == [("started", id_, "RUNNING"), ("finished", id_, end)]
    records = [r for r in caplog.records if r.name.startswith(FRAMEWORK) and id_ in r.getMessage()]
    states = [r.getMessage().rpartition(" ")[2] for r in records]
    assert steps(states, "backend=default") == ["state=RUNNING", f"state={end}"]
    assert [r.getMessage().rpartition(" ")[2] for r in records if r.exc_info and r.exc_info[0]] == (
        ["state=FAILED"] if end == "FAILED" else []
    )


def test_a_worker_may_have_ended_a_task_before_its_sender_is_told_that_it_is_enqueued(shop: Any) -> None:
    """The order that a slow sender sees: the tests above must hold in it too."""

    def wait(sender: Any, task_result: TaskResult, **_: Any) -> None:
        wait_until(lambda: len(seen) == 2)

    task_enqueued.connect(wait, sender=HoldfastBackend)
    try:
        with signals_seen() as seen, working():
            id_ = finished(shop.add.enqueue(1)).id
    finally:
        task_enqueued.disconnect(wait, sender=HoldfastBackend)
    assert seen == [("started", id_, "RUNNING"), ("finished", id_, "SUCCESSFUL"), ("enqueued", id_, "READY")]


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


# Run by a worker


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
            info = hf.get(result.id)
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
    assert app().cancel(result.id) == {result.id: "canceled"}
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
    told = "select last_error ->> 'message' from jobs where last_error is not null"
    with working() as hf:
        wait_until(lambda: len(sql(told)) == 3)
        assert all("no task named" in message for (message,) in sql(told))
        assert all(info.status is Status.RETRYING for info in hf.list_jobs())
    assert not witness.exists()
    assert "antigravity" not in sys.modules


# Setting it up


def test_the_workers_application_has_every_task_of_the_project(shop: Any) -> None:
    hf = app()
    assert {"shop.tasks.add", "shop.tasks.greet", "shop.tasks.on_another_backend"} <= hf.tasks.keys()
    assert "shop.tasks.not_a_task" not in hf.tasks
    assert hf.settings.queue_list == ["default", "mail"]
    assert conninfo_to_dict(hf.settings.dsn)["dbname"] == settings.DATABASES["default"]["NAME"]
    assert app() is hf
    with pytest.raises(ConfigurationError, match=r"TASKS\['immediate'\] is a ImmediateBackend"):
        app("immediate")
    with pytest.raises(ConfigurationError, match="The connection 'nowhere' doesn't exist"):
        app("nowhere")


def test_modules_named_in_the_options_are_imported(shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outlying.py").write_text(
        f"from {FRAMEWORK} import task\n@task(backend='patient')\ndef far() -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    options = {"TASK_MODULES": ["outlying"], "AUTODISCOVER": False}
    changed = settings.TASKS | {"default": {"BACKEND": django_site.BACKEND, "OPTIONS": options}}
    with override_settings(TASKS=changed):
        assert "outlying.far" in app().tasks


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"lease": 120, "schema": "holdfast", "retry": Retry.fixed(1), "timeout": 5}, []),
        ({"laese": 30}, ["holdfast.E001"]),
        ({"lease": -1}, ["holdfast.E001"]),
        ({"lease": "long"}, ["holdfast.E001"]),
        ({"retry": 3}, ["holdfast.E001"]),
        ({"database": "nowhere"}, ["holdfast.E001"]),
        ({"database": "nowhere", "dsn": "postgresql://127.0.0.1/x"}, ["holdfast.E001"]),
        ({"database": "sqlite"}, ["holdfast.E002"]),
        ({"database": None}, ["holdfast.E002"]),
        ({"database": "sqlite", "dsn": "postgresql://127.0.0.1/x"}, ["holdfast.W001"]),
        ({"database": None, "dsn": "postgresql://127.0.0.1/x"}, []),
    ],
)
def test_manage_py_check_judges_the_options(shop: Any, options: dict[str, Any], expected: list[str]) -> None:
    changed = {"default": {"BACKEND": django_site.BACKEND, "OPTIONS": options}}
    with override_settings(TASKS=changed):
        assert [message.id for message in run_checks()] == expected


def test_without_time_zones_times_are_local_ones(shop: Any) -> None:
    with override_settings(USE_TZ=False):
        connections.close_all()
        for backend in ("default", "apart"):
            at = timezone.make_naive(datetime.now(UTC) + timedelta(seconds=0.2))
            result = shop.add.using(run_after=at, backend=backend).enqueue(1)
            assert shop.add.using(backend=backend).get_result(result.id) == result
            with working():
                finished(result)
            assert result.enqueued_at <= result.started_at <= result.finished_at
            assert result.started_at.tzinfo is None
            assert result.started_at >= at
    connections.close_all()


def test_the_management_commands_migrate_and_run_a_project(shop: Any, dsn: str, tmp_path: Path, capsys: Any) -> None:
    call_command("holdfast_migrate")
    assert "schema holdfast is at version" in capsys.readouterr().out
    entry = django_site.database(dsn)
    tasks = {"default": {"BACKEND": django_site.BACKEND, "QUEUES": ["default", "mail"]},
             "immediate": {"BACKEND": f"{FRAMEWORK}.backends.immediate.ImmediateBackend"}}  # fmt: skip
    command = project(tmp_path, entry, tasks, "holdfast_worker", "--concurrency", "3", "--processes", "1")
    worker = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": PATH}, stderr=subprocess.PIPE)
    try:
        assert finished(shop.add.enqueue(1)).return_value == 3
        assert finished(shop.greet.enqueue("Ada")).return_value == "hello Ada"
    finally:
        worker.terminate()
        told = worker.communicate(timeout=30)[1].decode()
    assert worker.returncode == 0, told
    assert "concurrency=3" in told


def test_a_new_projects_sqlite_is_told_of_although_nothing_else_is_installed(tmp_path: Path) -> None:
    told = manage(tmp_path, SQLITE, "check", HOLDFAST_DSN="postgresql://127.0.0.1:1/x")
    assert told.returncode == 0
    assert "(holdfast.W001) TASKS['default']: database 'default' is not PostgreSQL" in told.stderr
    told = manage(tmp_path, SQLITE, "check", HOLDFAST_DSN="")
    assert told.returncode == 1
    assert "(holdfast.E002) TASKS['default'] has no PostgreSQL database" in told.stderr


AWAY = django_site.database("host=127.0.0.1 port=1 dbname=x user=u")


@pytest.mark.parametrize(
    ("command", "database", "said"),
    [
        ("holdfast_migrate", SQLITE, "has no PostgreSQL database"),
        ("holdfast_worker", SQLITE, "has no PostgreSQL database"),
        ("holdfast_migrate", AWAY, "CommandError: the database at"),  # a worker waits for its database instead
    ],
)
def test_a_command_without_its_database_says_so_in_a_line(
    tmp_path: Path, command: str, database: dict[str, Any], said: str
) -> None:
    told = manage(tmp_path, database, command, HOLDFAST_DSN="")
    assert told.returncode == 1
    assert said in told.stderr
    assert "Traceback" not in told.stderr


def test_the_framework_is_djangos_own_where_there_is_one() -> None:
    import django

    assert framework.Task.__module__ == ("django.tasks.base" if django.VERSION >= (6,) else "django_tasks.base")
