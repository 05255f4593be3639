"""`holdfast schedules`: list, pause, resume, run and remove schedules, which are made in code."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeVar

import typer

from holdfast.cli import render
from holdfast.cli.commands import Commands
from holdfast.cli.database import Database
from holdfast.cli.options import AsJson
from holdfast.errors import ConfigurationError, UnknownSchedule
from holdfast.model.schedule import Cron, ScheduleInfo, local_time
from holdfast.store.call import Call

T = TypeVar("T")
group = Commands(invoke_without_command=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


@group.listing(epilog="Example: holdfast schedules --json")
def show_schedules(db: Database, as_json: AsJson = False) -> None:
    """List periodic jobs; pause, resume, run and remove them.

    Schedules are made in code, with task.schedule(NAME, CRON), and registered by workers when they start.
    """
    list_schedules(db, as_json)


@group.command("list", epilog="Example: holdfast schedules list --json")
def list_schedules(db: Database, as_json: AsJson = False) -> None:
    """List every schedule with its next slot, in the schedule's own time zone, and the last job it made."""
    found = db.run(db.calls.schedules.list())
    if as_json:
        render.emit_json([_as_json(each) for each in found])
        return
    columns = ("name", "~task", "cron", "zone", "missed", "next slot", "#in", "~last job", "~registered", "~note")
    empty = "no schedules; make one in code, task.schedule(NAME, CRON), and start a worker"
    render.show_rows(columns, map(_row, found), head=3, empty=empty)


@group.command(epilog="Example: holdfast schedules pause nightly-report")
def pause(db: Database, name: Name, as_json: AsJson = False) -> None:
    """Pause a schedule until it is resumed, even across restarts of workers."""
    _found(db, name, db.calls.schedules.pause(name, paused=True))
    _report(name, "paused", as_json)


@group.command(epilog="Example: holdfast schedules resume nightly-report")
def resume(db: Database, name: Name, as_json: AsJson = False) -> None:
    """Resume a paused schedule with its next slot; missed slots are skipped."""
    _found(db, name, db.calls.schedules.pause(name, paused=False))
    _report(name, "resumed", as_json)


@group.command(epilog="Example: holdfast schedules run nightly-report")
def run(db: Database, name: Name, as_json: AsJson = False) -> None:
    """Enqueue a schedule's job once, now; its slots stay as they are."""
    job = _found(db, name, db.calls.schedules.run(name))
    if as_json:
        render.emit_json({"name": name, "job": job})
    else:
        render.echo(str(job))


@group.command(epilog="Example: holdfast schedules remove nightly-report")
def remove(db: Database, name: Name, as_json: AsJson = False) -> None:
    """Remove a schedule that is no longer in the code; otherwise the next worker to start registers it again."""
    _found(db, name, db.calls.schedules.remove(name))
    _report(name, "removed", as_json)


def _found(db: Database, name: str, call: Call[T]) -> T:
    result = db.run(call)
    if not result:
        raise UnknownSchedule(name, [each.name for each in db.run(db.calls.schedules.list())])
    return result


def _report(name: str, outcome: str, as_json: bool) -> None:
    if as_json:
        render.emit_json({"name": name, "outcome": outcome})
    else:
        render.echo(f"{outcome} {name}")


def _row(it: ScheduleInfo) -> tuple[Any, ...]:
    slot, note = _look(it)
    wait = "" if slot is None else "due" if slot <= it.now else render.duration((slot - it.now).total_seconds())
    return (
        it.name,
        it.task,
        it.cron,
        it.zone,
        it.missed,
        _local(slot, it.zone),
        wait,
        it.last_job,
        it.registered_at,
        note,
    )


def _as_json(it: ScheduleInfo) -> dict[str, Any]:
    slot, note = _look(it)
    wait = None if slot is None else (slot - it.now).total_seconds()
    return {
        "name": it.name,
        "task": it.task,
        "cron": it.cron,
        "zone": it.zone,
        "missed": it.missed,
        "payload": it.payload,
        "options": it.options,
        "paused": it.paused,
        "next_slot": slot,
        "in_seconds": wait,
        "last_slot": it.last_at,
        "last_job": it.last_job,
        "last_registered": it.registered_at,
        "note": note,
    }


def _look(it: ScheduleInfo) -> tuple[datetime | None, str]:
    """Return the next slot, and a note."""
    if it.paused:
        return None, "paused"
    try:
        slot = None if it.next_at is None else next(Cron(it.cron, it.zone).slots(it.next_at), None)
    except ConfigurationError as error:
        return it.next_at, it.problem or str(error)
    return slot, it.problem or ("" if it.live else "no live worker has this task")


def _local(moment: datetime | None, zone: str) -> str:
    """Return a time in the schedule's zone, with its offset, because an hour can occur twice."""
    if moment is None:
        return ""
    try:
        return f"{local_time(moment, zone):%Y-%m-%d %H:%M:%S%z}"
    except ConfigurationError:
        return render.when(moment)
