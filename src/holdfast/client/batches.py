"""Batches and their counters: `hf.batches`. `hf.batch(...)` opens one (batch.py)."""

from __future__ import annotations

import builtins
from collections.abc import Generator
from typing import Any

from holdfast.client.operation import Items, Noun, Steps, iteration, operation
from holdfast.model.job import BatchInfo, parse_id
from holdfast.store.call import Call
from holdfast.store.select import Page, Part


class Batches(Noun):
    """`hf.batches`."""

    def _get(self, batch_id: str) -> Call[BatchInfo | None]:
        """Return a batch with its counters, or None."""
        return self._calls.batches.get(parse_id(batch_id))

    get, aget = operation(_get)

    def _list(self, limit: int = 50) -> Steps[builtins.list[BatchInfo]]:
        """Return the newest batches with their counters."""
        part: Part[BatchInfo] = yield self._calls.batches.list(Page(limit=limit))
        return part.rows

    list, alist = operation(_list)

    def _cancel(self, batch_id: str, *, by: str | None = None, reason: str | None = None) -> Steps[int]:
        """Cancel waiting jobs of a batch and request running ones to stop, in small steps. Return their number. With by
        or reason, it is kept in the log of actions."""
        call, jobs = self._calls.batches.cancel(parse_id(batch_id), by=by, reason=reason), 0
        while some := (yield call):
            jobs += some
        return jobs

    cancel, acancel = operation(_cancel)

    def _cancel_in_steps(
        self, batch_id: str, *, by: str | None = None, reason: str | None = None
    ) -> Generator[Call[int] | Items[int], Any, None]:
        """Cancel as cancel() does, as you iterate over the number of jobs of each step."""
        call = self._calls.batches.cancel(parse_id(batch_id), by=by, reason=reason)
        while some := (yield call):
            yield Items([some])

    cancel_in_steps, acancel_in_steps = iteration(_cancel_in_steps)
