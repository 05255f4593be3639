"""The queues: depth, rates and waits; pause and resume."""

from __future__ import annotations

import asyncio
from datetime import datetime

from holdfast.web.dashboard.form import Form
from holdfast.web.dashboard.history import MINUTES, history
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.fields import LongText, Queue, Seconds
from holdfast.web.routing import EXPLAINS, OPERATES

COUNTS = ("ready", "running", "later", "dead", "ended", "failed")
WAITS = ("oldest_wait", "p50", "p95", "p99")
EMPTY: Values = {"estimated": [], **dict.fromkeys(COUNTS, 0), **dict.fromkeys(WAITS)}
section = Section("Queues", "/queues", key="q", needs=EXPLAINS)


class Pause(Form):
    """A pause of one queue: for some minutes, or until it is resumed."""

    queue: Queue
    reason: LongText | None = None
    minutes: Seconds | None = None


class Resume(Form):
    queue: Queue


@section.page("/queues", "queues.html", EXPLAINS)
async def show(visit: Visit) -> Values:
    """Show all queues."""
    return {"title": "Queues"} | await read(visit)


async def read(visit: Visit) -> Values:
    """Return the queues of the newest snapshot with their pauses, and their last hour."""
    limits = visit.calls.limits.list("queue:", limit=500)
    figures, minutes, keys = await asyncio.gather(
        visit.figures(), visit.shared(visit.calls.figures.minutes(60 * (MINUTES + 2)), 10.0), visit.shared(limits, 5.0)
    )
    paused = {each.key.removeprefix("queue:"): each for each in keys if each.paused}
    known = {queue["queue"] for queue in figures["queues"]}
    unused = [{**EMPTY, "queue": name} for name in sorted(paused.keys() - known)]
    at = datetime.fromisoformat(figures["at"])
    return {"queues": figures["queues"] + unused, "paused": paused, "history": history(minutes, at)}


@section.action("/queues/pause", OPERATES)
async def pause(visit: Visit, form: Pause) -> Done:
    """Stop starting jobs of a queue."""
    seconds = None if form.minutes is None else 60 * form.minutes
    await visit.run(visit.calls.limits.pause(f"queue:{form.queue}", visit.caller.name, form.reason, seconds))
    visit.forget()
    return Done("/queues", f"Paused {form.queue}: no more of its jobs start; those that run go on.")


@section.action("/queues/resume", OPERATES)
async def resume(visit: Visit, form: Resume) -> Done:
    """Let jobs of a queue start again."""
    await visit.run(visit.calls.limits.resume(f"queue:{form.queue}"))
    visit.forget()
    return Done("/queues", f"Resumed {form.queue}.")
