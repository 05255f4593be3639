"""`holdfast usage`: usage of tenants and tasks, by minute, hour or day."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import render
from holdfast.cli.options import AsJson, Limit, TaskOnly, TenantOnly, seconds
from holdfast.model.tick import Usage

if TYPE_CHECKING:
    from holdfast.client import Holdfast

_TIMES = {"day": "%Y-%m-%d", "hour": "%Y-%m-%d %H:%M", "minute": "%Y-%m-%d %H:%M"}


def usage(
    hf: Holdfast,
    *,
    by: Annotated[
        str, typer.Option(metavar="NAMES", help="Sum by some of tenant, task, minute, hour, day.")
    ] = "tenant,task",
    since: Annotated[str, typer.Option(metavar="TIME", help="The last 90m, 24h, 30d ...")] = "24h",
    tenant: TenantOnly = None,
    task: TaskOnly = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Show runs, failures, run seconds and queue seconds of each tenant and task.

    A run is an attempt that has ended, whatever its outcome. Released and
    snoozed attempts do not count.
    """
    names = [each for each in by.replace(" ", "").split(",") if each]
    found = hf.workers.usage(names, since=seconds(since, "--since"), tenant=tenant, task=task, limit=limit)
    if as_json:
        render.emit_json([_item(each) for each in found])
        return
    columns = (*names, "#runs", "#failures", "#run seconds", "#queue seconds")
    render.show_table(columns, map(_row, found), empty=f"nothing was run in the last {since}")


def _item(usage: Usage) -> dict[str, Any]:
    by = {name: None if value == "" else value for name, value in usage.by.items()}  # '' is no tenant
    return by | render.pick(usage, "runs, failures, run_seconds, queue_seconds")


def _row(usage: Usage) -> tuple[Any, ...]:
    by = (_cell(name, value) for name, value in usage.by.items())
    return (*by, usage.runs, usage.failures, f"{usage.run_seconds:,.1f}", f"{usage.queue_seconds:,.1f}")


def _cell(name: str, value: Any) -> Any:
    """Format a value. Times stay in the database's zone, whose days the sums are for."""
    if isinstance(value, datetime):
        return value.strftime(_TIMES[name])
    return "(none)" if value == "" else value
