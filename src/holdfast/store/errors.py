"""Calls on errors: groups of failures, the failed attempts of a job, and what its handlers wrote to its log."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import Any

import msgspec

from holdfast.model import webhook
from holdfast.model.failure import AttemptLog, ErrorGroup, FailedAttempt
from holdfast.model.view import EVERYTHING, View
from holdfast.store.call import Call, Rows
from holdfast.store.select import HIDDEN, Where, every, given, visible_jobs

_COLUMNS = (
    "fingerprint, task, type, code, message, frame, attempts, dead, first_at, last_at, "
    "example_job::text, example, trend"
)
# The groups of the newest 10,000 dead jobs of a view. The view `errors` counts the failures of all tenants.
_OF_VIEW = f"""
WITH newest AS MATERIALIZED (
    SELECT t.id, t.fingerprint, t.finished_at FROM {{schema}}.dead t WHERE {{where}}
    ORDER BY t.finished_at DESC, t.id LIMIT 10000),
hours AS (
    SELECT h.fingerprint, jsonb_object_agg(to_char(h.hour, 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), h.jobs) AS trend
    FROM (SELECT n.fingerprint, date_trunc('hour', n.finished_at AT TIME ZONE 'UTC') AS hour, count(*) AS jobs
          FROM newest n WHERE n.finished_at > {{schema}}.clock() - interval '48 hours' GROUP BY 1, 2) h
    GROUP BY h.fingerprint)
SELECT g.fingerprint, j.task, j.error ->> 'type' AS type, j.error ->> 'code' AS code,
       left(j.error ->> 'message', 500) AS message, NULL::text AS frame, g.dead AS attempts, g.dead, g.first_at,
       g.last_at, g.job AS example_job, j.error AS example, coalesce(h.trend, '{{{{}}}}') AS trend
FROM (SELECT n.fingerprint, count(*) AS dead, min(n.finished_at) AS first_at, max(n.finished_at) AS last_at,
             (array_agg(n.id ORDER BY n.finished_at DESC, n.id))[1] AS job FROM newest n GROUP BY n.fingerprint) g
CROSS JOIN LATERAL (
    SELECT d.task, CASE jsonb_typeof(d.last_error) WHEN 'object' THEN d.last_error {HIDDEN} ELSE d.last_error END
           AS error FROM {{schema}}.dead d WHERE d.id = g.job) j
LEFT JOIN hours h ON h.fingerprint = g.fingerprint"""


class ErrorCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def list(
        self, *, task: str | None = None, limit: int = 50, view: View = EVERYTHING
    ) -> Call[builtins.list[ErrorGroup]]:
        """Return the groups with the latest failures; for a tenant's view, of its newest 10,000 dead jobs."""
        return self._select(given("task = %s", task), limit, view)

    def get(self, fingerprint: str, view: View = EVERYTHING) -> Call[ErrorGroup | None]:
        found = self._select(given("fingerprint = %s", fingerprint), 1, view)
        return Call(found.sql, found.params, lambda rows: next(iter(_groups(rows)), None), prepare=False)

    def _select(self, some: Where, limit: int, view: View) -> Call[builtins.list[ErrorGroup]]:
        source, params = self._source(view)
        shown = some & given("task <> %s", None if view.reads_deliveries else webhook.TASK)
        return Call(
            f"SELECT {_COLUMNS} FROM {source} e WHERE {shown.sql} ORDER BY last_at DESC, fingerprint LIMIT %s",
            (*params, *shown.params, limit),
            _groups,
            prepare=False,
        )

    def _source(self, view: View) -> tuple[str, tuple[Any, ...]]:
        if view.everyone:
            return f"{self.schema}.errors", ()
        where = every((visible_jobs(self.schema, view), given("t.tenant = %s", view.tenant)))
        return f"({_OF_VIEW.format(schema=self.schema, where=where.sql)})", where.params

    def dead_ids(
        self, fingerprint: str, *, limit: int, after: str | None = None, view: View = EVERYTHING
    ) -> Call[builtins.list[str]]:
        """Return the dead jobs of a group in the order of their ids."""
        parts = given("fingerprint = %s", fingerprint), given("id > %s::uuid", after), visible_jobs(self.schema, view)
        some = every(parts)
        return Call(
            f"SELECT id::text FROM {self.schema}.dead WHERE {some.sql} ORDER BY id LIMIT %s",
            (*some.params, limit),
            lambda rows: [row[0] for row in rows],
        )

    def of_job(self, id_: str) -> Call[builtins.list[FailedAttempt]]:
        """Return the last 20 failed attempts of a job, the oldest first."""
        return Call(
            f"SELECT failures FROM {self.schema}.jobs WHERE id = %s::uuid",
            (id_,),
            lambda rows: msgspec.convert((rows[0][0] if rows else None) or [], builtins.list[FailedAttempt]),
        )

    def log(self, id_: str) -> Call[builtins.list[AttemptLog]]:
        """Return what the handlers of a job's last five attempts wrote, the oldest first."""
        return Call(
            f"SELECT attempt, started_at, lines FROM {self.schema}.job_logs WHERE id = %s::uuid ORDER BY token",
            (id_,),
            lambda rows: [AttemptLog.of(*row) for row in rows],
        )


def _groups(rows: Rows) -> list[ErrorGroup]:
    return [ErrorGroup(*[*row[:-1], msgspec.convert(row[-1], dict[datetime, int])]) for row in rows]
