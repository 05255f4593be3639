"""Holdfast: the application object. It registers tasks, and enqueues and manages jobs."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from holdfast.client.batch import Batch
from holdfast.client.batches import Batches
from holdfast.client.dead import DeadLetters
from holdfast.client.jobs import Jobs
from holdfast.client.limits import Limits
from holdfast.client.middleware import Around
from holdfast.client.outbox import Channel, Messages, Outbox
from holdfast.client.queues import Queues
from holdfast.client.schedules import Schedules
from holdfast.client.task import Dedupe, Enqueuer, Runner, Task
from holdfast.client.workers import Workers
from holdfast.errors import ConfigurationError, UnknownTask, UsageError
from holdfast.model import retry as retries
from holdfast.model.context import Context
from holdfast.model.failure import Failure
from holdfast.model.job import JobInfo
from holdfast.model.limit import Limit
from holdfast.model.outbox import PREFIX
from holdfast.model.resource import Resource
from holdfast.model.retry import ErrorTable, Retry
from holdfast.model.schedule import Schedule
from holdfast.model.tick import Tick
from holdfast.model.webhook import QUEUE as WEBHOOKS
from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.wakeups.rabbitmq import Publisher

if TYPE_CHECKING:
    from holdfast.client.tokens import Tokens
    from holdfast.client.webhooks import Webhooks
    from holdfast.store.migrate import Migrated
    from holdfast.store.wire.pools import AsyncPool, SyncPool, Tell

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_making = threading.Lock()
F = TypeVar("F", bound=Callable[..., Any])


class Decorator:
    """Returned by `hf.task(...)`: turns a handler into a Task, keeping its arguments' types."""

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


