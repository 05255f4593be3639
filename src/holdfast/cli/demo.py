"""`holdfast demo`: two workers, twelve tenants, every job accounted for."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import render
from holdfast.cli.address import hide_password
from holdfast.cli.commands import application
from holdfast.cli.dev import EMBEDDED
from holdfast.cli.worker import child_command
from holdfast.errors import HoldfastError
from holdfast.model.job import ids
from holdfast.store.migrate import migrate

if TYPE_CHECKING:
    from holdfast.client import Holdfast

TENANTS = ("acme", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "iris", "juniper", "kestrel", "lumen")
WORKERS = 2
CONCURRENCY = 10
ROUNDS = 4
REMINDER_DELAY = 2.0
POLL_INTERVAL = 0.2
REPORT_EVERY = 2.0
STALLED_AFTER = 60.0
STOP_WITHIN = 15.0
FINAL = ("succeeded", "failed", "dead", "canceled")


def demo(
    jobs: Annotated[int, typer.Option(min=12, metavar="N", help="How many jobs.")] = 6000,
    dsn: Annotated[
        str, typer.Option(metavar="DSN", help="Where to run; HOLDFAST_DSN is not used, it may be production.")
    ] = EMBEDDED,
) -> None:
    """See it work: two workers, twelve tenants, jobs that fail, wait and recover."""
    render.echo("Holdfast: PostgreSQL is the queue, two workers share it.", "bold")
    began = time.monotonic()
    with application(dsn=dsn) as app:
        done = migrate(app.settings)
        render.echo(f"database ready in {time.monotonic() - began:.1f} s: {dsn}, schema version {done.version}")
        run = DemoRun(f"demo-{secrets.token_hex(3)}", ids.make(), jobs)
        try:
            with _workers(run, dsn):
                _enqueue(app, run)
                _follow(app, run)
        except BaseException:
            _cancel_rest(app, run)
            raise
        sound = _sum_up(app, run)
    _show_next_steps(dsn, run)
    if not sound:
        raise typer.Exit(1)


@dataclass
class DemoRun:
    """One run of the demo. It has its own queue, so it counts and touches nothing else in the database."""

    queue: str
    first_id: str
    jobs: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    log: IO[bytes] | None = None
    began: float = field(default_factory=time.monotonic)

    def totals(self) -> dict[str, int]:
        """Return the number of jobs of each tenant: the first has many times as many as the last."""
        return Counter(tenant_of(number) for number in range(self.jobs))


def tenant_of(number: int) -> str:
    """Return a job's tenant. Each gets one of the first dozen, then the k-th about 1/k as many as the first."""
    if number < len(TENANTS):
        return TENANTS[number]
    return TENANTS[_SHARES[number * 7919 % len(_SHARES)]]


