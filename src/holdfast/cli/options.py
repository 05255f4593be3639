"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.database import batch_id
from holdfast.model.job import Status
from holdfast.store.calls import Filter

Target = Annotated[
    str, typer.Argument(metavar="MODULE:ATTRIBUTE", help="The application, as in app:hf for `hf` in app.py.")
]
Dsn = Annotated[
    str | None,
    typer.Option(metavar="DSN", help="PostgreSQL server, or embedded:PATH. Default: HOLDFAST_DSN."),
]
Schema = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Schema of Holdfast's tables. Default: HOLDFAST_SCHEMA, holdfast."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Limit = Annotated[int, typer.Option(min=1, metavar="N", help="At most this many.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Job ids.")]

StatusOnly = Annotated[Status | None, typer.Option("--status", help="Only jobs with this status.")]
TaskOnly = Annotated[str | None, typer.Option("--task", metavar="NAME", help="Only jobs of this task.")]
QueueOnly = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Only jobs of this queue.")]
TenantOnly = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only jobs of this tenant.")]
ErrorOnly = Annotated[
    str | None,
    typer.Option("--error", metavar="NAME", help="Only jobs whose last error has this type or code."),
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
    """The filter that the options stand for."""
    return Filter(
        status=status and str(status), task=task, queue=queue, tenant=tenant, error=error,
        batch=batch and batch_id(batch),
    )  # fmt: skip
