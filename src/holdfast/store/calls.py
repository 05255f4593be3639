"""Every database call as a value: the SQL, its parameters, and how to read the rows. No I/O here.

One value serves the sync client, the async client and the worker, so nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.model.job import BatchInfo, BlockInfo, Job, JobInfo, NewJob, Status
from holdfast.model.job import ids as job_ids
from holdfast.model.limit import Keys, Limit
from holdfast.model.schedule import Due, Schedule, ScheduleInfo
from holdfast.store.values import Accepted, Claimed, ClaimInfo, Filter, Fired, NextSlot, Upkept

T = TypeVar("T")
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One statement. `repeat` returns the call to run after a lost reply. `due` returns the job of a result that may
    start now, the last if there are several. With `prepare` false each execution is planned anew, because a plan made
    for empty tables would be slow."""

    sql: str
    params: Sequence[Any]
    read: Callable[[Rows], T]
    repeat: Callable[[], Call[T]] | None = None
    due: Callable[[T], str | None] | None = None
    prepare: bool | None = None


_JOB_COLUMNS = (
    "id::text, task, tenant, queue, priority, payload, status::text, attempts, max_attempts, run_at, last_error, "
    "created_at, started_at, finished_at, result, dedupe_key, locked_by, locked_at, heartbeat_at, lease_expires_at, "
    "batch::text, deadline, progress"
)
BATCH_COLUMNS = (
    "id::text, name, tenant, status, total, processed, succeeded, failed, canceled, open, created_at, started_at, "
    "finished_at, callback::text"
)
_SCHEDULE_COLUMNS = (
    "s.name, task, cron, zone, missed::text, payload, options, paused, next_at, last_at, last_job::text, problem, "
    "registered_at"
)
_encode = msgspec.json.encode


def array(items: Iterable[Any]) -> str:
    """Return an array literal of plain items (ids, numbers), several times faster than adapting a list."""
    return "{" + ",".join(map(str, items)) + "}"


