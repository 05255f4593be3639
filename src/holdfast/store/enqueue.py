"""Calls that enqueue jobs: one, several callers' at the same time, many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.model.job import NewJob
from holdfast.model.limit import Keys
from holdfast.store.call import Call, array, as_json, last, text_array, void


class Accepted(msgspec.Struct, frozen=True):
    """The result of enqueue for one job."""

    id: str
    outcome: str

    def due(self) -> str | None:
        return None if self.outcome == "existing" else self.id


class EnqueueCalls:
    """The calls, for one schema. Their statements are made once."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.channel = f"{schema}_wake"
        self.copy_sql = (
            f"COPY {schema}.live (id, queue, priority, task, tenant, payload, max_attempts, retry, batch, headers, "
            "lane, keys) FROM STDIN (ENCODING 'UTF8')"
        )
        # A plain job needs no decision, so it is inserted without a function call (decision 004).
        self._insert = _insert(schema, "", "")
        self._insert_into_lane = _insert(schema, ", lane, keys", ", %s, %s::text[]")
        self._insert_many = INSERT_MANY.format(schema=schema)
        self._enqueue = (
            f"SELECT id::text, outcome FROM {schema}.enqueue(%s, %s::jsonb, %s, %s::uuid, %s, %s, "
            "make_interval(secs => %s), %s::timestamptz, %s, %s::jsonb, %s, "
            f"%s::{schema}.dedupe_scope, make_interval(secs => %s), %s, %s, "
            "make_interval(secs => %s), %s::uuid, %s::json, p_keys => %s::text[], "
            "p_after => %s::uuid[], p_on_failure => %s)"
        )

    def enqueue(self, job: NewJob, on_conflict: str, *, fresh: bool = True) -> Call[Accepted]:
        if fresh and job.plain and job.batch is None:
            return self._insert_plain(job, on_conflict)
        params = (
            job.task,
            job.payload.decode(),
            job.queue,
            job.id,
            job.tenant,
            job.priority,
            job.delay,
            job.run_at,
            job.max_attempts,
            as_json(job.retry),
            job.dedupe_key,
            job.dedupe_scope,
            job.dedupe_keep,
            on_conflict,
            fresh,
            job.deadline,
            job.batch,
            as_json(job.headers),
            job.keys and text_array(job.keys),
            job.after and array(job.after),
            job.on_failure or "cancel",
        )
        return Call(
            self._enqueue,
            params,
            lambda rows: Accepted(*rows[0]),
            lambda: self.enqueue(job, on_conflict, fresh=False),
            Accepted.due,
            job=job,
            join=self._enqueue_together if fresh and job.may_join else None,
        )

    def _insert_plain(self, job: NewJob, on_conflict: str) -> Call[Accepted]:
        sql: str = self._insert
        more: tuple[Any, ...] = ()
        if job.tenant is not None or job.keys is not None:
            sql, more = self._insert_into_lane, (job.lane, job.keys and text_array(job.keys))
        params = (
            job.id,
            job.queue,
            job.priority,
            job.task,
            job.tenant,
            job.payload.decode(),
            job.max_attempts,
            as_json(job.retry),
            as_json(job.headers),
            *more,
        )
        return Call(
            sql,
            (*params, job.queue),
            lambda _: Accepted(job.id, "created"),
            lambda: self.enqueue(job, on_conflict, fresh=False),
            Accepted.due,
            hot=True,
            job=job,
            join=self._enqueue_together if job.may_join else None,
        )

    def _enqueue_together(self, jobs: list[NewJob]) -> Call[list[Accepted]]:
        """Enqueue jobs of different callers, all or none."""
        if not all(job.plain for job in jobs):
            return self.enqueue_many(jobs, "existing")

        columns = zip(*map(_insert_values, jobs), strict=True)
        return Call(
            self._insert_many,
            [text_array(column) for column in columns],
            lambda _: [Accepted(job.id, "created") for job in jobs],
            lambda: self.enqueue_many(jobs, "existing", fresh=False),
            hot=True,
        )

    def enqueue_many(self, jobs: Sequence[NewJob], on_conflict: str, *, fresh: bool = True) -> Call[list[Accepted]]:
        return Call(
            f"SELECT id::text, outcome FROM {self.schema}.enqueue_many(%s::jsonb, %s, %s)",
            (msgspec.json.encode([job_fields(job) for job in jobs]).decode(), on_conflict, fresh),
            lambda rows: [Accepted(*row) for row in rows],
            lambda: self.enqueue_many(jobs, on_conflict, fresh=False),
            lambda accepted: last([each.id for each in accepted]),
        )

    def begin_bulk(self) -> Call[None]:
        return Call("SELECT set_config('holdfast.announces', 'on', true)", (), lambda _: None)

    def announce_lanes(self, like: NewJob, keys: Iterable[Keys | None], jobs: int) -> Call[None]:
        lanes = msgspec.json.encode(list(keys)).decode()
        return void(
            self.schema,
            "announce_lanes",
            "%s, %s, %s, %s::jsonb, %s",
            like.queue,
            like.priority,
            like.tenant,
            lanes,
            jobs,
        )

    def wake(self, queue: str, jobs: int) -> Call[None]:
        return void(self.schema, "wake", "%s, %s", queue, jobs)


def _insert(schema: str, columns: str, places: str) -> str:
    return (
        f"INSERT INTO {schema}.live "
        f"(id, queue, priority, task, tenant, payload, max_attempts, retry, headers{columns}) "
        f"VALUES (%s::uuid, %s, %s, %s, %s, %s::json, %s, %s::jsonb, %s::json{places}) "
        f"RETURNING (SELECT {schema}.wake(s.queue) FROM {schema}.sleepers s WHERE s.queue = %s LIMIT 1)"
    )


# Plain jobs of different callers, as arrays of texts. Of each queue as many sleepers are notified as it gets jobs. The
# role for enqueues may read no column of live, so nothing is returned from there.
INSERT_MANY = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%s::uuid[], %s::text[], %s::smallint[], %s::text[], %s::text[], %s::json[], %s::smallint[],
                         %s::jsonb[], %s::json[], %s::bigint[], %s::text[])
        AS g(id, queue, priority, task, tenant, payload, max_attempts, retry, headers, lane, keys)),
placed AS (
    INSERT INTO {schema}.live
        (id, queue, priority, task, tenant, payload, max_attempts, retry, headers, lane, keys)
    SELECT id, queue, priority, task, tenant, payload, max_attempts, retry, headers, lane, keys::text[] FROM given),
woken AS (
    SELECT {schema}.wake(q.queue, q.jobs) FROM (SELECT g.queue, count(*) AS jobs FROM given g GROUP BY g.queue) q
    WHERE EXISTS (SELECT 1 FROM {schema}.sleepers s WHERE s.queue = q.queue))
SELECT count(*) FROM woken
"""


def _insert_values(job: NewJob) -> tuple[str | None, ...]:
    """Return the values of one row of INSERT_MANY, as text."""
    return (
        job.id,
        job.queue,
        str(job.priority),
        job.task,
        job.tenant,
        job.payload.decode(),
        str(job.max_attempts),
        as_json(job.retry),
        as_json(job.headers),
        str(job.lane if job.tenant is not None or job.keys is not None else 0),
        text_array(job.keys) if job.keys else None,
    )


def job_fields(job: NewJob) -> dict[str, Any]:
    """Return the fields that are set, for JSON."""
    values = {name: getattr(job, name) for name in job.__slots__}
    return {k: v for k, v in values.items() if v is not None} | {"payload": msgspec.Raw(job.payload)}
