"""Children of a running job: the jobs that ctx.batch() collects, and what ctx.gather() returns of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.client.operation import Items, Steps, arun_steps, iteration, run_steps
from holdfast.errors import UsageError
from holdfast.model.job import JobInfo, NewJob

if TYPE_CHECKING:
    from collections.abc import Generator

    from holdfast.client.app import Holdfast
    from holdfast.store.call import Call

PAGE = 1000  # jobs that one query of results() reads


class ChildBatch:
    """Made by `ctx.batch("labels")`: `task.using(batch=labels).enqueue(...)` adds a child. All are enqueued together
    when the block ends. A run that finds the batch stored enqueues nothing."""

    def __init__(
        self,
        hf: Holdfast,
        name: str,
        tenant: str | None,
        begin: Callable[[ChildBatch], Steps[str]],
        end: Callable[[ChildBatch], Steps[None]],
    ) -> None:
        self.name = name
        self.tenant = tenant
        self.id = ""
        self.jobs: list[NewJob] = []
        self.stored = False
        self._hf = hf
        self._begin = begin
        self._end = end
        self._open = False

    def add(self, jobs: Sequence[NewJob]) -> None:
        """Add children; called by enqueue and enqueue_many."""
        if not self._open:
            raise UsageError(f"batch {self.name!r} takes jobs only inside its `with ctx.batch(...)` block")
        if not self.stored:
            self.jobs += jobs

    def _enter(self) -> Steps[ChildBatch]:
        self.id = yield from self._begin(self)
        self._open = True
        return self

    def _exit(self, failed: bool) -> Steps[None]:
        self._open = False
        if not failed and not self.stored:
            yield from self._end(self)
            self.stored = True

    @property
    def enqueued(self) -> bool:
        """Return whether the block has ended and the children are there."""
        return self.stored and not self._open

    def __enter__(self) -> ChildBatch:
        return run_steps(self._enter(), self._hf.database)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        run_steps(self._exit(error is not None), self._hf.database)

    async def __aenter__(self) -> ChildBatch:
        return await arun_steps(self._enter(), self._hf.database)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await arun_steps(self._exit(error is not None), self._hf.database)


@dataclass(frozen=True, slots=True)
class Gathered:
    """How the children of a batch ended. `results()` and `aresults()` iterate over the jobs, page by page."""

    batch: str
    total: int
    succeeded: int
    failed: int
    canceled: int
    _hf: Holdfast
    _first: str | None
    _last: str | None

    def _results(self) -> Generator[Call[Any] | Items[JobInfo], Any, None]:
        """Return the children in the order of their ids, with their results and errors."""
        start, end, after = self._first, self._last, False
        while start is not None and end is not None:
            call = self._hf.database.calls.jobs.of_batch(self.batch, start, end, PAGE, after=after)
            jobs: list[JobInfo] = yield call
            yield Items(jobs)
            if len(jobs) < PAGE:
                return
            start, after = jobs[-1].id, True

    if TYPE_CHECKING:

        def results(self) -> Iterator[JobInfo]: ...
        def aresults(self) -> AsyncIterator[JobInfo]: ...
    else:
        results, aresults = iteration(_results)
