"""`holdfast jobs`: list, show, cancel and enqueue jobs. Needs no application code."""

from __future__ import annotations

import difflib
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.commands import Commands
from holdfast.cli.database import Database, job_id, job_ids
from holdfast.cli.known import warn_of_unknown_queue
from holdfast.cli.options import (
    AsJson,
    BatchOnly,
    ErrorOnly,
    Id,
    Ids,
    Limit,
    QueueOnly,
    StatusOnly,
    TaskOnly,
    TenantOnly,
    filter_of,
)
from holdfast.errors import HoldfastError, UsageError
from holdfast.model import payload as payloads
from holdfast.model.job import JobInfo, NewJob, ids
from holdfast.store.select import Page

PRIORITIES = ("critical", "high", "normal", "low")
group = Commands(invoke_without_command=True)


@group.listing(epilog="Example: holdfast jobs --status retrying --task app.send --limit 20")
def list_jobs(
    db: Database,
    *,
    status: StatusOnly = None,
    task: TaskOnly = None,
    queue: QueueOnly = None,
    tenant: TenantOnly = None,
    error: ErrorOnly = None,
    batch: BatchOnly = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest jobs; show, cancel and enqueue them."""
    found = db.run(
        db.calls.jobs.list(JobInfo, filter_of(status, task, queue, tenant, error, batch), Page(limit=limit))
    ).rows
    if not found:
        warn_of_unknown_queue(db, queue)
    if as_json:
        render.emit_json(found)
        return
    columns = ("id", "status", "~task", "~tenant", "~queue", "#tries", "created", "~last error")
    render.show_rows(columns, map(_row, found), head=3, empty="no jobs match")
    if len(found) == limit:
        render.note(f"these are the newest {limit}; --limit shows more")


def _row(job: JobInfo) -> tuple[Any, ...]:
    tries = f"{job.attempts}/{job.max_attempts}"
    return (
        job.id,
        str(job.status),
        job.task,
        job.tenant,
        job.queue,
        tries,
        job.created_at,
        render.error_line(job.last_error),
    )


@group.command(epilog="Example: holdfast jobs show 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def show(db: Database, id_: Id, as_json: AsJson = False) -> None:
    """Show everything about one job."""
    job = find_job(db, id_)
    discarded = was_discarded(db, job)
    if as_json:
        render.emit_json(asdict(job) | {"discarded": discarded})
    else:
        show_job(job, discarded=discarded)


def find_job(db: Database, text: str) -> JobInfo:
    """Return the job with this id, or raise HoldfastError."""
    job = db.run(db.calls.jobs.get(job_id(text)))
    if job is None:
        raise HoldfastError(f"there is no job {text} in schema {db.settings.schema!r}; history may have been pruned")
    return job


def was_discarded(db: Database, job: JobInfo) -> bool:
    """Return whether a failed or dead job was discarded, which its status does not show."""
    if str(job.status) not in ("failed", "dead"):
        return False
    return any(each.facts.get("discarded") for each in db.run(db.calls.jobs.why(job.id)).reasons)


def show_job(job: JobInfo, *, discarded: bool = False) -> None:
    """Print a job: its fields, then its error with the traceback and the output of its process."""
    error = dict(job.last_error or {})
    trace, output = (str(error.pop(name, "")).rstrip() for name in ("traceback", "output"))
    render.show_fields(
        {
            "id": job.id,
            "status": str(job.status),
            "discarded": "yes" if discarded else None,
            "task": job.task,
            "tenant": job.tenant,
            "queue": job.queue,
            "priority": f"{job.priority} ({PRIORITIES[job.priority]})",
            "attempts": f"{job.attempts} of {job.max_attempts}",
            "payload": job.payload,
            "result": job.result,
            "run at": job.run_at,
            "created": job.created_at,
            "started": job.started_at,
            "finished": job.finished_at,
            "waited": _between(job.run_at, job.started_at),
            "took": _between(job.started_at, job.finished_at),
            "deadline": job.deadline,
            "batch": job.batch,
            "progress": job.progress and _progress(job.progress),
            "worker": job.locked_by,
            "heartbeat": job.heartbeat_at,
            "lease until": job.lease_expires_at,
            "dedupe key": job.dedupe_key,
            "last error": render.error_line(error) or None,
            "error code": error.get("code"),
        }
    )
    if trace:
        render.echo(f"\n{trace}")
    if output:
        render.echo("\noutput of its process:", "bold")
        render.echo(output)


def _between(begin: datetime | None, end: datetime | None) -> str | None:
    return None if begin is None or end is None or end < begin else render.duration((end - begin).total_seconds())


def _progress(progress: dict[str, Any]) -> Text:
    """Return the progress that the handler last reported: a bar if the total is known, and its message."""
    done, total, message = progress["done"], progress.get("total"), " ".join(str(progress.get("message") or "").split())
    count = render.number(done) + (f" of {render.number(total)}" if total else "")
    parts = [render.bar(done, total, width=20)] if total else []
    parts += [Text(count), *([Text(render.printable(message))] if message else [])]
    return Text("  ").join(parts)


@group.command(epilog="Example: holdfast jobs cancel 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def cancel(db: Database, id_: Ids, as_json: AsJson = False) -> None:
    """Cancel jobs: waiting ones at once, running ones are asked to stop (canceling); exit 1 when one is unknown."""
    outcomes = db.run(db.calls.jobs.cancel(job_ids(id_)))
    if as_json:
        render.emit_json(outcomes)
    else:
        render.show_table(("id", "outcome"), outcomes.items(), empty="no jobs")
    if "unknown" in outcomes.values():
        raise typer.Exit(1)


@group.command(epilog="""Example: holdfast jobs enqueue app.send '{"to": "a@b.c"}' --tenant acme --delay 60""")
def enqueue(
    db: Database,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name, as in app.send.")],
    payload: Annotated[str, typer.Argument(metavar="JSON", help="Its arguments by name, a JSON object.")] = "{}",
    *,
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default: the task's queue, if a worker has registered it.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="The job's tenant.")] = None,
    delay: Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="Start no earlier than this.")] = None,
    deadline: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Cancel it if it has not started by then.")
    ] = None,
    priority: Annotated[int, typer.Option(min=0, max=3, metavar="N", help="0 critical, 1 high, 2 normal, 3 low.")] = 2,
    dedupe: Annotated[
        str | None, typer.Option(metavar="KEY", help="Add no job while one of this task holds the key.")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="A limit's key, as in domain:example.org. May be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue one job by SQL, without application code."""
    data = _check_payload(payload)
    known = db.run(db.calls.queues.task_queues())
    key = dedupe and payloads.dedupe_key(task, tenant, dedupe)
    job = NewJob(
        ids.make(),
        task,
        data,
        queue or known.get(task, "default"),
        tenant,
        priority,
        delay,
        dedupe_key=key,
        deadline=deadline,
        keys=tuple(limit or ()) or None,
    )
    warn_of_unknown_queue(db, queue)
    # With fresh=False the SQL function looks up the task's registered options.
    accepted = db.run(db.calls.jobs.enqueue(job, "existing", fresh=False))
    if task not in known:
        _warn_of_unknown(task, list(known))
    if as_json:
        render.emit_json({"id": accepted.id, "outcome": accepted.outcome, "queue": job.queue})
    else:
        render.echo(accepted.id if accepted.outcome == "created" else f"{accepted.id}  ({accepted.outcome})")


def _check_payload(text: str) -> bytes:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f'the payload {text!r} is not JSON: {error}; quote it, as in \'{{"to": "a@b.c"}}\'') from None
    if not isinstance(value, dict):
        raise UsageError(f"the payload {text!r} is not a JSON object; give the arguments by name, as in '{{\"n\": 1}}'")
    return text.encode()