_SHARES = [place for place in range(len(TENANTS)) for _ in range(60 // (place + 1))]


def call_of(number: int) -> tuple[str, dict[str, Any]]:
    """Return a job's task and arguments; the mix is the same for every hundred."""
    kind, hundred = number * 37 % 100, number // 100
    if kind < 62:
        return "demo.send_email", {"number": number}
    if kind < 80:
        return "demo.resize_image", {"number": number}
    if kind < 95:
        return "demo.sync_contact", {"number": number}
    if kind < 98:
        return "demo.send_reminder", {"number": number}
    if kind == 98:
        return "demo.charge_card", {"number": number, "expired": hundred % 5 == 0}
    return "demo.call_partner", {"number": number, "moved": hundred % 10 == 0}


def _enqueue(app: Holdfast, run: DemoRun) -> None:
    """Enqueue everything in a few rounds, one statement for each tenant and task."""
    from holdfast.cli.demo_app import hf
    from holdfast.cli.load import redirect

    redirect(hf, dsn=app.settings.dsn, schema=app.settings.schema)
    began = time.monotonic()
    with hf:
        for part in range(ROUNDS):
            groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
            for number in range(run.jobs * part // ROUNDS, run.jobs * (part + 1) // ROUNDS):
                task, arguments = call_of(number)
                groups[tenant_of(number), task].append(arguments)
            for (tenant, task), calls in groups.items():
                delay = REMINDER_DELAY if task == "demo.send_reminder" else None
                hf.registry.find_task(task).using(tenant=tenant, queue=run.queue, delay=delay).enqueue_many(calls)
    render.echo(f"accepted {run.jobs:,} jobs of {len(TENANTS)} tenants in {time.monotonic() - began:.1f} s")


@contextlib.contextmanager
def _workers(run: DemoRun, dsn: str) -> Iterator[None]:
    """Run two worker processes for the length of a block."""
    command = child_command(
        "holdfast.cli.demo_app:hf",
        {"queues": run.queue, "concurrency": CONCURRENCY, "poll": 0.5, "log_level": "error", "dsn": dsn},
    )
    with tempfile.TemporaryFile() as run.log:
        try:
            for _ in range(WORKERS):
                run.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=run.log, stderr=run.log))
            render.echo(f"started {WORKERS} workers")
            yield
        finally:
            _stop(run.processes)


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _cancel_rest(app: Holdfast, run: DemoRun) -> None:
    """Cancel the waiting jobs of an interrupted run."""
    for status in ("queued", "retrying"):
        left = app.jobs.list(queue=run.queue, status=status, limit=run.jobs)
        app.jobs.cancel(*(job.id for job in left))


@dataclass(frozen=True)
class DemoTally:
    """The progress of a run: jobs by status, and final ones by tenant and worker."""

    by_tenant: Counter[str]
    by_status: Counter[str]
    by_worker: Counter[str]

    @property
    def final(self) -> int:
        return sum(self.by_status[status] for status in FINAL)


def _look(app: Holdfast, run: DemoRun) -> DemoTally:
    tally = DemoTally(Counter(), Counter(), Counter())
    for tenant, status, worker, number in app.database.sync_pool.run(
        app.database.calls.queues.run_tally(run.queue, run.first_id)
    ):
        tally.by_status[status] += number
        if status in FINAL:
            tally.by_tenant[tenant or ""] += number
            tally.by_worker[worker or ""] += number
    return tally


def _follow(app: Holdfast, run: DemoRun) -> None:
    """Show the run until every job is final: live on a terminal, else as occasional lines."""
    if render.out().is_terminal:
        from rich.live import Live

        totals, throughput = run.totals(), Throughput()
        with Live(console=render.out(), auto_refresh=False) as live:
            for tally in _tallies(app, run):
                live.update(_picture(run, totals, tally, throughput.update(tally.final)), refresh=True)
    else:
        _follow_in_lines(app, run)


def _follow_in_lines(app: Holdfast, run: DemoRun) -> None:
    throughput, printed_at = Throughput(), time.monotonic()
    for tally in _tallies(app, run):
        rate = throughput.update(tally.final)
        if time.monotonic() - printed_at >= REPORT_EVERY or tally.final == run.jobs:
            printed_at = time.monotonic()
            render.echo(f"{tally.final:>7,} of {run.jobs:,} done, {rate:,.0f} jobs/s")


def _tallies(app: Holdfast, run: DemoRun) -> Iterator[DemoTally]:
    """Yield the progress until all jobs are final. Raise HoldfastError if a worker dies or the run stalls."""
    last, moved_at = -1, time.monotonic()
    while True:
        tally = _look(app, run)
        yield tally
        if tally.final >= run.jobs:
            return
        if tally.final != last:
            last, moved_at = tally.final, time.monotonic()
        if time.monotonic() - moved_at > STALLED_AFTER or any(p.poll() is not None for p in run.processes):
            raise HoldfastError(f"the demo's workers stopped working: {_log_tail(run)}")
        time.sleep(POLL_INTERVAL)


def _log_tail(run: DemoRun) -> str:
    if run.log is None:
        return "no log"
    run.log.seek(0)
    return run.log.read().decode(errors="replace").strip()[-2000:] or "their log is empty"


class Throughput:
    """Jobs per second, as a moving average over 1.5 seconds."""

    def __init__(self) -> None:
        self._looks: list[tuple[float, int]] = []

    def update(self, final: int) -> float:
        """Add a count and return the rate."""
        now = time.monotonic()
        self._looks = [look for look in self._looks if now - look[0] < 1.5] + [(now, final)]
        (since, before) = self._looks[0]
        return (final - before) / (now - since) if now > since else 0.0


def _picture(run: DemoRun, totals: dict[str, int], tally: DemoTally, rate: float) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for tenant, total in totals.items():
        done = tally.by_tenant[tenant]
        table.add_row(tenant, ProgressBar(total, done, width=40), f"{done:,} of {total:,}")
    table.add_row(
        Text("all", "bold"),
        ProgressBar(run.jobs, tally.final, width=40),
        Text(f"{tally.final:,} of {run.jobs:,}", "bold"),
    )
    waiting = {name: tally.by_status[name] for name in ("queued", "running", "retrying") if tally.by_status[name]}
    state = ", ".join(f"{number:,} {name}" for name, number in waiting.items()) or "nothing left"
    workers = "   ".join(f"{_short(name)}: {number:,}" for name, number in sorted(tally.by_worker.items()) if name)
    return Group(table, Text(f"{rate:,.0f} jobs/s   {state}"), Text(workers))


def _sum_up(app: Holdfast, run: DemoRun) -> bool:
    """Print the summary; return whether every job is accounted for exactly once."""
    summary, tally = (
        app.database.sync_pool.run(app.database.calls.queues.run_summary(run.queue, run.first_id)),
        _look(app, run),
    )
    rows = list(itertools.zip_longest(_statuses(tally), _by_worker(tally), fillvalue=("", "")))
    columns = ("status", "#jobs", "worker", "#finished")
    render.out().print(render.make_table(columns, [(*a, *b) for a, b in rows]))
    rate = run.jobs / summary["seconds"] if summary["seconds"] else 0.0
    tried = f"{run.jobs:,} jobs took {summary['attempts']:,} attempts"
    render.echo(f"{tried} in {summary['seconds']:.1f} s: {rate:,.0f} jobs/s")
    median, most = (render.duration(summary[name]) for name in ("wait_p50", "wait_p99"))
    render.echo(f"wait before the start: {median} (median), {most} (p99)")
    render.echo("these jobs take their time on purpose; for speed, see: holdfast bench", "dim")
    sound = bool(summary["rows"] == summary["jobs"] == summary["final"] == run.jobs)
    if sound:
        render.echo(f"checked: every one of the {run.jobs:,} jobs has exactly one final status", "bold green")
    else:
        found = f"{summary['jobs']:,} found in {summary['rows']:,} places, {summary['final']:,} final"
        render.echo(f"NOT SOUND: {run.jobs:,} jobs accepted, {found}", "bold red")
    return sound


def _statuses(tally: DemoTally) -> list[tuple[str, int]]:
    return [(status, tally.by_status[status]) for status in FINAL if tally.by_status[status]]


def _by_worker(tally: DemoTally) -> list[tuple[str, int]]:
    return [(_short(name), number) for name, number in sorted(tally.by_worker.items()) if name]


def _short(worker: str) -> str:
    return f"worker {worker.rpartition('-')[2]}"


def _show_next_steps(dsn: str, run: DemoRun) -> None:
    """Print commands to try next; the database is kept."""
    render.echo("\nThe jobs are still there. Try:", "bold")
    if shutil.which("holdfast") is None:
        render.echo(f"  . {shlex.quote(os.path.relpath(Path(sys.prefix) / 'bin' / 'activate'))}")
    render.echo(f"  export HOLDFAST_DSN={shlex.quote(hide_password(dsn))}")
    for line in (
        "holdfast jobs --limit 10",
        "holdfast dead                     (failed jobs stay until you act)",
        f"holdfast dead retry --all --queue {run.queue} --yes",
        f"holdfast worker holdfast.cli.demo_app:hf --queues {run.queue}",
        "holdfast doctor",
        "holdfast dev holdfast.cli.demo_app:hf   (and look at all of it in a browser, at the address it prints)",
        "holdfast dev MODULE:ATTRIBUTE     (your own application)",
    ):
        render.echo(f"  {line}")
