"""Looks for jobs the way they were enqueued, and says what there is instead when none fits.

What to look for is written like the enqueue itself: `send.using(tenant="acme", delay=60)` and some of the arguments.
Only what was said is compared, after the journey through JSON.
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
    """A task's name, from it, from what its using() made, or as given."""
    return task if isinstance(task, str) else task._task.name


class Wanted:
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
            raise UsageError("arguments go by name unless the task itself is given, not its name")
        self._args = {name: as_json(value) for name, value in self._args.items()}

    def differences(self, job: JobInfo) -> list[str]:
        """In what a job of the same task differs, in words."""
        found = []
        for name, value in self._args.items():
            there = job.payload.get(name, self._defaults.get(name, _Missing))
            if not there == value:  # noqa: SIM201 - a matcher such as mock.ANY may define equality alone
                found.append(f"{name} is {short(there)}, not {short(value)}")
        return found + [text for name, value in self._options.items() if (text := self._differs(name, value, job))]

    def is_task_of(self, job: JobInfo) -> bool:
        """Whether the job's task is the one looked for."""
        return self.task in (None, job.task)

    def fits(self, job: JobInfo) -> bool:
        """Whether the job is what is looked for."""
        return self.is_task_of(job) and not self.differences(job)

    def __str__(self) -> str:
        options = "".join(f" {name}={short(value)}" for name, value in self._options.items())
        return f"{self.task or 'any task'}({_arguments(self._args)}){options}"

    def _differs(self, name: str, value: Any, job: JobInfo) -> str:
        if name in ("delay", "deadline"):
            at = job.run_at if name == "delay" else job.deadline
            after = None if at is None else at - job.created_at
            near = after is not None and abs(after - timedelta(seconds=value)) <= self._tolerance
            told = "none" if after is None else f"{after.total_seconds():g} s"
            return "" if near else f"{name} is {told}, not {value:g} s"
        if name == "run_at":
            near = abs(job.run_at - value) <= self._tolerance
            return "" if near else f"run_at is {job.run_at}, not {value}"
        if name == "dedupe":
            key = payload.dedupe_key(job.task, job.tenant, value)
            return "" if job.dedupe_key == key else f"dedupe key is {short(job.dedupe_key)}, not {short(key)}"
        there = getattr(job, name)
        return "" if there == value else f"{name} is {short(there)}, not {short(value)}"


def describe(wanted: Wanted, jobs: Sequence[JobInfo], now: datetime) -> str:
    """What there is, nearest first."""
    if not jobs:
        return "nothing was enqueued in this test"
    near = sorted(jobs, key=lambda job: (not wanted.is_task_of(job), len(wanted.differences(job))))
    lines = [f"{len(jobs)} enqueued in this test, nearest first:"]
    for job in near[:SHOWN]:
        lines.append(f"  {_told(job, now)}")
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
    """What using(...) said; the task's own queue and priority were not said."""
    options, own = task._options, task._task
    said = {each.name: value for each in fields(options) if (value := getattr(options, each.name)) is not None}
    said = {k: v for k, v in said.items() if k != "conn" and not (k in ("queue", "priority") and v == getattr(own, k))}
    if other := set(said) - set(_COMPARED):
        raise UsageError(f"{min(other)} is not kept with a job, so it cannot be looked for")
    if "dedupe" in said and not isinstance(said["dedupe"], str):
        raise UsageError("a derived dedupe key follows from the arguments; look for those, or for a key of your own")
    if "batch" in said:
        said["batch"] = getattr(said["batch"], "id", said["batch"])
    return said


def as_json(value: Any) -> Any:
    """A value as it arrives; what JSON cannot carry is compared as it is (mock.ANY, pytest.approx)."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=enc_hook))
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
        return value


def _told(job: JobInfo, now: datetime) -> str:
    when = f" due in {(job.run_at - now).total_seconds():.0f} s" if not job.status.final and job.run_at > now else ""
    tenant = f" tenant={job.tenant}" if job.tenant is not None else ""
    return f"{job.task}({_arguments(job.payload)}) queue={job.queue}{tenant} {job.status}{when}"


def _arguments(args: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={short(value)}" for name, value in args.items())


def short(value: Any) -> str:
    text = "missing" if value is _Missing else repr(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
