"""The queues: depth, rates and waits; pause and resume."""

from __future__ import annotations

import asyncio
from datetime import datetime

from holdfast.model.health import lacks
from holdfast.web.dashboard import pauses
from holdfast.web.dashboard.history import MINUTES, history
from holdfast.web.dashboard.section import Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.routing import EXPLAINS

COUNTS = ("ready", "running", "later", "dead", "ended", "failed")
WAITS = ("oldest_wait", "p50", "p95", "p99")
EMPTY: Values = {"estimated": [], "lacks": "", **dict.fromkeys(COUNTS, 0), **dict.fromkeys(WAITS)}
WORKERS = 5.0  # seconds for which the list of workers is shared
section = Section("Queues", "/queues", key="q", needs=EXPLAINS)
pauses.offer(section, "queue")


@section.page("/queues", "queues.html", EXPLAINS)
async def show(visit: Visit) -> Values:
    """Show all queues."""
    return {"title": "Queues"} | await read(visit)


async def read(visit: Visit) -> Values:
    """Return the queues of the newest snapshot with their pauses, and their last hour."""
    stops = visit.calls.limits.paused("queue:", pauses.MOST)
    figures, minutes, keys, workers = await asyncio.gather(
        visit.figures(),
        visit.shared(visit.calls.figures.minutes(60 * (MINUTES + 2)), 10.0),
        visit.shared(stops, 5.0),
        visit.shared(visit.calls.workers.list(), WORKERS),
    )
    paused = pauses.by_name("queue", keys)
    known = {queue["queue"] for queue in figures["queues"]}
    unused = [{**EMPTY, "queue": name} for name in sorted(paused.keys() - known)]
    at = datetime.fromisoformat(figures["at"])
    known_queues = [{**each, "lacks": lacks(each, workers)} for each in figures["queues"]]
    return {"queues": known_queues + unused, "paused": paused, "history": history(minutes, at)}
