"""Schedules: next and last slot, and why one does not fire; run now, pause, resume, remove."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from holdfast.web.dashboard.form import ReasonForm
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.problems import Problem
from holdfast.web.routing import EXPLAINS, OPERATES

section = Section("Schedules", "/schedules", key="s", needs=EXPLAINS)
LATE = 60.0  # seconds after which a slot that has not fired is worth a warning
MISSED = {"skip": "leaves out late slots", "once": "fires the latest missed slot", "all": "fires each missed slot"}
ScheduleName = Annotated[str, Meta(min_length=1, max_length=500, pattern="^[^\\x00]*$")]


class ScheduleForm(ReasonForm, kw_only=True):
    """A schedule, and why it is changed."""

    name: ScheduleName


@section.page("/schedules", "schedules.html", EXPLAINS)
async def show(visit: Visit) -> Values:
    """Show all schedules, by name."""
    found = await visit.shared(visit.calls.schedules.list(), 2.0)
    return {"title": "Schedules", "schedules": found, "late": LATE, "missed": MISSED}


@section.action("/schedules/run", OPERATES)
async def run(visit: Visit, form: ScheduleForm) -> Done:
    """Enqueue a schedule's job now, besides its slots."""
    job = await visit.run(visit.calls.schedules.run(form.name, visit.caller.name, form.reason))
    _check(form, job is not None)
    return _done(visit, f"Enqueued job {job} of {form.name}.")


@section.action("/schedules/pause", OPERATES)
async def pause(visit: Visit, form: ScheduleForm) -> Done:
    """Stop firing a schedule."""
    calls = visit.calls.schedules
    _check(form, await visit.run(calls.pause(form.name, paused=True, by=visit.caller.name, reason=form.reason)))
    return _done(visit, f"Paused {form.name}: slots that pass are skipped until it is resumed.")


@section.action("/schedules/resume", OPERATES)
async def resume(visit: Visit, form: ScheduleForm) -> Done:
    """Fire a schedule again, from its next slot."""
    calls = visit.calls.schedules
    _check(form, await visit.run(calls.pause(form.name, paused=False, by=visit.caller.name, reason=form.reason)))
    return _done(visit, f"Resumed {form.name} with its next slot.")


@section.action("/schedules/remove", OPERATES)
async def remove(visit: Visit, form: ScheduleForm) -> Done:
    """Remove a schedule that no code declares any more."""
    _check(form, await visit.run(visit.calls.schedules.remove(form.name, visit.caller.name, form.reason)))
    return _done(visit, f"Removed {form.name}. A worker whose code declares it registers it again when it starts.")


def _check(form: ScheduleForm, found: bool) -> None:
    if not found:
        raise Problem(404, f"there is no schedule {form.name[:100]!r}; it may have been removed")


def _done(visit: Visit, text: str) -> Done:
    visit.forget()
    return Done("/schedules", text)
