"""Conversion of jobs to Django's results: statuses, times, errors and priorities."""

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
    """Map Django's priorities (-100 to 100) to Holdfast's four: 50 and more, 1 to 49, 0, less."""
    if priority >= 50:
        return 0
    if priority > 0:
        return 1
    return 2 if priority == 0 else 3


def fresh(task: Task, id_: str, args: list[Any], kwargs: dict[str, Any], alias: str, **more: Any) -> TaskResult:
    """Return the result of a task that has not ended."""
    values: dict[str, Any] = {"status": TaskResultStatus.READY, "started_at": None, "worker_ids": []} | more
    return TaskResult(
        task=task, id=id_, args=args, kwargs=kwargs, backend=alias, enqueued_at=made_at(id_),
        last_attempted_at=values["started_at"], finished_at=None, errors=[], **values,
    )  # fmt: skip


def stored(info: JobInfo, task: Task, alias: str) -> TaskResult:
    """Return the result of a stored job. `task` is any task of the same function."""
    call, started = info.payload, local(info.started_at)
    enqueued = made_at(info.id) or local(info.created_at)
    if started is not None and enqueued is not None:
        enqueued = min(enqueued, started)  # the id has the client's clock, the rest the database's
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
    """Return the task with the options it was enqueued with."""
    run_after = call.get("run_after")
    return dataclasses.replace(
        task, backend=alias, queue_name=queue, priority=call.get("priority", 0),
        run_after=None if run_after is None else datetime.fromisoformat(run_after),
    )  # fmt: skip


def error(details: Mapping[str, Any]) -> TaskError:
    """Convert a stored error to Django's; built-in types are stored without their module."""
    name = str(details.get("type", "Exception"))
    path = name if "." in name else f"builtins.{name}"
    return TaskError(exception_class_path=path, traceback=str(details.get("traceback") or details.get("message", "")))


def workers(attempts: int, last: str | None) -> list[str]:
    """Return one worker id per attempt, which is how Django counts them; only the last is known."""
    return [UNKNOWN_WORKER] * (attempts - 1) + [last or UNKNOWN_WORKER] * (attempts > 0)


def made_at(id_: str) -> datetime | None:
    """Return the time in a job's id, if it is a UUIDv7."""
    parsed = uuid.UUID(id_)
    return local(datetime.fromtimestamp((parsed.int >> 80) / 1000, UTC)) if parsed.version == 7 else None


def local(at: datetime | None) -> datetime | None:
    """Convert a time to this project's form: aware, or naive local time."""
    if at is None or timezone.is_aware(at) == settings.USE_TZ:
        return at
    time: datetime = timezone.make_aware(at) if settings.USE_TZ else timezone.make_naive(at)
    return time
