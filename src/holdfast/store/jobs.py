"""Calls on jobs: claim, finish, read. Those that enqueue are in enqueue.py."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, ClassVar, TypeVar

import msgspec

from holdfast.model.job import Job, JobDetails, JobInfo, JobRow, PublicJob, Status
from holdfast.model.view import EVERYTHING, View
from holdfast.model.why import Reason, Why
from holdfast.store.call import Call, Rows, array, as_json, first, firsts, mapping, text_array, void
from holdfast.store.enqueue import EnqueueCalls
from holdfast.store.select import (
    EVERYWHERE,
    HIDDEN,
    Area,
    Conditions,
    Page,
    Part,
    Shape,
    changed_jobs,
    every,
    given,
    raw,
    select_page,
    visible_jobs,
)

T = TypeVar("T")
Ids = list[str]
LARGE_JOB = 65_536  # bytes above which a job is read by a call of its own


class ClaimInfo(msgspec.Struct, frozen=True):
    """What a claim returns besides its jobs."""

    waiting: int = 0  # rings in which jobs under a rate or a breaker wait for free slots
    started: frozenset[str] = frozenset()  # ids of such jobs, which start first
    closed: int = 0  # lanes that limits have closed
    limited: bool = False  # whether a whole queue has a limit
    busy: bool = False  # whether another claim kept this one from jobs of tenants and under limits
    more: bool = False  # whether another claim may find more at once
    due: float | msgspec.UnsetType | None = msgspec.UNSET  # seconds until the next delayed job; unset: not known


@dataclass(frozen=True, slots=True)
class Claimed:
    """The result of one claim."""

    jobs: list[Job]
    info: ClaimInfo


# The tables with jobs of each status. Discarded jobs stay failed or dead in the history.
PLACES = {
    "queued": ("live", "later"),
    "running": ("live",),
    "retrying": ("live", "later"),
    "waiting": ("later",),
    "succeeded": ("history",),
    "canceled": ("history",),
    "failed": ("dead", "history"),
    "dead": ("dead", "history"),
}
# Lists show only the last part of an error's type, so that part alone must match.
_ERROR = "(right('.' || (last_error ->> 'type'), length(%s::text) + 1) = '.' || %s::text OR last_error ->> 'code' = %s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Conditions):
    """Conditions on jobs, for lists and operators' actions. Times are compared with created_at."""

    status: str | None = None
    task: str | None = None
    queue: str | None = None
    tenant: str | None = None
    error: str | None = None
    error_group: str | None = None
    batch: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    SQL: ClassVar = {
        "status": "status::text = %s",
        "task": "task = %s",
        "queue": "queue = %s",
        "tenant": "tenant = %s",
        "error": _ERROR,
        "error_group": "fingerprint = %s",
        "batch": "batch = %s::uuid",
        "since": "created_at >= %s",
        "until": "created_at < %s",
    }

    @property
    def area(self) -> Area:
        """The tables that can hold jobs of the status."""
        return Area(None if self.status is None else PLACES.get(self.status))


