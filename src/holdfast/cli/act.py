"""Actions on jobs, by ids or by a filter: show what would change, ask, start it, and follow it to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.follow import TimeLeft, following, progress_line
from holdfast.cli.options import ActionWhere, AsJson, Author, OptionsFrom, SomeIds, Yes, checked_ids
from holdfast.errors import UsageError
from holdfast.model.action import ActionInfo, Kind, Where
from holdfast.model.job import MOST_COUNTED

if TYPE_CHECKING:
    from holdfast.client import Holdfast

NONE = "no jobs match"
DONE = {
    "retry": "retried",
    "discard": "discarded",
    "cancel": "canceled",
    "prioritize": "prioritized",
    "move": "moved",
    "reschedule": "rescheduled",
}
LEFT = {
    "retry": "unknown, not failed or dead, discarded, or a newer job holds the dedupe key",
    "discard": "unknown, or not failed or dead",
    "cancel": "unknown, or ended",
}
WAITING = "unknown, not waiting, or already in that state"

All = Annotated[bool, typer.Option("--all", help="All failed and dead jobs.")]


@dataclass(frozen=True)
class Selection:
    """The jobs of an action, who wants it and why, and how to report it."""

    ids: list[str]
    where: Where
    by: str | None
    reason: str | None
    yes: bool
    wait: bool
    as_json: bool


def _manner(
    *,
    author: Author,
    yes: Yes = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Start it, and leave it to the workers.")] = False,
    as_json: AsJson = False,
) -> dict[str, Any]:
    return {**author, "yes": yes, "wait": not no_wait, "as_json": as_json}


Manner = Annotated[dict[str, Any], OptionsFrom(_manner)]


def _selection(*, id_: SomeIds = None, where: ActionWhere, manner: Manner) -> Selection:
    return Selection(checked_ids(id_ or []), where, **manner)


Selected = Annotated[Selection, OptionsFrom(_selection)]


def retry(hf: Holdfast, jobs: Selected, every: All = False) -> None:
    """Queue failed and dead jobs again with fresh attempts: by their ids, or all that match."""
    act(hf, "retry", jobs, every)


def discard(hf: Holdfast, jobs: Selected, every: All = False) -> None:
    """Discard failed and dead jobs: by their ids, or all that match; they stay in history until it is pruned."""
    act(hf, "discard", jobs, every)


def act(hf: Holdfast, kind: Kind, jobs: Selection, every: bool = False, **params: Any) -> None:
    """Change the selected jobs. A filter is confirmed after a preview; the filter of `every` is their status."""
    if jobs.ids and (jobs.where or every):
        raise UsageError(f"give either ids of jobs to {kind} or options that choose them (--task, --all ...), not both")
    where: Where = jobs.where or ({"status": ["failed", "dead"]} if every else {})
    if not jobs.ids and not where:
        option = "--all" if kind in ("retry", "discard") else "--status queued"
        raise UsageError(f"give ids of jobs to {kind}, or options that choose them, such as --task NAME or {option}")
    if where and not jobs.yes:
        _confirm(hf, kind, where, params)
    ids = jobs.ids or None
    action = hf.actions.start(kind, where or None, ids=ids, **params, by=jobs.by, reason=jobs.reason)
    report(watch(hf, action) if jobs.wait else action, jobs.as_json)


def _confirm(hf: Holdfast, kind: Kind, where: Where, params: dict[str, Any]) -> None:
    found = hf.actions.preview(kind, where, **params)
    if not found.matching:
        return
    examples = [job for each in found.examples if (job := hf.jobs.get(each)) is not None]
    columns = "id, status, ~task, ~tenant, created=created_at, ~error"
    names, rows = render.rows_of(
        examples, columns, lambda it: {"status": str(it.status), "error": render.error_line(it.last_error)}
    )
    render.err().print(render.make_table(names, rows))
    if found.matching > len(examples):
        render.note(f"and {render.up_to(found.matching - len(examples), MOST_COUNTED - len(examples))} more")
    least = "" if found.complete else "at least "
    render.confirm(f"{kind} {least}{render.plural(found.matching, 'job', MOST_COUNTED)}?", yes=False)


def watch(hf: Holdfast, action: ActionInfo) -> ActionInfo:
    """Work on an action until it has ended, and show its progress."""
    if action.ended:
        return action
    time_left = TimeLeft()
    hint = _hint(action)

    def line(it: ActionInfo) -> Text:
        return _line(it, time_left)

    with following(line, f"action {action.id}", hint) as show:
        show(action)
        return hf.actions.join(action.id, on_progress=show)


def _hint(it: ActionInfo) -> str:
    return f"to watch it: holdfast actions watch {it.id}\nto stop it:  holdfast actions abort {it.id}"


def _line(it: ActionInfo, time_left: TimeLeft) -> Text:
    done, total = it.changed + it.skipped, it.preview or 0
    count = Text(f"{it.changed:,} of {render.up_to(total, MOST_COUNTED)}")
    if total > MOST_COUNTED:  # the preview stopped counting
        return progress_line([count], None, it.kind)
    return progress_line([render.bar(done, total, width=20), count], time_left.estimate(done, total), it.kind)


def report(it: ActionInfo, as_json: bool) -> None:
    """Print what an action did; exit 1 if it has not done all."""
    if as_json:
        render.emit_json(it)
    else:
        render.echo(_outcome(it))
    if not it.ended:
        render.note(_hint(it))
    listed = it.filter is None
    if left := (it.preview or 0) - it.changed if listed and it.ended else it.skipped:
        render.note(f"skipped {render.plural(left, 'job')}: {LEFT.get(it.kind, WAITING)}", "yellow")
    if it.state in ("aborted", "failed") or (listed and left and it.ended):
        raise typer.Exit(1)


def _outcome(it: ActionInfo) -> str:
    done = f"{DONE.get(it.kind, it.kind)} {render.plural(it.changed, 'job')}"
    if it.state == "running":
        return f"action {it.id} is running: {done} so far"
    if it.state != "done":
        return f"action {it.id} is {it.state}{f' ({it.error})' if it.error else ''}: {done}"
    return NONE if it.filter and not it.matched else done
