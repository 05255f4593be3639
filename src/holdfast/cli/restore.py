"""`holdfast after-restore`: repair a database that was restored from a backup."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import render
from holdfast.cli.options import AsJson, Author, Yes, moment

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.model.restore import Restored

SHOWN = 10


def after_restore(
    hf: Holdfast,
    *,
    plan: Annotated[bool, typer.Option("--plan", help="Only show the changes.")] = False,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Repair data from before this time, such as 2026-01-31T12:00. Default: the server's start.",
        ),
    ] = None,
    author: Author,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Repair leases, schedules, messages and deliveries of a database that was restored from a backup.

    Show the changes and ask before making them. A second run finds nothing to do.
    """
    at = moment(before, "--before")
    found = hf.actions.after_restore(plan=True, before=at)
    if plan or found.nothing:
        _show(found, as_json, "would be done")
        return
    if not yes:
        _print(found, "would be done")
        render.confirm("do this?", yes=False)
    _show(hf.actions.after_restore(before=at, **author), as_json, "done")


def _show(found: Restored, as_json: bool, what: str) -> None:
    if as_json:
        render.emit_json(found)
    else:
        _print(found, what)


def _print(found: Restored, what: str) -> None:
    before, newest = _time(found.before), _time(found.newest)
    render.echo(f"{what}, for data from before {before} (newest entry: {newest})")
    for line in _lines(found):
        render.echo(f"  {line}")
    if found.more:
        render.note("these are the first; there are more", "yellow")


def _time(moment: datetime | None) -> str:
    return "none" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S %Z}"


def _lines(found: Restored) -> Iterator[str]:
    if found.nothing:
        yield "nothing to do"
    if found.jobs or found.workers:
        jobs, workers = render.plural(found.jobs, "running job"), render.plural(len(found.workers), "worker")
        yield f"reclaim {jobs} of {workers} that no longer exist; the attempts count"
    if found.messages or found.deliveries:
        messages = render.plural(found.messages, "message")
        deliveries = render.plural(found.deliveries, "delivery")
        yield f"mark {messages} and {deliveries} that may have been sent already; --json lists them:"
        yield from (f"  {each}" for each in found.examples[:SHOWN])
    for each in found.schedules:
        slots = render.plural(each.fires, "missed slot")
        yield f"fire {slots} of schedule {each.name} ({each.missed}), due since {_time(each.since)}"
    if found.tokens:
        yield "raise tokens above the greatest stored one"
    if found.actions:
        yield f"leave {render.plural(found.actions, 'running action')} to continue; see: holdfast actions --running"
