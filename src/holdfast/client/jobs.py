"""Jobs, wherever they are: `hf.jobs`."""

from __future__ import annotations

import builtins
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from holdfast.client.operation import Noun, Steps, operation
from holdfast.errors import UsageError
from holdfast.model import payload as payloads
from holdfast.model.failure import AttemptLog, FailedAttempt
from holdfast.model.job import JobInfo, NewJob, PublicJob, ids, parse_id
from holdfast.model.step import Relatives, StepInfo
from holdfast.model.view import EVERYTHING
from holdfast.model.why import Why
from holdfast.store.call import Call
from holdfast.store.enqueue import Accepted
from holdfast.store.jobs import Filter
from holdfast.store.select import Page, Part

if TYPE_CHECKING:
    from holdfast.client.app import Holdfast

FIRST_STEP, LONGEST_STEP = 100, 16_000  # jobs that one query of a search reads
QUICK = 0.05  # seconds: after a query this quick the next one reads more


class JobFilter(TypedDict, total=False):
    """A filter of jobs; all given values must match. error is the type or the code of the last error,
    error_group its fingerprint; since and until apply to the time of creation."""

    status: str | None
    task: str | None
    queue: str | None
    tenant: str | None
    error: str | None
    error_group: str | None
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


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search; next is where to continue, None at the end."""

    jobs: list[JobInfo]
    next: str | None


class Jobs(Noun):
    """`hf.jobs`."""

    def _get(self, job_id: str) -> Call[JobInfo | None]:
        """Return a job in any status, or None."""
        return self._calls.jobs.get(parse_id(job_id))

    get, aget = operation(_get)

    def _list(self, *, limit: int = 50, **which: Unpack[JobFilter]) -> Steps[builtins.list[JobInfo]]:
        """Return the newest jobs that match status, task, queue, tenant, error (a type or code),
        error_group, batch, since and until."""
        part: Part[JobInfo] = yield self._calls.jobs.list(JobInfo, where(**which), Page(limit=limit))
        return part.rows

    list, alist = operation(_list)

    def _failures(self, job_id: str) -> Call[builtins.list[FailedAttempt]]:
        """Return the last 20 failed attempts of a job, the oldest first."""
        return self._calls.errors.of_job(parse_id(job_id))

    failures, afailures = operation(_failures)

    def _log(self, job_id: str) -> Call[builtins.list[AttemptLog]]:
        """Return what the handlers of a job's last five attempts wrote with ctx.log, the oldest first."""
        return self._calls.errors.log(parse_id(job_id))

    log, alog = operation(_log)

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

    def _cancel(self, *job_ids: str, by: str | None = None, reason: str | None = None) -> Call[dict[str, str]]:
        """Cancel waiting jobs at once and request running jobs to stop. Return for each job: canceled, canceling,
        finished (it had ended) or unknown. Repeating it changes nothing. With `by` or `reason` it is recorded
        (hf.actions.list)."""
        some = [parse_id(i) for i in job_ids]
        if by is None and reason is None:
            return self._calls.jobs.cancel(some)
        return self._calls.actions.act("cancel", some, by, reason)

    cancel, acancel = operation(_cancel)

    def _why(self, job_id: str) -> Call[Why]:
        """Return where a job is and why it is not running: one sentence, and the reasons in detail."""
        return self._calls.jobs.why(parse_id(job_id))

    why, awhy = operation(_why)

    def _edit(
        self, job_id: str, args: Mapping[str, Any], *, by: str | None = None, reason: str | None = None
    ) -> Steps[str]:
        """Change arguments of a job that waits, or of a failed or dead one, which is then queued again; others stay.
        They are checked if the task is registered here. hf.actions.list(target=job_id) has the old ones. Return
        "edited" or "retried"."""
        jobs: Mapping[int, PublicJob] = yield self._calls.jobs.look([(id_ := parse_id(job_id), EVERYTHING)])
        if (found := jobs.get(0)) is None:
            raise UsageError(f"there is no job {id_}")
        data, keys = edited_args(self._hf, found, {**raw_args(found.args), **args})
        outcome: str = yield self._calls.actions.edit(id_, data, found.args, keys, by, reason)
        return outcome

    edit, aedit = operation(_edit)

    def _steps(self, job_id: str) -> Call[builtins.list[StepInfo]]:
        """Return the durable steps of a job, in order."""
        return self._calls.steps.list(parse_id(job_id))

    steps, asteps = operation(_steps)

    def _relatives(self, job_id: str) -> Call[Relatives]:
        """Return the parent and the children of a job, and the jobs that it follows or that follow it."""
        return self._calls.steps.relatives(parse_id(job_id))

    relatives, arelatives = operation(_relatives)

    def _compensate(self, job_id: str, *, by: str | None = None, reason: str | None = None) -> Call[int]:
        """Undo the finished steps of a job that has ended, the last first, in jobs of their own. Return their
        number."""
        return self._calls.steps.compensate(parse_id(job_id), by, reason)

    compensate, acompensate = operation(_compensate)

    def _rerun(
        self, job_id: str, *, from_step: str | None = None, by: str | None = None, reason: str | None = None
    ) -> Steps[bool]:
        """Run a job that has ended again, with fresh attempts. With from_step, run that step and all later ones again,
        and keep earlier results. Return False if a newer job holds its dedupe key."""
        info: JobInfo | None = yield self._calls.jobs.get(id_ := parse_id(job_id))
        keys = None
        if info is not None:
            keys = known_keys(self._hf, info, payloads.encode(info.payload, "the payload"))
        found: str | None = yield self._calls.steps.rerun(id_, from_step, keys, by, reason)
        return found is not None

    rerun, arerun = operation(_rerun)

    def _search(
        self,
        args: Mapping[str, Any],
        *,
        before: str | None = None,
        limit: int = 50,
        seconds: float = 1.0,
        **which: Unpack[JobFilter],
    ) -> Steps[SearchResult]:
        """Return the newest jobs that have these arguments and match the filter, as list(). It reads jobs for at
        most `seconds` seconds. If there may be more, `next` is where to continue: pass it as `before`."""
        found: builtins.list[JobInfo] = []
        matching, jobs, step, ends = where(**which), self._calls.jobs, FIRST_STEP, time.monotonic() + seconds
        page = Page(limit=limit, before=before and parse_id(before))
        while True:
            began = time.monotonic()
            floor: str | None = yield jobs.floor(page.before, step)
            rest = replace(page, floor=floor, limit=limit - len(found))
            part: Part[JobInfo] = yield jobs.list(JobInfo, matching, rest, args=args)
            found += part.rows
            if len(found) == limit:
                return SearchResult(found, found[-1].id)
            if floor is None or time.monotonic() > ends:
                return SearchResult(found, floor)
            page = replace(page, before=floor)
            step = min(step * 4, LONGEST_STEP) if time.monotonic() - began < QUICK else step

    search, asearch = operation(_search)


raw_args = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Return arguments by name, each as its JSON: decoded, long numbers would change."""


def edited_args(hf: Holdfast, job: PublicJob, args: dict[str, Any]) -> tuple[bytes, Sequence[str] | None]:
    """Return a job's new arguments as JSON, checked, and the keys of their limits; None if the task is unknown here."""
    data = payloads.encode(args, what := f"the payload of task {job.task!r}")
    if (task := hf.registry.tasks.get(job.task)) is None:
        payloads.check_limits(data, what, hf.settings.max_payload, hf.settings.max_depth)
        return data, None
    checked = task.check_payload(data)
    return checked, task.keys(checked, job.tenant, job.queue) or ()


def known_keys(hf: Holdfast, job: JobInfo | PublicJob, data: str | bytes) -> Sequence[str] | None:
    """Return the keys of a job's limits, by its payload; None if the task is unknown here."""
    task = hf.registry.tasks.get(job.task)
    return None if task is None else task.keys(data, job.tenant, job.queue) or ()
