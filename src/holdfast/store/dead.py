"""Calls on dead letters: failed and dead jobs, and the blocks that handlers reported."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.job import BlockInfo
from holdfast.store.call import Call, Row, array, dicts, firsts, last
from holdfast.store.jobs import Filter


class DeadCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def retry(self, ids: Sequence[str]) -> Call[list[str]]:
        query = f"SELECT retry_dead::text FROM {self.schema}.retry_dead(%s::uuid[])"
        return Call(query, (array(ids),), firsts, due=last)

    def discard(self, ids: Sequence[str]) -> Call[list[str]]:
        return Call(f"SELECT discard_dead::text FROM {self.schema}.discard_dead(%s::uuid[])", (array(ids),), firsts)

    def select(self, where: Filter, *, limit: int) -> Call[list[Row]]:
        """Return failed and dead jobs that were neither retried nor discarded, newest first."""
        conditions, params = where.sql()
        return dicts(
            f"""SELECT id::text, status::text, task, tenant, queue, priority, attempt, max_attempts,
                       created_at, started_at, finished_at, worker, payload, last_error
                FROM {self.schema}.dead WHERE {conditions} ORDER BY finished_at DESC, id LIMIT %s""",
            "id, status, task, tenant, queue, priority, attempts, max_attempts, created_at, "
            "started_at, finished_at, worker, payload, last_error",
            (*params, limit),
        )

    def ids(self, where: Filter, *, limit: int, after: str | None) -> Call[list[str]]:
        conditions, params = where.sql()
        return Call(
            f"SELECT id::text FROM {self.schema}.dead WHERE {conditions} AND (%s::uuid IS NULL OR id > %s::uuid) "
            "ORDER BY id LIMIT %s",
            (*params, after, after, limit),
            firsts,
        )

    def count(self, where: Filter, *, most: int | None = None) -> Call[int]:
        """Count failed and dead jobs, up to `most`."""
        conditions, params = where.sql()
        return Call(
            f"SELECT count(*) FROM (SELECT FROM {self.schema}.dead WHERE {conditions} LIMIT %s) found",
            (*params, most),
            lambda rows: int(rows[0][0]),
        )

    def blocks(self) -> Call[list[BlockInfo]]:
        return Call(
            "SELECT key, reason, count, first_seen, last_seen, last_job::text "
            f"FROM {self.schema}.blocks ORDER BY last_seen DESC",
            (),
            lambda rows: [BlockInfo(*row) for row in rows],
        )

    def clear_blocks(self, keys: Sequence[str]) -> Call[list[str]]:
        return Call(f"DELETE FROM {self.schema}.blocks WHERE key = ANY(%s) RETURNING key", (list(keys),), firsts)
