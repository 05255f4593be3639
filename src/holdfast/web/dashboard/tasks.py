"""The tasks: how many jobs each has, rates, waits and failures; pause and resume."""

from __future__ import annotations

import asyncio

from holdfast.web.dashboard import pauses
from holdfast.web.dashboard.section import Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.routing import EXPLAINS

COUNTS = ("ready", "running", "later", "dead", "ended", "failed")
EMPTY: Values = {"estimated": [], **dict.fromkeys(COUNTS, 0), "run_seconds": 0.0, "p50": None, "p95": None}
section = Section("Tasks", "/tasks", key="t", needs=EXPLAINS)
pauses.offer(section, "task")


@section.page("/tasks", "tasks.html", EXPLAINS)
async def show(visit: Visit) -> Values:
    """Show the tasks of the newest snapshot, and those that are paused."""
    stops = visit.calls.limits.paused("task:", pauses.MOST)
    figures, keys = await asyncio.gather(visit.figures(), visit.shared(stops, 5.0))
    paused = pauses.by_name("task", keys)
    known = {each["task"] for each in figures["tasks"]}
    unused = [{**EMPTY, "task": name} for name in sorted(paused.keys() - known)]
    return {"title": "Tasks", "tasks": figures["tasks"] + unused, "paused": paused}
