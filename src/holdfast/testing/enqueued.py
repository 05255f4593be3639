"""Find jobs by the values they were enqueued with, and describe the nearest when none fits.

The expected job is written like the enqueue: `send.using(tenant="acme", delay=60)` and some of the arguments. Only
given values are compared, in their JSON form.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.client import Enqueuer
from holdfast.errors import UsageError
from holdfast.model import payload
from holdfast.model.codec import enc_hook
from holdfast.model.job import JobInfo

SHOWN = 10
_WIDEST = 70
_COMPARED = ("tenant", "queue", "priority", "delay", "run_at", "deadline", "max_attempts", "dedupe", "batch", "id")


def name_of(task: Enqueuer[Any, Any] | str) -> str:
    """Return the name of a task, of the result of its using(), or the given name."""
    return task if isinstance(task, str) else task._task.name


class ExpectedJob:
    """A description that jobs are compared with."""

    def __init__(
        self,
        task: Enqueuer[Any, Any] | str | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tolerance: timedelta,
    ) -> None:
        self.task = None if task is None else name_of(task)
        self._tolerance = tolerance
        self._defaults: dict[str, Any] = {}
        self._options: dict[str, Any] = {}
        self._args = dict(kwargs)
        if isinstance(task, Enqueuer):
            self._args = task._task.signature.bind_some(args, kwargs)
            self._defaults = _defaults(task)
            self._options = _options(task)
        elif args:
            raise UsageError("arguments go by name when a task is given by name; pass the task itself")
        self._args = {name: as_json(value) for name, value in self._args.items()}

    def differences(self, job: JobInfo) -> list[str]:
        """Describe how a job of the same task differs."""
        texts = []
        for name, value in self._args.items():
            actual = job.payload.get(name, self._defaults.get(name, _Missing))
            if not actual == value:  # noqa: SIM201 - a matcher such as mock.ANY may define equality alone
                texts.append(f"{name} is {short(actual)}, not {short(value)}")
        return texts + [text for name, value in self._options.items() if (text := self._differs(name, value, job))]

    def is_task_of(self, job: JobInfo) -> bool:
        """Return whether the job is of the expected task."""
        return self.task in (None, job.task)

    def fits(self, job: JobInfo) -> bool:
        """Return whether the job fits."""
        return self.is_task_of(job) and not self.differences(job)

    def __str__(self) -> str:
        options = "".join(f" {name}={short(value)}" for name, value in self._options.items())
        return f"{self.task or 'any task'}({_arguments(self._args)}){options}"

    def _differs(self, name: str, value: Any, job: JobInfo) -> str:
        if name in ("delay", "deadline"):
            at = job.run_at if name == "delay" else job.deadline
            after = None if at is None else at - job.created_at
            near = after is not None and abs(after - timedelta(seconds=value)) <= self._tolerance
            actual = "none" if after is None else f"{after.total_seconds():g} s"
            return "" if near else f"{name} is {actual}, not {value:g} s"
        if name == "run_at":
            near = abs(job.run_at - value) <= self._tolerance
            return "" if near else f"run_at is {job.run_at}, not {value}"
        if name == "dedupe":
            key = payload.dedupe_key(job.task, job.tenant, value)
            return "" if job.dedupe_key == key else f"dedupe key is {short(job.dedupe_key)}, not {short(key)}"
        actual = getattr(job, name)
        return "" if actual == value else f"{name} is {short(actual)}, not {short(value)}"


def describe(wanted: ExpectedJob, jobs: Sequence[JobInfo], now: datetime) -> str:
    """Describe the jobs, nearest first."""
    if not jobs:
        return "nothing was enqueued in this test"
    near = sorted(jobs, key=lambda job: (not wanted.is_task_of(job), len(wanted.differences(job))))
    lines = [f"{len(jobs)} enqueued in this test, nearest first:"]
    for job in near[:SHOWN]:
        lines.append(f"  {_line(job, now)}")
        if wanted.is_task_of(job):
            lines += [f"      {text}" for text in wanted.differences(job)]
    if len(near) > SHOWN:
        lines.append(f"  ... and {len(near) - SHOWN} more")
    return "\n".join(lines)


class _Missing:
    """Stands for an argument that the job does not have."""


def _defaults(task: Enqueuer[Any, Any]) -> dict[str, Any]:
    parameters = inspect.signature(task._task.handler).parameters.values()
    return {each.name: as_json(each.default) for each in parameters if each.default is not each.empty}


def _options(task: Enqueuer[Any, Any]) -> dict[str, Any]:
    """Return the options given to using(...), without those that equal the task's own queue and priority."""
    given, own = task._options, task._task
    options = {each.name: value for each in fields(given) if (value := getattr(given, each.name)) is not None}
    defaults = {"queue": own.queue, "priority": own.priority}
    options = {k: v for k, v in options.items() if k != "conn" and not (k in defaults and v == defaults[k])}
    if other := set(options) - set(_COMPARED):
        raise UsageError(f"{min(other)} is not stored with a job, so it cannot be compared")
    if "dedupe" in options and not isinstance(options["dedupe"], str):
        raise UsageError("a derived dedupe key follows from the arguments; compare those, or give a key as text")
    if "batch" in options:
        options["batch"] = getattr(options["batch"], "id", options["batch"])
    return options


def as_json(value: Any) -> Any:
    """Return a value in its JSON form; a value without one (mock.ANY, pytest.approx) is returned unchanged."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=enc_hook))
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
        return value


def _line(job: JobInfo, now: datetime) -> str:
    when = f" due in {(job.run_at - now).total_seconds():.0f} s" if not job.status.final and job.run_at > now else ""
    tenant = f" tenant={job.tenant}" if job.tenant is not None else ""
    return f"{job.task}({_arguments(job.payload)}) queue={job.queue}{tenant} {job.status}{when}"


def _arguments(args: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={short(value)}" for name, value in args.items())


def short(value: Any) -> str:
    text = "missing" if value is _Missing else repr(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
