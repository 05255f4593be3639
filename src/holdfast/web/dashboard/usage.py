"""Usage: what each tenant and task used in a span of time, and the same as CSV."""

from __future__ import annotations

import asyncio
import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from starlette.responses import Response

from holdfast.model.tick import Usage
from holdfast.store.call import Call
from holdfast.web.dashboard import paging
from holdfast.web.dashboard.section import Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.fields import Moment, Name, Query, Since
from holdfast.web.problems import Problem
from holdfast.web.routing import READS

section = Section("Usage", "/usage", key="u", needs=READS)
FRESH = 10.0  # seconds for which viewers share the sums
LONGEST = 92  # days
MOST = 200  # rows of the page
MOST_CSV = 10_000
DAY = 86_400.0
BY = ("tenant,task", "tenant", "task", "tenant,day", "task,day", "day", "hour")
SPANS = ("1h", "24h", "7d", "30d", "90d")
SUMS = ("runs", "failures", "run_seconds", "queue_seconds")
By = Literal["tenant,task", "tenant", "task", "tenant,day", "task,day", "day", "hour"]


class ListUsage(Query):
    by: By = "tenant,task"
    since: Since | None = None
    until: Moment | None = None
    tenant: Name | None = None
    task: Name | None = None


@section.page("/usage", "usage.html", READS)
async def show(visit: Visit, query: ListUsage) -> Values:
    """Show the largest sums, and the runs over time."""
    by, times = query.by.split(","), ["hour"] if length(query) <= 3 * DAY else ["day"]
    rows, over_time = await asyncio.gather(
        visit.shared(sums(visit, query, by, MOST + 1), FRESH), visit.shared(sums(visit, query, times, MOST), FRESH)
    )
    now = datetime.now(UTC)
    return {
        "title": "Usage",
        "rows": rows[:MOST],
        "more": len(rows) > MOST,
        "names": by,
        "times": filled(over_time, times[0], query.since or now - timedelta(seconds=DAY), min(query.until or now, now)),
        "unit": times[0],
        "most": MOST,
        "most_csv": MOST_CSV,
        "totals": {name: sum(getattr(each, name) for each in over_time) for name in SUMS},
        "given": paging.filters(visit, "by", "since", "until", "tenant", "task"),
        "choices": BY,
        "spans": SPANS,
        "csv": visit.url("/usage.csv", **paging.filters(visit, "by", "since", "until", "tenant", "task")),
    }


@section.page("/usage.csv", "", READS)
async def download(visit: Visit, query: ListUsage) -> Response:
    """Return the sums as CSV."""
    by = query.by.split(",")
    found = await visit.shared(sums(visit, query, by, MOST_CSV + 1), FRESH)
    headers = {"Content-Disposition": 'attachment; filename="usage.csv"'}
    return Response(table(by, found), headers=headers, media_type="text/csv; charset=utf-8")


def sums(visit: Visit, query: ListUsage, by: list[str], limit: int) -> Call[list[Usage]]:
    """Return the call that sums the usage of the viewer's tenants."""
    if length(query) > LONGEST * DAY:
        raise Problem(422, f"query.since: at most {LONGEST} days are summed here; holdfast usage sums more")
    where: dict[str, Any] = {"until": query.until, "tenant": query.tenant, "task": query.task, "view": visit.view}
    return visit.calls.workers.usage(by, since=query.since or DAY, limit=limit, **where)


def length(query: ListUsage) -> float:
    """Return the seconds from the beginning of the span until now."""
    return DAY if query.since is None else (datetime.now(UTC) - query.since).total_seconds()


def filled(rows: list[Usage], unit: str, since: datetime, until: datetime) -> list[Usage]:
    """Return the usage of each hour or day of a span, oldest first, in the time zone of the database's session."""
    zone = rows[0].by[unit].tzinfo if rows else UTC
    known = {each.by[unit].timestamp(): each for each in rows}
    newest = max(known, default=0.0)  # may be later than now: the database has a clock of its own
    at, found = since.astimezone(zone).replace(minute=0, second=0, microsecond=0), []
    at = at.replace(hour=0) if unit == "day" else at
    while at < until or at.timestamp() <= newest:
        found.append(known.get(at.timestamp()) or Usage({unit: at}, 0, 0, 0.0, 0.0))
        at = at + timedelta(days=1) if unit == "day" else (at.astimezone(UTC) + timedelta(hours=1)).astimezone(zone)
    return found


def table(by: list[str], rows: list[Usage]) -> str:
    """Return rows as CSV that no spreadsheet reads as formulas. The last line says if there are more."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*by, *SUMS])
    for row in rows[:MOST_CSV]:
        writer.writerow([*(text(row.by[name]) for name in by), *(getattr(row, name) for name in SUMS)])
    if len(rows) > MOST_CSV:
        writer.writerow([f"the first {MOST_CSV} rows; for the others choose a shorter span or one tenant or task"])
    return out.getvalue()


def text(value: Any) -> str:
    """Return a value for a spreadsheet: one that begins as a formula does is quoted."""
    shown = value.isoformat() if isinstance(value, datetime) else str(value)
    return f"'{shown}" if shown[:1] in ("=", "+", "-", "@", "\t", "\r") else shown
