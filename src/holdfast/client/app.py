"""Holdfast: the application object. It registers tasks, and enqueues and manages jobs."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from holdfast.client.actions import Actions
from holdfast.client.batch import Batch
from holdfast.client.batches import Batches
from holdfast.client.channel import Channel, ChannelDecorator
from holdfast.client.database import Database
from holdfast.client.dead import DeadLetters
from holdfast.client.jobs import Jobs
from holdfast.client.limits import Limits
from holdfast.client.operation import Step, Steps, Within, operation
from holdfast.client.outbox import Outbox
from holdfast.client.queues import Queues
from holdfast.client.registry import Registry
from holdfast.client.schedules import Schedules
from holdfast.client.task import Dedupe, Enqueuer, Runner, Task, module_of
from holdfast.client.workers import Workers
from holdfast.errors import ConfigurationError, UsageError
from holdfast.model import outbox as messages
from holdfast.model import retry as retries
from holdfast.model.context import Context
from holdfast.model.limit import Limit
from holdfast.model.payload import check_limits, check_text, encode
from holdfast.model.resource import Resource
from holdfast.model.retry import Retry
from holdfast.model.tick import Tick
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.client.tokens import Tokens
    from holdfast.client.webhooks import Webhooks
    from holdfast.store.migrate import Migrated

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
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


class Holdfast:
    """One application's jobs: `hf = Holdfast()`, then `@hf.task()` on its handlers.

    Settings come from the environment (HOLDFAST_DSN and so on); arguments override them. It connects with the first
    call that needs the database.
    """

    def __init__(self, dsn: str | None = None, **settings: Any) -> None:
        self.registry = Registry()
        self.database = Database(Settings.load(dsn=dsn, **settings))

    @property
    def _hf(self) -> Holdfast:
        return self

    @property
    def settings(self) -> Settings:
        """All settings. They cannot be changed; `hf.database = Database(settings)` replaces them before the first
        connection."""
        return self.database.settings

    @functools.cached_property
    def webhooks(self) -> Webhooks:
        """Endpoints, and events published to them."""
        from holdfast.client.webhooks import Webhooks  # most applications have none

        return Webhooks(self)

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
    def actions(self) -> Actions:
        """Changes of many jobs, and what operators did: preview, start, get, list, abort, join."""
        return Actions(self)

    @functools.cached_property
    def limits(self) -> Limits:
        """Limits, pauses and breakers: list, set, clear, pause, resume, reset_breaker."""
        return Limits(self)

    @functools.cached_property
    def schedules(self) -> Schedules:
        """Registered schedules: list, pause, resume, run, remove."""
        return Schedules(self)

    @functools.cached_property
    def outbox(self) -> Outbox:
        """The outbox: emit; its messages: get, list."""
        return Outbox(self)

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
            if (own := name or _name(handler)).startswith(messages.PREFIX):
                raise ConfigurationError(f"task {own!r} has the name of a channel; use @hf.channel(...)")
            return self._add_task(
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

    def _add_task(self, handler: Callable[..., Any], **options: Any) -> Task[Any, Any]:
        task: Task[Any, Any] = Task(self, handler, **options)
        self.registry.add_task(task)
        return task

    def channel(
        self,
        name: str,
        *,
        queue: str = "outbox",
        priority: int = 2,
        retry: Retry = messages.RETRY,
        timeout: float | None = None,
        limits: Sequence[Limit] = (),
        runner: Runner | None = None,
    ) -> ChannelDecorator:
        """Register a handler that delivers the messages of a channel. It takes one Delivery, besides a Context and
        resources, and returns when the message is sent. Limits may name fields of the payload's type.

        Unlike a task's, an attempt that a stopping worker interrupts counts, because something may have been sent.
        """
        if not isinstance(name, str):
            raise ConfigurationError('write @hf.channel("name") with the channel\'s name in parentheses')
        messages.check_channel(name)
        retries.check_policy(retry)

        def register(handler: Callable[..., Any]) -> Channel[Any, Any]:
            signature = messages.DeliverySignature(name, handler)
            task = self._add_task(
                handler,
                name=messages.PREFIX + name,
                queue=queue,
                priority=priority,
                retry=retry,
                timeout=timeout,
                dedupe=None,
                runner=runner,
                limits=limits,
                signature=signature,
            )
            channel = self.registry.channels[name] = Channel(name, task, signature)
            return channel

        return ChannelDecorator(register)

    @overload
    def resource(self, opener: Callable[[], AsyncIterator[T]]) -> Resource[T]: ...
    @overload
    def resource(self, opener: Callable[[], Iterator[T]]) -> Resource[T]: ...
    def resource(self, opener: Callable[[], Any]) -> Resource[Any]:
        """Register a resource, which a worker opens before its first job and closes when it stops. The opener is a
        generator function that yields the value; a handler receives it with `session: Session = http.value`."""
        made: Resource[Any] = Resource(opener)
        self.registry.resources.append(made)
        return made

    def around_enqueue(self, layer: F) -> F:
        """Register middleware around every enqueue of this application: a generator function that takes the NewJob and
        yields once. It may set the job's headers. It runs once for a whole enqueue_many. The first registered is the
        outermost. It does not run for jobs that the database enqueues: schedules' slots and batches' callbacks."""
        return self.registry.around_enqueue.add(layer)

    def around_attempt(self, layer: F) -> F:
        """Register middleware around every attempt of a job: a generator function, async or not, that takes the
        Context and yields once. The handler's exception is raised at the yield. It runs on the worker's event loop."""
        return self.registry.around_attempt.add(layer)

    def classify(self, rules: Mapping[type[BaseException] | str, Literal["retry", "fail", "dead"]]) -> None:
        """Set what errors mean in all tasks, by error code or exception type. A task's Retry.on(...) takes precedence.

        hf.classify({"DB_UNAVAILABLE": "retry", "SNAPSHOT_NOT_READY": "fail", PermissionError: "dead"})
        """
        self.registry.errors.update(rules)

    def batch(
        self, name: str, *, tenant: str | None = None, on_done: Enqueuer[Any, Any] | None = None, conn: Any = None
    ) -> Batch:
        """Return a new batch of jobs: `with hf.batch("import") as batch`, then `task.using(batch=batch)`.

        on_done is a task that is enqueued once the last job has ended. It gets the batch's id if it takes an argument.
        """
        return Batch(self, name, tenant=tenant, on_done=on_done, conn=conn)

    def migrate(self, to: int | None = None) -> Migrated:
        """Create the schema, or bring it to a version: by default to that of this release."""
        from holdfast.store.migrate import migrate

        return migrate(self.settings, to)

    def _signal(
        self, name: str, value: Any = None, *, tenant: str | None = None, keep: float | None = None, conn: Any = None
    ) -> Steps[bool]:
        """Give a signal its value, for the jobs of the tenant that wait for it in ctx.wait_for(), now or within `keep`
        seconds (30 days). Return False if it has a value already, which stays. With conn= it counts when that
        transaction commits."""
        check_text(name, "a signal's name", 200)
        if tenant is not None:
            check_text(tenant, "a tenant", 200)
        what, limits = f"the value of signal {name!r}", self.settings
        data = encode(value, what)
        check_limits(data, what, limits.max_result, limits.max_depth, "HOLDFAST_MAX_RESULT")
        first: bool = yield Within(self.database.calls.steps.signal(name, data, tenant, keep), conn)
        return first

    signal, asignal = operation(_signal)

    def _tick(self, /, max_jobs: int = 200, per_tenant: int = 25, **settings: Any) -> Steps[Tick]:
        """Run one bounded pass: claim at most max_jobs jobs, and per_tenant of one tenant, run them and wait until they
        end. For cron and serverless functions; concurrent passes and workers are safe. `settings` are for this pass:
        `queues=["mail"]`, `concurrency=10`."""
        from holdfast.worker.tick import tick

        async def run_alone() -> Tick:
            try:
                return await tick(self, max_jobs, per_tenant, **settings)
            finally:
                await self.database.close_loop()  # handlers may have opened connections on this event loop

        def run() -> Tick:
            if _in_event_loop():
                raise UsageError("hf.tick() would block this event loop; await hf.atick() instead")
            return asyncio.run(run_alone())

        result: Tick = yield Step(run, lambda: tick(self, max_jobs, per_tenant, **settings))
        return result

    tick, atick = operation(_tick)

    def _close(self) -> Steps[None]:
        """Close the connections to the database and to RabbitMQ; the async form, those of this event loop too."""
        yield Step(self.database.close, self.database.close_all)

    close, aclose = operation(_close)

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _name(handler: Callable[..., Any]) -> str:
    return f"{module_of(handler)}.{handler.__qualname__}".replace(".<locals>", "")
