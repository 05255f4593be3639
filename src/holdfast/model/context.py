"""The context of a running job: what a handler can read and report."""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.model.outcome import WANTED_CANCELED, Cancel

if TYPE_CHECKING:
    from holdfast.model.outbox import Address, Emitted
    from holdfast.store.wire.transaction import Transaction

_log = logging.getLogger("holdfast.job")


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
    batch: str | None = None
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
