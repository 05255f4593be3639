"""`holdfast batches`: list, show, watch and cancel batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.commands import Commands
from holdfast.cli.follow import TimeLeft, follow, progress_line
from holdfast.cli.options import AsJson, Author, Limit, checked_id, checked_ids
from holdfast.errors import HoldfastError
from holdfast.model.job import BatchInfo

if TYPE_CHECKING:
    from holdfast.client import Holdfast

ERRORS_SHOWN = 5
SLOW = 1.0  # seconds after which a cancel shows its progress
POLL_INTERVAL = 0.2
GONE = "ended batches are pruned with history"

group = Commands(invoke_without_command=True)

BatchId = Annotated[str, typer.Argument(metavar="ID", help="The batch's id.")]
BatchIds = Annotated[list[str], typer.Argument(metavar="ID", help="Batch ids.")]


@group.listing(epilog="Example: holdfast batches --limit 5")
def list_batches(hf: Holdfast, *, limit: Limit = 20, as_json: AsJson = False) -> None:
    """List the newest batches and their progress; show, watch and cancel them."""
    columns = "id, status, progress, ~name, ~tenant, #total, #processed, #failed, #canceled, created=created_at, #took"
    empty = "no batches; make one with: with hf.batch(NAME) as batch"
    found = hf.batches.list(limit)
    render.show_list(found, columns, _more, as_json=as_json, head=4, empty=empty, limit=limit)


def _more(batch: BatchInfo) -> dict[str, Any]:
    return {"progress": _bar(batch), "took": _took(batch)}


def _bar(batch: BatchInfo, width: int = 10) -> Text:
    if batch.ended and not batch.total:
        return render.bar(1, 1, width=width)
    return render.bar(batch.processed, batch.total, width=width)


def _took(batch: BatchInfo) -> str | None:
    ended = batch.finished_at
    return None if ended is None else render.duration((ended - batch.created_at).total_seconds())


@group.command(epilog="Example: holdfast batches show 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def show(hf: Holdfast, id_: BatchId, as_json: AsJson = False) -> None:
    """Show everything about one batch, and why its jobs failed."""
    batch = find_batch(hf, id_)
    failed = hf.dead.list(batch=batch.id, limit=ERRORS_SHOWN)
    if as_json:
        errors = [render.pick(job, "id, status, task, last_error") for job in failed]
        render.emit_json({**asdict(batch), "last_errors": errors})
        return
    _show_batch(batch)
    if failed:
        render.echo(f"\nthe last of {render.plural(batch.failed, 'failed job')}:", "bold")
        rows = [(job.id, job.status, render.error_line(job.last_error)) for job in failed]
        render.show_table(("job", "status", "~last error"), rows, empty="")
        render.note(f"to try all of them again: holdfast dead retry --all --batch {batch.id}")


def _show_batch(batch: BatchInfo) -> None:
    names = (
        "id, name, tenant, status, progress, total, processed, succeeded, failed, canceled, open, created=created_at, "
        "first ended=started_at, finished=finished_at, took, callback"
    )
    adding = "yes: jobs are still being added" if batch.open else None
    render.show_fields(render.pick(batch, names) | _more(batch) | {"progress": _bar(batch, 30), "open": adding})


def find_batch(hf: Holdfast, text: str) -> BatchInfo:
    """Return the batch with this id, or raise HoldfastError."""
    batch = hf.batches.get(checked_id(text, "batch"))
    if batch is None:
        raise HoldfastError(f"there is no batch {text} in schema {hf.settings.schema!r}; {GONE}")
    return batch


@group.command(epilog="Example: holdfast batches cancel 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def cancel(hf: Holdfast, id_: BatchIds, author: Author, as_json: AsJson = False) -> None:
    """Cancel batches: waiting jobs at once, running ones by asking them to stop; exit 1 when a batch is unknown."""
    results = [_cancel(hf, each, author) for each in checked_ids(id_, "batch")]
    if as_json:
        render.emit_json({result["id"]: result for result in results})
    else:
        for result in results:
            _report_cancel(result)
    if any(result["outcome"] == "unknown" for result in results):
        raise typer.Exit(1)


def _cancel(hf: Holdfast, id_: str, author: dict[str, Any]) -> dict[str, Any]:
    """Cancel one batch; return an outcome as of `jobs cancel`, and the number of jobs."""
    batch = hf.batches.get(id_)
    if batch is None or batch.ended:
        outcome = "unknown" if batch is None else "finished"
        return {"id": id_, "outcome": outcome, "jobs": 0, "running": 0, "status": batch and batch.status}
    jobs = _cancel_jobs(hf, batch, author)
    now = find_batch(hf, id_)
    outcome, running = "canceled" if now.ended else "canceling", now.total - now.processed
    return {"id": id_, "outcome": outcome, "jobs": jobs, "running": running, "status": now.status}


def _cancel_jobs(hf: Holdfast, batch: BatchInfo, author: dict[str, Any]) -> int:
    """Cancel in small committed steps, so that locks are short. Show progress after SLOW seconds."""
    from rich.progress import Progress

    console, began, jobs = render.err(), time.monotonic(), 0
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    shown = bar.add_task(f"canceling {render.printable(batch.name)}", total=batch.total - batch.processed)
    try:
        for some in hf.batches.cancel_in_steps(batch.id, **author):
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
        render.note(f"there is no batch {id_}; {GONE}", "red")
    elif result["outcome"] == "finished":
        render.echo(f"batch {id_} has ended ({result['status']}): nothing to cancel")
    else:
        render.echo(f"canceled {render.plural(result['jobs'], 'job')} of batch {id_}")
    if result["running"]:
        jobs = render.plural(result["running"], "job")
        render.note(f"asked to stop, still running: {jobs}; see: holdfast batches watch {id_}")


@group.command(epilog="Example: holdfast batches watch 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f && echo imported")
def watch(hf: Holdfast, id_: BatchId, as_json: AsJson = False) -> None:
    """Follow a batch until it ends; exit 0 when it has succeeded, 1 when not. Ctrl-C leaves the batch alone."""
    time_left = TimeLeft()
    follow(
        _until_ended(hf, id_),
        lambda batch: _line(batch, time_left.estimate(batch.processed, batch.total)),
        f"batch {id_}",
    )
    batch = find_batch(hf, id_)
    if as_json:
        render.emit_json(batch)
    else:
        _report_end(batch)
    if batch.status != "succeeded":
        raise typer.Exit(1)


def _until_ended(hf: Holdfast, id_: str) -> Iterator[BatchInfo]:
    while not (batch := find_batch(hf, id_)).ended:
        yield batch
        time.sleep(POLL_INTERVAL)


def _line(batch: BatchInfo, left: float | None) -> Text:
    parts = [_bar(batch, 20), Text(f"{batch.processed:,} of {batch.total:,}")]
    parts += [Text(f"{batch.failed:,} failed", "red")] if batch.failed else []
    return progress_line(parts, left, batch.name)


def _report_end(batch: BatchInfo) -> None:
    counts = {"succeeded": batch.succeeded, "failed": batch.failed, "canceled": batch.canceled}
    jobs = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "no jobs"
    verb = "was" if batch.status == "canceled" else "has"
    line = f"batch {batch.name} {verb} {batch.status} after {_took(batch)}: {jobs}"
    render.echo(line, render.COLOURS.get(batch.status))
    if batch.failed:
        render.note(f"see why: holdfast batches show {batch.id}")
