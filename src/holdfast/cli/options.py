"""Options that several commands share."""

from __future__ import annotations

import getpass
import re
import socket
from typing import Annotated

import typer

from holdfast.cli.database import batch_id
from holdfast.errors import UsageError
from holdfast.model.job import Status
from holdfast.store.jobs import Filter

Target = Annotated[
    str, typer.Argument(metavar="MODULE:ATTRIBUTE", help="The application, as in app:hf for `hf` in app.py.")
]
Dsn = Annotated[
    str | None, typer.Option(metavar="DSN", help="PostgreSQL server, or embedded:PATH. Default: HOLDFAST_DSN.")
]
Schema = Annotated[
    str | None, typer.Option(metavar="NAME", help="Schema of Holdfast's tables. Default: HOLDFAST_SCHEMA, holdfast.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Limit = Annotated[int, typer.Option(min=1, metavar="N", help="At most this many.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Job ids.")]

By = Annotated[str | None, typer.Option(metavar="NAME", help="Who makes the change. Default: you, as in ann@host.")]

StatusOnly = Annotated[Status | None, typer.Option("--status", help="Only jobs with this status.")]
TaskOnly = Annotated[str | None, typer.Option("--task", metavar="NAME", help="Only jobs of this task.")]
QueueOnly = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Only jobs of this queue.")]
TenantOnly = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only jobs of this tenant.")]
ErrorOnly = Annotated[
    str | None, typer.Option("--error", metavar="NAME", help="Only jobs whose last error has this type or code.")
]
BatchOnly = Annotated[str | None, typer.Option("--batch", metavar="ID", help="Only jobs of this batch.")]


def filter_of(
    status: str | None,
    task: str | None,
    queue: str | None,
    tenant: str | None,
    error: str | None,
    batch: str | None = None,
) -> Filter:
    """Return the filter that the options describe."""
    status, batch = status and str(status), batch and batch_id(batch)
    return Filter(status=status, task=task, queue=queue, tenant=tenant, error=error, batch=batch)


_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def seconds(text: str, option: str) -> float:
    """Parse a duration: 90, 90s, 10m, 1h30m, 2d."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(min|[smhd]|$)", text.strip())
    if not parts or "".join(n + unit for n, unit in parts) != re.sub(r"\s", "", text):
        raise UsageError(f"{option} is a length of time such as 90s, 10m, 1h30m or 2d, got {text!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def actor(by: str | None) -> str | None:
    """Return who makes a change: the given name, or the user of this machine."""
    if by is not None:
        return by
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # in a container, the user may have no name
        return None
