"""`holdfast tick`: one bounded pass, for cron."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import render
from holdfast.cli.options import AsJson, Common, Target
from holdfast.cli.worker import AllQueues, Concurrency, Queues, log, prepared, run
from holdfast.errors import HoldfastError
from holdfast.model.job import MOST_COUNTED
from holdfast.telemetry import logs

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.model.tick import Tick

COUNTS = ("claimed", "processed", "succeeded", "failed", "throttled", "contention", "depth")

EXACT = 10_000  # above this, record_tick() estimates how many wait


def tick(
    target: Target,
    *,
    max_jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Claim at most this many jobs.")] = 200,
    per_tenant: Annotated[int, typer.Option(min=1, metavar="N", help="At most this many of one tenant.")] = 25,
    queues: Queues = None,
    all_queues: AllQueues = False,
    concurrency: Concurrency = None,
    as_json: AsJson = False,
    common: Common,
) -> None:
    """Claim a bounded number of jobs, fairly, run them, and exit. Concurrent ticks are safe."""
    from holdfast.worker.tick import TickWorker

    hf = prepared(target, {"queues": queues, "concurrency": concurrency, **common}, all_queues)
    done = run(TickWorker(hf, max_jobs, per_tenant).tick(handle_signals=True))
    _warn_of_waiting_jobs(hf)
    if as_json:
        render.emit_json(done)
    else:
        show(done)


def _warn_of_waiting_jobs(hf: Holdfast) -> None:
    """Warn of due jobs in queues that neither this tick nor a live worker serves. A failure of the check is ignored."""
    from holdfast.client.delivery import with_queues

    served = with_queues(hf, hf.settings).queue_list
    with hf, suppress(HoldfastError):
        waiting = [each for each in hf.queues.unserved() if each["jobs"] and each["queue"] not in served]
        if waiting:
            found = ", ".join(
                f"{each['queue']} ({render.plural(each['jobs'], 'job', MOST_COUNTED)})" for each in waiting
            )
            hint = "--queues NAMES or --all-queues"
            logs.event(log, logging.WARNING, "jobs wait in queues not served", queues=found, hint=hint)


def show(done: Tick) -> None:
    row: list[object] = [getattr(done, name) for name in COUNTS[:-1]]
    depth = f"~{done.depth:,}" if done.depth > EXACT else done.depth
    render.show_table([f"#{name}" for name in COUNTS], [[*row, depth]], empty="")
    if done.tenants:
        rows = sorted(done.tenants.items(), key=lambda each: (-each[1], each[0]))
        render.show_table(("tenant", "#claimed"), [(name or "(none)", jobs) for name, jobs in rows], empty="")
