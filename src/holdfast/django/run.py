"""Run a Django task as a job, with its context, its signals, and database connections that are closed after it.

Signals are sent robustly: an error in a receiver must not make a completed task run again.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import socket
from collections.abc import Callable
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections
from django.utils import timezone

from holdfast.django import results
from holdfast.django.framework import (
    Task,
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from holdfast.model.context import CONTEXT, Context
from holdfast.model.outcome import Verdict, describe

LONGEST_TRACEBACK = 16_384
Judge = Callable[[BaseException, str | None], str]  # an error and its code: error, failed or dead


def handler(task: Task, alias: str, sender: type[Any], judge: Judge) -> Callable[..., Any]:
    """Return the handler of this task; its parameters are the job's payload."""

    def begin(
        args: list[Any],
        kwargs: dict[str, Any],
        priority: int = 0,
        run_after: str | None = None,
        *,
        ctx: Context = CONTEXT,
    ) -> Any:
        options = {"priority": priority, "run_after": run_after}
        return TaskAttempt(results.variant(task, alias, ctx.queue, options), ctx, args, kwargs, sender, judge)

    @functools.wraps(begin)  # with its parameters
    def run(*args: Any, **kwargs: Any) -> Any:
        return _run(begin(*args, **kwargs))

    @functools.wraps(begin)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        return await _arun(begin(*args, **kwargs))

    return arun if inspect.iscoroutinefunction(task.func) else run


class TaskAttempt:
    """One attempt at a task, and the result that its context and signal receivers get."""

    def __init__(
        self, task: Task, ctx: Context, args: list[Any], kwargs: dict[str, Any], sender: type[Any], judge: Judge
    ) -> None:
        self._ctx = ctx
        self._judge = judge
        self.task = task
        self.sender = sender
        here = f"{socket.gethostname()}:{os.getpid()}"
        self.result: TaskResult = results.fresh(
            task,
            ctx.job_id,
            args,
            kwargs,
            task.backend,
            status=TaskResultStatus.RUNNING,
            started_at=timezone.now(),
            worker_ids=results.workers(ctx.attempt, here),
        )

    def call(self) -> Any:
        """Call the task's function; for a coroutine function, return the coroutine."""
        first = (TaskContext(task_result=self.result),) if self.task.takes_context else ()
        return self.task.func(*first, *self.result.args, **self.result.kwargs)

    def succeed(self, value: Any) -> Any:
        """Store the return value, normalized by JSON, and return it."""
        self._end(TaskResultStatus.SUCCESSFUL, _return_value=normalize_json(value))
        return self.result._return_value

    def fail(self, error: BaseException) -> bool:
        """Store an error; return whether the task has ended with it."""
        details = describe(error, LONGEST_TRACEBACK)
        self.result.errors.append(results.error(details))
        outcome = error.outcome if isinstance(error, Verdict) else self._judge(error, details.get("code"))
        if outcome == "snoozed" or (outcome == "error" and not self._ctx.last_attempt):
            return False
        self._end(TaskResultStatus.FAILED)
        return True

    def _end(self, status: TaskResultStatus, **values: Any) -> None:
        for name, value in {"status": status, "finished_at": timezone.now(), **values}.items():
            object.__setattr__(self.result, name, value)  # a frozen dataclass


def _run(attempt: TaskAttempt) -> Any:
    close_old_connections()
    try:
        task_started.send_robust(attempt.sender, task_result=attempt.result)
        try:
            value = attempt.succeed(attempt.call())
        except BaseException as error:
            if attempt.fail(error):
                task_finished.send_robust(attempt.sender, task_result=attempt.result)
            raise
        task_finished.send_robust(attempt.sender, task_result=attempt.result)
        return value
    finally:
        close_old_connections()


async def _arun(attempt: TaskAttempt) -> Any:
    """Run an attempt like an async view: sync code gets its own thread, whose connections are closed at the end."""
    async with ThreadSensitiveContext():
        try:
            await _send(task_started, attempt)
            try:
                value = attempt.succeed(await attempt.call())
            except asyncio.CancelledError:
                raise  # the worker ends this attempt and determines its outcome
            except BaseException as error:
                if attempt.fail(error):
                    await _send(task_finished, attempt)
                raise
            await _send(task_finished, attempt)
            return value
        finally:
            await sync_to_async(connections.close_all)()


async def _send(signal: Any, attempt: TaskAttempt) -> None:
    # Not asend_robust: it calls receivers in separate asyncio tasks, where sys.exc_info() is empty.
    await sync_to_async(signal.send_robust)(attempt.sender, task_result=attempt.result)
