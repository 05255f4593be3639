"""`holdfast errors`: failures in groups; show, retry and discard the jobs of one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.act import Manner, Selection, act
from holdfast.cli.commands import Commands
from holdfast.cli.options import AsJson, Limit, TaskOnly
from holdfast.errors import HoldfastError
from holdfast.model.failure import ErrorGroup

if TYPE_CHECKING:
    from holdfast.client import Holdfast

HOURS = 24

group = Commands(invoke_without_command=True)

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group, as listed.")]


@group.listing(epilog="Example: holdfast errors --task app.send")
def list_errors(hf: Holdfast, task: TaskOnly = None, limit: Limit = 20, as_json: AsJson = False) -> None:
    """List error groups, the latest first: failures of a task with the same type, message and place in the code.

    failed counts attempts, dead the jobs that are dead now; the chart
    shows the failed attempts of the last 24 hours. Counts are a few
    seconds old. Show, retry and discard the jobs of a group by its name.
    """
    found = hf.dead.errors.list(task=task, limit=limit)
    columns = "group=fingerprint, #failed=attempts, #dead, last 24 h, last=last_at, ~task, ~error, ~where=frame"
    render.show_list(found, columns, _more, as_json=as_json, head=4, empty="nothing has failed", limit=limit)


def _more(it: ErrorGroup) -> dict[str, Any]:
    return {"last 24 h": Text(_chart(it), "red"), "error": _error(it)}


def _error(it: ErrorGroup) -> str:
    return render.error_line({"type": it.type or "", "message": it.message or it.code or ""})


def _chart(it: ErrorGroup) -> str:
    """Return the failures of each hour, up to the last one of the group."""
    last = it.last_at.replace(minute=0, second=0, microsecond=0)
    return render.sparkline([it.trend.get(last - timedelta(hours=n), 0) for n in range(HOURS - 1, -1, -1)])


@group.command(epilog="Example: holdfast errors show 9f86d081884c7d65")
def show(hf: Holdfast, name: Name, as_json: AsJson = False) -> None:
    """Show a group: counts, when it began, and an example with its traceback."""
    it = _find(hf, name)
    if as_json:
        render.emit_json(it)
        return
    names = (
        "group=fingerprint, task, type, code, message, where=frame, failed=attempts, dead, first=first_at, "
        "last=last_at, last 24 h, example=example_job"
    )
    render.show_fields(render.pick(it, names) | {"last 24 h": _chart(it)})
    if trace := str((it.example or {}).get("traceback", "")).rstrip():
        render.echo(f"\n{trace}")
    if it.dead:
        render.note(f"to try its dead jobs again: holdfast errors retry {it.fingerprint}")


@group.command(epilog="Example: holdfast errors retry 9f86d081884c7d65 --reason 'fixed in 1.4.2'")
def retry(hf: Holdfast, name: Name, manner: Manner) -> None:
    """Queue the failed and dead jobs of a group again, with fresh attempts."""
    act(hf, "retry", Selection([], {"error_group": _find(hf, name).fingerprint}, **manner))


@group.command(epilog="Example: holdfast errors discard 9f86d081884c7d65 --reason 'test data'")
def discard(hf: Holdfast, name: Name, manner: Manner) -> None:
    """Discard the failed and dead jobs of a group; they stay in history until it is pruned."""
    act(hf, "discard", Selection([], {"error_group": _find(hf, name).fingerprint}, **manner))


def _find(hf: Holdfast, name: str) -> ErrorGroup:
    found = hf.dead.errors.get(name)
    if found is None:
        raise HoldfastError(f"there is no error group {name!r}; see: holdfast errors")
    return found
