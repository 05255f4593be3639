"""Calls on batches: open, count, cancel."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.model.job import BatchInfo, NewJob
from holdfast.store.call import MOST_COUNTED, Call, Row, array, dicts, firsts, void
from holdfast.store.jobs import job_fields

COLUMNS = (
    "id::text, name, tenant, status, total, processed, succeeded, failed, canceled, open, created_at, started_at, "
    "finished_at, callback::text"
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

    def cancel(self, batch: str, limit: int = 1000) -> Call[int]:
        return Call(f"SELECT {self.schema}.cancel_batch(%s::uuid, %s)", (batch, limit), lambda rows: int(rows[0][0]))

    def complete(self, batches: Iterable[str]) -> Call[list[str]]:
        query = f"SELECT complete_batches::text FROM {self.schema}.complete_batches(%s::uuid[])"
        return Call(query, (array(batches),), firsts)

    def get(self, batch: str) -> Call[BatchInfo | None]:
        return Call(
            f"SELECT {COLUMNS} FROM {self.schema}.batch_progress WHERE id = %s::uuid",
            (batch,),
            lambda rows: BatchInfo(*rows[0]) if rows else None,
        )

    def select(self, *, limit: int) -> Call[list[BatchInfo]]:
        return Call(
            f"SELECT {COLUMNS} FROM {self.schema}.batch_progress ORDER BY batch_progress.id DESC LIMIT %s",
            (limit,),
            lambda rows: [BatchInfo(*row) for row in rows],
        )

    def lingering(self) -> Call[list[Row]]:
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
