"""Read and store the steps of this worker's jobs, in groups: what is asked for while a call is under way goes into the
next one. So a busy worker makes one call for the steps of many jobs, and an idle one stores a step at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.model.job import Job
from holdfast.model.step import StoredStep
from holdfast.store.call import Call
from holdfast.store.calls import Calls
from holdfast.store.steps import NewStep
from holdfast.store.wire.session import Session

T = TypeVar("T")
LARGEST = 500  # steps of one call
_PAUSES = (0.05, 1.0)  # the first and the longest pause, in seconds, while the database is unavailable
Waiting = list[tuple[Any, "asyncio.Future[Any]"]]


class StepStore:
    """The steps of the jobs that run on this worker's event loop."""

    def __init__(self, session: Session, calls: Calls) -> None:
        self._session = session
        self._calls = calls.steps
        self._reads: Waiting = []
        self._stores: Waiting = []
        self._flushing: asyncio.Task[None] | None = None

    async def read(self, job: Job) -> list[StoredStep]:
        """Return the steps of a job."""
        steps: list[StoredStep] = await self._add(self._reads, job)
        return steps

    async def store(self, step: NewStep) -> str:
        """Store a step; return stored, existing, lost or locked."""
        outcome: str = await self._add(self._stores, step)
        return outcome

    async def close(self) -> None:
        """Close the connection."""
        if self._flushing is not None:
            self._flushing.cancel()
        await self._session.close()

    def _add(self, waiting: Waiting, value: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        waiting.append((value, future))
        if self._flushing is None:
            self._flushing = loop.create_task(self._flush())
        return future

    async def _flush(self) -> None:
        try:
            while self._reads or self._stores:
                reads, self._reads = self._reads[:LARGEST], self._reads[LARGEST:]
                await self._run(reads, self._read_call)
                stores, self._stores = self._stores[:LARGEST], self._stores[LARGEST:]
                await self._run(stores, self._calls.store)
        finally:
            self._flushing = None

    def _read_call(self, jobs: Sequence[Job]) -> Call[list[list[StoredStep]]]:
        return self._calls.read([job.id for job in jobs], [job.lease.token for job in jobs])

    async def _run(self, group: Waiting, call: Callable[[Any], Call[Any]]) -> None:
        """Run a call for a group, and give each its part of the result. A refused group is sent one by one."""
        group = [(value, future) for value, future in group if not future.done()]
        if not group:
            return
        try:
            results = await self._repeat(call([value for value, _ in group]))
        except HoldfastError as error:
            if len(group) > 1:
                for each in group:
                    await self._run([each], call)
            elif not group[0][1].done():
                group[0][1].set_exception(error)
            return
        for (_, future), result in zip(group, results, strict=True):
            if not future.done():
                future.set_result(result)

    async def _repeat(self, call: Call[T]) -> T:
        """Run a call, and repeat it while the database is unavailable: handlers are stopped before their leases end."""
        pause, longest = _PAUSES
        while True:
            try:
                return await self._session.run(call)
            except DatabaseUnavailable:
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, longest)