def _warn_of_unknown(task: str, known: list[str]) -> None:
    near = difflib.get_close_matches(task, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    render.note(f"warning: no worker has registered a task named {task!r} yet{hint}", "yellow")


@group.command(epilog="Example: holdfast jobs queues --json")
def queues(db: Database, as_json: AsJson = False) -> None:
    """Show how many jobs wait and run in each queue, and pauses; ~ marks an estimate for a large table."""
    found = db.run(db.calls.queues.list())
    for each in found:
        wait = each["oldest_wait"]
        each["oldest_wait"] = None if wait is None else wait.total_seconds()
    if as_json:
        render.emit_json(found)
        return
    counts = ("ready", "running", "later", "dead")
    rows = [
        (
            each["queue"],
            *(render.about(each[name], estimated=name in each["estimated"]) for name in counts),
            render.duration(each["oldest_wait"]),
            _pause(each["paused"]),
        )
        for each in found
    ]
    columns = ("queue", "#ready", "#running", "#later", "#dead", "#oldest wait", "paused")
    render.show_table(columns, rows, empty="no jobs wait, run or are dead, and no queue is paused")


def _pause(pause: dict[str, Any] | None) -> str:
    if pause is None:
        return ""
    until = f"until {render.when(datetime.fromisoformat(pause['until']))}, " if pause["until"] else ""
    return f"{until}by {pause['by']}{f': {reason}' if (reason := pause['reason']) else ''}"


@group.command(epilog="Example: holdfast jobs workers")
def workers(db: Database, as_json: AsJson = False) -> None:
    """Show the workers and their last heartbeats."""
    found = db.run(db.calls.workers.list())
    if as_json:
        render.emit_json(found)
        return
    rows = [
        (
            w["id"],
            w["host"],
            str(w["pid"]),
            w["version"],
            w["queues"],
            w["concurrency"],
            w["started_at"],
            f"{render.duration(w['heartbeat_age'])} ago",
            "stopping" if w["stopping"] else "",
        )
        for w in found
    ]
    columns = ("id", "~host", "#pid", "~version", "~queues", "#slots", "started", "last heartbeat", "note")
    empty = "no worker is running; start one with: holdfast worker MODULE:ATTRIBUTE"
    render.show_rows(columns, rows, head=2, empty=empty)
