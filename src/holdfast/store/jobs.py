"""Calls on jobs: enqueue, claim, finish, look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from holdfast.model.job import Job, JobInfo, NewJob, Status
from holdfast.model.limit import Keys
from holdfast.model.why import Reason, Why
from holdfast.store.call import (
    MOST_COUNTED,
    Call,
    Row,
    Rows,
    array,
    as_json,
    dicts,
    firsts,
    last,
    mapping,
    one_dict,
    text_array,
    void,
)

_COLUMNS = (
    "id::text, task, tenant, queue, priority, payload, status::text, attempts, max_attempts, run_at, last_error, "
    "created_at, started_at, finished_at, result, dedupe_key, locked_by, locked_at, heartbeat_at, lease_expires_at, "
    "batch::text, deadline, progress"
)
_SCAN = 1000  # waiting jobs and queues that unknown_tasks() reads


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of enqueue for one job."""

    id: str
    outcome: str

    def due(self) -> str | None:
        return None if self.outcome == "existing" else self.id


class ClaimInfo(msgspec.Struct, frozen=True):
    """What a claim returns besides its jobs."""

    waiting: int = 0  # rings in which jobs under a rate or a breaker wait for free slots
    started: frozenset[str] = frozenset()  # ids of such jobs, which start first
    closed: int = 0  # lanes that limits have closed
    limited: bool = False  # whether a whole queue has a limit
    busy: bool = False  # whether another claim kept this one from jobs of tenants and under limits
    more: bool = False  # whether another claim may find more at once


@dataclass(frozen=True, slots=True)
class Claimed:
    """The result of one claim."""

    jobs: list[Job]
    info: ClaimInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions on jobs, for lists and operators' actions; all that are given must hold."""

    status: str | None = None
    task: str | None = None
    queue: str | None = None
    tenant: str | None = None
    error: str | None = None
    batch: str | None = None

    def sql(self) -> tuple[str, list[Any]]:
        conditions, params = ["true"], []
        for column in ("task", "queue", "tenant"):
            if (value := getattr(self, column)) is not None:
                conditions.append(f"{column} = %s")
                params.append(value)
        if self.status is not None:
            conditions.append("status::text = %s")
            params.append(self.status)
        if self.batch is not None:
            conditions.append("batch = %s::uuid")
            params.append(self.batch)
        if self.error is not None:
            # Lists show only the last part of a type, so that part alone must match.
            ends = "right('.' || (last_error ->> 'type'), length(%s::text)) = %s"
            conditions.append(f"({ends} OR last_error ->> 'code' = %s)")
            params += [f".{self.error}", f".{self.error}", self.error]
        return " AND ".join(conditions), params


@dataclass(frozen=True, slots=True)
class Left:
    """Jobs enqueued before `at` that have not ended. delayed: not due yet and never failed."""

    at: datetime
    waiting: int
    running: int
    retrying: int
    delayed: int


