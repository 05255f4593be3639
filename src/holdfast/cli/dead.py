"""`holdfast dead`: list, show, retry and discard failed and dead jobs, which stay until a person acts."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from holdfast.cli import blocks, render
from holdfast.cli.commands import Commands
from holdfast.cli.database import Database, job_ids
from holdfast.cli.jobs import find_job, show_job, was_discarded
from holdfast.cli.known import warn_of_unknown_queue
from holdfast.cli.options import (
    AsJson,
    BatchOnly,
    ErrorOnly,
    Id,
    Limit,
    QueueOnly,
    TaskOnly,
    TenantOnly,
    Yes,
    filter_of,
)
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.job import JobInfo
from holdfast.store.call import MOST_COUNTED, Call
from holdfast.store.dead import DeadCalls
from holdfast.store.jobs import Filter
from holdfast.store.select import Page

PAGE = 500
NONE = "no failed or dead jobs match"

group = Commands(invoke_without_command=True)


class DeadStatus(enum.StrEnum):
    """failed: the job can never succeed. dead: its attempts are used up."""

    FAILED = "failed"
    DEAD = "dead"


DeadStatusOnly = Annotated[DeadStatus | None, typer.Option("--status", help="Only jobs with this status.")]
SomeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Job ids, or --all.")]
All = Annotated[bool, typer.Option("--all", help="All jobs that match the options below.")]


@group.listing(epilog="Example: holdfast dead --task app.send --error TimeoutError")
def list_dead(
    db: Database,
    *,
    status: DeadStatusOnly = None,
    task: TaskOnly = None,
    queue: QueueOnly = None,
    tenant: TenantOnly = None,
    error: ErrorOnly = None,
    batch: BatchOnly = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List failed and dead jobs; show, retry and discard them, and list blocked keys."""
    where = filter_of(status, task, queue, tenant, error, batch)
    found = db.run(db.calls.dead.list(JobInfo, where, Page(limit=limit, order="ended"))).rows
    most = max(limit, MOST_COUNTED)
    total = db.run(db.calls.dead.count(where, most=most + 1))
    if not found:
        warn_of_unknown_queue(db, queue)
    if as_json:
        render.emit_json(found)
        return
    columns = ("id", "status", "~task", "~tenant", "~queue", "#tries", "finished", "~last error")
    render.show_rows(columns, map(_row, found), head=3, empty=NONE)
    if total > len(found):
        render.note(f"these are the newest {len(found)} of {render.up_to(total, most)}; --limit shows more")


def _row(job: JobInfo) -> tuple[Any, ...]:
    tries = f"{job.attempts}/{job.max_attempts}"
    error = render.error_line(job.last_error)
    return job.id, job.status, job.task, job.tenant, job.queue, tries, job.finished_at, error


@group.command(epilog="Example: holdfast dead show 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def show(db: Database, id_: Id, as_json: AsJson = False) -> None:
    """Show one failed or dead job and its error in full."""
    job = find_job(db, id_)
    discarded = was_discarded(db, job)
    if str(job.status) not in ("failed", "dead"):
        raise HoldfastError(f"job {job.id} is {job.status}, neither failed nor dead; see: holdfast jobs show {job.id}")
    if as_json:
        render.emit_json(asdict(job) | {"discarded": discarded})
    else:
        show_job(job, discarded=discarded)


def _acting(verb: str, done: str, call: Callable[[DeadCalls, Sequence[str]], Call[list[str]]]) -> Callable[..., None]:
    """Return a command that acts on the jobs selected by its options."""

    def act(
        db: Database,
        id_: SomeIds = None,
        *,
        every: All = False,
        status: DeadStatusOnly = None,
        task: TaskOnly = None,
        queue: QueueOnly = None,
        tenant: TenantOnly = None,
        error: ErrorOnly = None,
        batch: BatchOnly = None,
        yes: Yes = False,
        as_json: AsJson = False,
    ) -> None:
        where = filter_of(status, task, queue, tenant, error, batch)
        selection = _select(db, verb, Request(id_ or [], every, where, yes))
        _act(selection, lambda page: db.run(call(db.calls.dead, page)), done, as_json)

    return act


group.command(
    "retry",
    help="Put jobs back into the queue with fresh attempts.",
    epilog="Example: holdfast dead retry --all --task app.send --yes",
)(_acting("retry", "retried", DeadCalls.retry))
group.command(
    "discard",
    help="Discard jobs; they stay in history until it is pruned.",
    epilog="Example: holdfast dead discard --all --error captcha",
)(_acting("discard", "discarded", DeadCalls.discard))
group.command("blocks", epilog="Example: holdfast dead blocks --json")(blocks.list_blocks)
group.command("unblock", epilog="Example: holdfast dead unblock shop.example forum.example")(blocks.unblock)


@dataclass(frozen=True)
class Request:
    """The jobs that the command line names."""

    ids: Sequence[str]
    every: bool
    where: Filter
    yes: bool


@dataclass(frozen=True)
class Selection:
    """The jobs to act on, in pages."""

    total: int
    pages: Iterator[list[str]]


def _select(db: Database, verb: str, request: Request) -> Selection:
    if request.every == bool(request.ids):
        raise UsageError(f"give either the ids of jobs to {verb}, or --all with or without filters")
    if not request.every:
        if request.where != Filter():
            raise UsageError("filters go with --all, not with ids")
        ids = job_ids(request.ids)
        return Selection(len(ids), iter([ids[i : i + PAGE] for i in range(0, len(ids), PAGE)]))
    total = db.run(db.calls.dead.count(request.where))
    if total and not request.yes:
        typer.confirm(f"{verb} {render.plural(total, 'job')}?", abort=True, err=True)
    return Selection(total, _pages(db, request.where))


def _pages(db: Database, where: Filter) -> Iterator[list[str]]:
    """Yield ids in ascending order, so that a job that dies again meanwhile is not taken twice."""
    after: str | None = None
    while page := db.run(db.calls.dead.ids(where, Page(limit=PAGE, after=after, order="oldest"))):
        yield page
        after = page[-1]


def _act(selection: Selection, move: Callable[[list[str]], list[str]], done: str, as_json: bool) -> None:
    from rich.progress import Progress

    moved: list[str] = []
    left: list[str] = []
    console = render.err()
    with Progress(console=console, transient=True, disable=not (selection.total and console.is_terminal)) as bar:
        shown = bar.add_task(done, total=selection.total)
        for page in selection.pages:
            ids = move(page)
            moved += ids
            left += sorted(set(page) - set(ids))
            bar.advance(shown, len(page))
    _report(moved, left, done, as_json)


def _report(moved: list[str], left: list[str], done: str, as_json: bool) -> None:
    if as_json:
        render.emit_json({done: len(moved), "left": len(left), "ids": moved, "left_ids": left})
    else:
        render.echo(f"{done} {render.plural(len(moved), 'job')}" if moved or left else NONE)
    if left:
        render.note(
            f"skipped {render.plural(len(left), 'job')}, {left[0]} the first: unknown, not failed or dead, "
            "discarded, or a newer job holds the dedupe key",
            "yellow",
        )
        raise typer.Exit(1)
