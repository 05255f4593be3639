"""What a handler may know about the job it runs, and tell about it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.model.outcome import WANTED_CANCELED, Cancel

if TYPE_CHECKING:
    from holdfast.model.delivery import Address, Emitted
    from holdfast.store.transaction import Transaction

_log = logging.getLogger("holdfast.job")


class Link:
    """What connects a context to the worker that runs its job. This one, of contexts made by hand, leads nowhere."""

    @property
    def cancelled(self) -> bool:
        return False

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Takes a report."""

    def set_result(self, value: Any) -> None:
        """Takes the job's result."""

    def transaction(self) -> Transaction:
        """A transaction that ends the job."""
        raise UsageError("ctx.transaction() needs a job that a worker runs; this context was made by hand")

    def emit(self, channel: Any, payload: Any, key: str, order: str | None) -> Emitted:
        """Emits a message in the open transaction."""
        raise UsageError("ctx.emit() needs a job that a worker runs; this context was made by hand")

    async def aemit(self, channel: Any, payload: Any, key: str, order: str | None) -> Emitted:
        """The same, async."""
        raise UsageError("ctx.aemit() needs a job that a worker runs; this context was made by hand")


@dataclass(frozen=True, slots=True)
class Context:
    """The running job. A handler asks for it with a parameter annotated `Context`; tests may make one by hand."""

    job_id: str = "00000000-0000-7000-8000-000000000000"
    task: str = ""
    queue: str = "default"
    tenant: str | None = None
    priority: int = 2
    attempt: int = 1
    max_attempts: int = 1
    token: int = 0
    batch: str | None = None
    headers: Mapping[str, Any] | None = None
    link: Link = field(default_factory=Link, repr=False, compare=False)

    @property
    def last_attempt(self) -> bool:
        """Whether no attempt is left after this one."""
        return self.attempt >= self.max_attempts

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants this job canceled. Async handlers are canceled at their next await and handlers in
        processes are killed; one in a thread looks here, and stops by raising Cancel."""
        return self.link.cancelled

    def raise_if_cancelled(self) -> None:
        """Raises Cancel when somebody wants this job canceled."""
        if self.cancelled:
            raise Cancel(WANTED_CANCELED, code="CANCELED")

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Says how far the job is. Cheap: only the newest report is stored, about twice a second."""
        self.link.progress(done, total, message)

    def set_result(self, value: Any) -> None:
        """The job's result, in place of what the handler returns; inside ctx.transaction() it is committed with it."""
        self.link.set_result(value)

    def transaction(self) -> Transaction:
        """A transaction that commits the handler's rows and the job's success together, or neither.

        `async with ctx.transaction() as conn` in async handlers, `with ctx.transaction() as conn` in threads and
        processes. When the lease was lost meanwhile, everything is rolled back and LeaseLost is raised. What the
        handler returns afterwards is stored in a second step; set_result inside it stores one at once.
        """
        return self.link.transaction()

    def emit(self, channel: Address | str, payload: Any, *, key: str, order: str | None = None) -> Emitted:
        """Puts a message of this job's tenant into the outbox, in the open `with ctx.transaction()`: it is delivered if
        that commits, and never if it does not. See Holdfast.emit."""
        return self.link.emit(channel, payload, key, order)

    async def aemit(self, channel: Address | str, payload: Any, *, key: str, order: str | None = None) -> Emitted:
        """The same in `async with ctx.transaction()`."""
        return await self.link.aemit(channel, payload, key, order)

    @property
    def log(self) -> JobLog:
        """A logger whose lines carry the job's id, task and attempt."""
        return JobLog(_log, {"job": self.job_id, "task": self.task, "attempt": self.attempt})


class JobLog(logging.LoggerAdapter[logging.Logger]):
    """`ctx.log.info("sent", extra={"fields": {"to": 3}})`: the standard methods, the job's fields added."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        extra = dict(kwargs.get("extra") or {})
        extra["fields"] = {**(self.extra or {}), **extra.get("fields", {})}
        return msg, {**kwargs, "extra": extra}


CONTEXT = Context()
"""A default for keyword-only context parameters, `*, ctx: Context = CONTEXT`: with it, type checkers do not ask callers
of enqueue for one. A worker always passes the real one."""
