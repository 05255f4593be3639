"""`holdfast dead`: failed and dead jobs stay until a person acts; here is where they act."""

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
    Dsn,
    ErrorOnly,
    Id,
    Limit,
    QueueOnly,
    Schema,
    TaskOnly,
    TenantOnly,
    Yes,
    filter_of,
)
from holdfast.errors import HoldfastError, UsageError
from holdfast.store.calls import Call, Calls
from holdfast.store.inspect import MOST_COUNTED
from holdfast.store.values import Filter

PAGE = 500
NONE = "no failed or dead jobs match"

group = Commands(invoke_without_command=True)


class DeadStatus(enum.StrEnum):
    """failed: it can never succeed. dead: its attempts are used up."""

    FAILED = "failed"
    DEAD = "dead"


DeadStatusOnly = Annotated[DeadStatus | None, typer.Option("--status", help="Only jobs with this status.")]
SomeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Job ids, or --all.")]
All = Annotated[bool, typer.Option("--all", help="All that match the options below; without any, all.")]


@group.callback(epilog="Example: holdfast dead --task app.send --error TimeoutError")
def list_dead(
    ctx: typer.Context,
    *,
    status: DeadStatusOnly = None,
    task: TaskOnly = None,
    queue: QueueOnly = None,
    tenant: TenantOnly = None,
    error: ErrorOnly = None,
    batch: BatchOnly = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """List failed and dead jobs; show, retry and discard them, and see what handlers found blocked."""
    if ctx.invoked_subcommand is not None:
        return
    where = filter_of(status, task, queue, tenant, error, batch)
    with Database(dsn, schema) as db:
        found = db.run(db.inspect.dead_jobs(where, limit=limit))
        most = max(limit, MOST_COUNTED)
        total = db.run(db.calls.count_dead(where, most=most + 1))
        if not found:
            warn_of_unknown_queue(db, queue)
    if as_json:
        render.emit_json(found)
        return
    columns = ("id", "status", "~task", "~tenant", "~queue", "#tries", "finished", "~last error")
    render.show_rows(columns, map(_row, found), head=3, empty=NONE)
    if total > len(found):
        render.tell(f"these are the newest {len(found)} of {render.up_to(total, most)}; --limit shows more")


def _row(job: dict[str, Any]) -> tuple[Any, ...]:
    tries = f"{job['attempts']}/{job['max_attempts']}"
    return (job["id"], job["status"], job["task"], job["tenant"], job["queue"], tries, job["finished_at"],
            render.error_line(job["last_error"]))  # fmt: skip


@group.command(epilog="Example: holdfast dead show 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def show(id_: Id, as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None) -> None:
    """Show one failed or dead job and its error in full."""
    with Database(dsn, schema) as db:
        job = find_job(db, id_)
        discarded = was_discarded(db, job)
    if str(job.status) not in ("failed", "dead"):
        raise HoldfastError(f"job {job.id} is {job.status}, neither failed nor dead; see: holdfast jobs show {job.id}")
    if as_json:
        render.emit_json(asdict(job) | {"discarded": discarded})
    else:
        show_job(job, discarded=discarded)


def _acting(verb: str, done: str, call: Callable[[Calls, Sequence[str]], Call[list[str]]]) -> Callable[..., None]:
    """A command that does something with the jobs that its options name."""

    def act(
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
        dsn: Dsn = None,
        schema: Schema = None,
    ) -> None:
        where = filter_of(status, task, queue, tenant, error, batch)
        with Database(dsn, schema) as db:
            chosen = _choose(db, verb, Wish(id_ or [], every, where, yes))
            _act(chosen, lambda page: db.run(call(db.calls, page)), done, as_json)

    return act


group.command(
    "retry",
    help="Put jobs back into the queue with fresh attempts.",
    epilog="Example: holdfast dead retry --all --task app.send --yes",
)(_acting("retry", "retried", Calls.retry_dead))
group.command(
    "discard",
    help="Put jobs aside for good; they stay in history for its keeping time.",
    epilog="Example: holdfast dead discard --all --error captcha",
)(_acting("discard", "discarded", Calls.discard_dead))
group.command("blocks", epilog="Example: holdfast dead blocks --json")(blocks.list_blocks)
group.command("unblock", epilog="Example: holdfast dead unblock shop.example forum.example")(blocks.unblock)


@dataclass(frozen=True)
class Wish:
    """Which jobs the command line names."""

    ids: Sequence[str]
    every: bool
    where: Filter
    yes: bool


@dataclass(frozen=True)
class Chosen:
    """Jobs to act on, page by page."""

    total: int
    pages: Iterator[list[str]]


def _choose(db: Database, verb: str, wish: Wish) -> Chosen:
    if wish.every == bool(wish.ids):
        raise UsageError(f"say which jobs to {verb}: their ids, or --all with or without filters, not both")
    if not wish.every:
        if wish.where != Filter():
            raise UsageError("filters go with --all, not with ids")
        checked = job_ids(wish.ids)
        return Chosen(len(checked), iter([checked[i : i + PAGE] for i in range(0, len(checked), PAGE)]))
    total = db.run(db.calls.count_dead(wish.where))
    if total and not wish.yes:
        typer.confirm(f"{verb} {render.plural(total, 'job')}?", abort=True, err=True)
    return Chosen(total, _pages(db, wish.where))


def _pages(db: Database, where: Filter) -> Iterator[list[str]]:
    """Ids in growing order: a job that dies again meanwhile is behind us and is not taken twice."""
    after: str | None = None
    while page := db.run(db.calls.dead_ids(where, limit=PAGE, after=after)):
        yield page
        after = page[-1]


def _act(chosen: Chosen, move: Callable[[list[str]], list[str]], done: str, as_json: bool) -> None:
    from rich.progress import Progress

    moved: list[str] = []
    left: list[str] = []
    console = render.err()
    with Progress(console=console, transient=True, disable=not (chosen.total and console.is_terminal)) as bar:
        shown = bar.add_task(done, total=chosen.total)
        for page in chosen.pages:
            went = move(page)
            moved += went
            left += sorted(set(page) - set(went))
            bar.advance(shown, len(page))
    _tell(moved, left, done, as_json)


def _tell(moved: list[str], left: list[str], done: str, as_json: bool) -> None:
    if as_json:
        render.emit_json({done: len(moved), "left": len(left), "ids": moved, "left_ids": left})
    else:
        render.say(f"{done} {render.plural(len(moved), 'job')}" if moved or left else NONE)
    if left:
        render.tell(
            f"left {render.plural(len(left), 'job')} alone, {left[0]} the first: unknown, not failed or dead, "
            "discarded, or a newer job holds the dedupe key",
            "yellow",
        )
        raise typer.Exit(1)
