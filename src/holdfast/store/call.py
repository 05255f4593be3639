"""A database call as a value: the SQL, its parameters, and how to read the rows. No I/O here.

One value serves the sync client, the async client and the worker, so nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from holdfast.model.job import NewJob

T = TypeVar("T")
Row = dict[str, Any]
Rows = list[tuple[Any, ...]]


class Call(msgspec.Struct, Generic[T], frozen=True):
    """One statement. `repeat` returns the call to run after a lost reply. `due` returns the job of a result that may
    start now, the last if there are several. With `prepare` false the server plans each execution, because a plan made
    for empty tables would be slow. A `hot` call is executed by the fast path (store/wire/prepared.py). `join` makes one
    call of calls at the same time that enqueue a `job` each; it returns their results (store/wire/coalesce.py)."""

    sql: str
    params: Sequence[Any]
    read: Callable[[Rows], T]
    repeat: Callable[[], Call[T]] | None = None
    due: Callable[[T], str | None] | None = None
    prepare: bool | None = None
    hot: bool = False
    job: NewJob | None = None
    join: Callable[[list[NewJob]], Call[list[T]]] | None = None


class JobDueCallback(Protocol):
    """Called with a job that may start (`Call.due`). If not committed, it is in the caller's open transaction."""

    def __call__(self, job_id: str, *, committed: bool) -> None: ...


def void(schema: str, function: str, places: str, *params: Any) -> Call[None]:
    """Call a function that returns nothing."""
    return Call(f"SELECT {schema}.{function}({places})", params, lambda _: None)


def dicts(sql: str, names: str, params: Sequence[Any] = ()) -> Call[list[Row]]:
    """Return the rows as dicts with these names."""
    keys = names.split(", ")
    return Call(sql, params, lambda rows: [dict(zip(keys, row, strict=True)) for row in rows])


def one_dict(sql: str, names: str, params: Sequence[Any] = ()) -> Call[Row]:
    """Return the only row as a dict."""
    call = dicts(sql, names, params)
    return Call(sql, params, lambda rows: call.read(rows)[0])


def array(items: Iterable[Any]) -> str:
    """Return an array literal of plain items (ids, numbers), several times faster than adapting a list."""
    return "{" + ",".join(map(str, items)) + "}"


def text_array(items: Iterable[str | None]) -> str:
    """Return an array literal of strings, escaped. None is SQL's null."""
    return "{" + ",".join("NULL" if each is None else _quoted(each) for each in items) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def as_json(value: Any) -> str | None:
    """Return a value as JSON text; None is SQL's null."""
    return None if value is None else msgspec.json.encode(value).decode()


def first(rows: Rows) -> Any:
    return rows[0][0]


def firsts(rows: Rows) -> list[Any]:
    return [row[0] for row in rows]


def last(ids: Sequence[str]) -> str | None:
    return ids[-1] if ids else None


def mapping(rows: Rows) -> dict[str, Any]:
    return {row[0]: row[1] for row in rows}
