"""Calls of the service on behalf of a caller: SQL's may_see() filters each row. See call.py.

Webhook deliveries are jobs. Calls for jobs leave them out unless the token has the scope for webhooks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.model.job import BatchInfo
from holdfast.model.outbox import MessageInfo
from holdfast.model.token import Caller
from holdfast.model.webhook import TASK, DeliveryInfo, Endpoint
from holdfast.store import batches, webhooks
from holdfast.store.call import Call, array, firsts, last
from holdfast.store.jobs import Filter
from holdfast.store.outbox import MessageFilter
from holdfast.store.webhooks import Deliveries

T = TypeVar("T")
LARGE_JOB = 65_536  # bytes above which a job is read by a call of its own
PAGE_BYTES = 4_194_304
Json = msgspec.Raw
"""JSON as PostgreSQL returns it. It is passed on without decoding, so no row can fail."""


@dataclass(frozen=True, slots=True)
class SeenJob:
    """A job as callers of the service see it: without keys and leases, its error without traceback and output."""

    id: str
    task: str
    tenant: str | None
    queue: str
    priority: int
    args: Any
    status: str
    attempts: int
    max_attempts: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    error: dict[str, Any] | None
    result: Any
    batch: str | None
    deadline: datetime | None
    progress: dict[str, Any] | None
    discarded: bool
    """Whether the job failed or is dead, and was discarded by an operator."""

    @property
    def ended(self) -> bool:
        return self.status in ("succeeded", "failed", "dead", "canceled")


def _discarded(schema: str, job: str) -> str:
    """Return the SQL expression. NOT EXISTS could become a scan of all dead jobs."""
    held = f"(SELECT d.id FROM {schema}.dead d WHERE d.id = {job}.id::uuid)"
    return f"CASE WHEN {job}.status::text IN ('failed', 'dead') THEN {held} IS NULL ELSE false END"


_HIDDEN = "- 'traceback' - 'output'"  # parts of an error that only operators see
_JOB = {each.name: f"j.{each.name}" for each in fields(SeenJob)} | {
    "id": "j.id::text",
    "args": "j.payload::text",
    "status": "j.status::text",
    "result": "j.result::text",
    "error": f"(j.last_error {_HIDDEN})::text",
    "batch": "j.batch::text",
    "progress": "j.progress::text",
}
_MESSAGE = {each.name: f'"{each.name}"' for each in fields(MessageInfo)} | {
    "id": "id::text",
    "payload": "payload::text",
    "error": f"(error {_HIDDEN})::text",
}
_DELIVERY = dict(zip((each.name for each in fields(DeliveryInfo)), webhooks.DELIVERY.split(", "), strict=True))
_JOB_SIZES = ("args", "error", "result", "progress")
_MESSAGE_SIZES = ("payload", "error")


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """Rows of a list, of `size` bytes. `cut`: more rows did not fit into the bytes of a page."""

    rows: list[T]
    cut: bool = False
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a list, newest first: bounds on ids (`before`, `floor`) and creation times."""

    limit: int
    before: str | None = None
    floor: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    size: int = PAGE_BYTES

    def sql(self, id_: str = "id") -> tuple[str, list[Any]]:
        conditions, params = ["true"], []
        for condition, value in (
            (f"{id_} < %s::uuid", self.before),
            (f"{id_} >= %s::uuid", self.floor),
            ("created_at >= %s", self.since),
            ("created_at < %s", self.until),
        ):
            if value is not None:
                conditions.append(condition)
                params.append(value)
        return " AND ".join(conditions), params


class SeenCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._may = f"{schema}.may_see(%s, %s, tenant)"
        self._may_job = f"{self._may} AND (%s OR task <> '{TASK}')"
        self._job = _JOB | {"discarded": _discarded(schema, "j")}

    def jobs(self, wanted: Sequence[tuple[str, Caller]]) -> Call[dict[int, SeenJob | None]]:
        """Return the requested jobs by position, without those that their caller may not see. If there are several, a
        large one is None: it gets a call of its own, so that it does not delay the rest."""
        names = {"payload": "args"}
        text = ", ".join(
            f"{column}::text AS {names.get(column, column)}" for column in ("payload", "error", "result", "progress")
        )
        sizes = " + ".join(f"coalesce(octet_length({name}), 0)" for name in _JOB_SIZES)
        columns = ", ".join(
            f"CASE WHEN large THEN NULL ELSE {each.name} END"
            if each.name in _JOB_SIZES
            else _discarded(self.schema, "k")
            if each.name == "discarded"
            else each.name
            for each in fields(SeenJob)
        )
        return Call(
            f"SELECT place, large, {columns} FROM (SELECT i.*, {sizes} > %s AS large FROM (SELECT place, j.id::text, "
            f"task, tenant, queue, priority, {text}, status, attempts, max_attempts, run_at, created_at, started_at, "
            "finished_at, batch::text, deadline "
            f"FROM {self.schema}.look_at(%s::uuid[], %s::boolean[], %s::text[], %s::boolean[]) j "
            "OFFSET 0) i OFFSET 0) k",
            (
                LARGE_JOB if len(wanted) > 1 else 2**31 - 1,
                array(id_ for id_, _ in wanted),
                array(who.everyone for _, who in wanted),
                [who.tenant for _, who in wanted],
                array(who.may("webhooks:read") for _, who in wanted),
            ),
            lambda rows: {row[0] - 1: None if row[1] else _job(row[2:]) for row in rows},
        )

    def marks(self, ids: Sequence[str]) -> Call[list[str]]:
        """Return a mark for each job that changes with the job; for the service itself, not for callers."""
        return Call(f"SELECT {self.schema}.job_marks(%s::uuid[])", (array(ids),), lambda rows: rows[0][0])

    def version(self) -> Call[int]:
        """Return the schema's version."""
        return Call(f"SELECT max(version) FROM {self.schema}.schema_info", (), lambda rows: int(rows[0][0]))

    def floor(self, before: str | None, jobs: int, *, dead: bool = False) -> Call[str | None]:
        """Return the lowest id of a list that scans this many jobs."""
        return Call(
            f"SELECT {self.schema}.page_floor(%s::uuid, %s, %s)::text", (before, jobs, dead), lambda rows: rows[0][0]
        )

    def list_jobs(self, who: Caller, where: Filter, page: Page) -> Call[Part[SeenJob]]:
        (those, some), (part, more) = where.sql(), page.sql()
        return _part(
            self._job,
            _JOB_SIZES,
            f"FROM {self.schema}.jobs j WHERE {those} AND {part} AND {self._may_job} "
            "ORDER BY j.id DESC LIMIT %s",  # ids grow with time, and every table has an index on them
            (*some, *more, *_reads(who), page.limit),
            page.size,
            _job,
        )

    def list_dead(self, who: Caller, where: Filter, page: Page) -> Call[Part[SeenJob]]:
        """Return failed and dead jobs that were neither retried nor discarded."""
        (those, some), (part, more) = where.sql(), page.sql()
        return _part(
            self._job,
            _JOB_SIZES,
            f"FROM {self.schema}.jobs j WHERE j.id = ANY(ARRAY(SELECT id FROM {self.schema}.dead "
            f"WHERE {those} AND {part} AND {self._may_job} ORDER BY id DESC LIMIT %s)) ORDER BY j.id DESC",
            (*some, *more, *_reads(who), page.limit),
            page.size,
            _job,
        )

    def dead_ids(self, who: Caller, where: Filter, after: str | None, limit: int) -> Call[list[str]]:
        those, some = where.sql()
        return Call(
            f"SELECT id::text FROM {self.schema}.dead WHERE {those} AND (%s::uuid IS NULL OR id > %s::uuid) "
            f"AND {self._may_job} ORDER BY id LIMIT %s",
            (*some, after, after, *_writes(who), limit),
            firsts,
        )

    def cancel(self, who: Caller, ids: Sequence[str]) -> Call[dict[str, str]]:
        """Cancel the jobs that the caller may see; return the outcome of each."""
        return Call(
            f"SELECT id::text, outcome FROM {self.schema}.cancel({self._own})",
            (*_writes(who), array(ids)),
            lambda rows: {row[0]: row[1] for row in rows},
        )

    def retry_dead(self, who: Caller, ids: Sequence[str]) -> Call[list[str]]:
        return Call(
            f"SELECT x::text FROM {self.schema}.retry_dead({self._own}) x",
            (*_writes(who), array(ids)),
            firsts,
            due=last,
        )

    def discard_dead(self, who: Caller, ids: Sequence[str]) -> Call[list[str]]:
        return Call(
            f"SELECT x::text FROM {self.schema}.discard_dead({self._own}) x", (*_writes(who), array(ids)), firsts
        )

    def redeliver(self, who: Caller, ids: Sequence[str]) -> Call[list[Any]]:
        redelivering = webhooks.WebhookCalls(self.schema).redeliver(ids)
        return Call(
            redelivering.sql.replace("%s::uuid[]", self._own),
            (*_writes(who), array(ids)),
            redelivering.read,
            due=redelivering.due,
        )

    @property
    def _own(self) -> str:
        return f"{self.schema}.seen_jobs(%s, %s, %s, %s::uuid[])"

    def batch(self, who: Caller, id_: str) -> Call[BatchInfo | None]:
        return Call(
            f"SELECT {batches.COLUMNS} FROM {self.schema}.batch_progress WHERE id = %s::uuid AND {self._may}",
            (id_, *_who(who)),
            lambda rows: BatchInfo(*rows[0]) if rows else None,
        )

    def list_batches(self, who: Caller, page: Page) -> Call[list[BatchInfo]]:
        part, more = page.sql()
        return Call(
            f"SELECT {batches.COLUMNS} FROM {self.schema}.batch_progress WHERE {part} AND {self._may} "
            f"{_own_only(who)} ORDER BY batch_progress.id DESC LIMIT %s",
            (*more, *_who(who), *_own_tenant(who), page.limit),
            lambda rows: [BatchInfo(*row) for row in rows],
        )

    def message(self, who: Caller, id_: str) -> Call[MessageInfo | None]:
        return Call(
            f"SELECT {', '.join(_MESSAGE.values())} FROM {self.schema}.outbox WHERE id = %s::uuid AND {self._may}",
            (id_, *_who(who)),
            lambda rows: _message(rows[0]) if rows else None,
        )

    def list_messages(self, who: Caller, where: MessageFilter, page: Page) -> Call[Part[MessageInfo]]:
        (those, some), (part, more) = where.sql(), page.sql()
        return _part(
            _MESSAGE,
            _MESSAGE_SIZES,
            f"FROM {self.schema}.outbox WHERE {those} AND {part} AND {self._may} ORDER BY outbox.id DESC LIMIT %s",
            (*some, *more, *_who(who), page.limit),
            page.size,
            _message,
        )

    def endpoints(self, who: Caller, id_: str | None = None) -> Call[list[Endpoint]]:
        """Return all endpoints that the caller may see, or one."""
        return Call(
            f"SELECT {webhooks.ENDPOINT} FROM {self.schema}.webhook_endpoint_state "
            f"WHERE (%s::uuid IS NULL OR id = %s::uuid) AND {self._may} {_own_only(who)} "
            "ORDER BY webhook_endpoint_state.id DESC LIMIT 1000",
            (id_, id_, *_who(who), *_own_tenant(who)),
            lambda rows: [Endpoint(*row) for row in rows],
        )

    def deliveries(self, who: Caller, which: Deliveries, page: Page) -> Call[Part[DeliveryInfo]]:
        (those, some), (part, more) = which.sql(), page.sql("webhook_delivery_id")
        return _part(
            _DELIVERY,
            ("body", "response_body"),
            f"FROM {self.schema}.webhook_deliveries WHERE {those} AND {part} "
            f"AND {self.schema}.may_see(%s, %s, tenant_id) ORDER BY webhook_delivery_id DESC LIMIT %s",
            (*some, *more, *_who(who), page.limit),
            page.size,
            lambda row: DeliveryInfo(*row),
        )


