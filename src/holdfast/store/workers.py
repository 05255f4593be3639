"""Calls of workers: register, renew, upkeep; what they did, and usage."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.errors import UsageError
from holdfast.model import payload
from holdfast.model.tick import Counts, Usage
from holdfast.model.view import EVERYTHING, View
from holdfast.store.call import Call, Row, array, dicts, first, firsts, one_dict, void
from holdfast.store.select import every, given, visible

_BY = {
    "tenant": "tenant",
    "task": "task",
    "minute": "minute",
    "hour": "date_trunc('hour', minute)",
    "day": "date_trunc('day', minute)",
}
Names = builtins.list[str]
Wanted = Literal["drain", "now"]


@dataclass(frozen=True, slots=True)
class UpkeepResult:
    """The result of one round of upkeep; term is None if another worker leads."""

    term: int | None
    promoted: int
    reclaimed: list[dict[str, Any]]
    expired: int
    next_slot: float | None  # seconds until a schedule comes due
    known: bool  # whether this worker has a row in workers
    asleep: bool  # whether it has a row in sleepers
    acting: bool  # whether there are actions to work on
    stop: Wanted | None  # what an operator has asked this worker to do


class WorkerCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def register(
        self, worker: str, host: str, pid: int, version: str, queues: Names, concurrency: int, tasks: builtins.list[Any]
    ) -> Call[Names]:
        return Call(
            f"SELECT {self.schema}.register_worker(%s, %s, %s, %s, %s, %s, %s::jsonb)",
            (worker, host, pid, version, queues, concurrency, msgspec.json.encode(tasks).decode()),
            lambda rows: list(rows[0][0]),
        )

    def unregister(self, worker: str, *, gone: bool) -> Call[None]:
        return void(self.schema, "unregister_worker", "%s, %s", worker, gone)

    def reclaim(self, worker: str) -> Call[int]:
        return Call(f"SELECT {self.schema}.reclaim_worker(%s)", (worker,), lambda rows: int(rows[0][0]))

    def sleep(self, worker: str, queues: Names, *, listens: bool) -> Call[float | None]:
        return Call(f"SELECT {self.schema}.sleep(%s, %s, %s)", (worker, queues, listens), lambda rows: rows[0][0])

    def renew(self, worker: str, tokens: Sequence[int], lease: float) -> Call[builtins.list[int]]:
        return Call(
            f"SELECT {self.schema}.renew(%s, %s::bigint[], make_interval(secs => %s))",
            (worker, array(tokens), lease),
            firsts,
        )

    def upkeep(self, worker: str, ttl: float) -> Call[UpkeepResult]:
        return Call(
            "SELECT term, promoted, reclaimed, expired, next_slot, known, asleep, acting, stop "
            f"FROM {self.schema}.upkeep(%s, make_interval(secs => %s))",
            (worker, ttl),
            lambda rows: UpkeepResult(*rows[0]),
        )

    def prune(self, limit: int = 1000) -> Call[tuple[int, int]]:
        return Call(
            f"SELECT partitions_dropped, rows_removed FROM {self.schema}.prune(%s)",
            (limit,),
            lambda rows: (rows[0][0], rows[0][1]),
        )

    def make_partitions(self) -> Call[int]:
        return Call(f"SELECT {self.schema}.make_partitions()", (), lambda rows: int(rows[0][0]))

    def list(self) -> Call[builtins.list[Row]]:
        """Return every worker, with the seconds since its last heartbeat, whether it counts as alive, its state (alive,
        draining, stopping or gone), and who asked it to stop, why and when."""
        return dicts(
            f"""SELECT id, host, pid, version, queues, concurrency, started_at, heartbeat_at,
                       extract(epoch FROM clock_timestamp() - heartbeat_at)::float8, stopping, alive,
                       CASE WHEN NOT alive THEN 'gone' WHEN s.now OR stopping AND s.worker IS NULL THEN 'stopping'
                            WHEN s.worker IS NOT NULL THEN 'draining' ELSE 'alive' END,
                       s.by, s.reason, s.requested_at
                FROM {self.schema}.workers w LEFT JOIN {self.schema}.worker_stops s ON s.worker = w.id
                CROSS JOIN LATERAL (SELECT {self.schema}.is_alive(id, heartbeat_at) AS alive OFFSET 0) a
                ORDER BY started_at, id""",
            "id, host, pid, version, queues, concurrency, started_at, heartbeat_at, heartbeat_age, stopping, alive, "
            "state, stop_by, stop_reason, stop_requested_at",
        )

    def stop(self, worker: str, *, now: bool, by: str | None, reason: str | None) -> Call[str | None]:
        """Ask a worker to stop; return its id, or None if there is no such worker."""
        for name, text in (("a worker", worker), ("by", by), ("reason", reason)):
            if text:
                payload.check_text(text, name, 1 << 20)
        return Call(f"SELECT {self.schema}.stop_worker(%s, %s, %s, %s)", (worker, now, by, reason), first)

    def running(self, limit: int = 10_000) -> Call[builtins.list[Row]]:
        """Return what each worker runs now: jobs, the tasks, seconds since the oldest was claimed and until the first
        lease expires. At most `limit` jobs are read."""
        return dicts(
            f"""SELECT worker, count(*), array_agg(DISTINCT task),
                       extract(epoch FROM {self.schema}.clock() - min(claimed_at))::float8,
                       extract(epoch FROM min(expires_at) - {self.schema}.clock())::float8
                FROM {self.schema}.claimed_jobs(NULL, %s) GROUP BY worker""",
            "worker, jobs, tasks, oldest, lease",
            (limit,),
        )

    def leader(self) -> Call[Row | None]:
        """Return the worker that does the upkeep, and by how many seconds it is late; None before the first."""
        call = dicts(
            f"""SELECT worker, extract(epoch FROM {self.schema}.clock() - expires_at)::float8
                FROM {self.schema}.leader WHERE chore = 'upkeep'""",
            "worker, late",
        )
        return Call(call.sql, call.params, lambda rows: next(iter(call.read(rows)), None))

    def expired_claims(self, grace: float) -> Call[Row]:
        """Return the leases that expired more than `grace` seconds ago and were not reclaimed."""
        return one_dict(
            f"""SELECT count(*), extract(epoch FROM clock_timestamp() - min(expires_at))::float8
                FROM {self.schema}.claims WHERE expires_at < clock_timestamp() - make_interval(secs => %s)""",
            "claims, oldest",
            (grace,),
        )

    def record_tick(
        self,
        worker: str,
        queues: Names,
        seconds: float,
        counts: Counts,
        tenants: Mapping[str, int],
        kind: str,
        depth_at_start: int | None,
    ) -> Call[tuple[str, int]]:
        """Store what a pass or a window did; return its id and the number of waiting jobs."""
        return Call(
            f"SELECT id::text, depth FROM {self.schema}.record_tick("
            "%s, %s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s, %s)",
            (worker, queues, seconds, *counts, msgspec.json.encode(tenants).decode(), kind, depth_at_start),
            lambda rows: (rows[0][0], rows[0][1]),
        )

    def count_waiting(self, queues: Names) -> Call[int]:
        """Count the waiting jobs of some queues; above 10,000 the count is an estimate."""
        return Call(f"SELECT {self.schema}.count_waiting(%s)", (queues,), lambda rows: int(rows[0][0]))

    def health(self) -> Call[builtins.list[Row]]:
        """Return the rows of the view worker_health_summary: each worker's last five minutes."""
        sql = f"SELECT to_jsonb(s) FROM {self.schema}.worker_health_summary s ORDER BY s.worker_id"
        return Call(sql, (), lambda rows: [row[0] for row in rows])

    def usage(
        self,
        by: Sequence[str],
        *,
        since: float | datetime,
        until: datetime | None = None,
        tenant: str | None = None,
        task: str | None = None,
        limit: int,
        view: View = EVERYTHING,
    ) -> Call[builtins.list[Usage]]:
        """Return the usage of the last `since` seconds, or since a time, summed by tenant, task, minute, hour or day.

        The newest time comes first, then the most run seconds. Only the last minutes are kept one by one, so an
        earlier `since` counts from the beginning of its ten minutes, or of its hour after two hours.
        """
        if unknown := [each for each in by if each not in _BY]:
            raise UsageError(f"usage can be summed by {', '.join(_BY)}, got {unknown[0]!r}")
        shown = [f"{_BY[each]} AS {each}" for each in by]
        sums = ["sum(runs)::int8", "sum(failures)::int8", "sum(run_seconds)", "sum(queue_seconds)"]
        order = [f"{n + 1} DESC" for n, each in enumerate(by) if each in ("minute", "hour", "day")]
        ago = f"{self.schema}.clock() - make_interval(secs => %s)"
        began = f"SELECT {'%s::timestamptz' if isinstance(since, datetime) else ago} AS at"
        age = f"{self.schema}.clock() - b.at"
        unit = (
            f"CASE WHEN {age} > '2 hours' THEN '1 hour'::interval WHEN {age} > '10 minutes' THEN '10 minutes' "
            "ELSE '1 minute' END"
        )
        where = every(
            (
                given(f"minute >= (SELECT date_bin({unit}, b.at, '2000-01-01Z') FROM ({began}) b)", since),
                given("minute < %s", until),
                given("tenant = %s", tenant),
                given("task = %s", task),
                visible(self.schema, view),
            )
        )
        group = ", ".join(str(n + 1) for n in range(len(by)))
        return Call(
            f"SELECT {', '.join([*shown, *sums])} FROM {self.schema}.usage_counts WHERE {where.sql} "
            f"{f'GROUP BY {group}' if by else 'HAVING count(*) > 0'} "
            f"ORDER BY {', '.join([*order, f'{len(by) + 3} DESC', '1'])} LIMIT %s",
            (*where.params, limit),
            lambda rows: [Usage(dict(zip(by, row, strict=False)), *row[len(by) :]) for row in rows],
        )
