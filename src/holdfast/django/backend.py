"""The backend for Django's TASKS: enqueues in the request's transaction and reads results from the jobs' database."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.core import checks
from django.db import connections
from django.utils import timezone

from holdfast.client import Holdfast
from holdfast.client import Task as HoldfastTask
from holdfast.django import registry, results, run
from holdfast.django.framework import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    normalize_json,
    task_enqueued,
)
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.model.job import JobInfo
from holdfast.model.retry import Retry
from holdfast.settings import Settings
from holdfast.store.wire.connect import make_dsn

OURS = {"database", "retry", "timeout", "TASK_MODULES", "AUTODISCOVER", "MIGRATE"}
_lock = threading.Lock()
_apps: dict[str, tuple[Mapping[str, Any], str | None, Holdfast]] = {}


class HoldfastBackend(BaseTaskBackend):
    """Runs Django's tasks as Holdfast's jobs, named by the path of their function. See docs/guides/django.md."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self._params = params
        self.retry = self.options.get("retry", Retry.none())

    @property
    def hf(self) -> Holdfast:
        """Return the Holdfast application of this alias, which the backends of all threads share."""
        with _lock:
            params, name, app = _apps.get(self.alias, (None, None, None))
            if app is None or params != self._params or name != self._database_name:
                app = Holdfast(**self._settings())
                _apps[self.alias] = (self._params, self._database_name, app)
            return app

    def migrates(self, using: str) -> bool:
        """Return whether `manage.py migrate` creates this backend's schema in this database."""
        enabled = self.options.get("MIGRATE", True) and self._database == using
        return bool(enabled) and connections[using].vendor == "postgresql"

    def settings_in(self, conn: Any) -> Settings:
        """Return this backend's settings for the database of a Django connection, which tests replace."""
        return Settings.load(**{**self._settings(), "dsn": _dsn(conn)})

    def validate_task(self, task: Task) -> None:
        """Refuse a task that cannot run, and register one that can: jobs never cause an import by name."""
        super().validate_task(task)
        registry.remember(task)

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Enqueue a task, in the current transaction of the database's connection."""
        self.validate_task(task)
        call: dict[str, Any] = {"args": normalize_json(args), "kwargs": normalize_json(kwargs)}
        more = {"priority": int(task.priority) or None, "run_after": task.run_after and task.run_after.isoformat()}
        using = self.register(task).using(
            queue=task.queue_name,
            priority=results.level(task.priority),
            run_at=_aware(task.run_after),
            retry=self.options.get("retry"),
            conn=self._conn(),
        )
        job = using.enqueue(**call, **{name: value for name, value in more.items() if value is not None})
        result: TaskResult = results.fresh(task, job.id, call["args"], call["kwargs"], self.alias)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return a task's result by its id."""
        try:
            info = self._find(str(uuid.UUID(str(result_id))))
        except ValueError:
            raise TaskResultDoesNotExist(result_id) from None
        if info is None:
            raise TaskResultDoesNotExist(result_id)
        task = registry.find(info.task, self.options)
        if task is None or not {"args", "kwargs"} <= info.payload.keys():
            raise TaskResultDoesNotExist(f"{result_id} is a job of {info.task!r}, which is not a known Django task")
        return results.stored(info, task, self.alias)

    def register(self, task: Task) -> HoldfastTask[Any, Any]:
        """Return the Holdfast task for a Django task."""
        hf, name = self.hf, task.module_path
        with _lock:
            if name not in hf.registry.tasks:
                register = hf.task(
                    name=name,
                    queue=task.queue_name,
                    priority=results.level(task.priority),
                    retry=self.retry,
                    timeout=self.options.get("timeout"),
                )
                register(run.handler(task, self.alias, type(self), self._judge))
            return hf.registry.tasks[name]

    def _judge(self, error: BaseException, code: str | None) -> str:
        """Return the outcome of an error, as the worker will determine it."""
        return self.retry.outcome(error, code) or self.hf.registry.errors.outcome(error, code)

    def check(self, **kwargs: Any) -> Iterator[checks.CheckMessage]:
        """Check the options, for `manage.py check`."""
        yield from super().check(**kwargs)
        try:
            dsn, conn = self.hf.settings.dsn, self._conn()
        except (HoldfastError, TypeError) as error:
            yield checks.Error(f"TASKS[{self.alias!r}]: {error}", id="holdfast.E001")
            return
        if conn is None and not dsn:
            yield checks.Error(
                f"TASKS[{self.alias!r}] has no PostgreSQL database",
                hint='name one of DATABASES in OPTIONS["database"], or set OPTIONS["dsn"] or HOLDFAST_DSN',
                id="holdfast.E002",
            )
        elif conn is None and self._database is not None:
            yield checks.Warning(
                f"TASKS[{self.alias!r}]: database {self._database!r} is not PostgreSQL, so tasks are enqueued on a "
                "separate connection, independent of the request's transaction",
                hint='set OPTIONS["database"] to None if this is intended',
                id="holdfast.W001",
            )

    @property
    def _database(self) -> str | None:
        name: str | None = self.options.get("database", "default")
        if name is not None and name not in connections:
            raise ConfigurationError(f"OPTIONS['database'] is {name!r}, which is not in DATABASES")
        return name

    @property
    def _database_name(self) -> str | None:
        """Return the name of Django's database, which its test runner changes."""
        name = self._database
        return None if name is None else connections[name].settings_dict["NAME"]

    def _conn(self) -> Any:
        """Return this thread's connection to the jobs' database; None if Django has none."""
        name = self._database
        return connections[name] if name is not None and connections[name].vendor == "postgresql" else None

    def _settings(self) -> dict[str, Any]:
        if not isinstance(self.retry, Retry):
            raise ConfigurationError(f"OPTIONS['retry'] must be a policy such as Retry.fixed(60), got {self.retry!r}")
        settings = {name: value for name, value in self.options.items() if name not in OURS}
        if "dsn" not in settings and (conn := self._conn()) is not None:
            settings["dsn"] = _dsn(conn)
        if self._params.get("QUEUES"):
            settings.setdefault("queues", ",".join(self._params["QUEUES"]))
        return settings

    def _find(self, id_: str) -> JobInfo | None:
        conn = self._conn()
        if conn is None:
            return self.hf.jobs.get(id_)
        info = self.hf.database.sync_pool.run(self.hf.database.calls.jobs.get(id_), conn)
        # Django's connections return jsonb as text.
        jsonb = {name: _loaded(getattr(info, name)) for name in ("result", "last_error", "progress")} if info else {}
        return info and replace(info, **jsonb)


def _dsn(conn: Any) -> str:
    # Without Django's application_name, so that pg_stat_activity distinguishes the two.
    return make_dsn(conn.get_connection_params() | {"application_name": None})


def _loaded(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _aware(at: Any) -> Any:
    return timezone.make_aware(at) if at is not None and timezone.is_naive(at) else at
