"""`holdfast batches`: list, show, watch and cancel batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.commands import Commands
from holdfast.cli.database import Database, batch_id
from holdfast.cli.options import AsJson, Limit
from holdfast.errors import HoldfastError
from holdfast.model.job import BatchInfo, JobInfo
from holdfast.store.jobs import Filter
from holdfast.store.select import Page

ERRORS_SHOWN = 5
SLOW = 1.0  # seconds after which a cancel shows its progress
LOOK_EVERY = 0.2
REPORT_EVERY = 10.0

group = Commands(invoke_without_command=True)

BatchId = Annotated[str, typer.Argument(metavar="ID", help="The batch's id.")]
BatchIds = Annotated[list[str], typer.Argument(metavar="ID", help="Batch ids.")]


@group.listing(epilog="Example: holdfast batches --limit 5")
def list_batches(db: Database, *, limit: Limit = 20, as_json: AsJson = False) -> None:
    """List the newest batches and their progress; show, watch and cancel them."""
    found = db.run(db.calls.batches.list(Page(limit=limit))).rows
    if as_json:
        render.emit_json(found)
        return
    columns = ("id", "status", "progress", "~name", "~tenant", "#total", "#processed", "#failed", "#canceled",
               "created", "#took")  # fmt: skip
    render.show_rows(columns, map(_row, found), head=4, empty="no batches; make one with: with hf.batch(NAME) as batch")
    if len(found) == limit:
        render.note(f"these are the newest {limit}; --limit shows more")


def _row(batch: BatchInfo) -> tuple[Any, ...]:
    return (batch.id, batch.status, _bar(batch), batch.name, batch.tenant, batch.total, batch.processed, batch.failed,
            batch.canceled, batch.created_at, _took(batch))  # fmt: skip


def _bar(batch: BatchInfo, width: int = 10) -> Text:
    if batch.ended and not batch.total:
        return render.bar(1, 1, width=width)
    return render.bar(batch.processed, batch.total, width=width)


def _took(batch: BatchInfo) -> str | None:
    ended = batch.finished_at
    return None if ended is None else render.duration((ended - batch.created_at).total_seconds())


@group.command(epilog="Example: holdfast batches show 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def show(db: Database, id_: BatchId, as_json: AsJson = False) -> None:
    """Show everything about one batch, and why its jobs failed."""
    batch = find_batch(db, id_)
    failed = db.run(db.calls.dead.list(JobInfo, Filter(batch=batch.id), Page(limit=ERRORS_SHOWN, order="ended"))).rows
    if as_json:
        errors = [{name: getattr(job, name) for name in ("id", "status", "task", "last_error")} for job in failed]
        render.emit_json({**asdict(batch), "last_errors": errors})
        return
    _show_batch(batch)
    if failed:
        render.echo(f"\nthe last of {render.plural(batch.failed, 'failed job')}:", "bold")
        rows = [(job.id, job.status, render.error_line(job.last_error)) for job in failed]
        render.show_table(("job", "status", "~last error"), rows, empty="")
        render.note(f"to try all of them again: holdfast dead retry --all --batch {batch.id}")


def _show_batch(batch: BatchInfo) -> None:
    render.show_fields({
        "id": batch.id, "name": batch.name, "tenant": batch.tenant, "status": batch.status,
        "progress": _bar(batch, 30), "total": batch.total, "processed": batch.processed,
        "succeeded": batch.succeeded, "failed": batch.failed, "canceled": batch.canceled,
        "open": "yes: jobs are still being added" if batch.open else None, "created": batch.created_at,
        "first ended": batch.started_at, "finished": batch.finished_at, "took": _took(batch),
        "callback": batch.callback,
    })  # fmt: skip


def find_batch(db: Database, text: str) -> BatchInfo:
    """Return the batch with this id, or raise HoldfastError."""
    batch = db.run(db.calls.batches.get(batch_id(text)))
    if batch is None:
        raise HoldfastError(f"there is no batch {text} in schema {db.settings.schema!r}; {_GONE}")
    return batch


_GONE = "ended batches are pruned with history"


@group.command(epilog="Example: holdfast batches cancel 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def cancel(db: Database, id_: BatchIds, as_json: AsJson = False) -> None:
    """Cancel batches: waiting jobs at once, running ones by asking them to stop; exit 1 when a batch is unknown."""
    ids = list(dict.fromkeys(map(batch_id, id_)))
    results = [_cancel(db, each) for each in ids]
    if as_json:
        render.emit_json({result["id"]: result for result in results})
    else:
        for result in results:
            _report_cancel(result)
    if any(result["outcome"] == "unknown" for result in results):
        raise typer.Exit(1)


def _cancel(db: Database, id_: str) -> dict[str, Any]:
    """Cancel one batch; return an outcome as of `jobs cancel`, and the number of jobs."""
    batch = db.run(db.calls.batches.get(id_))
    if batch is None or batch.ended:
        outcome = "unknown" if batch is None else "finished"
        return {"id": id_, "outcome": outcome, "jobs": 0, "running": 0, "status": batch and batch.status}
    jobs = _cancel_jobs(db, batch)
    now = find_batch(db, id_)
    outcome, running = "canceled" if now.ended else "canceling", now.total - now.processed
    return {"id": id_, "outcome": outcome, "jobs": jobs, "running": running, "status": now.status}


def _cancel_jobs(db: Database, batch: BatchInfo) -> int:
    """Cancel in small committed steps, so that locks are short. Show progress after SLOW seconds."""
    from rich.progress import Progress

    console, began, jobs = render.err(), time.monotonic(), 0
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    shown = bar.add_task(f"canceling {render.printable(batch.name)}", total=batch.total - batch.processed)
    try:
        while some := db.run(db.calls.batches.cancel(batch.id)):
            jobs += some
            bar.update(shown, completed=jobs)
            if time.monotonic() - began > SLOW:
                bar.start()
    finally:
        bar.stop()
    return jobs


def _report_cancel(result: dict[str, Any]) -> None:
    id_ = result["id"]
    if result["outcome"] == "unknown":
        render.note(f"there is no batch {id_}; {_GONE}", "red")
    elif result["outcome"] == "finished":
        render.echo(f"batch {id_} has ended ({result['status']}): nothing to cancel")
    else:
        render.echo(f"canceled {render.plural(result['jobs'], 'job')} of batch {id_}")
    if result["running"]:
        jobs = render.plural(result["running"], "job")
        render.note(f"asked to stop, still running: {jobs}; see: holdfast batches watch {id_}")


@group.command(epilog="Example: holdfast batches watch 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f && echo imported")
def watch(db: Database, id_: BatchId, as_json: AsJson = False) -> None:
    """Follow a batch until it ends; exit 0 when it has succeeded, 1 when not. Ctrl-C leaves the batch alone."""
    try:
        batch = _follow(db, id_)
    except KeyboardInterrupt:
        render.note(f"no longer watching; batch {id_} goes on")
        raise typer.Exit(130) from None
    if as_json:
        render.emit_json(batch)
    else:
        _report_end(batch)
    if batch.status != "succeeded":
        raise typer.Exit(1)


def _follow(db: Database, id_: str) -> BatchInfo:
    """Show the batch until it ends: live on a terminal, else as occasional lines."""
    if not render.err().is_terminal:
        return _look_until_ended(db, id_, Lines().show)
    from rich.live import Live

    pace = Pace()
    with Live(console=render.err(), transient=True, auto_refresh=False) as live:
        return _look_until_ended(db, id_, lambda batch: live.update(_line(batch, pace.left(batch)), refresh=True))


def _look_until_ended(db: Database, id_: str, show: Callable[[BatchInfo], None]) -> BatchInfo:
    while True:
        batch = find_batch(db, id_)
        show(batch)
        if batch.ended:
            return batch
        time.sleep(LOOK_EVERY)


class Lines:
    """Progress for logs: a line at the start and then every REPORT_EVERY seconds."""

    def __init__(self) -> None:
        self._due = 0.0

    def show(self, batch: BatchInfo) -> None:
        """Print a line if one is due."""
        if time.monotonic() >= self._due and not batch.ended:
            self._due = time.monotonic() + REPORT_EVERY
            render.err().print(_line(batch, None))


class Pace:
    """An estimate of the remaining time, from the pace since the start of watching."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None

    def left(self, batch: BatchInfo) -> float | None:
        """Return the seconds until the end, or None while unknown or when no job is left."""
        now = time.monotonic()
        began, before = self._began = self._began or (now, batch.processed)
        ended, seconds = batch.processed - before, now - began
        left = batch.total - batch.processed
        return left / ended * seconds if left > 0 and ended > 0 and seconds > SLOW else None


def _line(batch: BatchInfo, left: float | None) -> Text:
    parts = [_bar(batch, 20), Text(f"{batch.processed:,} of {batch.total:,}")]
    parts += [Text(f"{batch.failed:,} failed", "red")] if batch.failed else []
    parts += [Text(f"about {render.duration(max(1, round(left)))} left")] if left is not None else []
    line = Text("  ").join([*parts, Text(render.printable(batch.name))])
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _report_end(batch: BatchInfo) -> None:
    counts = {"succeeded": batch.succeeded, "failed": batch.failed, "canceled": batch.canceled}
    jobs = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "no jobs"
    verb = "was" if batch.status == "canceled" else "has"
    line = f"batch {batch.name} {verb} {batch.status} after {_took(batch)}: {jobs}"
    render.echo(line, render.COLOURS.get(batch.status))
    if batch.failed:
        render.note(f"see why: holdfast batches show {batch.id}")