def _part(
    columns: Mapping[str, str],
    sizes: Sequence[str],
    rest: str,
    params: tuple[Any, ...],
    most: int,
    read: Callable[[Sequence[Any]], T],
) -> Call[Part[T]]:
    """Return rows, newest first, until their large columns exceed `most` bytes; at least one row."""
    inner = ", ".join(f'{expression} AS "{name}"' for name, expression in columns.items())
    size = " + ".join(f'coalesce(octet_length(i."{name}"), 0)' for name in sizes)
    outer = ", ".join(f'"{name}"' for name in columns)
    return Call(
        f"SELECT every, until, {outer} FROM (SELECT i.*, count(*) OVER () AS every, {size} AS size, "
        f"sum({size}) OVER (ORDER BY i.id DESC) AS until FROM (SELECT {inner} {rest}) i) o "
        "WHERE until - size < %s ORDER BY o.id DESC",
        (*params, most),
        lambda rows: Part(
            [read(row[2:]) for row in rows], bool(rows) and rows[0][0] > len(rows), int(rows[-1][1]) if rows else 0
        ),
        prepare=False,
    )


def _job(row: Sequence[Any]) -> SeenJob:
    values = list(row)
    for place in _JOB_PLACES:
        values[place] = _raw(values[place])
    return SeenJob(*values)


def _message(row: Sequence[Any]) -> MessageInfo:
    values = list(row)
    for place in _MESSAGE_PLACES:
        values[place] = _raw(values[place])
    return MessageInfo(*values)


def _raw(text: str | None) -> Json | None:
    return None if text is None else msgspec.Raw(text.encode())


_JOB_PLACES = [place for place, each in enumerate(fields(SeenJob)) if each.name in _JOB_SIZES]
_MESSAGE_PLACES = [place for place, each in enumerate(fields(MessageInfo)) if each.name in _MESSAGE_SIZES]


def _who(caller: Caller) -> tuple[bool, str | None]:
    return caller.everyone, caller.tenant


def _reads(caller: Caller) -> tuple[bool, str | None, bool]:
    """Return the parameters for reading jobs; the last is whether webhook deliveries are included."""
    return caller.everyone, caller.tenant, caller.may("webhooks:read")


def _writes(caller: Caller) -> tuple[bool, str | None, bool]:
    """Return the parameters for changing jobs; the last is whether webhook deliveries are included."""
    return caller.everyone, caller.tenant, caller.may("webhooks:write")


def _own_only(caller: Caller) -> str:
    """Repeat may_see()'s condition in a form that can use an index."""
    return "" if caller.everyone else "AND tenant = %s"


def _own_tenant(caller: Caller) -> tuple[str | None, ...]:
    return () if caller.everyone else (caller.tenant,)