class JobCalls:
    """The calls, for one schema. The statements of enqueue, claim and finish are made once."""

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
        )
        return Call(
            self._enqueue,
            params,
            lambda rows: Accepted(*rows[0]),
            lambda: self.enqueue(job, on_conflict, fresh=False),
            Accepted.due,
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
            (*params, job.queue, job.queue),
            lambda rows: Accepted(job.id, "created" if rows else "existing"),
            lambda: self.enqueue(job, on_conflict, fresh=False),
            Accepted.due,
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
        params = (worker, queues, limit, lease, after, asleep, free, per_tenant, as_json(served), direct)
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
        data = msgspec.json.encode(outcomes).decode() if outcomes else None
        return Call(
            self._finish, (array(ids), array(tokens), data, None if closed is None else array(closed), locked), firsts
        )

    def held_jobs(self, ids: Sequence[str], tokens: Sequence[int]) -> Call[list[str]]:
        return Call(
            f"SELECT held_jobs::text FROM {self.schema}.held_jobs(%s::uuid[], %s::bigint[])",
            (array(ids), array(tokens)),
            firsts,
        )

    def mark_started(self, ids: Iterable[str], tokens: Iterable[int], ago: Iterable[float]) -> Call[None]:
        return void(
            self.schema, "mark_started", "%s::uuid[], %s::bigint[], %s::float8[]", array(ids), array(tokens), array(ago)
        )

    def report_progress(self, reports: Sequence[dict[str, Any]]) -> Call[None]:
        return void(self.schema, "report_progress", "%s::jsonb", msgspec.json.encode(reports).decode())

    def wanted_cancels(self, tokens: Sequence[int]) -> Call[list[str]]:
        return Call(
            f"SELECT wanted_cancels::text FROM {self.schema}.wanted_cancels(%s::bigint[])", (array(tokens),), firsts
        )

    def keep_result(self, id_: str, result: bytes) -> Call[None]:
        return void(self.schema, "keep_result", "%s::uuid, %s::jsonb", id_, result.decode())

    def cancel(self, ids: Sequence[str]) -> Call[dict[str, str]]:
        return Call(
            f"SELECT id::text, outcome FROM {self.schema}.cancel(%s::uuid[])",
            (array(ids),),
            lambda rows: {row[0]: row[1] for row in rows},
        )

    def get(self, id_: str) -> Call[JobInfo | None]:
        return Call(
            f"SELECT {_COLUMNS} FROM {self.schema}.jobs WHERE id = %s::uuid",
            (id_,),
            lambda rows: _info(rows[0]) if rows else None,
        )

    def get_many(self, ids: Iterable[str]) -> Call[list[JobInfo]]:
        return Call(
            f"SELECT {_COLUMNS} FROM {self.schema}.jobs WHERE id = ANY(%s::uuid[])",
            (array(ids),),
            lambda rows: [_info(row) for row in rows],
        )

    def select(self, where: Filter, *, limit: int, newest_first: bool = True) -> Call[list[JobInfo]]:
        conditions, params = where.sql()
        order = "DESC" if newest_first else "ASC"
        return Call(
            f"SELECT {_COLUMNS} FROM {self.schema}.jobs WHERE {conditions} "
            f"ORDER BY jobs.id {order} LIMIT %s",  # ids grow with time, and every table has an index on them
            (*params, limit),
            lambda rows: [_info(row) for row in rows],
        )

    def why(self, id_: str) -> Call[Why]:
        return Call(f"SELECT {self.schema}.why(%s::uuid)", (id_,), lambda rows: _why(rows[0][0]))

    def queues(self) -> Call[list[Row]]:
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

    def queue_names(self, *, of_workers: bool = True) -> Call[list[str]]:
        """Return the queues with due or running jobs or a task; with `of_workers`, also those that workers serve."""
        served = f"UNION SELECT unnest(queues) FROM {self.schema}.workers " if of_workers else ""
        return Call(
            f"{self._queues_of_jobs()} SELECT queue::text FROM names WHERE queue IS NOT NULL {served}"
            f"UNION SELECT queue::text FROM {self.schema}.tasks ORDER BY 1",
            (),
            firsts,
        )

    def left(self, queue: str, since: datetime | None) -> Call[Left]:
        """Count the jobs of a queue that were enqueued before a time, or now, and have not ended."""
        live, later = f"{self.schema}.live", f"{self.schema}.later"
        return Call(
            f"""SELECT t.at,
                    (SELECT ARRAY[count(*) FILTER (WHERE token IS NULL), count(token)]
                     FROM {live} WHERE queue = %s AND created_at <= t.at),
                    (SELECT ARRAY[count(*) FILTER (WHERE attempt > 0 OR last_error IS NOT NULL),
                                  count(*) FILTER (WHERE attempt = 0 AND last_error IS NULL)]
                     FROM {later} WHERE queue = %s AND created_at <= t.at)
                FROM (SELECT coalesce(%s::timestamptz, {self.schema}.clock()) AS at) t""",
            (queue, queue, since),
            lambda rows: Left(rows[0][0], *rows[0][1], *rows[0][2]),
        )

    def some_left(self, queue: str, since: datetime, *, limit: int) -> Call[list[str]]:
        """Return some of those jobs, waiting ones first."""
        return Call(
            f"SELECT id::text FROM {self.schema}.live WHERE queue = %s AND created_at <= %s "
            "ORDER BY token IS NOT NULL, run_at, id LIMIT %s",
            (queue, since, limit),
            firsts,
        )

    def running(self) -> Call[list[Row]]:
        """Count the running jobs of each queue by worker."""
        return dicts(
            f"SELECT queue, worker, count(*) FROM {self.schema}.claimed_jobs() GROUP BY 1, 2 ORDER BY 1, 2",
            "queue, worker, running",
        )

    def totals(self) -> Call[dict[str, Any]]:
        """Return the database's time and its counter of ended jobs, from which callers compute a rate."""
        call = dicts(
            f"""SELECT {self.schema}.clock(), (SELECT coalesce(sum(n_tup_ins), 0)::int8 FROM pg_stat_user_tables
                                               WHERE schemaname = %s AND starts_with(relname, 'history_'))""",
            "at, ended",
            (self.schema,),
        )
        return Call(call.sql, call.params, lambda rows: call.read(rows)[0])

    def task_queues(self) -> Call[dict[str, str]]:
        """Return the queue of each task that a worker has registered."""
        return Call(f"SELECT name, queue FROM {self.schema}.tasks", (), mapping)

    def unserved_queues(self) -> Call[list[Row]]:
        """Return queues that no live worker serves, with their due jobs, counted up to MOST_COUNTED + 1.

        The names come from a skip scan of the fetch index, so the backlog of other queues costs nothing.
        """
        live = f"{self.schema}.live"
        return dicts(
            f"""{self._queues_of_jobs()}, served AS (
                    SELECT DISTINCT unnest(queues) AS queue FROM {self.schema}.workers
                    WHERE NOT stopping AND {self.schema}.is_alive(id, heartbeat_at))
                SELECT n.queue, (SELECT count(*) FROM (
                    SELECT FROM {live} l WHERE l.queue = n.queue AND l.token IS NULL LIMIT {MOST_COUNTED + 1}) c)
                FROM names n WHERE n.queue IS NOT NULL AND n.queue NOT IN (SELECT queue FROM served)
                ORDER BY 1""",
            "queue, jobs",
        )

    def unknown_tasks(self) -> Call[list[Row]]:
        """Return the tasks that no worker has registered, with counts, in a sample: the first jobs of each queue and
        those due soonest. Return nothing before the first worker has registered its tasks."""
        waiting = f"SELECT l.queue, l.task FROM {self.schema}.live l WHERE l.queue = n.queue AND l.token IS NULL"
        known = f"SELECT name FROM {self.schema}.tasks"
        return dicts(
            f"""{self._queues_of_jobs()}
                SELECT queue, task, count(*) FROM (
                    SELECT w.* FROM (SELECT * FROM names WHERE queue IS NOT NULL LIMIT {_SCAN}) n,
                        LATERAL ({waiting} LIMIT {_SCAN}) w
                    UNION ALL (SELECT queue, task FROM {self.schema}.later ORDER BY run_at, id LIMIT {_SCAN})) looked_at
                WHERE task NOT IN ({known}) AND EXISTS ({known}) GROUP BY 1, 2 ORDER BY 3 DESC, 2""",
            "queue, task, jobs",
        )

    def _queues_of_jobs(self) -> str:
        """Return a CTE with the queues of live, read by a skip scan of the fetch index."""
        live = f"{self.schema}.live"
        return f"""WITH RECURSIVE names AS (
                    SELECT min(queue) AS queue FROM {live}
                    UNION ALL
                    SELECT (SELECT min(l.queue) FROM {live} l WHERE l.queue > n.queue)
                    FROM names n WHERE n.queue IS NOT NULL)"""

    def run_tally(self, queue: str, first_id: str) -> Call[list[tuple[str | None, str, str | None, int]]]:
        """Count the jobs of a queue since an id by tenant, status and worker."""
        return Call(
            f"""SELECT tenant, status::text, locked_by, count(*) FROM {self.schema}.jobs
                WHERE queue = %s AND id >= %s::uuid GROUP BY 1, 2, 3""",
            (queue, first_id),
            lambda rows: [(r[0], r[1], r[2], r[3]) for r in rows],
        )

    def run_summary(self, queue: str, first_id: str) -> Call[Row]:
        """Return counts, run time and waiting times of a queue's jobs since an id."""
        return one_dict(
            f"""SELECT count(*), count(DISTINCT id),
                       count(*) FILTER (WHERE status IN ('succeeded', 'failed', 'dead', 'canceled')),
                       extract(epoch FROM max(finished_at) - min(started_at))::float8,
                       percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - run_at)),
                       percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - run_at)),
                       coalesce(sum(attempts), 0)::int8
                FROM {self.schema}.jobs WHERE queue = %s AND id >= %s::uuid""",
            "rows, jobs, final, seconds, wait_p50, wait_p99, attempts",
            (queue, first_id),
        )


def _insert(schema: str, columns: str, places: str) -> str:
    return (
        f"WITH placed AS (INSERT INTO {schema}.live "
        f"(id, queue, priority, task, tenant, payload, max_attempts, retry, headers{columns}) "
        f"VALUES (%s::uuid, %s, %s, %s, %s, %s::json, %s, %s::jsonb, %s::json{places}) "
        "ON CONFLICT DO NOTHING RETURNING true) "
        f"SELECT CASE WHEN EXISTS (SELECT 1 FROM {schema}.sleepers s WHERE s.queue = %s) "
        f"THEN {schema}.wake(%s) END FROM placed"
    )


def job_fields(job: NewJob) -> dict[str, Any]:
    """Return the fields that are set, for JSON."""
    values = {name: getattr(job, name) for name in job.__slots__}
    return {k: v for k, v in values.items() if v is not None} | {"payload": msgspec.Raw(job.payload)}


_claim_info = msgspec.json.Decoder(ClaimInfo).decode


def _read_claim(rows: Rows) -> Claimed:
    """Return the result of a claim. The first row carries the info; without jobs it is the only row."""
    info = _claim_info(rows[0][-1])
    return Claimed([] if rows[0][0] is None else [Job(row) for row in rows], info)


def _info(row: tuple[Any, ...]) -> JobInfo:
    values = list(row)
    values[6] = Status(row[6])
    return JobInfo(*values)


def _why(row: dict[str, Any]) -> Why:
    return Why(
        row["id"],
        row["status"],
        row["sentence"],
        *([Reason(each.pop("kind"), each.pop("text"), each) for each in row[name]] for name in ("reasons", "notes")),
    )
