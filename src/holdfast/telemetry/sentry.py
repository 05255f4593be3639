"""Sentry: report failures of jobs, scrubbed and grouped by task and error. Needs the extra `sentry`.

An event is built here from the exception alone and scrubbed before the SDK gets it. So it contains nothing that
integrations or an application's scope would add (arguments, requests, users), no local variables and no payload. Values
of the payload that an error's text quotes are removed too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.errors import ConfigurationError
from holdfast.model.clock import CLOCK, Clock
from holdfast.model.failure import Failure
from holdfast.telemetry.scrub import scrub

if TYPE_CHECKING:
    from sentry_sdk import Client
    from sentry_sdk.transport import Transport
    from sentry_sdk.types import Event

SHORTEST = 4  # characters of a payload value to remove from texts: shorter ones occur in many words
MOST_VALUES = 1000
PER_MINUTE = 10  # events per group: a queue full of the same failure is one problem
MOST_GROUPS = 1000


class Reporter:
    """Sends failures to Sentry: a listener for `hf.registry.on_failure`.

    hf.registry.on_failure.append(Reporter(dsn)), or the setting `sentry_dsn` for all that a worker runs.
    """

    def __init__(self, dsn: str, *, transport: Transport | None = None, clock: Clock = CLOCK) -> None:
        self._clock = clock
        try:
            from sentry_sdk import Client
        except ImportError:
            raise ConfigurationError("sentry_dsn needs: pip install 'holdfast-jobs[sentry]'") from None
        try:
            self._client: Client = Client(
                dsn,
                transport=transport,
                default_integrations=False,
                auto_enabling_integrations=False,
                include_local_variables=False,
                max_breadcrumbs=10,
            )
        except ValueError as error:  # BadDsn, for example; it may quote the key
            raise ConfigurationError(f"sentry_dsn cannot be used: {scrub(str(error))}") from None
        self._groups: dict[tuple[str, ...], list[float]] = {}

    def __call__(self, failure: Failure) -> None:
        """Report a failure, unless its group has reached the limit for this minute."""
        group = group_of(failure)
        if (left_out := self._turn(group)) is not None:
            from sentry_sdk import Scope

            event = cast("Event", make_event(failure, group, left_out))
            self._client.capture_event(event, scope=Scope())

    def close(self) -> None:
        """Send the remaining events, for two seconds at most."""
        self._client.close(timeout=2.0)

    def _turn(self, group: tuple[str, ...]) -> int | None:
        """Return how many events of a group were dropped before this one; None if this one is dropped too."""
        now = self._clock.monotonic()
        if len(self._groups) >= MOST_GROUPS and group not in self._groups:
            self._groups.clear()
        since, number = self._groups.get(group, (now, 0))
        if now - since >= 60:
            self._groups[group] = [now, 1]
            return max(int(number) - PER_MINUTE, 0)
        self._groups[group] = [since, number + 1]
        return 0 if number < PER_MINUTE else None


@contextlib.contextmanager
def reporting(dsn: str) -> Iterator[Reporter]:
    """Yield a reporter, and close it when the block ends."""
    reporter = Reporter(dsn)
    try:
        yield reporter
    finally:
        reporter.close()


def group_of(failure: Failure) -> tuple[str, ...]:
    """Return the fingerprint of a failure: its task and its error."""
    kind, code = str(failure.details.get("type")), failure.details.get("code")
    return ("holdfast", failure.job.task, kind, *([] if code is None else [scrub(str(code))]))


def make_event(failure: Failure, group: tuple[str, ...], left_out: int = 0) -> dict[str, Any]:
    """Build the scrubbed event of one failure."""
    job, known = failure.job, values_of(failure.job.payload)
    about = {"job_id": job.id, "attempt": job.attempt, "max_attempts": job.max_attempts, "outcome": failure.ending}
    tags = {
        "task": job.task,
        "queue": job.queue,
        "outcome": failure.ending,
        "tenant": job.tenant,
        "error_code": failure.details.get("code"),
    }
    event: dict[str, Any] = {
        "level": "warning" if failure.ending == "error" else "error",
        "logger": "holdfast.job",
        "transaction": job.task,
        "fingerprint": list(group),
        "tags": {name: scrub(str(value)) for name, value in tags.items() if value is not None},
        "contexts": {"job": about},
        "exception": {"values": [_scrub_exception(each, known) for each in _exceptions(failure)]},
    }
    if left_out:
        event["extra"] = {"left_out_before": left_out}
    if failure.ending == "dead":
        crumb = {
            "category": "holdfast",
            "type": "error",
            "level": "error",
            "message": "job dead",
            "timestamp": time.time(),
        }
        event["breadcrumbs"] = {"values": [crumb | {"data": {**about, "task": job.task}}]}
    return event


def _exceptions(failure: Failure) -> list[dict[str, Any]]:
    """Return the chain of exceptions with their frames; for a child process, only its description."""
    details = failure.details
    if type(failure.error).__name__ == "FailedInChild":
        text = f"{details.get('message')}\n{details.get('traceback') or ''}"
        return [{"type": str(details.get("type")), "value": text}]
    from sentry_sdk.utils import event_from_exception

    options = {"include_local_variables": False, "include_source_context": True, "max_value_length": 4096}
    event, _ = event_from_exception(failure.error, client_options=options)
    exceptions: list[dict[str, Any]] = event["exception"]["values"]
    return exceptions


def _scrub_exception(exception: dict[str, Any], known: list[str]) -> dict[str, Any]:
    for frame in (exception.get("stacktrace") or {}).get("frames") or ():
        frame.pop("vars", None)
    result: dict[str, Any] = _walk(exception)
    result["value"] = scrub(str(exception.get("value")), known)
    return result


def _walk(value: Any) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {name: _walk(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(each) for each in value]
    return value


def values_of(payload: Any) -> list[str]:
    """Return the values of a payload in the forms in which texts may quote them. The longest comes first, so that
    removing them leaves no part of one."""
    with contextlib.suppress(msgspec.DecodeError, TypeError):
        payload = msgspec.json.decode(payload)
    values: set[str] = set()
    _gather(payload, values)
    return sorted(values, key=len, reverse=True)


def _gather(value: Any, values: set[str]) -> None:
    if len(values) >= MOST_VALUES:
        return
    if isinstance(value, Mapping):
        for each in value.values():
            _gather(each, values)
    elif isinstance(value, list | tuple):
        for each in value:
            _gather(each, values)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value)
        if len(text) >= SHORTEST:
            values.update((text, repr(text)[1:-1], msgspec.json.encode(text).decode()[1:-1]))
