"""`holdfast jobs`: list, show, change and enqueue jobs. Needs no application code."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from holdfast.cli import act, render
from holdfast.cli.commands import Commands
from holdfast.cli.options import (
    ArgsOnly,
    AsJson,
    Author,
    Before,
    Id,
    Limit,
    Where,
    checked_id,
    json_object,
    moment,
    seconds,
)
from holdfast.errors import HoldfastError, hint
from holdfast.model.failure import FailedAttempt
from holdfast.model.job import JobInfo

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.model.step import StepInfo

PRIORITIES = ("critical", "high", "normal", "low")
group = Commands(invoke_without_command=True)


@group.listing(epilog="Example: holdfast jobs --status retrying --task app.send --limit 20")
def list_jobs(
    hf: Holdfast, where: Where, args: ArgsOnly = None, before: Before = None, limit: Limit = 50, as_json: AsJson = False
) -> None:
    """List the newest jobs, also by their arguments; show, change and enqueue them."""
    start = before and checked_id(before)
    if args is None and start is None:
        found, rest = hf.jobs.list(**where, limit=limit), None
    else:
        result = hf.jobs.search((args and json_object(args, "--args")) or {}, **where, before=start, limit=limit)
        found, rest = result.jobs, result.next
    show_jobs(hf, found, "created=created_at", where, as_json=as_json, empty="no jobs match", limit=limit)
    if rest is not None:
        render.note(f"there may be more; continue with --before {rest}")


def show_jobs(
    hf: Holdfast,
    found: list[JobInfo],
    time: str,
    where: dict[str, Any],
    *,
    as_json: bool,
    empty: str,
    limit: int | None = None,
) -> None:
    """Print jobs. If there are none, warn if their queue is unknown."""
    if not found:
        warn_of_unknown_queue(hf, where["queue"])
    due = "due, " if any(map(_due, found)) else ""
    columns = f"id, status, ~task, ~tenant, ~queue, #tries, {time}, {due}~last error"
    render.show_list(found, columns, _more, as_json=as_json, head=3, empty=empty, limit=limit)


def _more(job: JobInfo) -> dict[str, Any]:
    error = render.error_line(job.last_error)
    cells = {"status": str(job.status), "tries": f"{job.attempts}/{job.max_attempts}", "last error": error}
    return cells | ({"due": due} if (due := _due(job)) else {})


def _due(job: JobInfo) -> datetime | None:
    """Return when a job that waits for its time is due."""
    waits = str(job.status) in ("queued", "retrying")
    return job.run_at if waits and job.run_at > datetime.now(UTC) else None


def warn_of_unknown_queue(hf: Holdfast, queue: str | None) -> None:
    """Warn if a queue is unknown, and suggest the nearest one."""
    if queue is not None and (hint := hf.queues.hint(queue)) is not None:
        render.note(f"warning: unknown queue {queue}{hint}", "yellow")


@group.command(epilog="Example: holdfast jobs show 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def show(
    hf: Holdfast,
    id_: Id,
    log: Annotated[bool, typer.Option("--log", help="Also what its handler wrote with ctx.log.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show everything about one job, with its failed attempts."""
    show_job(hf, find_job(hf, id_), as_json, log)


def find_job(hf: Holdfast, text: str) -> JobInfo:
    """Return the job with this id, or raise HoldfastError."""
    job = hf.jobs.get(checked_id(text))
    if job is None:
        raise HoldfastError(f"there is no job {text} in schema {hf.settings.schema!r}; history may have been pruned")
    return job


def _was_discarded(hf: Holdfast, job: JobInfo) -> bool:
    """Return whether a failed or dead job was discarded, which its status does not show."""
    if str(job.status) not in ("failed", "dead"):
        return False
    return any(each.facts.get("discarded") for each in hf.jobs.why(job.id).reasons)


def show_job(hf: Holdfast, job: JobInfo, as_json: bool, log: bool = False) -> None:
    """Print a job: its fields, its error with the traceback and the output of its process, failed attempts, log."""
    discarded = _was_discarded(hf, job)
    failures, logs = hf.jobs.failures(job.id), hf.jobs.log(job.id) if log else []
    if as_json:
        more = {"discarded": discarded, "failures": failures} | ({"log": logs} if log else {})
        render.emit_json(asdict(job) | more)
        return
    error = dict(job.last_error or {})
    trace, output = (str(error.pop(name, "")).rstrip() for name in ("traceback", "output"))
    names = (
        "id, status, discarded, task, tenant, queue, priority, attempts, payload, result, run at, created=created_at, "
        "started=started_at, finished=finished_at, waited, took, deadline, batch, waits for=waits_for, progress, "
        "worker=locked_by, "
        "heartbeat=heartbeat_at, lease until=lease_expires_at, dedupe key, last error, error code"
    )
    more = {
        "status": str(job.status),
        "discarded": "yes" if discarded else None,
        "priority": f"{job.priority} ({PRIORITIES[job.priority]})",
        "attempts": f"{job.attempts} of {job.max_attempts}",
        "waited": _between(job.run_at, job.started_at),
        "took": _between(job.started_at, job.finished_at),
        "progress": job.progress and _progress(job.progress),
        "last error": render.error_line(error) or None,
        "error code": error.get("code"),
    }
    render.show_fields(render.pick(job, names) | more)
    _show_failures(failures)
    if trace:
        render.echo(f"\n{trace}")
    if output:
        render.echo("\noutput of its process:", "bold")
        render.echo(output)
    for attempt in logs:
        render.echo(f"\nlog of attempt {attempt.attempt}:", "bold")
        for line in attempt.lines:
            render.echo(f"{render.when(line.at)} {line.level:<7} {line.text}")


