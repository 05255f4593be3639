"""Batches: jobs that are counted together, with a callback when the last one has ended."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.client.task import Enqueuer, pauses
from holdfast.errors import HoldfastError, InvalidPayload, UsageError
from holdfast.model.job import BatchInfo, NewJob, ids
from holdfast.model.payload import check_text

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
            raise UsageError(f"on_done is a task, or task.using(...), got {given!r}")
        job = self._callback_job(task)
        if job.tenant is None and self.tenant is not None:
            return self._callback_job(task.using(tenant=self.tenant))
        return job

    def _callback_job(self, task: Enqueuer[Any, Any]) -> NewJob:
        try:
            return task.new_job((self.id,), {})
        except InvalidPayload:
            return task.new_job((), {})

    def __enter__(self) -> Batch:
        self._hf.sync_pool.run(self._hf.calls.batches.open(self.id, self.name, self.tenant, self._on_done), self.conn)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self._hf.sync_pool.run(self._hf.calls.batches.close(self.id), self.conn)
        elif self.conn is None:  # otherwise the caller rolls back
            with self._noting(error):
                self.cancel()

    async def __aenter__(self) -> Batch:
        call = self._hf.calls.batches.open(self.id, self.name, self.tenant, self._on_done)
        await self._hf.async_pool.run(call, self.conn)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if error is None:
            await self._hf.async_pool.run(self._hf.calls.batches.close(self.id), self.conn)
        elif self.conn is None:
            with self._noting(error):
                await self.acancel()

    @contextlib.contextmanager
    def _noting(self, error: BaseException) -> Iterator[None]:
        """Keep the block's error even if the batch cannot be canceled, and add a note to it."""
        try:
            yield
        except HoldfastError as failed:
            error.add_note(f"batch {self.id} ({self.name}) could not be canceled and stays open: {failed}")

    def info(self) -> BatchInfo | None:
        """Return the batch's current state, or None."""
        return self._hf.batches.get(self.id)

    async def ainfo(self) -> BatchInfo | None:
        """Return the batch's current state, or None."""
        return await self._hf.batches.aget(self.id)

    def cancel(self) -> int:
        """Cancel waiting jobs and ask running ones to stop. Return the number of jobs."""
        return self._hf.batches.cancel(self.id)

    async def acancel(self) -> int:
        """Cancel waiting jobs and ask running ones to stop. Return the number of jobs."""
        return await self._hf.batches.acancel(self.id)

    def join(self, timeout: float | None = None) -> BatchInfo:
        """Wait for the batch to end. Raise TimeoutError if it has not ended in time."""
        for pause in pauses(timeout):
            if (info := self.info()) is not None and info.ended:
                return info
            time.sleep(pause)
        raise TimeoutError(f"batch {self.id} ({self.name}) has not ended within {timeout:g} s")

    async def ajoin(self, timeout: float | None = None) -> BatchInfo:
        """Wait for the batch to end. Raise TimeoutError if it has not ended in time."""
        for pause in pauses(timeout):
            if (info := await self.ainfo()) is not None and info.ended:
                return info
            await asyncio.sleep(pause)
        raise TimeoutError(f"batch {self.id} ({self.name}) has not ended within {timeout:g} s")

    def __repr__(self) -> str:
        return f"<batch {self.name!r} {self.id}>"
