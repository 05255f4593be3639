"""The types of fields in requests: what the routes take from bodies, queries and paths."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Struct

from holdfast.model.retry import LONGEST

MOST_JOBS = 1000  # in one request
MOST_ROWS = 500  # in one page
_TEXT = "^[^\\x00]*$"  # PostgreSQL cannot store a NUL

Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=_TEXT)]
Queue = Annotated[str, Meta(min_length=1, max_length=100, pattern="^[^/\\x00]+$")]
LongText = Annotated[str, Meta(min_length=1, max_length=2000, pattern=_TEXT)]
Reason = Annotated[str, Meta(min_length=1, max_length=1000, pattern=_TEXT)]
Key = Annotated[str, Meta(min_length=1, max_length=300, pattern=_TEXT)]
Prefix = Annotated[str, Meta(max_length=300, pattern=_TEXT)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST)]
Amount = Annotated[float, Meta(ge=0, le=1e12)]
Whole = Annotated[int, Meta(ge=0, le=2_000_000_000)]
Priority = Annotated[int, Meta(ge=0, le=3)]
PageSize = Annotated[int, Meta(ge=1, le=MOST_ROWS)]
Ids = Annotated[list[UUID], Meta(min_length=1, max_length=MOST_JOBS)]
DeadStatus = Literal["failed", "dead"]


class Moment(datetime):
    """A time with its zone, between the years 1970 and 2200."""


class Since(Moment):
    """A Moment, or a duration such as 90m for the time that long ago."""


_AGO = "^[0-9]{1,6}[smhd]$"
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_moment = msgspec.json.schema(Annotated[datetime, Meta(tz=True)])


def read_field(kind: type, given: Any) -> Any:
    """Return a value of a type that msgspec does not know; its dec_hook."""
    if not issubclass(kind, Moment):
        raise NotImplementedError
    try:
        ago = issubclass(kind, Since) and isinstance(given, str) and re.fullmatch(_AGO, given, re.ASCII)
        at = _ago(given) if ago else msgspec.convert(given, Annotated[datetime, Meta(tz=True)])
        inside = 1970 <= at.astimezone(UTC).year <= 2200
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except OverflowError:
        inside = False
    if not inside:
        raise ValueError("Expected a time between the years 1970 and 2200")
    return kind.fromisoformat(at.isoformat())


def _ago(given: str) -> datetime:
    return datetime.now(UTC) - timedelta(**{_UNITS[given[-1]]: int(given[:-1])})


def field_schema(kind: type) -> dict[str, Any]:
    """Return the JSON schema of a type that msgspec does not know; its schema_hook."""
    if not issubclass(kind, Moment):
        raise NotImplementedError
    return {"anyOf": [_moment, {"type": "string", "pattern": _AGO}]} if issubclass(kind, Since) else dict(_moment)


class Body(Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a request. Unknown fields are rejected."""


class ReasonBody(Body, kw_only=True):
    """Reason of a change."""

    reason: Reason | None = None
    """Kept in the log."""


class Query(Struct, kw_only=True, forbid_unknown_fields=True):
    """The query parameters of a request. Unknown ones are rejected: a misspelt filter would match everything."""


class ReasonQuery(Query, kw_only=True):
    """Reason of a change that has no body."""

    reason: Reason | None = None
    """Kept in the log."""


class Paged(Query, kw_only=True):
    """The query of a list."""

    cursor: Annotated[str, Meta(max_length=100)] | None = None
    """`next` of the previous page."""
    limit: PageSize = 50
    """Maximum number of items."""


def given(fields: Struct) -> dict[str, Any]:
    """Return the fields that a request contains."""
    values = {name: getattr(fields, name) for name in fields.__struct_fields__}
    return {name: value for name, value in values.items() if value is not UNSET}


def text(id_: UUID | None) -> str | None:
    """Return an id as text, as the store's calls take it."""
    return None if id_ is None else str(id_)
