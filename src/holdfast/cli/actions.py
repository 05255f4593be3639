"""`holdfast actions`: list, show, watch and abort actions on jobs. `holdfast audit`: what operators did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import act, render
from holdfast.cli.commands import Commands
from holdfast.cli.options import AsJson, Author, Before, Limit, checked_id
from holdfast.model.action import ActionInfo
from holdfast.model.limit import NUMBERS

if TYPE_CHECKING:
    from holdfast.client import Holdfast

group = Commands(invoke_without_command=True)

ActionId = Annotated[str, typer.Argument(metavar="ID", help="The action's id.")]
ByOnly = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Only what this person did.")]
KindOnly = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only this kind, such as retry or pause.")]


@group.listing(epilog="Example: holdfast actions --running")
def list_actions(
    hf: Holdfast,
    *,
    kind: KindOnly = None,
    by: ByOnly = None,
    running: Annotated[bool, typer.Option("--running", help="Only those that have not ended.")] = False,
    before: Before = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List the newest actions on jobs and their progress; show, watch and abort them."""
    columns = "id, kind, state, #changed, #skipped, #of, started=started_at, by, ~jobs, ~reason"
    state = "running" if running else None
    found = hf.actions.list(on_jobs=True, kind=kind, by=by, state=state, before=_id(before), limit=limit)
    render.show_list(found, columns, _more, as_json=as_json, head=3, empty="no actions match")
    _show_next(found, limit, as_json)


def _id(text: str | None) -> str | None:
    return None if text is None else checked_id(text, "action")


def _show_next(found: list[ActionInfo], limit: int, as_json: bool) -> None:
    if len(found) == limit and not as_json:
        render.note(f"there may be more; continue with --before {found[-1].id}")


def _more(it: ActionInfo) -> dict[str, Any]:
    return {"of": render.up_to(it.preview or 0, 10_000), "jobs": _jobs(it)}


def _jobs(it: ActionInfo) -> str:
    """Return the jobs of an action: the filter, the one job, or how many ids were given."""
    if it.filter is None:
        return it.target or f"{it.preview or 0:,} ids"
    return ", ".join(f"{name} {_value(value)}" for name, value in it.filter.items())


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " or ".join(map(str, value))
    return value if isinstance(value, str) else render.as_json(value)


@group.command(epilog="Example: holdfast actions show 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def show(hf: Holdfast, id_: ActionId, as_json: AsJson = False) -> None:
    """Show an action: its filter, who started it and why, and how far it is."""
    it = hf.actions.get(checked_id(id_, "action"))
    if as_json:
        render.emit_json(it)
        return
    names = (
        "id, kind, state, by, reason, target, filter, before, params, started=started_at, finished=finished_at, "
        "matched at the start=preview, read=scanned, matched, changed, skipped, locked, error, examples"
    )
    matched = None if it.preview is None else render.up_to(it.preview, 10_000)
    render.show_fields(render.pick(it, names) | {"matched at the start": matched, "params": it.params or None})


@group.command(epilog="Example: holdfast actions abort 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f --reason 'wrong queue'")
def abort(hf: Holdfast, id_: ActionId, author: Author, as_json: AsJson = False) -> None:
    """Stop an action. What it has changed stays changed; exit 1 if it had ended."""
    checked = checked_id(id_, "action")
    was = hf.actions.abort(checked, **author)
    it = hf.actions.get(checked)
    done = f"{act.DONE.get(it.kind, it.kind)} {render.plural(it.changed, 'job')}"
    render.show_result(
        it, f"{'aborted' if was else f'it had ended ({it.state})'}: action {it.id} {done}", as_json=as_json
    )
    if not was:
        raise typer.Exit(1)


@group.command(epilog="Example: holdfast actions watch 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def watch(hf: Holdfast, id_: ActionId, as_json: AsJson = False) -> None:
    """Follow an action to its end, and help with it. Ctrl-C leaves it running."""
    act.report(act.watch(hf, hf.actions.get(checked_id(id_, "action"))), as_json)


def audit(
    hf: Holdfast,
    *,
    by: ByOnly = None,
    kind: KindOnly = None,
    target: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only changes of this: a job's id, queue:mail, a schedule ...")
    ] = None,
    before: Before = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List who did what, when and why, the newest first.

    Actions on jobs, edits, limits, pauses, breakers, schedules and
    tokens, with the values before and after. Secrets are not in it.
    """
    found = hf.actions.list(by=by, kind=kind, target=target, before=_id(before), limit=limit)
    columns = "at=started_at, by, kind, ~target, ~change, ~reason"
    render.show_list(found, columns, _change, as_json=as_json, head=3, empty="nothing was recorded that matches")
    _show_next(found, limit, as_json)


def _change(it: ActionInfo) -> dict[str, Any]:
    """Return what was changed: jobs, or values as in `concurrency 4 -> 8`."""
    if it.preview is not None:
        new = "".join(f" to {_value(value)}" for value in it.params.values())
        state = "" if it.state == "done" else f" ({it.state})"
        return {"target": _jobs(it), "change": f"{render.plural(it.changed, 'job')}{new}{state}"}
    return {
        "change": ", ".join(f"{name} {_of(name, before)} -> {_of(name, after)}" for name, before, after in it.changes)
    }


def _of(name: str, value: Any) -> str:
    """Return a value of a change. A number of a limit that is not set is that of the code."""
    return "as in code" if value is None and name in NUMBERS else _value(value)
