"""Jobs, wherever they are: `hf.jobs`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack

from holdfast.client.operation import Noun, Steps, operation
from holdfast.errors import UsageError
from holdfast.model import payload as payloads
from holdfast.model.job import JobInfo, NewJob, ids, parse_id
from holdfast.model.why import Why
from holdfast.store.call import Call
from holdfast.store.jobs import Accepted, Filter
from holdfast.store.select import Page, Part


class JobFilter(TypedDict, total=False):
    """A filter of jobs; all given values must match. error is the type or the code of the last error; since and until
    apply to the time of creation."""

    status: str | None
    task: str | None
    queue: str | None
    tenant: str | None
    error: str | None
    batch: str | None
    since: datetime | None
    until: datetime | None


def where(**which: Any) -> Filter:
    """Return the store's filter for a JobFilter."""
    if (batch := which.get("batch")) is not None:
        which["batch"] = parse_id(batch)
    try:
        return Filter(**which)
    except TypeError as error:
        raise UsageError(f"jobs are filtered by {', '.join(JobFilter.__annotations__)} ({error})") from None


class Jobs(Noun):
    """`hf.jobs`."""

    def _get(self, job_id: str) -> Call[JobInfo | None]:
        """Return a job in any status, or None."""
        return self._calls.jobs.get(parse_id(job_id))

    get, aget = operation(_get)

    def _list(self, *, limit: int = 50, **which: Unpack[JobFilter]) -> Steps[builtins.list[JobInfo]]:
        """Return the newest jobs that match status, task, queue, tenant, error (a type or code), batch, since and
        until."""
        part: Part[JobInfo] = yield self._calls.jobs.list(JobInfo, where(**which), Page(limit=limit))
        return part.rows

    list, alist = operation(_list)

    def _enqueue(
        self,
        task: str,
        payload: bytes,
        *,
        queue: str = "default",
        tenant: str | None = None,
        priority: int = 2,
        delay: float | None = None,
        deadline: float | None = None,
        dedupe: str | None = None,
        limits: Sequence[str] = (),
    ) -> Call[Accepted]:
        """Enqueue a job without its task's code: by name, with its arguments as a JSON object. The options that a
        worker has registered for the task apply; middleware and rules of limits do not. limits are keys."""
        keys = tuple(limits) or None
        job = NewJob(ids.make(), task, payload, queue, tenant, priority, delay, deadline=deadline, keys=keys)
        job.dedupe_key = dedupe and payloads.dedupe_key(task, tenant, dedupe)
        # With fresh=False the SQL function looks up the task's registered options.
        return self._calls.jobs.enqueue(job, "existing", fresh=False)

    enqueue, aenqueue = operation(_enqueue)

    def _cancel(self, *job_ids: str) -> Call[dict[str, str]]:
        """Cancel waiting jobs at once and request running jobs to stop. Return for each job: canceled, canceling,
        finished (it had ended) or unknown. Repeating it changes nothing."""
        return self._calls.jobs.cancel([parse_id(i) for i in job_ids])

    cancel, acancel = operation(_cancel)

    def _why(self, job_id: str) -> Call[Why]:
        """Return where a job is and why it is not running: one sentence, and the reasons in detail."""
        return self._calls.jobs.why(parse_id(job_id))

    why, awhy = operation(_why)