def text_array(items: Iterable[str]) -> str:
    """Return an array literal of strings, escaped."""
    return "{" + ",".join('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in items) + "}"


class Calls:
    """The calls, for one schema."""

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
        self._enqueue = (
            f"SELECT id::text, outcome FROM {schema}.enqueue(%s, %s::jsonb, %s, %s::uuid, %s, %s, "
            "make_interval(secs => %s), %s::timestamptz, %s, %s::jsonb, %s, "
            f"%s::{schema}.dedupe_scope, make_interval(secs => %s), %s, %s, "
            "make_interval(secs => %s), %s::uuid, %s::json, p_keys => %s::text[])"
        )
        self._claim = (
            "SELECT id::text, token, task, payload::text, attempt, max_attempts, queue, priority, tenant, "
            "date_part('epoch', run_at), batch::text, headers::text, lane, keys, info::text "
            f"FROM {schema}.claim(%s, %s, %s, make_interval(secs => %s), %s::jsonb, %s, %s, %s, %s::jsonb, %s)"
        )
        self._finish = (
            f"SELECT finish::text FROM {schema}.finish(%s::uuid[], %s::bigint[], %s::jsonb, %s::bigint[], %s)"
        )

    def enqueue(self, job: NewJob, on_conflict: str, *, fresh: bool = True) -> Call[Accepted]:
        if fresh and job.plain and job.batch is None:
            return self._insert_plain(job, on_conflict)
        params = (
            job.task, job.payload.decode(), job.queue, job.id, job.tenant, job.priority, job.delay, job.run_at,
            job.max_attempts, _json(job.retry), job.dedupe_key, job.dedupe_scope, job.dedupe_keep,
            on_conflict, fresh, job.deadline, job.batch, _json(job.headers), job.keys and text_array(job.keys),
        )  # fmt: skip
        return Call(
            self._enqueue, params, lambda rows: Accepted(*rows[0]),
            lambda: self.enqueue(job, on_conflict, fresh=False), Accepted.due,
        )  # fmt: skip

    def _insert_plain(self, job: NewJob, on_conflict: str) -> Call[Accepted]:
        sql: str = self._insert
        more: tuple[Any, ...] = ()
        if job.tenant is not None or job.keys is not None:
            sql, more = self._insert_into_lane, (job.lane, job.keys and text_array(job.keys))
        params = (
            job.id, job.queue, job.priority, job.task, job.tenant, job.payload.decode(), job.max_attempts,
            _json(job.retry), _json(job.headers), *more,
        )  # fmt: skip
        return Call(
            sql,
            (*params, job.queue, job.queue),
            lambda rows: Accepted(job.id, "created" if rows else "existing"),
            lambda: self.enqueue(job, on_conflict, fresh=False),
            Accepted.due,
        )

    def enqueue_many(self, jobs: Sequence[NewJob], on_conflict: str, *, fresh: bool = True) -> Call[list[Accepted]]:
        return Call(
            f"SELECT id::text, outcome FROM {self.schema}.enqueue_many(%s::jsonb, %s, %s)",
            (_encode([_as_json(job) for job in jobs]).decode(), on_conflict, fresh),
            lambda rows: [Accepted(*row) for row in rows],
            lambda: self.enqueue_many(jobs, on_conflict, fresh=False),
            lambda accepted: last([each.id for each in accepted]),
        )

    def open_batch(self, batch: str, name: str, tenant: str | None, on_done: NewJob | None) -> Call[None]:
        callback = None if on_done is None else _encode(_as_json(on_done)).decode()
        return self._void("open_batch", "%s::uuid, %s, %s, %s::jsonb", batch, name, tenant, callback)

    def add_to_batch(self, batch: str, jobs: int) -> Call[None]:
        return self._void("add_to_batch", "%s::uuid, %s", batch, jobs)

    def close_batch(self, batch: str) -> Call[None]:
        return self._void("close_batch", "%s::uuid", batch)

    def cancel_batch(self, batch: str, limit: int = 1000) -> Call[int]:
        return Call(f"SELECT {self.schema}.cancel_batch(%s::uuid, %s)", (batch, limit), lambda rows: int(rows[0][0]))

    def complete_batches(self, batches: Iterable[str]) -> Call[list[str]]:
        query = f"SELECT complete_batches::text FROM {self.schema}.complete_batches(%s::uuid[])"
        return Call(query, (array(batches),), firsts)

    def batch(self, batch: str) -> Call[BatchInfo | None]:
        return Call(
            f"SELECT {BATCH_COLUMNS} FROM {self.schema}.batch_progress WHERE id = %s::uuid",
            (batch,), lambda rows: BatchInfo(*rows[0]) if rows else None,
        )  # fmt: skip

    def list_batches(self, *, limit: int) -> Call[list[BatchInfo]]:
        return Call(
            f"SELECT {BATCH_COLUMNS} FROM {self.schema}.batch_progress ORDER BY batch_progress.id DESC LIMIT %s",
            (limit,), lambda rows: [BatchInfo(*row) for row in rows],
        )  # fmt: skip

    def report_progress(self, reports: Sequence[dict[str, Any]]) -> Call[None]:
        return self._void("report_progress", "%s::jsonb", _encode(reports).decode())

    def wanted_cancels(self, tokens: Sequence[int]) -> Call[list[str]]:
        return Call(f"SELECT wanted_cancels::text FROM {self.schema}.wanted_cancels(%s::bigint[])",
                    (array(tokens),), firsts)  # fmt: skip

    def keep_result(self, id_: str, result: bytes) -> Call[None]:
        return self._void("keep_result", "%s::uuid, %s::jsonb", id_, result.decode())

    def blocks(self) -> Call[list[BlockInfo]]:
        return Call(
            "SELECT key, reason, count, first_seen, last_seen, last_job::text "
            f"FROM {self.schema}.blocks ORDER BY last_seen DESC",
            (),
            lambda rows: [BlockInfo(*row) for row in rows],
        )

    def clear_blocks(self, keys: Sequence[str]) -> Call[list[str]]:
        return Call(f"DELETE FROM {self.schema}.blocks WHERE key = ANY(%s) RETURNING key", (list(keys),), firsts)

    def wake(self, queue: str, jobs: int) -> Call[None]:
        return self._void("wake", "%s, %s", queue, jobs)

    def begin_bulk(self) -> Call[None]:
        return Call("SELECT set_config('holdfast.announces', 'on', true)", (), lambda _: None)

    def announce_lanes(self, like: NewJob, keys: Iterable[Keys | None], jobs: int) -> Call[None]:
        lanes = _encode(list(keys)).decode()
        return self._void(
            "announce_lanes", "%s, %s, %s, %s::jsonb, %s", like.queue, like.priority, like.tenant, lanes, jobs
        )

    def claim(
        self,
        worker: str,
        queues: list[str],
        limit: int,
        lease: float,
        after: str | None,
        asleep: bool,
        free: int,
        *,
        per_tenant: int | None = None,
        served: dict[str, int] | None = None,
        direct: bool = False,
    ) -> Call[Claimed]:
        params = (worker, queues, limit, lease, after, asleep, free, per_tenant, _json(served), direct)
        return Call(self._claim, params, _read_claim)

    def finish(
        self,
        ids: Sequence[str],
        tokens: Sequence[int],
        outcomes: Sequence[msgspec.Struct],
        closed: Sequence[int] | None,
        *,
        locked: str = "wait",
    ) -> Call[list[str]]:
        data = _encode(outcomes).decode() if outcomes else None
        return Call(
            self._finish, (array(ids), array(tokens), data, None if closed is None else array(closed), locked), firsts
        )

    def held_jobs(self, ids: Sequence[str], tokens: Sequence[int]) -> Call[list[str]]:
        return Call(f"SELECT held_jobs::text FROM {self.schema}.held_jobs(%s::uuid[], %s::bigint[])",
                    (array(ids), array(tokens)), firsts)  # fmt: skip

    def sleep(self, worker: str, queues: list[str], *, listens: bool) -> Call[float | None]:
        return Call(f"SELECT {self.schema}.sleep(%s, %s, %s)", (worker, queues, listens), lambda rows: rows[0][0])

    def renew(self, worker: str, tokens: Sequence[int], lease: float) -> Call[list[int]]:
        return Call(
            f"SELECT {self.schema}.renew(%s, %s::bigint[], make_interval(secs => %s))",
            (worker, array(tokens), lease),
            firsts,
        )

    def register_worker(
        self,
        worker: str,
        host: str,
        pid: int,
        version: str,
        queues: list[str],
        concurrency: int,
        tasks: list[Any],
    ) -> Call[list[str]]:
        return Call(
            f"SELECT {self.schema}.register_worker(%s, %s, %s, %s, %s, %s, %s::jsonb)",
            (worker, host, pid, version, queues, concurrency, _encode(tasks).decode()),
            lambda rows: list(rows[0][0]),
        )

    def reclaim_worker(self, worker: str) -> Call[int]:
        return Call(f"SELECT {self.schema}.reclaim_worker(%s)", (worker,), lambda rows: int(rows[0][0]))

    def mark_started(self, ids: Iterable[str], tokens: Iterable[int], ago: Iterable[float]) -> Call[None]:
        return self._void(
            "mark_started", "%s::uuid[], %s::bigint[], %s::float8[]", array(ids), array(tokens), array(ago)
        )

    def unregister_worker(self, worker: str, *, gone: bool) -> Call[None]:
        return self._void("unregister_worker", "%s, %s", worker, gone)

    def upkeep(self, worker: str, ttl: float) -> Call[Upkept]:
        return Call(
            "SELECT term, promoted, reclaimed, expired, next_slot, known, asleep "
            f"FROM {self.schema}.upkeep(%s, make_interval(secs => %s))",
            (worker, ttl),
            lambda rows: Upkept(*rows[0]),
        )

    def prune(self, limit: int = 1000) -> Call[tuple[int, int]]:
        return Call(
            f"SELECT partitions_dropped, rows_removed FROM {self.schema}.prune(%s)",
            (limit,),
            lambda rows: (rows[0][0], rows[0][1]),
        )

    def make_partitions(self) -> Call[int]:
        return Call(f"SELECT {self.schema}.make_partitions()", (), lambda rows: int(rows[0][0]))

    def register_limits(self, limits: Iterable[Limit]) -> Call[None]:
        rules = [{"template": it.key, "pattern": it.pattern, "code": it.as_json()} for it in limits]
        return self._void("register_limits", "%s::jsonb", _encode(rules).decode())

    def register_schedules(self, schedules: Iterable[Schedule]) -> Call[list[str]]:
        return Call(
            f"SELECT {self.schema}.register_schedules(%s::jsonb)",
            (_encode([_definition(each) for each in schedules]).decode(),),
            lambda rows: list(rows[0][0]),
        )

    def next_schedules(self, limit: int, without: Sequence[str]) -> Call[list[NextSlot]]:
        return Call(
            f"SELECT name, cron, zone, missed::text, next_at, now FROM {self.schema}.next_schedules(%s, %s)",
            (limit, list(without)),
            lambda rows: [NextSlot(*row) for row in rows],
        )

    def fire_schedules(self, fires: Iterable[tuple[NextSlot, Due]]) -> Call[list[Fired]]:
        slots = [
            {"name": it.name, "cron": it.cron, "zone": it.zone, "next_at": it.next_at, "slots": due.slots,
             "then": due.then}
            for it, due in fires
        ]  # fmt: skip
        return Call(
            f"SELECT name, cardinality(ids), problem, ids[1]::text FROM {self.schema}.fire_schedules(%s::jsonb)",
            (_encode(slots).decode(),),
            lambda rows: [Fired(*row) for row in rows],
            due=lambda fired: last([each.job for each in fired if each.job]),
        )

    def flag_schedule(self, name: str, problem: str) -> Call[None]:
        return self._void("flag_schedule", "%s, %s", name, problem)

    def pause_schedule(self, name: str, *, paused: bool) -> Call[bool]:
        return Call(f"SELECT {self.schema}.pause_schedule(%s, %s)", (name, paused), lambda rows: bool(rows[0][0]))

    def run_schedule(self, name: str) -> Call[str | None]:
        query = f"SELECT {self.schema}.run_schedule(%s, %s::uuid)::text"
        return Call(query, (name, job_ids.make()), lambda rows: rows[0][0], due=lambda job: job)

    def remove_schedule(self, name: str) -> Call[bool]:
        return Call(f"SELECT {self.schema}.remove_schedule(%s)", (name,), lambda rows: bool(rows[0][0]))

    def schedules(self) -> Call[list[ScheduleInfo]]:
        return Call(
            f"SELECT {_SCHEDULE_COLUMNS}, EXISTS (SELECT 1 FROM {self.schema}.workers w WHERE s.task = ANY (w.tasks) "
            f"AND {self.schema}.is_alive(w.id, w.heartbeat_at)), {self.schema}.clock() "
            f"FROM {self.schema}.schedules s ORDER BY s.name",
            (),
            lambda rows: [ScheduleInfo(*map(_in_utc, row)) for row in rows],
        )

    def cancel(self, ids: Sequence[str]) -> Call[dict[str, str]]:
        return Call(
            f"SELECT id::text, outcome FROM {self.schema}.cancel(%s::uuid[])",
            (array(ids),),
            lambda rows: {row[0]: row[1] for row in rows},
        )

    def retry_dead(self, ids: Sequence[str]) -> Call[list[str]]:
        query = f"SELECT retry_dead::text FROM {self.schema}.retry_dead(%s::uuid[])"
        return Call(query, (array(ids),), firsts, due=last)

    def discard_dead(self, ids: Sequence[str]) -> Call[list[str]]:
        return Call(f"SELECT discard_dead::text FROM {self.schema}.discard_dead(%s::uuid[])", (array(ids),), firsts)

    def get(self, id_: str) -> Call[JobInfo | None]:
        return Call(
            f"SELECT {_JOB_COLUMNS} FROM {self.schema}.jobs WHERE id = %s::uuid",
            (id_,),
            lambda rows: _info(rows[0]) if rows else None,
        )

    def get_many(self, ids: Iterable[str]) -> Call[list[JobInfo]]:
        return Call(
            f"SELECT {_JOB_COLUMNS} FROM {self.schema}.jobs WHERE id = ANY(%s::uuid[])",
            (array(ids),),
            lambda rows: [_info(row) for row in rows],
        )

    def list_jobs(self, where: Filter, *, limit: int, newest_first: bool = True) -> Call[list[JobInfo]]:
        conditions, params = where.sql()
        order = "DESC" if newest_first else "ASC"
        return Call(
            f"SELECT {_JOB_COLUMNS} FROM {self.schema}.jobs WHERE {conditions} "
            f"ORDER BY jobs.id {order} LIMIT %s",  # ids grow with time, and every table has an index on them
            (*params, limit),
            lambda rows: [_info(row) for row in rows],
        )

    def dead_ids(self, where: Filter, *, limit: int, after: str | None) -> Call[list[str]]:
        conditions, params = where.sql()
        return Call(
            f"SELECT id::text FROM {self.schema}.dead WHERE {conditions} AND (%s::uuid IS NULL OR id > %s::uuid) "
            "ORDER BY id LIMIT %s",
            (*params, after, after, limit),
            firsts,
        )

    def count_dead(self, where: Filter, *, most: int | None = None) -> Call[int]:
        """Count failed and dead jobs, up to `most`."""
        conditions, params = where.sql()
        return Call(
            f"SELECT count(*) FROM (SELECT FROM {self.schema}.dead WHERE {conditions} LIMIT %s) found",
            (*params, most),
            lambda rows: int(rows[0][0]),
        )

    def queue_depth(self) -> Call[list[dict[str, Any]]]:
        """Return the queues that have jobs or are paused: counts by state, which counts are estimates, and the pause
        with its author, reason and end."""
        names = ("queue", "ready", "running", "later", "dead", "oldest_wait", "estimated", "paused")
        return Call(
            "SELECT coalesce(q.queue, p.queue), coalesce(ready, 0), coalesce(running, 0), coalesce(later, 0), "
            "coalesce(dead, 0), oldest_wait, coalesce(estimated, '{}'), p.pause "
            f"FROM {self.schema}.queue_depth q FULL JOIN (SELECT "
            "substr(key, 7) AS queue, jsonb_build_object('since', paused_at, 'until', paused_until, 'by', paused_by, "
            f"'reason', paused_reason) AS pause FROM {self.schema}.limit_use "
            "WHERE starts_with(key, 'queue:') AND paused) p ON p.queue = q.queue ORDER BY 1",
            (),
            lambda rows: [dict(zip(names, row, strict=True)) for row in rows],
        )

    def workers(self) -> Call[list[dict[str, Any]]]:
        columns = "id, host, pid, version, queues, concurrency, started_at, heartbeat_at, stopping"
        return self._table("workers", columns, "started_at")

    def _table(self, name: str, columns: str, order: str) -> Call[list[dict[str, Any]]]:
        names = columns.split(", ")
        return Call(
            f"SELECT {columns} FROM {self.schema}.{name} ORDER BY {order}",
            (),
            lambda rows: [dict(zip(names, row, strict=True)) for row in rows],
        )

    def _void(self, function: str, places: str, *params: Any) -> Call[None]:
        return Call(f"SELECT {self.schema}.{function}({places})", params, lambda _: None)


def _insert(schema: str, columns: str, places: str) -> str:
    return (
        f"WITH placed AS (INSERT INTO {schema}.live "
        f"(id, queue, priority, task, tenant, payload, max_attempts, retry, headers{columns}) "
        f"VALUES (%s::uuid, %s, %s, %s, %s, %s::json, %s, %s::jsonb, %s::json{places}) "
        "ON CONFLICT DO NOTHING RETURNING true) "
        f"SELECT CASE WHEN EXISTS (SELECT 1 FROM {schema}.sleepers s WHERE s.queue = %s) "
        f"THEN {schema}.wake(%s) END FROM placed"
    )


def _as_json(job: NewJob) -> dict[str, Any]:
    values = {name: getattr(job, name) for name in job.__slots__}
    return {k: v for k, v in values.items() if v is not None} | {"payload": msgspec.Raw(job.payload)}


def _json(value: dict[str, Any] | None) -> str | None:
    return None if value is None else _encode(value).decode()


def _definition(it: Schedule) -> dict[str, Any]:
    options = _as_json(it.job)
    payload, task, _ = options.pop("payload"), options.pop("task"), options.pop("id")
    return {"name": it.name, "task": task, "cron": it.cron.text, "zone": it.cron.zone, "missed": it.cron.missed,
            "payload": payload, "options": options}  # fmt: skip


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def firsts(rows: Rows) -> list[Any]:
    return [row[0] for row in rows]


def last(ids: Sequence[str]) -> str | None:
    return ids[-1] if ids else None


_claim_info = msgspec.json.Decoder(ClaimInfo).decode


def _read_claim(rows: Rows) -> Claimed:
    """Return the result of a claim. The first row carries the info; without jobs it is the only row."""
    info = _claim_info(rows[0][-1])
    return Claimed([] if rows[0][0] is None else [Job(row) for row in rows], info)


def _info(row: tuple[Any, ...]) -> JobInfo:
    values = list(row)
    values[6] = Status(row[6])
    return JobInfo(*values)
