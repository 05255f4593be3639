"""The workers: where they run, what they serve and run now, their heartbeats and leases."""

from __future__ import annotations

import asyncio

from holdfast.web.dashboard.section import Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.routing import EXPLAINS

SLOW = 2.0  # seconds for which figures are shared
IDLE: Values = {"jobs": 0, "tasks": [], "oldest": None, "lease": None}
section = Section("Workers", "/workers", key="w", needs=EXPLAINS)


@section.page("/workers", "workers.html", EXPLAINS)
async def show(visit: Visit) -> Values:
    """Show every worker; those that are gone until upkeep removes them."""
    calls = visit.calls.workers
    workers, running, leader = await asyncio.gather(
        visit.shared(calls.list(), SLOW), visit.shared(calls.running(), SLOW), visit.shared(calls.leader(), SLOW)
    )
    jobs = {each["worker"]: each for each in running}
    known = {each["id"] for each in workers}
    return {
        "title": "Workers",
        "workers": [{**IDLE, **jobs.get(each["id"], {}), **each, "state": state(each)} for each in workers],
        "leader": leader["worker"] if leader is not None and leader["late"] <= 0 else None,
        "lost": [each for name, each in jobs.items() if name not in known],
    }


def state(worker: Values) -> str:
    """Return whether a worker is alive, stopping or gone."""
    return "gone" if not worker["alive"] else "stopping" if worker["stopping"] else "alive"
