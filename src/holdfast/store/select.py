"""SELECTs of lists: conditions, what a view shows, pages, and columns. Every filter and list is built here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from holdfast.model import webhook
from holdfast.model.view import View
from holdfast.store.call import Call, array

T = TypeVar("T")
PAGE_BYTES = 4_194_304  # of large columns in one page
HIDDEN = "- 'traceback' - 'output' - 'frame'"  # parts of an error that only operators see


@dataclass(frozen=True, slots=True)
class Where:
    """SQL conditions that must all hold, and their parameters."""

    sql: str = "true"
    params: tuple[Any, ...] = ()

    def __and__(self, other: Where) -> Where:
        return Where(f"{self.sql} AND {other.sql}", self.params + other.params)


def given(condition: str, value: Any) -> Where:
    """Return a condition in which the value fills each %s; none if the value is None."""
    return Where() if value is None else Where(condition, (value,) * condition.count("%s"))


def every(parts: Iterable[Where]) -> Where:
    """Return the conditions as one."""
    whole = Where()
    for part in parts:
        whole = part if whole.sql == "true" else whole if part.sql == "true" else whole & part
    return whole


class Conditions:
    """Base of filters, which are dataclasses: `SQL` has the condition of each field; all that are given must hold."""

    __slots__ = ()
    SQL: ClassVar[Mapping[str, str]]

    def where(self) -> Where:
        return every(given(condition, getattr(self, name)) for name, condition in self.SQL.items())


@dataclass(frozen=True, slots=True)
class Area:
    """Where a list reads: some tables of jobs, or all; among all jobs, or messages of the outbox alone."""

    places: tuple[str, ...] | None = None
    messages: bool = False

    def where(self) -> Where:
        """Return the condition that keeps a query of the view `jobs` out of the other tables."""
        return given("place = ANY(%s)", None if self.places is None else list(self.places))


EVERYWHERE = Area()
DEAD_ONLY = Area(("dead",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a list. `before`, `after` and `floor` (the lowest) bound the ids, which grow with time; `size` bounds
    the bytes of large columns."""

    limit: int
    before: str | None = None
    after: str | None = None
    floor: str | None = None
    order: Literal["newest", "oldest", "ended"] = "newest"
    size: int | None = None

    def where(self, id_: str) -> Where:
        bounds = {"<": self.before, ">": self.after, ">=": self.floor}
        return every(given(f"{id_} {operator} %s::uuid", bound) for operator, bound in bounds.items())

    def order_by(self, id_: str) -> str:
        # Unlike `id`, `t.id` is the column of the source, not the text that is returned.
        return {"newest": f"t.{id_} DESC", "oldest": f"t.{id_}", "ended": f"t.finished_at DESC, t.{id_}"}[self.order]


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """Rows of a list, of `size` bytes. `cut`: more rows did not fit into the bytes of the page."""

    rows: list[T]
    cut: bool = False
    size: int = 0


@dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """How rows are read: the expression of each column, which of them may be large, and what is made of a row. The
    first column is the id, and is named id."""

    columns: Mapping[str, str]
    read: Callable[[Sequence[Any]], T]
    large: Sequence[str] = ()

    @property
    def sql(self) -> str:
        return ", ".join(f'{expression} AS "{name}"' for name, expression in self.columns.items())


def select_page(
    shape: Shape[T], source: str, where: Where, page: Page, *, id_: str = "id", ids_first: bool = False
) -> Call[Part[T]]:
    """Return a page of the rows of a view or table. A page of limited size has at least one row.

    `ids_first` selects the ids of the page before its columns. Where no index has the page's order, PostgreSQL sorts
    all rows that match, and would compute their columns before it sorts."""
    every_part = every((where, page.where(id_)))
    if ids_first:
        ids = f"SELECT t.{id_} FROM {source} t WHERE {every_part.sql} ORDER BY {page.order_by(id_)} LIMIT %s"
        every_part = Where(f"{id_} = ANY(ARRAY({ids}))", (*every_part.params, page.limit))
    inner = f"SELECT {shape.sql} FROM {source} t WHERE {every_part.sql} ORDER BY {page.order_by(id_)} LIMIT %s"
    params = (*every_part.params, page.limit)
    # A plan made while a table was empty would be slow, so none is kept.
    if page.size is None:
        return Call(inner, params, lambda rows: Part([shape.read(row) for row in rows]), prepare=False)
    size = " + ".join(f'coalesce(octet_length(i."{name}"), 0)' for name in shape.large)
    outer = ", ".join(f'"{name}"' for name in shape.columns)
    return Call(
        f"SELECT every, until, {outer} FROM (SELECT i.*, count(*) OVER () AS every, {size} AS size, "
        f"sum({size}) OVER (ORDER BY i.id DESC) AS until FROM ({inner}) i) o "
        "WHERE until - size < %s ORDER BY o.id DESC",
        (*params, page.size),
        lambda rows: Part(
            [shape.read(row[2:]) for row in rows],
            bool(rows) and rows[0][0] > len(rows),
            int(rows[-1][1]) if rows else 0,
        ),
        prepare=False,
    )


def select_ids(source: str, where: Where, page: Page, *, id_: str = "id") -> Call[list[str]]:
    """Return the ids of a page."""
    call = select_page(Shape({"id": f"{id_}::text"}, lambda row: row[0]), source, where, page, id_=id_)
    return Call(call.sql, call.params, lambda found: call.read(found).rows, prepare=False)


def visible(schema: str, view: View, tenant: str = "tenant", *, indexed: bool = False) -> Where:
    """Return the condition on the rows that a view shows: SQL's may_see(). `indexed` repeats it in a form that an index
    on the tenant can serve."""
    if view.everyone:
        return Where()
    whole = Where(f"{schema}.may_see(%s, %s, {tenant})", (False, view.tenant))
    return whole & Where(f"{tenant} = %s", (view.tenant,)) if indexed else whole


def visible_jobs(schema: str, view: View) -> Where:
    """Return the condition on the jobs that a view shows."""
    return every((visible(schema, view), Where() if view.reads_deliveries else Where("task <> %s", (webhook.TASK,))))


def changed_jobs(schema: str, ids: Sequence[str], view: View) -> Where:
    """Return the expression of those ids whose jobs a view may change: SQL's seen_jobs()."""
    if view.everyone and view.changes_deliveries:
        return Where("%s::uuid[]", (array(ids),))
    return Where(
        f"{schema}.seen_jobs(%s, %s, %s, %s::uuid[])", (view.everyone, view.tenant, view.changes_deliveries, array(ids))
    )


def raw(large: Sequence[str], names: Sequence[str], make: Callable[..., T]) -> Callable[[Sequence[Any]], T]:
    """Return a reader of rows whose large columns are JSON text. It is not decoded, so no row can fail."""
    places = [place for place, name in enumerate(names) if name in large]

    def read(row: Sequence[Any]) -> T:
        values = list(row)
        for place in places:
            values[place] = None if values[place] is None else msgspec.Raw(values[place].encode())
        return make(*values)

    return read
