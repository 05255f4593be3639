"""The context of a running job: what a handler can read and report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast.errors import UsageError
from holdfast.model.outcome import WANTED_CANCELED, Cancel
from holdfast.model.step import Runner, StepOptions

if TYPE_CHECKING:
    from holdfast.client import Enqueuer
    from holdfast.client.children import ChildBatch, Gathered
    from holdfast.model.outbox import Address, Emitted
    from holdfast.model.retry import Retry
    from holdfast.store.wire.transaction import Transaction

_log = logging.getLogger("holdfast.job")
R = TypeVar("R")
T = TypeVar("T")


class Link:
    """Connects a context to the worker that runs its job. This base class serves contexts made by hand."""

    @property
    def canceled(self) -> bool:
        return False

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Store a progress report."""

    def log(self, level: str, text: str) -> None:
        """Store a line of the job's log."""

    def set_result(self, value: Any) -> None:
        """Set the job's result."""

    def transaction(self) -> Transaction:
        """Return a transaction that ends the job."""
        raise UsageError("ctx.transaction() needs a job that a worker runs; this context was made by hand")

    def emit(self, channel: Any, payload: Any, key: str, order: str | None) -> Emitted:
        """Emit a message in the open transaction."""
        raise UsageError("ctx.emit() needs a job that a worker runs; this context was made by hand")

    async def aemit(self, channel: Any, payload: Any, key: str, order: str | None) -> Emitted:
        """Emit a message in the open async transaction."""
        raise UsageError("ctx.aemit() needs a job that a worker runs; this context was made by hand")

    def durable(self, operation: str, *args: Any) -> Any:
        """Do what the method of that name of the context says."""
        raise UsageError(f"ctx.{operation}() needs a job that a worker runs; this context was made by hand")

    @property
    def step_key(self) -> str:
        """Return the key of the running step."""
        raise UsageError("ctx.step_key needs a job that a worker runs; this context was made by hand")


