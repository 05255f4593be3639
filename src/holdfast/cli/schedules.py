"""`holdfast schedules`: list, pause, resume, run and remove schedules, which are made in code."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import render
from holdfast.cli.commands import Commands
from holdfast.cli.options import AsJson, Author
from holdfast.errors import ConfigurationError
from holdfast.model.schedule import Cron, ScheduleInfo, local_time

if TYPE_CHECKING:
    from holdfast.client import Holdfast

group = Commands(invoke_without_command=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
HELP = """List periodic jobs; pause, resume, run and remove them.

Schedules are made in code, with task.schedule(NAME, CRON), and registered by workers when they start.
"""


@group.listing(help=HELP, epilog="Example: holdfast schedules --json")
@group.command("list", epilog="Example: holdfast schedules list --json")
def list_schedules(hf: Holdfast, as_json: AsJson = False) -> None:
    """List every schedule with its next slot, in the schedule's own time zone, and the last job it made."""
    found = hf.schedules.list()
    if as_json:
        render.emit_json([_as_json(each) for each in found])
        return
    columns = "name, ~task, cron, zone, missed, next slot, #in, ~last job, ~registered=registered_at, ~note"
    empty = "no schedules; make one in code, task.schedule(NAME, CRON), and start a worker"
    render.show_list(found, columns, _more, as_json=False, head=3, empty=empty)


@group.command(epilog="Example: holdfast schedules pause nightly-report")
def pause(hf: Holdfast, name: Name, author: Author, as_json: AsJson = False) -> None:
    """Pause a schedule until it is resumed, even across restarts of workers."""
    hf.schedules.pause(name, **author)
    _report(name, "paused", as_json)


@group.command(epilog="Example: holdfast schedules resume nightly-report")
def resume(hf: Holdfast, name: Name, author: Author, as_json: AsJson = False) -> None:
    """Resume a paused schedule with its next slot; missed slots are skipped."""
    hf.schedules.resume(name, **author)
    _report(name, "resumed", as_json)


@group.command(epilog="Example: holdfast schedules run nightly-report")
def run(hf: Holdfast, name: Name, author: Author, as_json: AsJson = False) -> None:
    """Enqueue a schedule's job once, now; its slots stay as they are."""
    job = hf.schedules.run(name, **author)
    render.show_result({"name": name, "job": job}, job, as_json=as_json)


@group.command(epilog="Example: holdfast schedules remove nightly-report")
def remove(hf: Holdfast, name: Name, author: Author, as_json: AsJson = False) -> None:
    """Remove a schedule that is no longer in the code; otherwise the next worker to start registers it again."""
    hf.schedules.remove(name, **author)
    _report(name, "removed", as_json)


def _report(name: str, outcome: str, as_json: bool) -> None:
    render.show_result({"name": name, "outcome": outcome}, f"{outcome} {name}", as_json=as_json)


def _more(it: ScheduleInfo) -> dict[str, Any]:
    slot, note = _look(it)
    wait = "" if slot is None else "due" if slot <= it.now else render.duration((slot - it.now).total_seconds())
    return {"next slot": _local(slot, it.zone), "in": wait, "note": note}


def _as_json(it: ScheduleInfo) -> dict[str, Any]:
    slot, note = _look(it)
    names = (
        "name, task, cron, zone, missed, payload, options, paused, next_slot, in_seconds, last_slot=last_at, last_job, "
        "last_registered=registered_at, note"
    )
    wait = None if slot is None else (slot - it.now).total_seconds()
    return render.pick(it, names) | {"next_slot": slot, "in_seconds": wait, "note": note}


def _look(it: ScheduleInfo) -> tuple[datetime | None, str]:
    """Return the next slot, and a note."""
    if it.paused:
        return None, "paused"
    try:
        slot = None if it.next_at is None else next(Cron(it.cron, it.zone).slots(it.next_at), None)
    except ConfigurationError as error:
        return it.next_at, it.problem or str(error)
    return slot, it.problem or _worker_missing(it)


def _worker_missing(it: ScheduleInfo) -> str:
    """Return what keeps its jobs from running: that no live worker has the task, or serves the queue."""
    if not it.live:
        return "no live worker has this task"
    return "" if it.served else f"no live worker serves queue {it.queue}"


def _local(moment: datetime | None, zone: str) -> str:
    """Return a time in the schedule's zone, with its offset, because an hour can occur twice."""
    if moment is None:
        return ""
    try:
        return f"{local_time(moment, zone):%Y-%m-%d %H:%M:%S%z}"
    except ConfigurationError:
        return render.when(moment)
