"""Calls of telemetry: ticks and windows, levels, usage. See calls.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.errors import UsageError
from holdfast.model.tick import Counts, Figures, Level, Usage
from holdfast.model.token import Caller
from holdfast.store.calls import Call

_BY = {"tenant": "tenant", "task": "task", "minute": "minute", "hour": "date_trunc('hour', minute)",
       "day": "date_trunc('day', minute)"}  # fmt: skip
STATES = ("ready", "running", "later", "dead")


class TelemetryCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def record_tick(
        self, worker: str, queues: list[str], seconds: float, counts: Counts, tenants: Mapping[str, int], kind: str,
        depth_at_start: int | None,
    ) -> Call[tuple[str, int]]:  # fmt: skip
        """Store what a pass or a window did; return its id and the number of waiting jobs."""
        return Call(
            f"SELECT id::text, depth FROM {self.schema}.record_tick("
            "%s, %s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s, %s)",
            (worker, queues, seconds, *counts, msgspec.json.encode(tenants).decode(), kind, depth_at_start),
            lambda rows: (rows[0][0], rows[0][1]),
        )

    def count_waiting(self, queues: list[str]) -> Call[int]:
        """Count the waiting jobs of some queues; above 10,000 the count is an estimate."""
        return Call(f"SELECT {self.schema}.count_waiting(%s)", (queues,), lambda rows: int(rows[0][0]))

    def levels(self) -> Call[list[Level]]:
        """Return the metrics of the last five minutes and their levels."""
        return Call(
            f"SELECT metric, value, level, warning, critical FROM {self.schema}.health_levels",
            (),
            lambda rows: [Level(*row) for row in rows],
        )

    def health(self) -> Call[list[dict[str, Any]]]:
        """Return the rows of the view worker_health_summary: each worker's last five minutes."""
        sql = f"SELECT to_jsonb(s) FROM {self.schema}.worker_health_summary s ORDER BY s.worker_id"
        return Call(sql, (), lambda rows: [row[0] for row in rows])

    def figures(self, limit: int, others: str) -> Call[Figures]:
        """Return jobs by queue, live workers and levels, in one statement. The fullest queues have a row each, the rest
        share one. Counts of large tables are estimates, which bounds the cost."""
        states = ", ".join(f"'{each}', sum({each})" for each in STATES)
        return Call(
            "SELECT (SELECT jsonb_object_agg(name, n) FROM ("
            "SELECT CASE WHEN place <= %s THEN queue ELSE %s END, "
            f"jsonb_build_object({states}, 'wait', max(wait), 'estimated', jsonb_agg(DISTINCT estimated)) FROM ("
            "SELECT *, coalesce(extract(epoch FROM oldest_wait), 0)::float8 AS wait, "
            "row_number() OVER (ORDER BY ready + running + later + dead DESC, queue) AS place "
            f"FROM {self.schema}.queue_depth) q GROUP BY 1) by_queue (name, n)), "
            f"(SELECT count(*) FROM {self.schema}.workers WHERE {self.schema}.is_alive(id, heartbeat_at)), "
            f"(SELECT jsonb_agg(jsonb_build_array(metric, value, level)) FROM {self.schema}.health_levels)",
            (limit, others),
            lambda rows: _figures(*rows[0]),
        )

    def usage(
        self,
        by: Sequence[str],
        *,
        since: float | datetime,
        until: datetime | None = None,
        tenant: str | None = None,
        task: str | None = None,
        limit: int,
        who: Caller | None = None,
    ) -> Call[list[Usage]]:
        """Return the usage of the last `since` seconds, or since a time, summed by tenant, task, minute, hour or day.

        The newest time comes first, then the most run seconds. With `who`, count only what that caller may see.
        """
        if unknown := [each for each in by if each not in _BY]:
            raise UsageError(f"usage is summed by {', '.join(_BY)}, got {unknown[0]!r}")
        shown = [f"{_BY[each]} AS {each}" for each in by]
        sums = ["sum(runs)::int8", "sum(failures)::int8", "sum(run_seconds)", "sum(queue_seconds)"]
        order = [f"{n + 1} DESC" for n, each in enumerate(by) if each in ("minute", "hour", "day")]
        sql = (
            f"SELECT {', '.join([*shown, *sums])} FROM {self.schema}.usage_counts "
            f"WHERE minute >= date_trunc('minute', coalesce(%s, {self.schema}.clock() - make_interval(secs => %s))) "
            "AND (%s::timestamptz IS NULL OR minute < %s) "
            "AND (%s::text IS NULL OR tenant = %s) AND (%s::text IS NULL OR task = %s) "
            f"AND {self.schema}.may_see(%s, %s, tenant) "
            f"{'GROUP BY ' + ', '.join(str(n + 1) for n in range(len(by))) if by else 'HAVING count(*) > 0'} "
            f"ORDER BY {', '.join([*order, f'{len(by) + 3} DESC', '1'])} LIMIT %s"
        )
        span = (since, 0.0) if isinstance(since, datetime) else (None, since)
        visible = (True, None) if who is None else (who.everyone, who.tenant)
        return Call(
            sql,
            (*span, until, until, tenant, tenant, task, task, *visible, limit),
            lambda rows: [Usage(dict(zip(by, row, strict=False)), *row[len(by) :]) for row in rows],
        )


def _figures(queues: dict[str, Any] | None, workers: int, levels: list[list[Any]]) -> Figures:
    every = queues or {}
    jobs = {queue: {state: each[state] for state in STATES} for queue, each in every.items()}
    waits = {queue: each["wait"] for queue, each in every.items()}
    estimated = {name for each in every.values() for names in each["estimated"] for name in names}
    return Figures(jobs, waits, workers, [Level(*each) for each in levels], estimated)
