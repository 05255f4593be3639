"""Jobs, wherever they are: `hf.jobs`."""

from __future__ import annotations

import builtins

from holdfast.client.operation import Noun, Steps, operation
from holdfast.model.job import JobInfo, parse_id
from holdfast.model.why import Why
from holdfast.store.call import Call
from holdfast.store.jobs import Filter
from holdfast.store.select import Page, Part


class Jobs(Noun):
    """`hf.jobs`."""

    def _get(self, job_id: str) -> Call[JobInfo | None]:
        """Return a job in any status, or None."""
        return self._hf.calls.jobs.get(parse_id(job_id))

    get, aget = operation(_get)

    def _list(
        self,
        *,
        status: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        batch: str | None = None,
        error: str | None = None,
        limit: int = 50,
    ) -> Steps[builtins.list[JobInfo]]:
        """Return the newest jobs that match all given values. error matches the text of the last error."""
        where = Filter(status=status, task=task, queue=queue, tenant=tenant, batch=batch, error=error)
        part: Part[JobInfo] = yield self._hf.calls.jobs.list(JobInfo, where, Page(limit=limit))
        return part.rows

    list, alist = operation(_list)

    def _cancel(self, *job_ids: str) -> Call[dict[str, str]]:
        """Cancel waiting jobs at once and request running jobs to stop. Return for each job: canceled, canceling,
        finished (it had ended) or unknown. Repeating it changes nothing."""
        return self._hf.calls.jobs.cancel([parse_id(i) for i in job_ids])

    cancel, acancel = operation(_cancel)

    def _why(self, job_id: str) -> Call[Why]:
        """Return where a job is and why it is not running: one sentence, and the reasons in detail."""
        return self._hf.calls.jobs.why(parse_id(job_id))

    why, awhy = operation(_why)
