"""Options that several commands share."""

from __future__ import annotations

import enum
import getpass
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, cast

import msgspec
import typer

from holdfast.errors import UsageError
from holdfast.model import action
from holdfast.model.job import Status, parse_id

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
SomeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Job ids, or options that choose jobs.")]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; `holdfast audit` shows it.")]
Before = Annotated[
    str | None, typer.Option(metavar="ID", help="Continue after this id, the last one of the previous list.")
]


def _actor(by: str | None) -> str | None:
    """Return who makes a change: the given name, or the user of this machine."""
    if by is not None:
        return by
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # in a container, the user may have no name
        return None


By = Annotated[
    str | None,
    typer.Option(metavar="NAME", callback=_actor, help="Who makes the change. Default: you, as in ann@host."),
]

LogFormat = Annotated[str | None, typer.Option(metavar="FORMAT", help="Log lines: console or json.")]
LogLevel = Annotated[str | None, typer.Option(metavar="LEVEL", help="Lowest level: debug, info, warning, error.")]


class DeadStatus(enum.StrEnum):
    """failed: the job can never succeed. dead: its attempts are used up."""

    FAILED = "failed"
    DEAD = "dead"


DeadStatusOnly = Annotated[DeadStatus | None, typer.Option("--status", help="Only jobs with this status.")]
StatusOnly = Annotated[Status | None, typer.Option("--status", help="Only jobs with this status.")]
TaskOnly = Annotated[str | None, typer.Option("--task", metavar="NAME", help="Only jobs of this task.")]
QueueOnly = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Only jobs of this queue.")]
TenantOnly = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only jobs of this tenant.")]
ErrorOnly = Annotated[
    str | None, typer.Option("--error", metavar="NAME", help="Only jobs whose last error has this type or code.")
]
BatchOnly = Annotated[str | None, typer.Option("--batch", metavar="ID", help="Only jobs of this batch.")]


Since = Annotated[str | None, typer.Option(metavar="TIME", help="Created since: 2h (ago), or 2026-01-31T12:00.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Created before: 30m (ago), or 2026-01-31T13:00.")]
ArgsOnly = Annotated[
    str | None, typer.Option("--args", metavar="JSON", help="""Only jobs with these arguments: '{"order": 42}'.""")
]


GroupOnly = Annotated[
    str | None,
    typer.Option(metavar="GROUP", help="Only jobs whose last error is of this group; see `holdfast errors`."),
]


@dataclass(frozen=True)
class OptionsFrom:
    """Marks a parameter of a command that a function makes of its own options: Annotated[T, OptionsFrom(function)]."""

    make: Callable[..., Any]


def _place(
    *,
    task: TaskOnly = None,
    queue: QueueOnly = None,
    tenant: TenantOnly = None,
    error: ErrorOnly = None,
    error_group: GroupOnly = None,
    batch: BatchOnly = None,
    since: Since = None,
    until: Until = None,
) -> dict[str, Any]:
    return {
        "task": task,
        "queue": queue,
        "tenant": tenant,
        "error": error,
        "error_group": error_group,
        "batch": batch and checked_id(batch, "batch"),
        "since": moment(since, "--since"),
        "until": moment(until, "--until"),
    }


Place = Annotated[dict[str, Any], OptionsFrom(_place)]


def _where(*, status: StatusOnly = None, rest: Place) -> dict[str, Any]:
    return {"status": status and str(status), **rest}


def _dead_where(*, status: DeadStatusOnly = None, rest: Place) -> dict[str, Any]:
    return {"status": status and str(status), **rest}


Where = Annotated[dict[str, Any], OptionsFrom(_where)]
DeadWhere = Annotated[dict[str, Any], OptionsFrom(_dead_where)]


def _action_where(*, where: Where, args: ArgsOnly = None) -> action.Where:
    given = {**where, "args": args and json_object(args, "--args")}
    return cast("action.Where", {name: value for name, value in given.items() if value is not None})


ActionWhere = Annotated[action.Where, OptionsFrom(_action_where)]


def _author(*, reason: Reason = None, by: By = None) -> dict[str, Any]:
    return {"by": by, "reason": reason}


Author = Annotated[dict[str, Any], OptionsFrom(_author)]


def _common(
    *, log_format: LogFormat = None, log_level: LogLevel = None, dsn: Dsn = None, schema: Schema = None
) -> dict[str, Any]:
    return {"log_format": log_format, "log_level": log_level, "dsn": dsn, "schema": schema}


Common = Annotated[dict[str, Any], OptionsFrom(_common)]


def check_selection(ids: Sequence[str] | None, every: bool, where: Mapping[str, object], usage: str) -> None:
    """Raise UsageError unless either ids or --all are given, and filters only with --all."""
    if every == bool(ids):
        raise UsageError(usage)
    if ids and any(value is not None for value in where.values()):
        raise UsageError("filters go with --all, not with ids")


def checked_ids(texts: Iterable[str], what: str = "job") -> list[str]:
    """Check ids from the command line; return them without duplicates."""
    return list(dict.fromkeys(checked_id(text, what) for text in texts))


def checked_id(text: str, what: str = "job") -> str:
    """Check an id from the command line."""
    try:
        return parse_id(text)
    except UsageError:
        raise UsageError(f"{text!r} is not a {what} id; one looks like 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f") from None


_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def seconds(text: str, option: str) -> float:
    """Parse a duration: 90, 90s, 10m, 1h30m, 2d."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(min|[smhd]|$)", text.strip())
    if not parts or "".join(n + unit for n, unit in parts) != re.sub(r"\s", "", text):
        raise UsageError(f"{option} must be a length of time such as 90s, 10m, 1h30m or 2d, got {text!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def moment(text: str | None, option: str) -> datetime | None:
    """Parse a duration before now, or a date and time, in this machine's zone by default."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        try:
            return datetime.now(UTC) - timedelta(seconds=seconds(text, option))
        except UsageError:
            raise UsageError(f"{option} must be a time such as 2h (ago) or 2026-01-31T12:00, got {text!r}") from None
    return at.astimezone() if at.tzinfo is None else at


def json_object(text: str, what: str) -> dict[str, Any]:
    """Parse arguments by name, a JSON object."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f'{what} {text!r} is not JSON: {error}; quote it, as in \'{{"to": "a@b.c"}}\'') from None
    if not isinstance(value, dict):
        raise UsageError(f"{what} {text!r} is not a JSON object; give arguments by name, as in '{{\"n\": 1}}'")
    return value
