"""A job's life as a list of moments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.model.failure import FailedAttempt
from holdfast.model.job import PublicJob

SOON = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something that happened to a job, or will; `seconds` is how long it took."""

    at: datetime | None
    name: str
    state: str
    text: str = ""
    seconds: float | None = None


def timeline(job: PublicJob, attempts: Sequence[FailedAttempt], worker: str | None) -> list[TimelineEntry]:
    """Return the moments of a job, oldest first."""
    return [*_begin(job), *map(_failed, attempts), *_now(job, worker)]


def _begin(job: PublicJob) -> Iterator[TimelineEntry]:
    yield TimelineEntry(job.created_at, "enqueued", "queued", f"to {job.queue}, priority {job.priority}")
    if not job.attempts and job.run_at - job.created_at > SOON:
        yield TimelineEntry(job.run_at, "due", "queued")


def _failed(attempt: FailedAttempt) -> TimelineEntry:
    name = (attempt.type or "error").rpartition(".")[2]
    text = f"{name}: {attempt.message}" if attempt.message else name
    return TimelineEntry(attempt.started_at, f"attempt {attempt.attempt}", attempt.outcome, text, attempt.seconds)


def _now(job: PublicJob, worker: str | None) -> Iterator[TimelineEntry]:
    at = f"on {worker}" if worker else ""
    if job.status == "running":
        yield TimelineEntry(job.started_at, f"attempt {job.attempts}", "running", at)
    elif job.status == "retrying":
        yield TimelineEntry(job.run_at, "next attempt", "retrying", f"{job.attempts + 1} of {job.max_attempts}")
    elif job.status == "waiting":
        yield TimelineEntry(None, "waiting", "queued", f"for {job.waits_for}" if job.waits_for else "")
    elif job.ended:
        if job.status == "succeeded" and job.started_at and job.finished_at:
            took = (job.finished_at - job.started_at).total_seconds()
            yield TimelineEntry(job.started_at, f"attempt {job.attempts}", "succeeded", at, took)
        yield TimelineEntry(job.finished_at, "discarded" if job.discarded else "ended", job.status)