class Holdfast(Outbox):
    """One application's jobs: `hf = Holdfast()`, then `@hf.task()` on its handlers.

    Settings come from the environment (HOLDFAST_DSN and so on); arguments override them. It connects with the first
    call that needs the database.
    """

    def __init__(self, dsn: str | None = None, **settings: Any) -> None:
        self.settings = Settings.load(dsn=dsn, **settings)
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.channels: dict[str, Channel[Any, Any]] = {}
        self.resources: list[Resource[Any]] = []
        self.errors = ErrorTable()
        self.around_enqueues = Around()
        self.around_attempts = Around(may_swallow=True)
        self.on_failure: list[Callable[[Failure], None]] = []  # called for every failed attempt, on the worker's loop
        self.timetable: dict[str, Schedule] = {}
        self._limits: dict[str, tuple[str, Limit]] = {}  # by pattern: the first task that declared it
        self.calls = Calls(self.settings.schema)
        self._publisher = Publisher(self.settings)

    @property
    def url(self) -> str:
        """The database's address for psql and other libraries.

        This is the DSN itself. For embedded:PATH it starts the server there, which runs until the process ends."""
        from holdfast.store.wire.connect import server_dsn

        return server_dsn(self.settings)

    @functools.cached_property
    def sync_pool(self) -> SyncPool:
        """The connection pool for threads."""
        from holdfast.store.wire.pools import SyncPool  # psycopg takes half of the import time, and may not be needed

        return SyncPool(self.settings, self._notify)

    @functools.cached_property
    def async_pool(self) -> AsyncPool:
        """The connection pool for coroutines."""
        from holdfast.store.wire.pools import AsyncPool

        return AsyncPool(self.settings, self._notify)

    @functools.cached_property
    def webhooks(self) -> Webhooks:
        """Endpoints, and events published to them."""
        from holdfast.client.webhooks import Webhooks  # most applications have none

        with _making:  # cached_property has no lock since Python 3.12, and two instances would register the task twice
            if "webhooks" not in self.__dict__:
                self.__dict__["webhooks"] = Webhooks(self)
        made: Webhooks = self.__dict__["webhooks"]
        return made

    @functools.cached_property
    def jobs(self) -> Jobs:
        """Jobs in any status: get, list, cancel, why."""
        return Jobs(self)

    @functools.cached_property
    def queues(self) -> Queues:
        """Queues: list, names, left, and what runs in them."""
        return Queues(self)

    @functools.cached_property
    def workers(self) -> Workers:
        """Workers: list, health, levels, usage."""
        return Workers(self)

    @functools.cached_property
    def batches(self) -> Batches:
        """Batches and their counters: get, list, cancel."""
        return Batches(self)

    @functools.cached_property
    def dead(self) -> DeadLetters:
        """Failed and dead jobs: retry, discard; blocks that handlers reported."""
        return DeadLetters(self)

    @functools.cached_property
    def limits(self) -> Limits:
        """Limits, pauses and breakers: list, set, clear, pause, resume, reset_breaker."""
        return Limits(self)

    @functools.cached_property
    def schedules(self) -> Schedules:
        """Registered schedules: list, pause, resume, run, remove."""
        return Schedules(self)

    @functools.cached_property
    def outbox(self) -> Messages:
        """Messages of the outbox: get, list."""
        return Messages(self)

    @functools.cached_property
    def tokens(self) -> Tokens:
        """Tokens of the service: create, get, list, revoke."""
        from holdfast.client.tokens import Tokens

        return Tokens(self)

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
        runner: Runner | None = None,
        limits: Sequence[Limit] = (),
    ) -> Decorator:
        """Register a handler as a task. The default name is `module.function`. The default runner is "async" for a
        coroutine function and "thread" otherwise. All of the limits apply to its jobs; tasks with the same keys share
        them."""
        if _misplaced is not None:
            raise ConfigurationError("write @hf.task() with parentheses; its options go between them")
        retries.check_policy(retry)

        def register(handler: Callable[..., Any]) -> Task[Any, Any]:
            if (own := name or _name(handler)).startswith(PREFIX):
                raise ConfigurationError(f"task {own!r} has the name of a channel; use @hf.channel(...)")
            return self.add_task(
                handler,
                name=own,
                queue=queue,
                priority=priority,
                retry=retry,
                timeout=timeout,
                dedupe=dedupe,
                runner=runner,
                limits=limits,
            )

        return Decorator(register)

    def add_task(self, handler: Callable[..., Any], *, name: str, **options: Any) -> Task[Any, Any]:
        """Register a handler under a name. `task` and `channel` call this."""
        task: Task[Any, Any] = Task(self, handler, name=name, module=_module(handler), **options)
        if name in self.tasks:
            raise ConfigurationError(f"two tasks are named {name!r}; give one of them another name=")
        self.add_limits(task.name, task.limits.all if task.limits is not None else ())
        self.tasks[name] = task
        return task

    @overload
    def resource(self, opener: Callable[[], AsyncIterator[T]]) -> Resource[T]: ...
    @overload
    def resource(self, opener: Callable[[], Iterator[T]]) -> Resource[T]: ...
    def resource(self, opener: Callable[[], Any]) -> Resource[Any]:
        """Register a resource, which a worker opens before its first job and closes when it stops. The opener is a
        generator function that yields the value; a handler receives it with `session: Session = http.value`."""
        made: Resource[Any] = Resource(opener)
        self.resources.append(made)
        return made

    def around_enqueue(self, layer: F) -> F:
        """Register middleware around every enqueue of this application: a generator function that takes the NewJob and
        yields once. It may set the job's headers. It runs once for a whole enqueue_many. The first registered is the
        outermost. It does not run for jobs that the database enqueues: schedules' slots and batches' callbacks."""
        return self.around_enqueues.add(layer)

    def around_attempt(self, layer: F) -> F:
        """Register middleware around every attempt of a job: a generator function, async or not, that takes the
        Context and yields once. The handler's exception is raised at the yield. It runs on the worker's event loop."""
        return self.around_attempts.add(layer)

    def classify(self, rules: Mapping[type[BaseException] | str, Literal["retry", "fail", "dead"]]) -> None:
        """Set what errors mean in all tasks, by error code or exception type. A task's Retry.on(...) takes precedence.

        hf.classify({"DB_UNAVAILABLE": "retry", "SNAPSHOT_NOT_READY": "fail", PermissionError: "dead"})
        """
        self.errors.update(rules)

    def batch(
        self, name: str, *, tenant: str | None = None, on_done: Enqueuer[Any, Any] | None = None, conn: Any = None
    ) -> Batch:
        """Return a new batch of jobs: `with hf.batch("import") as batch`, then `task.using(batch=batch)`.

        on_done is a task that is enqueued once the last job has ended. It gets the batch's id if it takes an argument.
        """
        return Batch(self, name, tenant=tenant, on_done=on_done, conn=conn)

    def before_wait(self, id_: str, info: JobInfo | None, timeout: float | None) -> None:
        """Do nothing. Called before each pause while waiting for a job to end; the test kit overrides it."""

    def use(self, settings: Settings) -> None:
        """Replace the settings. Call it before the first connection."""
        self.settings = settings
        self.calls = Calls(settings.schema)
        self._publisher = Publisher(settings)
        self.__dict__.pop("sync_pool", None)
        self.__dict__.pop("async_pool", None)

    def trigger(self, job_id: str, *, committed: bool = True) -> None:
        """Notify workers of a job through RabbitMQ if amqp_enabled is set, in the background and without errors.

        Every call that makes a job due calls it. For a job that is not committed yet, the message is sent later."""
        if self.settings.amqp_enabled:
            self._publisher.publish(job_id, committed=committed)

    async def aqueue_reached(self, patience: float) -> bool:
        """Return whether RabbitMQ is connected; wait at most so many seconds for the first connection."""
        return await self._publisher.reached(patience)

    @property
    def _notify(self) -> Tell | None:
        """The function that the pools call for jobs that became due."""
        return self._publisher.publish if self.settings.amqp_enabled else None

    def served(self, settings: Settings) -> Settings:
        """Return the settings of a worker, with the queues it serves.

        The default is "default" and the queues of channels and webhooks. The queue of webhooks is left out if they
        cannot be delivered here, unless it is named and the application has its own tasks in it."""
        if settings.queues.strip(" ,"):
            return self._deliverable(settings) if WEBHOOKS in settings.queue_list else settings
        channels = {channel.task.queue for channel in self.channels.values()}
        webhooks = {WEBHOOKS} if self.webhooks.can_deliver else set()
        return settings.with_(queues=["default", *sorted((channels | webhooks) - {"default"})])

    def _deliverable(self, settings: Settings) -> Settings:
        if self.webhooks.can_deliver or any(task.queue == WEBHOOKS for task in self.tasks.values()):
            return settings
        if settings.queue_list == [WEBHOOKS]:
            raise ConfigurationError(
                "the only queue is webhooks, which cannot be delivered here: pip install 'holdfast[webhooks]'"
            )
        return settings.with_(queues=[name for name in settings.queue_list if name != WEBHOOKS])

    def find_task(self, name: str) -> Task[Any, Any]:
        """Return a registered task by name."""
        if name not in self.tasks:
            raise UnknownTask(name, self.tasks)
        return self.tasks[name]

    def add_schedule(self, schedule: Schedule) -> None:
        """Add a schedule made by `task.schedule(...)`. Workers register it in the database when they start."""
        if schedule.name in self.timetable:
            raise ConfigurationError(f"two schedules are named {schedule.name!r}; give one of them another name")
        self.timetable[schedule.name] = schedule

    def migrate(self) -> Migrated:
        """Create or update the schema."""
        from holdfast.store.migrate import migrate

        return migrate(self.settings)

    def tick(self, max_jobs: int = 200, per_tenant: int = 25, **settings: Any) -> Tick:
        """Run one bounded pass: claim at most max_jobs jobs, and per_tenant of one tenant, run them and wait until they
        end. For cron and serverless functions; concurrent passes and workers are safe. `settings` are for this pass:
        `queues=["mail"]`, `concurrency=10`."""

        async def run() -> Tick:
            try:
                return await self.atick(max_jobs, per_tenant, **settings)
            finally:
                if "async_pool" in self.__dict__:  # handlers may have opened it on this event loop
                    await self.async_pool.close()

        if _in_event_loop():
            raise UsageError("hf.tick() would block this event loop; await hf.atick() instead")
        return asyncio.run(run())

    async def atick(self, max_jobs: int = 200, per_tenant: int = 25, **settings: Any) -> Tick:
        """Run one bounded pass, as tick()."""
        from holdfast.worker.tick import tick

        return await tick(self, max_jobs, per_tenant, **settings)

    def add_limits(self, task: str, added: Iterable[Limit]) -> None:
        # Limits of different tasks with the same keys must be equal.
        limits = dict(self._limits)
        for limit in added:
            other, known = limits.setdefault(limit.pattern, (task, limit))
            if known.as_json() != limit.as_json():
                raise ConfigurationError(
                    f"tasks {other!r} and {task!r} declare limit {limit.key!r} with different values: "
                    f"{known.as_json()} and {limit.as_json()}; make them equal, or rename one of the keys"
                )
        self._limits = limits

    def close(self) -> None:
        """Close the sync connections, and the one to RabbitMQ."""
        self._publisher.close()
        if "sync_pool" in self.__dict__:
            self.sync_pool.close()

    async def aclose(self) -> None:
        """Close this event loop's connections and the sync ones."""
        if "async_pool" in self.__dict__:
            await self.async_pool.close()
        await asyncio.to_thread(self._publisher.close)
        self.close()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def registered(self) -> list[dict[str, Any]]:
        """Return the descriptions of all tasks, which a worker registers in the database."""
        return [task.describe() for _, task in sorted(self.tasks.items())]

    @property
    def declared_limits(self) -> list[Limit]:
        """The limits of all tasks, one for each pattern. Workers register them when they start."""
        return [limit for _, (_, limit) in sorted(self._limits.items())]


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _name(handler: Callable[..., Any]) -> str:
    return f"{_module(handler)}.{handler.__qualname__}".replace(".<locals>", "")


def _module(handler: Callable[..., Any]) -> str:
    return _main_module() if handler.__module__ == "__main__" else handler.__module__


def _main_module() -> str:
    """Return the name under which a worker would import this program, so that a task has one name everywhere."""
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:  # python -m app
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if file is None:
        return "__main__"
    path = Path(file).resolve().with_suffix("")
    return ".".join(path.relative_to(Path.cwd()).parts if path.is_relative_to(Path.cwd()) else path.parts[-1:])
