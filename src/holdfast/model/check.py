"""Checks of values that callers give, for those without a type checker. Their bounds are those of the SQL functions."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from holdfast.errors import UsageError
from holdfast.model.payload import check_text
from holdfast.model.retry import LONGEST

LONGEST_NAME = 200


def name(text: Any, what: str) -> str:
    """Return a name: 1 to LONGEST_NAME characters that PostgreSQL can store."""
    return check_text(text, what, LONGEST_NAME)


def tenant(text: Any) -> str | None:
    """Return the name of a tenant, or None."""
    return None if text is None else name(text, "a tenant")


def priority(value: Any) -> int:
    """Return a priority."""
    if isinstance(value, bool) or value not in range(4):
        raise UsageError(f"priority must be 0 (critical), 1 (high), 2 (normal) or 3 (low), got {value!r}")
    return int(value)


def number_of_seconds(value: Any, what: str) -> float:
    """Return a number of seconds, which SQL checks further."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UsageError(f"{what} must be a number of seconds, got {value!r:.60}")
    return value


def seconds(value: Any, what: str) -> float:
    """Return a length of time in seconds, from a number or a timedelta: 0 to LONGEST."""
    length = number_of_seconds(value.total_seconds() if isinstance(value, timedelta) else value, what)
    if not 0 <= length <= LONGEST:
        raise UsageError(f"{what} must be from 0 to {LONGEST:.0f} seconds, got {value!r}")
    return length


def rate(value: Any) -> float | None:
    """Return requests a second, or None."""
    if value is not None and not 0 < value < math.inf:
        raise UsageError(f"rate must be a number of requests per second, above 0, got {value!r}")
    result: float | None = value
    return result
