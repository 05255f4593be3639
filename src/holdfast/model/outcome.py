"""The outcome of an attempt, and the exceptions that a handler raises to choose it.

SQL's settle() reads the outcome's name, and decides the job's next state.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.model.failure import top_frame

if TYPE_CHECKING:
    from holdfast.model.job import Job

PARKED = "parked"
"""The job waits for its sleep, signal or children, and then runs again; the attempt does not count."""

SETTLED = "settled"
"""The job was finished inside its handler's own transaction. This outcome is never sent to SQL."""


FAILURES = ("error", "failed", "dead")
_WORKER = "holdfast.worker."  # modules whose frames precede the handler's
_MOST_DETAILS = 65_536  # bytes of JSON
_MOST_ITEMS = 1000

WANTED_CANCELED = "canceled while running"


class Outcome(msgspec.Struct, omit_defaults=True, gc=False):
    """The end of one attempt, as it is sent to the database."""

    id: str
    token: int
    outcome: str
    result: msgspec.Raw | None = None
    error: dict[str, Any] | None = None
    delay: float | None = None
    counts: list[str] | None = None  # keys whose breakers count this failure; None means all keys of the job
    wait: dict[str, Any] | None = None  # what a parked job waits for


def ending_of(job: Job, outcome: Outcome | None) -> str:
    """Return the job's state after an attempt; "error" if it will be retried."""
    if outcome is None or outcome.outcome == SETTLED:
        return "succeeded"
    return "dead" if outcome.outcome == "error" and job.attempt >= job.max_attempts else outcome.outcome


class Verdict(Exception):
    """Base class of the exceptions with which a handler chooses the job's outcome."""

    outcome = "error"
    after: float | None = None

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message or (code or type(self).__name__))
        self.code = code


class RetryLater(Verdict):
    """Retry after this many seconds instead of the policy's delay; the attempt counts."""

    def __init__(self, after: float, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message or f"retry requested after {after:g} s", code=code)
        self.after = float(after)


class Fail(Verdict):
    """The job can never succeed: end it as failed, without a retry."""

    outcome = "failed"


class Dead(Verdict):
    """The job must not be retried now, whatever its policy: end it as dead.

    `block` names what refused the job (a domain, an account); it is recorded as a block candidate for operators.
    """

    outcome = "dead"

    def __init__(self, message: str = "", *, code: str | None = None, block: str | None = None) -> None:
        super().__init__(message, code=code)
        self.block = block


class Snooze(Verdict):
    """Run again after this many seconds; the attempt does not count."""

    outcome = "snoozed"

    def __init__(self, after: float, message: str = "") -> None:
        super().__init__(message or f"snoozed for {after:g} s")
        self.after = float(after)


class Cancel(Verdict):
    """The job is no longer wanted: end it as canceled."""

    outcome = "canceled"


def describe(error: BaseException, longest: int) -> dict[str, Any]:
    """Return an error in the form of last_error: cleaned and limited in size, so that storing it cannot fail."""
    kind = type(error)
    ours = kind.__module__ in ("builtins", "__main__") or kind.__module__.startswith("holdfast.")
    name = kind.__qualname__ if ours else f"{kind.__module__}.{kind.__qualname__}"
    described: dict[str, Any] = {"type": clean(name, 200), "message": clean(_text(error), longest // 4)}
    code = _code(error)
    if code is not None:
        described["code"] = clean(code, 200)
    if isinstance(error, Dead) and (block := _block(error)):
        described["block"] = clean(block, 500)
    if details := _details(error):
        described["details"] = details
    if not isinstance(error, Cancel):  # nothing went wrong
        if frame := top_frame(error.__traceback__):
            described["frame"] = clean(frame, 300)
        described["traceback"] = clean(_traceback(error), longest)
    return described


def clean(text: str, longest: int) -> str:
    """Return text that PostgreSQL can store: without NUL and lone surrogates, the middle cut if it is too long."""
    text = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) > longest:
        cut = f"\n... {len(text) - longest} characters cut ...\n"
        half = max((longest - len(cut)) // 2, 0)
        text = (text[:half] + cut + text[len(text) - half :])[:longest]
    return text


def _code(error: BaseException) -> str | None:
    try:
        code = getattr(error, "code", None)
        return str(code) if isinstance(code, str | int) and not isinstance(code, bool) else None
    except Exception:  # a property of the handler's exception may be broken
        return None


def _block(error: Dead) -> str | None:
    try:
        return None if error.block is None else str(error.block)
    except Exception:  # its __str__ may be broken
        return None


def _details(error: BaseException) -> dict[str, Any] | None:
    """Return the mapping `details` of an exception as JSON that can be stored, or None."""
    try:
        details = getattr(error, "details", None)
        if not isinstance(details, Mapping) or not details:
            return None
        data: dict[str, Any] = _storable(details, 8)
        size = len(msgspec.json.encode(data))
        return data if size <= _MOST_DETAILS else {"left_out": f"{size} bytes, more than {_MOST_DETAILS}"}
    except Exception as failure:  # the mapping may be a class of the application
        return {"left_out": f"details cannot be shown: {type(failure).__name__}"}


def _storable(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, float) and value - value == 0:  # JSON has no NaN and no infinities
        return float(value)
    if depth and isinstance(value, Mapping):
        return {clean(str(name), 200): _storable(each, depth - 1) for name, each in list(value.items())[:_MOST_ITEMS]}
    if depth and isinstance(value, list | tuple):
        return [_storable(each, depth - 1) for each in value[:_MOST_ITEMS]]
    return clean(str(value), _MOST_DETAILS)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:  # a handler's exception may have a broken __str__
        return f"(its text cannot be shown: {type(failure).__name__})"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, _handlers_own(error.__traceback__), limit=-30))
    except Exception as failure:  # formatting runs code of the handler's own exception classes
        return f"(its traceback cannot be shown: {type(failure).__name__})"


def _handlers_own(frames: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the handler's first frame on, or all of it if the worker itself raised."""
    own = frames
    while own is not None and str(own.tb_frame.f_globals.get("__name__")).startswith(_WORKER):
        own = own.tb_next
    return frames if own is None else own
