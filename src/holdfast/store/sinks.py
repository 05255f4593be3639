"""Statements on the caller's own tables: insert a row once, or replace it by a stronger one.

A row is sent as one JSON text, which the server converts to the columns' types. So the same call works with every
library, however that adapts dates, Decimals and dicts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any, Literal, TypeVar

from holdfast.errors import UsageError
from holdfast.model import payload
from holdfast.store.call import Call
from holdfast.store.wire import connect

T = TypeVar("T")
Kept = Literal["inserted", "updated", "kept"]
_NAME = re.compile(r"[^\W\d][\w$]*")
_LONGEST_NAME = 63  # bytes; PostgreSQL silently truncates a longer one
_MOST_COLUMNS = 1600


@dataclass(frozen=True, slots=True)
class Sink:
    """A table, the columns of a row, and those of its unique key."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    def insert_once(self, row: str) -> Call[bool]:
        """Insert the row unless one with its key exists."""
        return Call(
            f"{self._insert} FROM {self._given} ON CONFLICT ({_list(self.key)}) DO NOTHING RETURNING true", (row,), bool
        )

    def upsert_if_stronger(self, row: str, strength: str) -> Call[Kept]:
        """Insert the row, or replace a weaker one with its key. Two inserts, because the result of a single one is
        visible only in a system column, which partitioned tables lack."""
        new, old = f"excluded.{_quoted(strength)}", f"old.{_quoted(strength)}"
        changes = ", ".join(f"{_quoted(c)} = excluded.{_quoted(c)}" for c in self.columns if c not in self.key)
        return Call(
            f"WITH given AS MATERIALIZED (SELECT * FROM {self._given}), "
            f"placed AS ({self._insert} FROM given ON CONFLICT ({_list(self.key)}) DO NOTHING RETURNING true), "
            f"replaced AS ({self._insert} FROM given WHERE NOT EXISTS (SELECT 1 FROM placed) "
            f"ON CONFLICT ({_list(self.key)}) DO UPDATE SET {changes} "
            f"WHERE {old} < {new} OR ({old} IS NULL AND {new} IS NOT NULL) RETURNING true) "
            "SELECT CASE WHEN EXISTS (SELECT 1 FROM placed) THEN 'inserted' "
            "WHEN EXISTS (SELECT 1 FROM replaced) THEN 'updated' ELSE 'kept' END",
            (row,),
            lambda rows: rows[0][0],
        )

    @property
    def _insert(self) -> str:
        return f"INSERT INTO {self.table} AS old ({_list(self.columns)}) SELECT {_list(self.columns)}"

    @property
    def _given(self) -> str:
        return f"json_populate_record(NULL::{self.table}, %s::json) AS given"


def sink(table: str, row: Mapping[str, Any], key: str | Sequence[str]) -> Sink:
    """Return the Sink of a call, with its names checked."""
    value: Any = row  # not every caller has a type checker
    if not isinstance(value, Mapping) or not 1 <= len(value) <= _MOST_COLUMNS:
        raise UsageError(f"a row must be a dict of values by column, with at least one, got {value!r:.60}")
    columns = tuple(_checked(column, "a column") for column in row)
    unique = (key,) if isinstance(key, str) else tuple(key)
    if not unique:
        raise UsageError("key names the columns that make a row unique; it is empty")
    for column in unique:
        _check_given(_checked(column, "a column of the key"), row, "key")
        if row[column] is None:
            raise UsageError(
                f"column {column!r} of the key is null; nulls are never equal, so every run would insert another row"
            )
    return Sink(_table(table), columns, tuple(dict.fromkeys(unique)))


def check_strength(strength: str, made: Sink) -> None:
    """Raise UsageError unless rows can be compared by this column."""
    _check_given(_checked(strength, "the column of strength"), made.columns, "strength")
    if strength in made.key:
        raise UsageError(f"strength is {strength!r}, a column of the key: rows that meet are equal in it")


def encode(row: Mapping[str, Any]) -> str:
    """Return a row as JSON; values without a JSON form are written in PostgreSQL's syntax."""
    plain = {column: _plain(value) for column, value in row.items()}
    data = payload.encode(plain, "a row")
    payload.check_limits(data, "a row", 2**28, 1000, "the row's size")
    return data.decode()


@contextmanager
def explained(made: Sink) -> Iterator[None]:
    """Raise UsageError for errors of the table or the row; leave all other errors to the caller."""
    try:
        yield
    except Exception as error:  # the connection may be of any supported library
        source = connect.source_of(error)
        explanation = None if source is None else _explain(made, source)
        if explanation is None:
            raise
        raise explanation from error


def _explain(made: Sink, source: Exception) -> UsageError | None:
    state, text = connect.state_of(source), connect.message_of(source)
    if state == "42P10":
        return UsageError(
            f"table {made.table} has no unique index on ({', '.join(made.key)}), which prevents two rows with the same "
            f"key; create it: CREATE UNIQUE INDEX ON {made.table} ({_list(made.key)})"
        )
    if state in ("42P01", "3F000", "42703"):
        return UsageError(f"there is no such table or column: {text}; names are taken as written, upper case too")
    if state.startswith("22") or state == "42804":
        return UsageError(f"a value does not fit its column in table {made.table}: {text}")
    return None


_HOSTS = (IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)
_WRITTEN: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    ((bytes, bytearray, memoryview), lambda value: "\\x" + bytes(value).hex()),
    (timedelta, lambda value: f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"),
    ((Decimal, *_HOSTS), str),
)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # NaN and infinities, which columns of numbers can hold
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return next((write(value) for kind, write in _WRITTEN if isinstance(value, kind)), value)


def _table(name: Any) -> str:
    parts = name.split(".") if isinstance(name, str) else []
    if not 1 <= len(parts) <= 2:
        raise UsageError(f"a table must be written as 'table' or 'schema.table', got {name!r:.80}")
    return ".".join(_quoted(_checked(part, "a table")) for part in parts)


def _checked(name: Any, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name.encode()) > _LONGEST_NAME:
        raise UsageError(
            f"{what} is named {name!r:.80}; a name has letters, digits, _ and $, does not start with a digit, and is "
            f"at most {_LONGEST_NAME} bytes long"
        )
    return name


def _check_given(column: str, given: Mapping[str, Any] | Sequence[str], what: str) -> None:
    if column not in given:
        raise UsageError(f"{what} names column {column!r}, which the row does not have; it has {', '.join(given)}")


def _quoted(name: str) -> str:
    return f'"{name}"'


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))
