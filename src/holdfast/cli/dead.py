"""`holdfast dead`: list, show, retry and discard failed and dead jobs, which stay until a person acts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import blocks, render
from holdfast.cli.commands import Commands
from holdfast.cli.jobs import find_job, show_job, show_jobs
from holdfast.cli.options import AsJson, DeadWhere, Id, Limit, Yes, check_selection, checked_ids
from holdfast.errors import HoldfastError
from holdfast.model.job import MOST_COUNTED

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.client.dead import Moved

NONE = "no failed or dead jobs match"

group = Commands(invoke_without_command=True)

SomeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Job ids, or --all.")]
All = Annotated[bool, typer.Option("--all", help="All jobs that match the options below.")]


@group.listing(epilog="Example: holdfast dead --task app.send --error TimeoutError")
def list_dead(hf: Holdfast, where: DeadWhere, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List failed and dead jobs; show, retry and discard them, and list blocked keys."""
    found = hf.dead.list(**where, limit=limit)
    most = max(limit, MOST_COUNTED)
    total = hf.dead.count(**where, most=most + 1)
    show_jobs(hf, found, "finished=finished_at", where, as_json=as_json, empty=NONE)
    if total > len(found) and not as_json:
        render.note(f"these are the newest {len(found)} of {render.up_to(total, most)}; --limit shows more")


@group.command(epilog="Example: holdfast dead show 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def show(hf: Holdfast, id_: Id, as_json: AsJson = False) -> None:
    """Show one failed or dead job and its error in full."""
    job = find_job(hf, id_)
    if str(job.status) not in ("failed", "dead"):
        raise HoldfastError(f"job {job.id} is {job.status}, neither failed nor dead; see: holdfast jobs show {job.id}")
    show_job(hf, job, as_json)


@group.command(epilog="Example: holdfast dead retry --all --task app.send --yes")
def retry(
    hf: Holdfast,
    where: DeadWhere,
    id_: SomeIds = None,
    *,
    every: All = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put jobs back into the queue with fresh attempts."""
    _act(hf, "retry", "retried", id_, every, where, yes, as_json)


@group.command(epilog="Example: holdfast dead discard --all --error captcha")
def discard(
    hf: Holdfast,
    where: DeadWhere,
    id_: SomeIds = None,
    *,
    every: All = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Discard jobs; they stay in history until it is pruned."""
    _act(hf, "discard", "discarded", id_, every, where, yes, as_json)


group.command("blocks", epilog="Example: holdfast dead blocks --json")(blocks.list_blocks)
group.command("unblock", epilog="Example: holdfast dead unblock shop.example forum.example")(blocks.unblock)


def _act(
    hf: Holdfast,
    verb: str,
    done: str,
    texts: list[str] | None,
    every: bool,
    where: dict[str, Any],
    yes: bool,
    as_json: bool,
) -> None:
    usage = f"give either the ids of jobs to {verb}, or --all with or without filters"
    check_selection(texts, every, where, usage)
    if every:
        total = hf.dead.count(**where)
        if total:
            render.confirm(f"{verb} {render.plural(total, 'job')}?", yes)
        steps = hf.dead.retry_all(**where) if verb == "retry" else hf.dead.discard_all(**where)
    else:
        ids = checked_ids(texts or [])
        total, steps = len(ids), move(ids, hf.dead.retry if verb == "retry" else hf.dead.discard)
    _report(*gathered(steps, total, done), done, as_json)


def move(ids: list[str], act: Callable[[list[str]], list[str]]) -> Iterator[Moved]:
    """Act on ids in small committed steps."""
    from holdfast.client.dead import STEP, Moved

    for start in range(0, len(ids), STEP):
        some = ids[start : start + STEP]
        yield Moved.of(some, act(some))


def gathered(steps: Iterator[Moved], total: int, done: str) -> tuple[list[str], list[str]]:
    """Return the ids that were moved and those that were left, and show the progress on a terminal."""
    from rich.progress import Progress

    moved: list[str] = []
    left: list[str] = []
    console = render.err()
    with Progress(console=console, transient=True, disable=not (total and console.is_terminal)) as bar:
        shown = bar.add_task(done, total=total)
        for step in steps:
            moved += step.ids
            left += step.left
            bar.advance(shown, len(step.ids) + len(step.left))
    return moved, left


def _report(moved: list[str], left: list[str], done: str, as_json: bool) -> None:
    text = f"{done} {render.plural(len(moved), 'job')}" if moved or left else NONE
    result = {done: len(moved), "left": len(left), "ids": moved, "left_ids": left}
    render.show_result(result, text, as_json=as_json)
    if left:
        render.note(
            f"skipped {render.plural(len(left), 'job')}, {left[0]} the first: unknown, not failed or dead, "
            "discarded, or a newer job holds the dedupe key",
            "yellow",
        )
        raise typer.Exit(1)