class JobCalls(EnqueueCalls):
    """The calls, for one schema. The statements of enqueue, claim and finish are made once."""

    def __init__(self, schema: str) -> None:
        super().__init__(schema)
        self._claim = (
            "SELECT id::text, token, task, payload::text, attempt, max_attempts, queue, priority, tenant, "
            "date_part('epoch', run_at), batch::text, headers::text, lane, keys, info::text "
            f"FROM {schema}.claim(%s, %s::text[], %s, make_interval(secs => %s), %s::jsonb, %s, %s, %s, %s::jsonb, %s)"
        )
        self._finish = (
            f"SELECT finish::text FROM {schema}.finish(%s::uuid[], %s::bigint[], %s::jsonb, %s::bigint[], %s)"
        )
        self._look = _look(schema)

    def claim(
        self,
        worker: str,
        queues: Ids,
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
        names = text_array(queues)
        params = (worker, names, limit, lease, after, asleep, free, per_tenant, as_json(served), direct)
        return Call(self._claim, params, _read_claim, hot=True)

    def finish(
        self,
        ids: Sequence[str],
        tokens: Sequence[int],
        outcomes: Sequence[msgspec.Struct],
        closed: Sequence[int] | None,
        *,
        locked: str = "wait",
    ) -> Call[Ids]:
        data = msgspec.json.encode(outcomes).decode() if outcomes else None
        return Call(
            self._finish,
            (array(ids), array(tokens), data, None if closed is None else array(closed), locked),
            firsts,
            hot=True,
        )

    def held_jobs(self, ids: Sequence[str], tokens: Sequence[int]) -> Call[Ids]:
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

    def report_log(self, reports: Sequence[dict[str, Any]]) -> Call[None]:
        return void(self.schema, "report_log", "%s::jsonb", msgspec.json.encode(reports).decode())

    def wanted_cancels(self, tokens: Sequence[int]) -> Call[Ids]:
        return Call(
            f"SELECT wanted_cancels::text FROM {self.schema}.wanted_cancels(%s::bigint[])", (array(tokens),), firsts
        )

    def keep_result(self, id_: str, result: bytes) -> Call[None]:
        return void(self.schema, "keep_result", "%s::uuid, %s::jsonb", id_, result.decode())

    def cancel(self, ids: Sequence[str], view: View = EVERYTHING) -> Call[dict[str, str]]:
        """Cancel jobs; return the outcome of each that the view may change."""
        some = changed_jobs(self.schema, ids, view)
        return Call(f"SELECT id::text, outcome FROM {self.schema}.cancel({some.sql})", some.params, mapping)

    def get(self, id_: str) -> Call[JobInfo | None]:
        return Call(
            f"SELECT {INFO.sql} FROM {self.schema}.jobs WHERE id = %s::uuid",
            (id_,),
            lambda rows: INFO.read(rows[0]) if rows else None,
        )

    def details(self, id_: str) -> Call[JobDetails | None]:
        """Return what operators see of a job besides its PublicJob."""
        places = " UNION ALL ".join(f"SELECT id, keys FROM {self.schema}.{each}" for each in ("live", "later", "dead"))
        return Call(
            f"SELECT last_error::text, dedupe_key, locked_by, heartbeat_at, lease_expires_at, "
            f"(SELECT k.keys FROM ({places}) k WHERE k.id = j.id) FROM {self.schema}.jobs j WHERE id = %s::uuid",
            (id_,),
            _details,
        )

    def get_many(self, ids: Iterable[str]) -> Call[Sequence[JobInfo]]:
        return Call(
            f"SELECT {INFO.sql} FROM {self.schema}.jobs WHERE id = ANY(%s::uuid[])",
            (array(ids),),
            lambda rows: [INFO.read(row) for row in rows],
        )

    def list(
        self, kind: type[T], where: Filter, page: Page, view: View = EVERYTHING, *, args: Any = None
    ) -> Call[Part[T]]:
        """Return a page of the jobs that match, and have the arguments, as JobInfo, PublicJob or JobRow."""
        has_args = given(f"{self.schema}.has_args(payload, %s::jsonb)", as_json(args))
        conditions = every((where.where(), where.area.where(), visible_jobs(self.schema, view), has_args))
        return select_page(shape(self.schema, kind), f"{self.schema}.jobs", conditions, page)

    def of_batch(self, batch: str, start: str, end: str, limit: int, *, after: bool) -> Call[builtins.list[JobInfo]]:
        """Return jobs of a batch whose ids are in a range, in the order of their ids."""
        sql = (
            f"SELECT {INFO.sql} FROM {self.schema}.jobs WHERE id {'>' if after else '>='} %s::uuid AND id <= %s::uuid "
            "AND batch = %s::uuid ORDER BY jobs.id LIMIT %s"
        )
        return Call(sql, (start, end, batch, limit), lambda rows: [INFO.read(row) for row in rows])

    def look(self, wanted: Sequence[tuple[str, View]]) -> Call[dict[int, PublicJob | None]]:
        """Return the requested jobs by position, without those that their view does not show. If there are several, a
        large one is None: it gets a call of its own, so that it does not delay the rest."""
        return Call(
            self._look,
            (
                LARGE_JOB if len(wanted) > 1 else 2**31 - 1,
                array(id_ for id_, _ in wanted),
                array(view.everyone for _, view in wanted),
                [view.tenant for _, view in wanted],
                array(view.reads_deliveries for _, view in wanted),
            ),
            lambda rows: {row[0] - 1: None if row[1] else _public(row[2:]) for row in rows},
        )

    def marks(self, ids: Sequence[str]) -> Call[Sequence[str]]:
        """Return a mark for each job that changes with the job; for the service itself, not for callers."""
        return Call(f"SELECT {self.schema}.job_marks(%s::uuid[])", (array(ids),), first)

    def floor(self, before: str | None, jobs: int, area: Area = EVERYWHERE) -> Call[str | None]:
        """Return the lowest id of a list that scans this many jobs of an area."""
        places = None if area.places is None else list(area.places)
        return Call(
            f"SELECT {self.schema}.page_floor(%s::uuid, %s, %s, %s)::text", (before, jobs, places, area.messages), first
        )

    def why(self, id_: str) -> Call[Why]:
        return Call(f"SELECT {self.schema}.why(%s::uuid)", (id_,), lambda rows: _why(rows[0][0]))


_claim_info = msgspec.json.Decoder(ClaimInfo).decode


def _read_claim(rows: Rows) -> Claimed:
    """Return the result of a claim. The first row carries the info; without jobs it is the only row."""
    info = _claim_info(rows[0][-1])
    return Claimed([] if rows[0][0] is None else [Job(row) for row in rows], info)


def _info(row: Sequence[Any]) -> JobInfo:
    values = list(row)
    values[6] = Status(row[6])
    return JobInfo(*values)


def _details(rows: Rows) -> JobDetails | None:
    if not rows:
        return None
    names = ("error", "dedupe_key", "worker", "heartbeat_at", "lease_expires_at")
    return JobDetails(**dict(zip(names, rows[0], strict=False)), keys=rows[0][-1] or [])


_AS_TEXT = {"id": "id::text", "status": "status::text", "batch": "batch::text"}
INFO = Shape({each.name: _AS_TEXT.get(each.name, each.name) for each in fields(JobInfo)}, _info)
_LARGE = ("args", "error", "result", "progress")
_NAMES = [each.name for each in fields(PublicJob)]
_public = raw(_LARGE, _NAMES, PublicJob)


# Values that are stored elsewhere because of their size are not read: a list of large jobs is as fast as of small ones.
_START = {
    "args": "CASE WHEN pg_column_size(payload) < 2000 THEN left(payload::text, 200) END",
    "error": "CASE WHEN pg_column_size(last_error) < 100000 THEN left(concat_ws(': ', "
    "substring(last_error ->> 'type' FROM '[^.]*$'), last_error ->> 'message'), 200) END",
}
_ROW_COLUMNS = {each.name: (_AS_TEXT | _START).get(each.name, each.name) for each in fields(JobRow)}
_ROW = Shape(_ROW_COLUMNS, lambda row: JobRow(*row), tuple(_START))


def shape(schema: str, kind: type[T]) -> Shape[T]:
    """Return how jobs of the view `jobs` are read as JobInfo, PublicJob or JobRow."""
    public = {
        "args": "payload::text",
        "error": f"(last_error {HIDDEN})::text",
        "result": "result::text",
        "progress": "progress::text",
        "discarded": _discarded(schema, "t"),
    }
    if kind is JobRow:
        return _ROW  # type: ignore[return-value]
    columns = {name: (_AS_TEXT | public).get(name, name) for name in _NAMES}
    found: Any = INFO if kind is JobInfo else Shape(columns, _public, _LARGE)
    return found  # type: ignore[no-any-return]


def _discarded(schema: str, job: str) -> str:
    """Return the SQL expression. NOT EXISTS could become a scan of all dead jobs."""
    held = f"(SELECT d.id FROM {schema}.dead d WHERE d.id = {job}.id::uuid)"
    return f"CASE WHEN {job}.status::text IN ('failed', 'dead') THEN {held} IS NULL ELSE false END"


def _look(schema: str) -> str:
    """Return the statement that reads many jobs for many views, without the values of large ones."""
    texts = {"id": "id::text", "args": "payload::text AS args", "batch": "batch::text"}
    texts |= {name: f"{name}::text" for name in ("error", "result", "progress")}
    inner = ", ".join(texts.get(name, name) for name in _NAMES if name != "discarded")
    sizes = " + ".join(f"coalesce(octet_length({name}), 0)" for name in _LARGE)
    outer = {name: f"CASE WHEN large THEN NULL ELSE {name} END" for name in _LARGE}
    columns = ", ".join((outer | {"discarded": _discarded(schema, "k")}).get(name, name) for name in _NAMES)
    return (
        f"SELECT place, large, {columns} FROM (SELECT i.*, {sizes} > %s AS large FROM (SELECT place, {inner} "
        f"FROM {schema}.look_at(%s::uuid[], %s::boolean[], %s::text[], %s::boolean[]) j OFFSET 0) i OFFSET 0) k"
    )


def _why(row: dict[str, Any]) -> Why:
    return Why(
        row["id"],
        row["status"],
        row["sentence"],
        *([Reason(each.pop("kind"), each.pop("text"), each) for each in row[name]] for name in ("reasons", "notes")),
    )
