"""Dead letters, and the blocks that handlers reported: `hf.dead`."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Unpack

from holdfast.client.actions import change_dead
from holdfast.client.errors import Errors
from holdfast.client.jobs import JobFilter, where
from holdfast.client.operation import Noun, Steps, operation
from holdfast.model.job import BlockInfo, JobInfo, parse_id
from holdfast.store.call import Call
from holdfast.store.select import Page, Part


class DeadLetters(Noun):
    """`hf.dead`: failed and dead jobs that wait for a decision."""

    @property
    def errors(self) -> Errors:
        """Failures in groups, with an example and a trend."""
        return Errors(self._hf)

    def _list(self, *, limit: int = 50, **which: Unpack[JobFilter]) -> Steps[builtins.list[JobInfo]]:
        """Return the failed and dead jobs that match, by the filters of hf.jobs.list(); the last to end come first."""
        page = Page(limit=limit, order="ended")
        part: Part[JobInfo] = yield self._calls.dead.list(JobInfo, where(**which), page)
        return part.rows

    list, alist = operation(_list)

    def _count(self, *, most: int | None = None, **which: Unpack[JobFilter]) -> Call[int]:
        """Count the failed and dead jobs that match, up to `most`."""
        return self._calls.dead.count(where(**which), most=most)

    count, acount = operation(_count)

    def _retry(
        self, job_ids: Iterable[str], *, by: str | None = None, reason: str | None = None
    ) -> Steps[builtins.list[str]]:
        """Retry failed and dead jobs, with fresh attempts. Return the ids of those that were retried. With `by` or
        `reason` it is recorded (hf.actions.list)."""
        return (yield from change_dead(self._calls, "retry", [parse_id(i) for i in job_ids], by, reason))

    retry, aretry = operation(_retry)

    def _discard(
        self, job_ids: Iterable[str], *, by: str | None = None, reason: str | None = None
    ) -> Steps[builtins.list[str]]:
        """Move failed or dead jobs to the history for good. Return the ids of those that were moved. With `by` or
        `reason` it is recorded."""
        return (yield from change_dead(self._calls, "discard", [parse_id(i) for i in job_ids], by, reason))

    discard, adiscard = operation(_discard)

    def _blocks(self) -> Call[builtins.list[BlockInfo]]:
        """Return what handlers reported as blocked (Dead(block=...)), the latest first."""
        return self._calls.dead.blocks()

    blocks, ablocks = operation(_blocks)

    def _clear_blocks(self, *keys: str) -> Call[builtins.list[str]]:
        """Remove keys from the list of blocks. Return those that were on it."""
        return self._calls.dead.clear_blocks(keys)

    clear_blocks, aclear_blocks = operation(_clear_blocks)
