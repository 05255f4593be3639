"""Jobs as Django's results: statuses, times, errors and priorities in Django's words."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from holdfast.django.framework import Task, TaskError, TaskResult, TaskResultStatus
from holdfast.model.job import JobInfo, Status

UNKNOWN_WORKER = "unknown"
_STATUS = {
    Status.QUEUED: TaskResultStatus.READY,
    Status.RETRYING: TaskResultStatus.READY,
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
}


def level(priority: int) -> int:
    """Holdfast's four priorities for Django's -100 to 100: 50 and more, 1 to 49, 0, less."""
    if priority >= 50:
        return 0
    if priority > 0:
        return 1
    return 2 if priority == 0 else 3


def fresh(task: Task, id_: str, args: list[Any], kwargs: dict[str, Any], alias: str, **more: Any) -> TaskResult:
    """The result of a task that has not ended."""
    given: dict[str, Any] = {"status": TaskResultStatus.READY, "started_at": None, "worker_ids": []} | more
    return TaskResult(
        task=task, id=id_, args=args, kwargs=kwargs, backend=alias, enqueued_at=made_at(id_),
        last_attempted_at=given["started_at"], finished_at=None, errors=[], **given,
    )  # fmt: skip


def stored(info: JobInfo, task: Task, alias: str) -> TaskResult:
    """The result of a job as the database has it. `task` is any task of the same function."""
    call, started = info.payload, local(info.started_at)
    enqueued = made_at(info.id) or local(info.created_at)
    if started is not None and enqueued is not None:
        enqueued = min(enqueued, started)  # two clocks: the id has the client's, the rest is the database's
    result = TaskResult(
        task=variant(task, alias, info.queue, call),
        id=info.id, args=call["args"], kwargs=call["kwargs"], backend=alias,
        status=_STATUS.get(info.status, TaskResultStatus.FAILED),
        enqueued_at=enqueued, started_at=started, last_attempted_at=started, finished_at=local(info.finished_at),
        errors=[] if info.last_error is None else [error(info.last_error)],
        worker_ids=workers(info.attempts, info.locked_by),
    )  # fmt: skip
    if info.status is Status.SUCCEEDED:
        object.__setattr__(result, "_return_value", info.result)
    return result


def variant(task: Task, alias: str, queue: str, call: Mapping[str, Any]) -> Task:
    """The task with the options it was enqueued with."""
    run_after = call.get("run_after")
    return dataclasses.replace(
        task, backend=alias, queue_name=queue, priority=call.get("priority", 0),
        run_after=None if run_after is None else datetime.fromisoformat(run_after),
    )  # fmt: skip


def error(told: Mapping[str, Any]) -> TaskError:
    """An error as Holdfast stores it, as Django's; types of Python's own are stored without their module."""
    name = str(told.get("type", "Exception"))
    path = name if "." in name else f"builtins.{name}"
    return TaskError(exception_class_path=path, traceback=str(told.get("traceback") or told.get("message", "")))


def workers(attempts: int, last: str | None) -> list[str]:
    """One id for each attempt, which is how Django counts them; only the last worker's is kept."""
    return [UNKNOWN_WORKER] * (attempts - 1) + [last or UNKNOWN_WORKER] * (attempts > 0)


def made_at(id_: str) -> datetime | None:
    """When a job's id was made: a UUIDv7 begins with it."""
    given = uuid.UUID(id_)
    return local(datetime.fromtimestamp((given.int >> 80) / 1000, UTC)) if given.version == 7 else None


def local(at: datetime | None) -> datetime | None:
    """A time as this project keeps them: with a zone, or in local time without one."""
    if at is None or timezone.is_aware(at) == settings.USE_TZ:
        return at
    changed: datetime = timezone.make_aware(at) if settings.USE_TZ else timezone.make_naive(at)
    return changed