def _show_failures(failures: list[FailedAttempt]) -> None:
    if failures:
        render.echo("\nfailed attempts:", "bold")
        columns = "#attempt, started=started_at, #took, outcome, ~error, ~where=frame, ~worker"
        names, rows = render.rows_of(
            failures, columns, lambda it: {"took": render.duration(it.seconds), "error": render.error_line(asdict(it))}
        )
        render.show_rows(names, rows, head=4, empty="")


def _between(begin: datetime | None, end: datetime | None) -> str | None:
    return None if begin is None or end is None or end < begin else render.duration((end - begin).total_seconds())


def _progress(progress: dict[str, Any]) -> Text:
    """Return the progress that the handler last reported: a bar if the total is known, and its message."""
    done, total, message = progress["done"], progress.get("total"), " ".join(str(progress.get("message") or "").split())
    count = render.number(done) + (f" of {render.number(total)}" if total else "")
    parts = [render.bar(done, total, width=20)] if total else []
    parts += [Text(count), *([Text(render.printable(message))] if message else [])]
    return Text("  ").join(parts)


group.command(epilog="Example: holdfast jobs retry --task app.send --error TimeoutError --reason 'back'")(act.retry)
group.command(epilog="Example: holdfast jobs discard --status failed --until 30d")(act.discard)


@group.command(epilog="Example: holdfast jobs cancel --queue mail --tenant acme --reason 'account closed'")
def cancel(hf: Holdfast, jobs: act.Selected) -> None:
    """Cancel jobs: waiting ones at once, running ones are asked to stop.

    With ids, it prints what became of each: canceled, canceling,
    finished or unknown; exit 1 when one is unknown.
    """
    if not jobs.ids or jobs.where:
        act.act(hf, "cancel", jobs)
        return
    found = hf.jobs.cancel(*jobs.ids, by=jobs.by, reason=jobs.reason)
    outcomes = {each: found[each] for each in jobs.ids}
    if jobs.as_json:
        render.emit_json(outcomes)
    else:
        render.show_table(("id", "outcome"), outcomes.items(), empty="no jobs")
    if "unknown" in outcomes.values():
        raise typer.Exit(1)


@group.command(epilog="Example: holdfast jobs prioritize --task app.report --tenant acme --to 1")
def prioritize(
    hf: Holdfast,
    jobs: act.Selected,
    to: Annotated[int, typer.Option(min=0, max=3, metavar="N", help="0 critical, 1 high, 2 normal, 3 low.")],
) -> None:
    """Give waiting jobs another priority."""
    act.act(hf, "prioritize", jobs, priority=to)


@group.command(epilog="Example: holdfast jobs move --queue default --task app.report --to reports")
def move(
    hf: Holdfast, jobs: act.Selected, to: Annotated[str, typer.Option(metavar="QUEUE", help="The target queue.")]
) -> None:
    """Move waiting jobs to another queue; their limits stay."""
    act.act(hf, "move", jobs, queue=to)


@group.command(epilog="Example: holdfast jobs reschedule --task app.report --to 2h")
def reschedule(
    hf: Holdfast,
    jobs: act.Selected,
    to: Annotated[str, typer.Option(metavar="TIME", help="now, 2h (from now), or 2026-01-31T12:00.")],
) -> None:
    """Start waiting jobs at another time."""
    act.act(hf, "reschedule", jobs, run_at=_start_time(to))


def _start_time(text: str) -> datetime:
    now = datetime.now().astimezone()
    if text == "now":
        return now
    at = moment(text, "--to") or now
    return at if "-" in text else now + (now - at)


@group.command(epilog="""Example: holdfast jobs edit 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f --args '{"to": "a@b.c"}'""")
def edit(
    hf: Holdfast,
    id_: Id,
    args: Annotated[str, typer.Option(metavar="JSON", help="The arguments to change; others stay.")],
    *,
    author: Author,
    as_json: AsJson = False,
) -> None:
    """Change arguments of a waiting job, or of a failed or dead one, which is then retried.

    The old ones stay in `holdfast audit --target ID`. Arguments are not
    checked against the task's signature: that is in the application.
    """
    outcome = hf.jobs.edit(checked_id(id_), json_object(args, "--args"), **author)
    render.show_result({"id": id_, "outcome": outcome}, f"{outcome} job {id_}", as_json=as_json)


