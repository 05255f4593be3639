"""Calls on batches: open, count, cancel."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from dataclasses import fields

import msgspec

from holdfast.model.job import MOST_COUNTED, BatchInfo, NewJob
from holdfast.model.view import EVERYTHING, View
from holdfast.store.call import Call, Row, array, dicts, firsts, void
from holdfast.store.enqueue import job_fields
from holdfast.store.jobs import Ids
from holdfast.store.select import Page, Part, Shape, Where, every, select_page, visible

_AS_TEXT = {"id": "id::text", "callback": "callback::text"}
_SHAPE = Shape(
    {each.name: _AS_TEXT.get(each.name, each.name) for each in fields(BatchInfo)}, lambda row: BatchInfo(*row)
)


class BatchCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def open(self, batch: str, name: str, tenant: str | None, on_done: NewJob | None) -> Call[None]:
        callback = None if on_done is None else msgspec.json.encode(job_fields(on_done)).decode()
        return void(self.schema, "open_batch", "%s::uuid, %s, %s, %s::jsonb", batch, name, tenant, callback)

    def add(self, batch: str, jobs: int) -> Call[None]:
        return void(self.schema, "add_to_batch", "%s::uuid, %s", batch, jobs)

    def close(self, batch: str) -> Call[None]:
        return void(self.schema, "close_batch", "%s::uuid", batch)

    def cancel(
        self,
        batch: str,
        limit: int = 1000,
        *,
        by: str | None = None,
        reason: str | None = None,
        view: View = EVERYTHING,
    ) -> Call[int]:
        return Call(
            f"SELECT {self.schema}.cancel_batch(%s::uuid, %s, %s, %s, %s)",
            (batch, limit, by, reason, view.tenant),
            lambda rows: int(rows[0][0]),
        )

    def complete(self, batches: Iterable[str]) -> Call[Ids]:
        query = f"SELECT complete_batches::text FROM {self.schema}.complete_batches(%s::uuid[])"
        return Call(query, (array(batches),), firsts)

    def get(self, batch: str, view: View = EVERYTHING) -> Call[BatchInfo | None]:
        where = every((Where("id = %s::uuid", (batch,)), visible(self.schema, view)))
        return Call(
            f"SELECT {_SHAPE.sql} FROM {self.schema}.batch_progress WHERE {where.sql}",
            where.params,
            lambda rows: BatchInfo(*rows[0]) if rows else None,
        )

    def list(self, page: Page, view: View = EVERYTHING) -> Call[Part[BatchInfo]]:
        where = visible(self.schema, view, indexed=True)
        return select_page(_SHAPE, f"{self.schema}.batch_progress", where, page)

    def lingering(self) -> Call[builtins.list[Row]]:
        """Return those of the oldest 10,000 unfinished batches whose jobs have all ended, with their age."""
        return dicts(
            f"""SELECT id::text, name, open, extract(epoch FROM clock_timestamp() - created_at)::float8
                FROM {self.schema}.batch_progress
                WHERE id = ANY(ARRAY(SELECT b.id FROM {self.schema}.batches b WHERE b.finished_at IS NULL
                                     ORDER BY b.id LIMIT {MOST_COUNTED}))
                  AND finished_at IS NULL AND processed >= total
                ORDER BY created_at, id""",
            "id, name, open, age",
        )
