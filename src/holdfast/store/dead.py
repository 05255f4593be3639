"""Calls on dead letters: failed and dead jobs, and the blocks that handlers reported."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TypeVar

from holdfast.model.job import BlockInfo
from holdfast.model.view import EVERYTHING, View
from holdfast.store.call import Call, firsts, last
from holdfast.store.jobs import Filter, Ids, shape
from holdfast.store.select import Page, Part, Where, changed_jobs, every, select_ids, select_page, visible_jobs

T = TypeVar("T")


class DeadCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def retry(self, ids: Sequence[str], view: View = EVERYTHING) -> Call[Ids]:
        some = changed_jobs(self.schema, ids, view)
        return Call(f"SELECT x::text FROM {self.schema}.retry_dead({some.sql}) x", some.params, firsts, due=last)

    def discard(self, ids: Sequence[str], view: View = EVERYTHING) -> Call[Ids]:
        some = changed_jobs(self.schema, ids, view)
        return Call(f"SELECT x::text FROM {self.schema}.discard_dead({some.sql}) x", some.params, firsts)

    def list(self, kind: type[T], where: Filter, page: Page, view: View = EVERYTHING) -> Call[Part[T]]:
        """Return failed and dead jobs that were neither retried nor discarded, as JobInfo or PublicJob."""
        conditions = every((where.where(), visible_jobs(self.schema, view), page.where("id")))
        dead = Where(
            f"t.id = ANY(ARRAY(SELECT id FROM {self.schema}.dead t WHERE {conditions.sql} "
            f"ORDER BY {page.order_by('id')} LIMIT %s))",
            (*conditions.params, page.limit),
        )
        return select_page(shape(self.schema, kind), f"{self.schema}.jobs", dead, page)

    def ids(self, where: Filter, page: Page, view: View = EVERYTHING) -> Call[Ids]:
        """Return the ids of failed and dead jobs that the view may change."""
        conditions = every((where.where(), visible_jobs(self.schema, view.for_changes)))
        return select_ids(f"{self.schema}.dead", conditions, page)

    def count(self, where: Filter, *, most: int | None = None) -> Call[int]:
        """Count failed and dead jobs, up to `most`."""
        some = where.where()
        return Call(
            f"SELECT count(*) FROM (SELECT FROM {self.schema}.dead WHERE {some.sql} LIMIT %s) found",
            (*some.params, most),
            lambda rows: int(rows[0][0]),
        )

    def blocks(self) -> Call[builtins.list[BlockInfo]]:
        return Call(
            "SELECT key, reason, count, first_seen, last_seen, last_job::text "
            f"FROM {self.schema}.blocks ORDER BY last_seen DESC",
            (),
            lambda rows: [BlockInfo(*row) for row in rows],
        )

    def clear_blocks(self, keys: Sequence[str]) -> Call[Ids]:
        return Call(f"DELETE FROM {self.schema}.blocks WHERE key = ANY(%s) RETURNING key", (list(keys),), firsts)
