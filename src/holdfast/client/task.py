"""Tasks: a handler with a name, and the ways to enqueue it."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, get_args

from holdfast.client.children import ChildBatch
from holdfast.client.handle import Handle, Handles
from holdfast.client.operation import Step, Steps, Within, operation
from holdfast.errors import ConfigurationError, UsageError
from holdfast.model import check, payload
from holdfast.model.job import NewJob, ids, parse_id
from holdfast.model.limit import Limit, Limits
from holdfast.model.outbox import PREFIX
from holdfast.model.retry import Retry
from holdfast.model.schedule import Cron, Schedule
from holdfast.model.signature import ResultType, Signature
from holdfast.model.step import FOLLOWS
from holdfast.settings import can_be_served
from holdfast.store.bulk import Bulk
from holdfast.store.call import Call
from holdfast.store.enqueue import Accepted

if TYPE_CHECKING:
    from holdfast.client.app import Holdfast
    from holdfast.client.batch import Batch

P = ParamSpec("P")
R = TypeVar("R")
SCHEDULED = ("tenant", "queue", "priority", "max_attempts", "retry", "deadline")  # options that schedules may have
Runner = Literal["async", "thread", "process"]
"""Where a handler runs: on the worker's event loop, in one of its threads, or in a child process."""


@dataclass(frozen=True, slots=True)
class Dedupe:
    """How long a task's dedupe key is held, and what happens to a second job with the same key.

    scope: "queued" until the job first starts, "running" until it ends, "success" also after success, forever or for
    `keep` seconds. on_conflict: "existing" returns the holder's id, "replace" also gives the holder the new payload if
    it still waits, "raise" raises DuplicateJob. key is the caller's; None derives one from the arguments.
    """

    scope: str = "running"
    keep: float | None = None
    on_conflict: str = "existing"
    key: str | None = None

    def __post_init__(self) -> None:
        if self.scope not in ("queued", "running", "success"):
            raise ConfigurationError(f"dedupe scope must be 'queued', 'running' or 'success', got {self.scope!r}")
        if self.on_conflict not in ("existing", "replace", "raise"):
            raise ConfigurationError(f"on_conflict must be 'existing', 'replace' or 'raise', got {self.on_conflict!r}")
        if self.keep is not None and self.scope != "success":
            raise ConfigurationError(f"keep goes with scope='success', not with {self.scope!r}")
        if self.key is not None:
            payload.check_text(self.key, "a dedupe key", 100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `using(...)`; None means the task's own."""

    tenant: str | None = None
    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: datetime | None = None
    max_attempts: int | None = None
    retry: Retry | None = None
    dedupe: str | Dedupe | None = None
    on_conflict: str | None = None
    deadline: float | None = None
    batch: Batch | ChildBatch | str | None = None
    id: str | None = None
    after: Sequence[Handle[Any] | str] | None = None
    on_failure: str | None = None
    conn: Any = None

    def __post_init__(self) -> None:
        if self.delay is not None and self.run_at is not None:
            raise UsageError("give delay or run_at, not both")
        given: Any = self  # callers may not use a type checker
        if given.delay is not None and not (isinstance(given.delay, int | float) and given.delay >= 0):
            raise UsageError(f"delay must be a number of seconds from now, 0 or more, got {given.delay!r}")
        if given.deadline is not None and not (isinstance(given.deadline, int | float) and given.deadline > 0):
            raise UsageError(f"deadline must be a number of seconds from now, above 0, got {given.deadline!r}")
        if given.retry is not None and not isinstance(given.retry, Retry):
            raise UsageError(f"retry must be a policy such as Retry.fixed(60), got {given.retry!r}")
        if given.run_at is not None and not isinstance(given.run_at, datetime):
            raise UsageError(f"run_at must be a datetime with a time zone, got {given.run_at!r:.60}")
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise UsageError(f"run_at {self.run_at} has no time zone; use datetime.now(timezone.utc) or zoneinfo")
        if given.max_attempts is not None and given.max_attempts not in range(1, 32_001):
            raise UsageError(f"max_attempts must be from 1 to 32000, got {self.max_attempts!r}")
        for what, name, longest in (("a tenant", self.tenant, 200), ("a queue", self.queue, 100)):
            if name is not None:
                payload.check_text(name, what, longest)
        if self.queue is not None and not can_be_served(self.queue):
            raise UsageError(
                f"a queue's name must not contain a slash or a comma, nor start or end with a space, got {self.queue!r}"
            )
        if isinstance(self.dedupe, str):
            payload.check_text(self.dedupe, "a dedupe key", 100_000)
        if self.priority is not None:
            check.priority(self.priority)
        self._check_after()

    def _check_after(self) -> None:
        if self.on_failure not in (None, *FOLLOWS):
            raise UsageError(f"on_failure must be 'cancel', 'skip' or 'run', got {self.on_failure!r}")
        if self.on_failure is not None and self.after is None:
            raise UsageError("on_failure goes with after=[...], the jobs whose failure it is about")
        if self.after is not None and (self.delay is not None or self.run_at is not None):
            raise UsageError("a job starts after other jobs, or at a time: give after, or delay or run_at, not both")


class Enqueuer(Generic[P, R]):
    """A task with options for the enqueues made through it; `task.using(...)` makes one."""

    def __init__(self, hf: Holdfast, task: Task[Any, R], options: Options) -> None:
        self._hf = hf
        self._task = task
        self._options = options

    def using(
        self,
        *,
        tenant: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        retry: Retry | None = None,
        dedupe: str | Dedupe | None = None,
        on_conflict: str | None = None,
        deadline: float | None = None,
        batch: Batch | ChildBatch | str | None = None,
        id: str | None = None,
        after: Sequence[Handle[Any] | str] | None = None,
        on_failure: Literal["cancel", "skip", "run"] | None = None,
        conn: Any = None,
    ) -> Enqueuer[P, R]:
        """Return the same task with these options on top of those already set.

        dedupe is the caller's key, or a Dedupe to derive the key from the arguments. deadline: if no attempt starts
        within this number of seconds, the job is canceled. batch is one made by hf.batch(), or the id of one that has
        not ended. after: the job starts when these jobs have ended; if one of them does not succeed, it is canceled, or
        by on_failure skipped (its own followers go on) or run. With conn= (a connection or session of psycopg, asyncpg,
        SQLAlchemy or Django) the job is enqueued in its transaction: a rollback undoes the enqueue.
        """
        given = {k: v for k, v in locals().items() if k not in ("self",) and v is not None}
        return Enqueuer(self._hf, self._task, replace(self._options, **given))

    def _enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Steps[Handle[R]]:
        """Enqueue one job. It is committed when this returns (with conn=, when that transaction commits)."""
        return self._enqueue_job(self.new_job(args, kwargs))

    enqueue, aenqueue = operation(_enqueue)

    def _enqueue_job(self, job: NewJob) -> Steps[Handle[R]]:
        """Enqueue a job made by new_job() or checked_job()."""
        middleware = self._hf.registry.around_enqueue
        return middleware.around(job, self._insert(job)) if middleware else self._insert(job)

    enqueue_job, aenqueue_job = operation(_enqueue_job)

    def _insert(self, job: NewJob) -> Steps[Handle[R]]:
        if (children := self._children) is not None:
            self._check_headers(job)
            children.add([job])
            return Handle(job.id, "created", self._hf, self._task.signature)
        accepted: Accepted = yield Within(self._call(job), self._conn)
        return Handle(accepted.id, accepted.outcome, self._hf, self._task.signature)

    def _enqueue_many(self, calls: Iterable[Any]) -> Steps[Handles[R]]:
        """Enqueue many jobs, all or none; return their handles in order.

        Each call is a tuple of arguments, a dict by name, or the one argument.
        """
        bulk = self._bulk(calls)
        return self._hf.registry.around_enqueue.around(bulk.like, self._insert_many(bulk))

    enqueue_many, aenqueue_many = operation(_enqueue_many)

    def _insert_many(self, bulk: Bulk) -> Steps[Handles[R]]:
        database, conn = self._hf.database, self._conn
        self._check_headers(bulk.like)
        if (children := self._children) is not None:
            jobs = self._keyed(bulk)
            children.add(jobs)
            return Handles([each.id for each in jobs], None, self._hf, self._task.signature)
        if bulk.like.plain:
            yield Step(lambda: database.sync_pool.copy(bulk, conn), lambda: database.async_pool.copy(bulk, conn))
            return Handles(bulk.ids, None, self._hf, self._task.signature)
        call = database.calls.jobs.enqueue_many(self._keyed(bulk), self._on_conflict)
        accepted: list[Accepted] = yield Within(call, conn)
        outcomes = [each.outcome for each in accepted]
        return Handles([each.id for each in accepted], outcomes, self._hf, self._task.signature)

    def schedule(self, name: str, when: Cron | str, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Enqueue this call at each slot of a timetable, `when`: a Cron, or a cron expression in UTC.

        Workers register it under its name when they start. One of them fires it, once for each slot.
        """
        cron = when if isinstance(when, Cron) else Cron(when)
        self._hf.registry.add_schedule(Schedule(name, cron, self._scheduled_job(name, self._task.encode(args, kwargs))))

    def _scheduled_job(self, name: str, data: bytes) -> NewJob:
        payload.check_text(name, "a schedule's name", 200)
        for each in self.given_options:
            if each not in SCHEDULED:
                raise UsageError(
                    f"schedule {name!r} cannot have {each}=, because each slot makes a new job; allowed options "
                    f"of using(): {', '.join(SCHEDULED)}"
                )
        return self._limited(self._job("", data))

    @property
    def _conn(self) -> Any:
        batch = self._options.batch
        of_batch = None if batch is None or isinstance(batch, str | ChildBatch) else batch.conn
        return self._options.conn or of_batch

    @property
    def _children(self) -> ChildBatch | None:
        """Return the batch of ctx.batch() that collects this job, if it is for one."""
        batch = self._options.batch
        return batch if isinstance(batch, ChildBatch) else None

    @property
    def _dedupe(self) -> Dedupe:
        given = self._options.dedupe
        return given if isinstance(given, Dedupe) else self._task.dedupe or Dedupe()

    @property
    def _on_conflict(self) -> str:
        return self._options.on_conflict or self._dedupe.on_conflict

    def new_job(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        """Return the job of a call, checked and not yet enqueued."""
        given = self._options.id
        return self._limited(self._job(parse_id(given) if given else ids.make(), self._task.encode(args, kwargs)))

    def checked_job(self, data: payload.Encoded) -> NewJob:
        """Return the job of a payload that check_payload() returned, not yet enqueued."""
        given = self._options.id
        return self._limited(self._job(parse_id(given) if given else ids.make(), data))

    def job_of(self, data: bytes) -> NewJob:
        """Return the job of a payload that is not checked; without limits if the arguments do not fit the task."""
        job = self._job(ids.make(), data)
        try:
            return self._limited(job)
        except Exception:  # also of str() of an argument, which may run application code
            return job

    @property
    def tenant(self) -> str | None:
        """Return the tenant that `using()` has set."""
        return self._options.tenant

    @property
    def given_options(self) -> tuple[str, ...]:
        """Return the names of the options that are set."""
        return tuple(each.name for each in fields(self._options) if getattr(self._options, each.name) is not None)

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Return the names of the handler's arguments."""
        return self._task.signature.names

    @property
    def result_type(self) -> ResultType:
        """Return the type of the handler's result."""
        return self._task.signature.result

    def _limited(self, job: NewJob) -> NewJob:
        if self._task.limits is not None:
            job.keys = self._task.keys(job.payload, job.tenant, job.queue)
        return job

    def _call(self, job: NewJob) -> Call[Accepted]:
        self._check_headers(job)
        return self._hf.database.calls.jobs.enqueue(job, self._on_conflict, fresh=self._options.id is None)

    def _check_headers(self, job: NewJob) -> None:
        if job.headers is not None:
            limits = self._hf.database.settings
            payload.check_headers(job.headers, limits.max_payload, limits.max_depth)

    def _bulk(self, calls: Iterable[Any]) -> Bulk:
        given = self._options.dedupe
        if self._options.id is not None or isinstance(given, str) or (given is not None and given.key is not None):
            raise UsageError("one id or dedupe key cannot be given to many jobs; enqueue them one by one")
        task, like = self._task, self._job("", b"{}")
        keys = None if task.limits is None else lambda data: task.keys(data, like.tenant, like.queue)
        return Bulk(like, calls, task.encode_call, keys)

    def _keyed(self, bulk: Bulk) -> list[NewJob]:
        jobs = bulk.jobs()
        if bulk.like.dedupe_key is not None:
            for job in jobs:
                self._add_key(job)
        return jobs

    def _job(self, id_: str, data: bytes) -> NewJob:
        task, options = self._task, self._options
        job = NewJob(
            id_,
            task.name,
            data,
            options.queue or task.queue,
            options.tenant,
            task.priority if options.priority is None else options.priority,
            options.delay,
            options.run_at,
            (options.retry or task.retry).max_attempts if options.max_attempts is None else options.max_attempts,
            None if options.retry is None else options.retry.as_json(),
        )
        job.deadline = options.deadline
        if options.after is not None:
            job.after = tuple(parse_id(each if isinstance(each, str) else each.id) for each in options.after)
            job.on_failure = options.on_failure
        if (batch := options.batch) is not None:
            job.batch = _batch_id(batch)
            if job.tenant is None and not isinstance(batch, str):
                job.tenant = batch.tenant
        if options.dedupe is not None or task.dedupe is not None:
            self._add_key(job)
        return job

    def _add_key(self, job: NewJob) -> None:
        given, dedupe = self._options.dedupe, self._dedupe
        own = given if isinstance(given, str) else dedupe.key
        text = payload.sorted_json(job.payload) if own is None else own
        job.dedupe_key = payload.dedupe_key(job.task, job.tenant, text)
        job.dedupe_scope, job.dedupe_keep = dedupe.scope, dedupe.keep


class Task(Enqueuer[P, R]):
    """A handler with a name. Calling it runs the plain function; enqueue makes a job of the call."""

    def __init__(
        self,
        hf: Holdfast,
        handler: Callable[..., Any],
        *,
        name: str,
        queue: str,
        priority: int,
        retry: Retry,
        timeout: float | None,
        dedupe: Dedupe | None,
        runner: Runner | None,
        limits: Sequence[Limit],
        signature: Signature | None = None,
    ) -> None:
        super().__init__(hf, self, Options(queue=queue, priority=priority))
        payload.check_text(name, "a task's name", 200)
        if timeout is not None and timeout <= 0:
            raise ConfigurationError(f"task {name!r} has timeout {timeout!r}; it is seconds, more than 0")
        self.handler = handler
        self.name = name
        self.module = module_of(handler)
        self.queue = queue
        self.priority = priority
        self.retry = retry
        self.timeout = timeout
        self.dedupe = dedupe
        self.runner = _runner(self, runner)
        self.signature = signature or Signature(name, handler)
        self.limits = Limits(name, limits, self.signature.names) if limits else None
        # The worker's fast path: nothing to do around the handler's coroutine.
        needs = self.signature.context_name or self.signature.resources
        self.is_plain = self.runner == "async" and timeout is None and not needs
        functools.update_wrapper(self, handler)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the handler as a plain function."""
        return self.handler(*args, **kwargs)

    @property
    def hf(self) -> Holdfast:
        """Return the application."""
        return self._hf

    @property
    def refunds(self) -> bool:
        """Return whether an attempt that a stopping worker interrupts does not count. A channel's does, because
        something may have been sent."""
        return not self.name.startswith(PREFIX)

    @property
    def is_async(self) -> bool:
        """Return whether the handler is a coroutine function."""
        return inspect.iscoroutinefunction(self.handler)

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Return the checked payload of one call."""
        limits = self._hf.database.settings
        return self.signature.encode(args, kwargs, limits.max_payload, limits.max_depth)

    def check_payload(self, data: bytes) -> payload.Encoded:
        """Check a payload given as JSON, decoding it once."""
        limits = self._hf.database.settings
        return self.signature.check_json(data, limits.max_payload, limits.max_depth)

    def encode_call(self, call: Any) -> bytes:
        """Return the payload of one of many calls: a tuple of arguments, a dict by name, or the one argument."""
        if isinstance(call, payload.Encoded):
            return call
        if isinstance(call, tuple | list):
            return self.encode(call, {})
        return self.encode((), call) if isinstance(call, Mapping) else self.encode((call,), {})

    def keys(self, data: str | bytes, tenant: str | None, queue: str) -> tuple[str, ...] | None:
        """Return the keys of a job's limits, from its payload."""
        return None if self.limits is None else self.limits.keys(self.signature.arguments(data), tenant, queue)

    def outcome_of(self, error: BaseException, code: str | None) -> str:
        """Return an error's outcome by the task's rules, then by the application's table; the default is a retry."""
        return self.retry.outcome(error, code) or self._hf.registry.errors.outcome(error, code)

    def describe(self) -> dict[str, Any]:
        """Return what the database stores about a task."""
        return {
            "name": self.name,
            "queue": self.queue,
            "max_attempts": self.retry.max_attempts,
            "retry": self.retry.as_json(),
            "timeout": self.timeout,
        }

    def __repr__(self) -> str:
        return f"<task {self.name!r} on queue {self.queue!r}>"


def _runner(task: Task[Any, Any], given: Runner | None) -> Runner:
    """Return the given runner, or the one that fits the handler."""
    fitting: Runner = "async" if task.is_async else "thread"
    if given is not None and given not in get_args(Runner):
        raise ConfigurationError(f"task {task.name!r} has runner {given!r}; it must be 'async', 'thread' or 'process'")
    if given == "process":
        _check_importable(task)
    elif given not in (None, fitting):
        kind = "a coroutine function" if task.is_async else "not a coroutine function"
        raise ConfigurationError(
            f"task {task.name!r} has runner {given!r}, but its handler is {kind}; use {fitting!r} or 'process'"
        )
    return given or fitting


def _check_importable(task: Task[Any, Any]) -> None:
    """Raise ConfigurationError for a handler that a child process cannot import."""
    place: str = task.handler.__qualname__
    if place.endswith("<lambda>"):
        what = "a lambda"
    elif "." in place:
        what = f"inside something else ({place})"
    elif task.module == "__main__":
        what = "typed at a prompt"
    else:
        return
    raise ConfigurationError(
        f"task {task.name!r} has runner 'process', but its handler is {what}: a child process finds the handler by "
        "importing its module, so it must be a function at the top level of a module"
    )


def _batch_id(batch: Any) -> str:
    try:
        return parse_id(batch if isinstance(batch, str) else batch.id)
    except (UsageError, AttributeError):
        raise UsageError(f"batch must be a batch made by hf.batch(), or its id, got {batch!r:.60}") from None


def module_of(handler: Callable[..., Any]) -> str:
    """Return the name under which a worker would import the handler's module."""
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