@group.command(epilog="Example: holdfast jobs steps 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def steps(hf: Holdfast, id_: Id, as_json: AsJson = False) -> None:
    """Show the durable steps of a job: results, sleeps, signals, children."""
    found = hf.jobs.steps(find_job(hf, id_).id)
    columns = "~name, kind, state, #try=attempt, started=started_at, until, job or batch=ref, ~undo, undo job=undo_job"
    render.show_list(found, columns, _step, as_json=as_json, head=3, empty="the job has no steps")


def _step(step: StepInfo) -> dict[str, Any]:
    state = "timed out" if step.timed_out else "waits" if step.finished_at is None else "done"
    return {"state": "undone" if step.undo_job else state, "until": step.finished_at or step.due_at}


@group.command(epilog="Example: holdfast jobs rerun 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f --from-step charge")
def rerun(
    hf: Holdfast,
    id_: Id,
    from_step: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run this step and all later ones again; keep earlier results.")
    ] = None,
    *,
    author: Author,
    as_json: AsJson = False,
) -> None:
    """Run a job that has ended again, with fresh attempts."""
    put_back = hf.jobs.rerun(checked_id(id_), from_step=from_step, **author)
    if not put_back:
        raise HoldfastError(f"job {id_} was not rerun: a newer job holds its dedupe key")
    render.show_result({"id": id_, "outcome": "queued"}, f"queued job {id_}", as_json=as_json)


@group.command(epilog="Example: holdfast jobs undo 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f --reason 'wrong order'")
def undo(hf: Holdfast, id_: Id, *, author: Author, as_json: AsJson = False) -> None:
    """Undo the finished steps of a job that has ended, the last first."""
    undone = hf.jobs.compensate(checked_id(id_), **author)
    render.show_result({"id": id_, "undone": undone}, f"{undone} steps are being undone", as_json=as_json)


@group.command(epilog="""Example: holdfast jobs enqueue app.send '{"to": "a@b.c"}' --tenant acme --delay 60""")
def enqueue(
    hf: Holdfast,
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
    json_object(payload, "the payload")
    known = hf.queues.of_tasks()
    queue_name = queue or known.get(task, "default")
    warn_of_unknown_queue(hf, queue)
    accepted = hf.jobs.enqueue(
        task,
        payload.encode(),
        queue=queue_name,
        tenant=tenant,
        priority=priority,
        delay=delay,
        deadline=deadline,
        dedupe=dedupe,
        limits=limit or (),
    )
    if task not in known:
        render.note(f"warning: no worker has registered a task named {task!r} yet{hint(task, known)}", "yellow")
    text = accepted.id if accepted.outcome == "created" else f"{accepted.id}  ({accepted.outcome})"
    render.show_result({"id": accepted.id, "outcome": accepted.outcome, "queue": queue_name}, text, as_json=as_json)


@group.command(epilog="Example: holdfast jobs queues --json")
def queues(hf: Holdfast, as_json: AsJson = False) -> None:
    """Show how many jobs wait and run in each queue, and pauses; ~ marks an estimate for a large table."""
    found = hf.queues.list()
    for each in found:
        wait = each["oldest_wait"]
        each["oldest_wait"] = None if wait is None else wait.total_seconds()
    columns = "queue, #ready, #running, #later, #dead, #oldest wait, paused"
    empty = "no jobs wait, run or are dead, and no queue is paused"
    render.show_list(found, columns, _queue, as_json=as_json, head=7, empty=empty)


def _queue(queue: dict[str, Any]) -> dict[str, Any]:
    counts = {
        name: render.about(queue[name], estimated=name in queue["estimated"])
        for name in ("ready", "running", "later", "dead")
    }
    return counts | {"oldest wait": render.duration(queue["oldest_wait"]), "paused": _pause(queue["paused"])}


def _pause(pause: dict[str, Any] | None) -> str:
    if pause is None:
        return ""
    until = f"until {render.when(datetime.fromisoformat(pause['until']))}, " if pause["until"] else ""
    return f"{until}by {pause['by']}{f': {reason}' if (reason := pause['reason']) else ''}"


@group.command(epilog="Example: holdfast jobs wanted mail --within 30s")
def wanted(
    hf: Holdfast,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")],
    within: Annotated[str, typer.Option(metavar="TIME", help="Time in which all waiting jobs have started.")] = "60s",
    as_json: AsJson = False,
) -> None:
    """Print how many slots a queue wants, for autoscalers: to start what waits in time, and keep up with its rate."""
    warn_of_unknown_queue(hf, queue)
    slots = hf.queues.wanted(queue, within=seconds(within, "--within"))
    render.show_result({"queue": queue, "slots": slots}, str(slots), as_json=as_json)
