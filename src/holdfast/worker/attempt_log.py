"""Log how attempts end, and count the failures of a window."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from holdfast.errors import UnknownTask
from holdfast.model.clock import CLOCK, Clock
from holdfast.model.job import Job
from holdfast.model.outcome import FAILURES, PARKED, SETTLED, Dead, Fail, Outcome, RetryLater, ending_of
from holdfast.telemetry import logs
from holdfast.telemetry.scrub import scrub

log = logs.get("worker")
MOST_KEYS = 1000  # distinct failures counted per window
TOP = 5  # of them logged
UNKNOWN_EVERY = 60.0  # seconds between warnings about an unknown task
_CHOICES = (RetryLater.__name__, Fail.__name__, Dead.__name__)
_CAUSE = " above exception"  # "The above exception was the direct cause", "During handling of the above exception"


class AttemptLogger:
    """A line for each attempt that ended: warnings for failures, level debug for successes."""

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._unknown = logs.RateLimitedLog(log, UNKNOWN_EVERY, clock)
        self.failed = 0
        self.failures = FailureCounts()  # of the current window

    def succeeded(self, job: Job) -> None:
        """Log a success."""
        logs.event(log, logging.DEBUG, "job succeeded", **self._about(job))

    def note(self, job: Job, outcome: Outcome) -> None:
        """Log an outcome, and count a failure."""
        if outcome.outcome == SETTLED and outcome.error is not None:
            logs.event(
                log,
                logging.WARNING,
                "handler raised after its job had succeeded",
                job=job.id,
                task=job.task,
                error=_text(outcome.error),
            )
        if outcome.outcome in ("succeeded", SETTLED):
            self.succeeded(job)
        elif outcome.outcome not in ("released", PARKED):
            self._failed(job, outcome, outcome.error or {})

    def take_failures(self) -> FailureCounts:
        """Return the failures of the window that ends, and begin the next."""
        failures, self.failures = self.failures, FailureCounts()
        return failures

    def _failed(self, job: Job, outcome: Outcome, error: Mapping[str, Any]) -> None:
        if outcome.outcome in FAILURES:
            self.failed += 1
            self.failures.add(job, error)
        fields = {**self._about(job, of=job.max_attempts), "error": _text(error)}
        if log.isEnabledFor(logging.DEBUG) and (trace := _unexpected(outcome)):
            fields[logs.TRACEBACK] = trace
        if outcome.outcome == "snoozed" and error.get("type") == UnknownTask.__name__:
            self._unknown.warn("job snoozed", job.task, **fields)
        else:
            logs.event(log, logging.WARNING, f"job {ending_of(job, outcome)}", **fields)

    def _about(self, job: Job, **more: Any) -> dict[str, Any]:
        """Return the log fields of an attempt that has just ended."""
        fields: dict[str, Any] = {"job": job.id, "task": job.task, "attempt": job.attempt, **more}
        if job.started:
            fields["job_duration_ms"] = round((self._clock.monotonic() - job.started) * 1000, 1)
        return fields


class FailureCounts:
    """Counts of failures: by key (a domain, for example), and by task and error code."""

    def __init__(self) -> None:
        self.keys: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()

    def add(self, job: Job, error: Mapping[str, Any]) -> None:
        """Count one failed attempt; keys beyond the first MOST_KEYS are not counted."""
        for key in job.keys or ():
            if key in self.keys or len(self.keys) < MOST_KEYS:
                self.keys[key] += 1
        kind = f"{job.task} {error.get('code') or error.get('type')}"
        if kind in self.kinds or len(self.kinds) < MOST_KEYS:
            self.kinds[kind] += 1

    def top(self) -> dict[str, dict[str, int]]:
        """Return log fields with the highest counts; none where nothing failed."""
        counters = {"top_failure_keys": self.keys, "top_failures": self.kinds}
        return {
            name: {scrub(each): number for each, number in counts.most_common(TOP)}
            for name, counts in counters.items()
            if counts
        }


def _text(error: Mapping[str, Any]) -> str:
    return f"{error.get('type')}: {str(error.get('message'))[:200]}"


def _unexpected(outcome: Outcome) -> str | None:
    """Return the traceback of an unexpected failure; of one that the handler chose, only if it has a cause."""
    error = outcome.error or {}
    trace = str(error.get("traceback") or "")
    if outcome.outcome not in FAILURES or (error.get("type") in _CHOICES and _CAUSE not in trace):
        return None
    return trace
