"""Batches: jobs that are counted together, with a callback when the last one has ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.client.operation import Steps, Within, operation
from holdfast.client.task import Enqueuer
from holdfast.errors import HoldfastError, InvalidPayload, UsageError
from holdfast.model.job import BatchInfo, NewJob, ids
from holdfast.model.payload import check_text
from holdfast.store.call import Call

if TYPE_CHECKING:
    from holdfast.client.app import Holdfast


class Batch:
    """Made by `hf.batch(...)`: `with hf.batch("import") as batch: send.using(batch=batch).enqueue_many(...)`.

    Jobs may start before the block ends. The batch ends when the block and all its jobs have ended. If the block
    raises, the batch is canceled. With conn= everything happens in that connection's transaction.
    """

    def __init__(
        self, hf: Holdfast, name: str, *, tenant: str | None, on_done: Enqueuer[Any, Any] | None, conn: Any
    ) -> None:
        check_text(name, "a batch's name", 200)
        if tenant is not None:
            check_text(tenant, "a tenant", 200)
        self.id = ids.make()
        self.name = name
        self.tenant = tenant
        self.conn = conn
        self._hf = hf
        self._on_done = None if on_done is None else self._callback(on_done)

    def _callback(self, task: Enqueuer[Any, Any]) -> NewJob:
        """Return the callback's job. It gets the batch's id as its first argument, if it takes any."""
        given: Any = task
        if not isinstance(given, Enqueuer):
            raise UsageError(f"on_done must be a task, or task.using(...), got {given!r}")
        job = self._callback_job(task)
        if job.tenant is None and self.tenant is not None:
            return self._callback_job(task.using(tenant=self.tenant))
        return job

    def _callback_job(self, task: Enqueuer[Any, Any]) -> NewJob:
        try:
            return task.new_job((self.id,), {})
        except InvalidPayload:
            return task.new_job((), {})

    def _open(self) -> Steps[Batch]:
        yield Within(self._hf.database.calls.batches.open(self.id, self.name, self.tenant, self._on_done), self.conn)
        return self

    __enter__, __aenter__ = operation(_open)

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> Steps[None]:
        if error is None:
            yield Within(self._hf.database.calls.batches.close(self.id), self.conn)
        elif self.conn is None:  # otherwise the caller rolls back
            with self._noting(error):
                yield from self._cancel()

    __exit__, __aexit__ = operation(_leave)

    @contextlib.contextmanager
    def _noting(self, error: BaseException) -> Iterator[None]:
        """Keep the block's error even if the batch cannot be canceled, and add a note to it."""
        try:
            yield
        except HoldfastError as failed:
            error.add_note(f"batch {self.id} ({self.name}) could not be canceled and stays open: {failed}")

    def _info(self) -> Call[BatchInfo | None]:
        """Return the batch's current state, or None."""
        return self._hf.database.calls.batches.get(self.id)

    info, ainfo = operation(_info)

    def _cancel(self) -> Steps[int]:
        """Cancel waiting jobs and ask running ones to stop. Return the number of jobs."""
        return (yield from self._hf.batches._cancel(self.id))

    cancel, acancel = operation(_cancel)

    def _join(self, timeout: float | None = None) -> Steps[BatchInfo]:
        """Wait for the batch to end. Raise TimeoutError if it has not ended in time."""
        name = f"batch {self.id} ({self.name})"
        return (yield from self._hf.database.polling.until(self._info(), lambda info: info.ended, name, timeout))

    join, ajoin = operation(_join)

    def __repr__(self) -> str:
        return f"<batch {self.name!r} {self.id}>"
