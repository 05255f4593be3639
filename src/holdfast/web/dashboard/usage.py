"""Usage: what each tenant and task used in a span of time, and the same as CSV."""

from __future__ import annotations

import asyncio
import csv
import io
from datetime import UTC, datetime
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
        visit.shared(sums(visit, query, by, MOST), FRESH), visit.shared(sums(visit, query, times, MOST), FRESH)
    )
    return {
        "title": "Usage",
        "rows": rows,
        "names": by,
        "times": over_time[::-1],
        "unit": times[0],
        "most": MOST,
        "totals": {name: sum(getattr(each, name) for each in over_time) for name in SUMS},
        "given": paging.filters(visit, "by", "since", "tenant", "task"),
        "choices": BY,
        "spans": SPANS,
        "csv": visit.url("/usage.csv", **paging.filters(visit, "by", "since", "until", "tenant", "task")),
    }


@section.page("/usage.csv", "", READS)
async def download(visit: Visit, query: ListUsage) -> Response:
    """Return the sums as CSV."""
    by = query.by.split(",")
    found = await visit.shared(sums(visit, query, by, MOST_CSV), FRESH)
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


def table(by: list[str], rows: list[Usage]) -> str:
    """Return rows as CSV that no spreadsheet reads as formulas."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*by, *SUMS])
    for row in rows:
        writer.writerow([*(text(row.by[name]) for name in by), *(getattr(row, name) for name in SUMS)])
    return out.getvalue()


def text(value: Any) -> str:
    """Return a value for a spreadsheet: one that begins as a formula does is quoted."""
    shown = value.isoformat() if isinstance(value, datetime) else str(value)
    return f"'{shown}" if shown[:1] in ("=", "+", "-", "@", "\t", "\r") else shown