@dataclass(frozen=True, slots=True)
class Context:
    """The running job. A handler gets it through a parameter annotated `Context`; tests may make one by hand."""

    job_id: str = "00000000-0000-7000-8000-000000000000"
    task: str = ""
    queue: str = "default"
    tenant: str | None = None
    priority: int = 2
    attempt: int = 1
    max_attempts: int = 1
    token: int = 0
    batch_id: str | None = None
    headers: Mapping[str, Any] | None = None
    link: Link = field(default_factory=Link, repr=False, compare=False)

    @property
    def last_attempt(self) -> bool:
        """Return whether this is the last attempt."""
        return self.attempt >= self.max_attempts

    @property
    def canceled(self) -> bool:
        """Return whether cancellation was requested. Async handlers are canceled at their next await, and handlers in
        processes are killed. A handler in a thread checks this property, and stops by raising Cancel."""
        return self.link.canceled

    def raise_if_canceled(self) -> None:
        """Raise Cancel if cancellation was requested."""
        if self.canceled:
            raise Cancel(WANTED_CANCELED, code="CANCELED")

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report the job's progress. Calls are cheap: only the newest report is stored, about twice a second."""
        self.link.progress(done, total, message)

    def set_result(self, value: Any) -> None:
        """Set the result, instead of the handler's return value; ctx.transaction() commits it with the rest."""
        self.link.set_result(value)

    def transaction(self) -> Transaction:
        """Return a transaction that commits the handler's rows and the job's success together, or neither.

        `async with ctx.transaction() as conn` in async handlers, `with ctx.transaction() as conn` in threads and
        processes. If the lease has been lost, everything is rolled back and LeaseLost is raised. The handler's return
        value is stored in a second transaction; set_result() stores a result in this one.
        """
        return self.link.transaction()

    def emit(self, channel: Address | str, payload: Any, *, key: str, order: str | None = None) -> Emitted:
        """Add a message of this job's tenant to the outbox, in the open `with ctx.transaction()`. It is delivered only
        if the transaction commits. See hf.outbox.emit."""
        return self.link.emit(channel, payload, key, order)

    async def aemit(self, channel: Address | str, payload: Any, *, key: str, order: str | None = None) -> Emitted:
        """Add a message to the outbox, like emit(), in `async with ctx.transaction()`."""
        return await self.link.aemit(channel, payload, key, order)

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: Any,
        undo: Enqueuer[Any, Any] | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        runner: Runner | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., R],
        /,
        *args: Any,
        undo: Enqueuer[Any, Any] | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        runner: Runner | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, R]: ...
    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        undo: Enqueuer[Any, Any] | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        runner: Runner | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call the function once and store its result under the name; later runs of the job return the stored result.

        In an async handler it is awaited; in others it returns the result. undo is a task: if the job does not succeed,
        the undo of its steps run as jobs, the last step's first, each with the step's result as its first argument.
        retry: tries within this run. A `ctx.transaction()` in the function commits the step with the function's rows.
        """
        options = StepOptions(undo=undo, retry=retry, timeout=timeout, runner=runner)
        return self.link.durable("step", name, function, args, kwargs, options)

    @property
    def step_key(self) -> str:
        """Return a key that is the same each time this step runs, for the other side of a call: it may have been called
        before. It is read by the step's function."""
        return self.link.step_key

    def sleep(
        self, name: str, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> Coroutine[Any, Any, None]:
        """Wait without a slot and without an attempt. The handler ends here, and runs again when the time is over."""
        total = seconds + 60 * minutes + 3600 * hours + 86400 * days
        return self.link.durable("sleep", name, total)  # type: ignore[no-any-return]

    @overload
    def wait_for(self, name: str, *, timeout: float | None = None, type: type[T]) -> Coroutine[Any, Any, T]: ...
    @overload
    def wait_for(self, name: str, *, timeout: float | None = None) -> Coroutine[Any, Any, Any]: ...
    def wait_for(self, name: str, *, timeout: float | None = None, type: Any = Any) -> Coroutine[Any, Any, Any]:
        """Wait for a signal of the job's tenant (hf.signal), and return its value. Raise TimeoutError if it has not
        come after `timeout` seconds."""
        return self.link.durable("wait_for", name, timeout, type)  # type: ignore[no-any-return]

    def batch(self, name: str) -> ChildBatch:
        """Return a batch of children: `async with ctx.batch("labels") as labels:` and `task.using(batch=labels)`. They
        are enqueued together when the block ends, once however often the job runs."""
        return self.link.durable("batch", name)  # type: ignore[no-any-return]

    def gather(self, batch: ChildBatch, *, failures: float = 0.0) -> Coroutine[Any, Any, Gathered]:
        """Wait for all children of a batch, and return their counts and results. Raise GatherFailed if a larger share
        of them than `failures` did not succeed."""
        return self.link.durable("gather", batch, failures)  # type: ignore[no-any-return]

    def call(self, name: str, task: Enqueuer[..., R], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, R]:
        """Enqueue a child job once, wait for it, and return its result. Raise ChildFailed if it does not succeed."""
        return self.link.durable("call", name, task, args, kwargs)  # type: ignore[no-any-return]

    @property
    def log(self) -> JobLog:
        """Return the job's log: `ctx.log("3 rows skipped")` stores a line with the job, and the methods of a standard
        logger (`ctx.log.info(...)`) also write it to the process's log. The last 200 lines of an attempt are kept."""
        return JobLog(_log, {"job": self.job_id, "task": self.task, "attempt": self.attempt}, self.link)


class JobLog(logging.LoggerAdapter[logging.Logger]):
    """`ctx.log.info("sent", extra={"fields": {"to": 3}})`: the standard methods, the job's fields added."""

    def __init__(self, logger: logging.Logger, extra: Mapping[str, object], link: Link) -> None:
        super().__init__(logger, extra)
        self._link = link

    def __call__(self, text: object, level: str = "info") -> None:
        """Store a line with the job."""
        self._link.log(level, str(text))

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message with the job's fields, and store it with the job: from level INFO on whatever the logger's."""
        enabled = self.isEnabledFor(level)
        if enabled or level >= logging.INFO:
            self._link.log(logging.getLevelName(level).lower(), _text(msg, args))
        if enabled:
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            super().log(level, msg, *args, **kwargs)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        extra = dict(kwargs.get("extra") or {})
        extra["fields"] = {**(self.extra or {}), **extra.get("fields", {})}
        return msg, {**kwargs, "extra": extra}


def _text(msg: object, args: tuple[object, ...]) -> str:
    try:
        return str(msg) % args if args else str(msg)
    except Exception:  # logging reports arguments that do not fit
        return str(msg)


CONTEXT = Context()
"""Default for keyword-only context parameters, `*, ctx: Context = CONTEXT`: type checkers then do not require one in
calls of enqueue. A worker always passes the real one."""
