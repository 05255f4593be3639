"""Holdfast: the application object. It registers tasks, enqueues and looks after jobs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from holdfast.client.task import Dedupe, Task
from holdfast.errors import ConfigurationError, UnknownTask
from holdfast.model import retry as retries
from holdfast.model.context import Context
from holdfast.model.job import JobInfo, parse_id
from holdfast.model.retry import Retry
from holdfast.settings import Settings
from holdfast.store.calls import Calls, Filter

if TYPE_CHECKING:
    from holdfast.store.migrate import Migrated
    from holdfast.store.pools import AsyncPool, SyncPool

P = ParamSpec("P")
R = TypeVar("R")


class Decorator:
    """What `hf.task(...)` returns: turns a handler into a Task, keeping its arguments' types."""

    def __init__(self, register: Callable[..., Task[Any, Any]]) -> None:
        self._register = register

    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[P, Coroutine[Any, Any, R]]) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[P, R]) -> Task[P, R]: ...
    def __call__(self, handler: Callable[..., Any]) -> Task[Any, Any]:
        return self._register(handler)


class Holdfast:
    """One application's jobs: `hf = Holdfast()`, then `@hf.task()` on its handlers.

    Settings come from the environment (HOLDFAST_DSN and so on); values given here win. Nothing connects before the
    first call that needs the database.
    """

    def __init__(self, dsn: str | None = None, **settings: Any) -> None:
        self.settings = Settings.load(dsn=dsn, **settings)
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.calls = Calls(self.settings.schema)

    @functools.cached_property
    def sync_pool(self) -> SyncPool:
        """The way to the database for threads."""
        from holdfast.store.pools import (
            SyncPool,
        )  # psycopg takes half of the import time; a web process may never need it

        return SyncPool(self.settings)

    @functools.cached_property
    def async_pool(self) -> AsyncPool:
        """The way to the database for coroutines."""
        from holdfast.store.pools import AsyncPool

        return AsyncPool(self.settings)

    def task(
        self,
        _misplaced: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 2,
        retry: Retry = retries.DEFAULT,
        timeout: float | None = None,
        dedupe: Dedupe | None = None,
    ) -> Decorator:
        """Registers a handler as a task. The task's name is `module.function` unless given."""
        if _misplaced is not None:
            raise ConfigurationError("write @hf.task() with parentheses; its options go between them")
        given: object = retry
        if not isinstance(given, Retry):
            raise ConfigurationError(f"retry is a policy such as Retry.fixed(60, max_attempts=3), got {given!r}")

        def register(handler: Callable[..., Any]) -> Task[Any, Any]:
            task: Task[Any, Any] = Task(
                self, handler, name=name or _name(handler), queue=queue, priority=priority, retry=retry,
                timeout=timeout, dedupe=dedupe,
            )  # fmt: skip
            if task.name in self.tasks:
                raise ConfigurationError(f"two tasks are named {task.name!r}; give one of them another name=")
            self.tasks[task.name] = task
            return task

        return Decorator(register)

    def find_task(self, name: str) -> Task[Any, Any]:
        """A registered task by name."""
        if name not in self.tasks:
            raise UnknownTask(name, self.tasks)
        return self.tasks[name]

    def migrate(self) -> Migrated:
        """Creates or updates the schema."""
        from holdfast.store.migrate import migrate

        return migrate(self.settings)

    def get(self, job_id: str) -> JobInfo | None:
        """A job wherever it is, or None."""
        return self.sync_pool.run(self.calls.get(parse_id(job_id)))

    async def aget(self, job_id: str) -> JobInfo | None:
        """A job wherever it is, or None."""
        return await self.async_pool.run(self.calls.get(parse_id(job_id)))

    def list_jobs(self, *, limit: int = 50, **where: str | None) -> list[JobInfo]:
        """The newest jobs that match status, task, queue, tenant or error."""
        return self.sync_pool.run(self.calls.list_jobs(Filter(**where), limit=limit))

    def cancel(self, *job_ids: str) -> dict[str, str]:
        """Cancels waiting jobs; answers canceled, running, finished or unknown for each."""
        return self.sync_pool.run(self.calls.cancel([parse_id(i) for i in job_ids]))

    async def acancel(self, *job_ids: str) -> dict[str, str]:
        """Cancels waiting jobs; answers canceled, running, finished or unknown for each."""
        return await self.async_pool.run(self.calls.cancel([parse_id(i) for i in job_ids]))

    def retry_dead(self, job_ids: Iterable[str]) -> list[str]:
        """Puts failed or dead jobs back into the queue with fresh attempts; answers those that went back."""
        return self.sync_pool.run(self.calls.retry_dead([parse_id(i) for i in job_ids]))

    def discard_dead(self, job_ids: Iterable[str]) -> list[str]:
        """Puts failed or dead jobs aside for good; answers those that went."""
        return self.sync_pool.run(self.calls.discard_dead([parse_id(i) for i in job_ids]))

    def close(self) -> None:
        """Closes the sync connections."""
        if "sync_pool" in self.__dict__:
            self.sync_pool.close()

    async def aclose(self) -> None:
        """Closes this event loop's connections and the sync ones."""
        if "async_pool" in self.__dict__:
            await self.async_pool.close()
        self.close()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def registered(self) -> list[dict[str, Any]]:
        """What a worker tells the database about its tasks."""
        return [task.describe() for _, task in sorted(self.tasks.items())]


def _name(handler: Callable[..., Any]) -> str:
    prefix = handler.__module__
    if prefix == "__main__":
        prefix = _main_module()
    return f"{prefix}.{handler.__qualname__}".replace(".<locals>", "")


def _main_module() -> str:
    """The name under which a worker would import this program: a task must have one name wherever it is used."""
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:  # python -m app
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if file is None:
        return "__main__"
    path = Path(file).resolve().with_suffix("")
    return ".".join(path.relative_to(Path.cwd()).parts if path.is_relative_to(Path.cwd()) else path.parts[-1:])
