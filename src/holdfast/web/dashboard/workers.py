"""The workers: where they run, what they serve and run now, their heartbeats and leases; stop one."""

from __future__ import annotations

import asyncio
from typing import Literal

from holdfast.web.dashboard.form import ReasonForm
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.fields import Name
from holdfast.web.routing import EXPLAINS, OPERATES

SLOW = 2.0  # seconds for which figures are shared
IDLE: Values = {"jobs": 0, "tasks": [], "oldest": None, "lease": None}
section = Section("Workers", "/workers", key="w", needs=EXPLAINS)


class Stop(ReasonForm, kw_only=True):
    """A worker that is to finish its jobs and end, or with `now` to release them at once."""

    worker: Name
    now: Literal["yes"] | None = None


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
        "workers": [{**IDLE, **jobs.get(each["id"], {}), **each} for each in workers],
        "leader": leader["worker"] if leader is not None and leader["late"] <= 0 else None,
        "lost": [each for name, each in jobs.items() if name not in known],
    }


@section.action("/workers/stop", OPERATES)
async def stop(visit: Visit, form: Stop) -> Done:
    """Ask a worker to stop."""
    now = form.now is not None
    call = visit.calls.workers.stop(form.worker, now=now, by=visit.caller.name, reason=form.reason)
    found = await visit.found(call, "worker", form.worker)
    visit.forget()
    how = "releases its jobs and ends" if now else "claims nothing more, finishes its jobs and ends"
    return Done("/workers", f"Within a few seconds {found} {how}.")
