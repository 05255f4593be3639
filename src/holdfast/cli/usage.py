"""`holdfast usage`: what tenants and tasks used, by the minute or longer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli import render
from holdfast.cli.database import Database
from holdfast.cli.options import AsJson, Dsn, Limit, Schema, TaskOnly, TenantOnly, seconds
from holdfast.model.tick import Usage


def usage(
    *,
    by: Annotated[
        str, typer.Option(metavar="NAMES", help="Sum by some of tenant, task, minute, hour, day.")
    ] = "tenant,task",
    since: Annotated[str, typer.Option(metavar="TIME", help="The last 90m, 24h, 30d ...")] = "24h",
    tenant: TenantOnly = None,
    task: TaskOnly = None,
    limit: Limit = 100,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Show runs, failures, run seconds and queue seconds of each tenant and task.

    A run is an attempt that has ended, whatever came of it; what was given back
    or put off is none.
    """
    names = [each for each in by.replace(" ", "").split(",") if each]
    with Database(dsn, schema) as db:
        asked = db.telemetry.usage(names, since=seconds(since, "--since"), tenant=tenant, task=task, limit=limit)
        found = db.run(asked)
    if as_json:
        render.emit_json([_told(each) for each in found])
        return
    columns = (*names, "#runs", "#failures", "#run seconds", "#queue seconds")
    render.show_table(columns, map(_row, found), empty=f"nothing was run in the last {since}")


def _told(used: Usage) -> dict[str, Any]:
    return used.by | {name: getattr(used, name) for name in ("runs", "failures", "run_seconds", "queue_seconds")}


def _row(used: Usage) -> tuple[Any, ...]:
    by = ("(none)" if each == "" else each for each in used.by.values())
    return (*by, used.runs, used.failures, f"{used.run_seconds:,.1f}", f"{used.queue_seconds:,.1f}")
