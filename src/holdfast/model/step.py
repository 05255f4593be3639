"""Durable steps as values: rows of a job's steps, what a handler waits for, and how children end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from holdfast.errors import UsageError
from holdfast.model.outcome import Fail
from holdfast.model.retry import Retry, check_policy

Runner = Literal["async", "thread", "process"]
NOT_OF_UNDO = ("delay", "run_at", "after", "deadline", "batch", "id", "conn")  # options of one job
FOLLOWS = ("cancel", "skip", "run")  # on_failure: what becomes of a job if one that it follows does not succeed


class Parked(BaseException):
    """Ends a handler's run until its wait is over. Not an Exception, so that `except Exception` lets it pass."""

    def __init__(self, kind: str, name: str, seconds: float | None = None) -> None:
        super().__init__(f"the job waits for {kind} {name!r}; its handler must let this pass")
        self.kind = kind
        self.name = name
        self.seconds = seconds


def parked_in(error: BaseException, depth: int = 20) -> Parked | None:
    """Return the Parked of an exception, or of a group that a TaskGroup has made of it."""
    if isinstance(error, Parked):
        return error
    if isinstance(error, BaseExceptionGroup) and depth:
        return next((found for each in error.exceptions if (found := parked_in(each, depth - 1))), None)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """The options of ctx.step()."""

    undo: Any = None
    retry: Retry | None = None
    timeout: float | None = None
    runner: Runner | None = None

    def __post_init__(self) -> None:
        given: Any = self  # callers may not use a type checker
        if given.undo is not None and not hasattr(given.undo, "job_of"):
            raise UsageError(
                f"undo is a task, so that it can run as a job of its own; decorate {given.undo!r:.60} with @hf.task()"
            )
        for each in given.undo.given_options if given.undo is not None else ():
            if each in NOT_OF_UNDO:
                raise UsageError(
                    f"undo cannot have {each}=: it is enqueued when the job has failed, and starts after the undo of "
                    "later steps"
                )
        if given.retry is not None:
            check_policy(given.retry)
        if given.timeout is not None and not given.timeout > 0:
            raise UsageError(f"the timeout of a step must be a number of seconds above 0, got {given.timeout!r}")
        if given.runner not in (None, "async", "thread", "process"):
            raise UsageError(f"the runner of a step must be 'async', 'thread' or 'process', got {given.runner!r}")


class ChildFailed(Fail):
    """A child of ctx.call() did not succeed. `status` and `error` are the child's."""

    def __init__(self, name: str, job_id: str | None, status: str, error: dict[str, Any] | None) -> None:
        why = f": {error.get('type')}: {error.get('message')}" if error else ""
        super().__init__(f"child {name!r} (job {job_id}) is {status}{why}", code="CHILD_FAILED")
        self.status = status
        self.error = error


class GatherFailed(Fail):
    """More children of a batch did not succeed than ctx.gather() allows."""

    def __init__(self, name: str, failed: int, total: int, allowed: float) -> None:
        super().__init__(
            f"{failed} of {total} jobs of batch {name!r} did not succeed, more than the allowed share of {allowed:g}",
            code="CHILDREN_FAILED",
        )


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A step as a handler reads it back. `result` is JSON."""

    name: str
    kind: str
    finished: bool
    timed_out: bool
    result: str | None
    ref: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class StepInfo:
    """A step as people see it. kind: step, sleep, signal, batch or call. ref: the child, or the children's batch. undo:
    the task that undoes it; undo_job: its job."""

    name: str
    kind: str
    started_at: datetime
    finished_at: datetime | None
    due_at: datetime | None
    timed_out: bool
    attempt: int | None
    result: Any
    ref: str | None
    undo: str | None
    undo_job: str | None


@dataclass(frozen=True, slots=True)
class Relatives:
    """The jobs around a job. parent: it called this one, or opened its batch. after: this one waits for them to end.
    followers: they wait for this one; children: it called them. Up to 100 each."""

    parent: str | None
    children: list[str]
    after: list[str]
    followers: list[str]
