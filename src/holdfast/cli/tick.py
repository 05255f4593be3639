"""`holdfast tick`: one bounded pass, for cron."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import render
from holdfast.cli.options import AsJson, Common, Target
from holdfast.cli.worker import AllQueues, Concurrency, Queues, prepared, run

if TYPE_CHECKING:
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
    if as_json:
        render.emit_json(done)
    else:
        _show(done)


def _show(done: Tick) -> None:
    row: list[object] = [getattr(done, name) for name in COUNTS[:-1]]
    depth = f"~{done.depth:,}" if done.depth > EXACT else done.depth
    render.show_table([f"#{name}" for name in COUNTS], [[*row, depth]], empty="")
    if done.tenants:
        rows = sorted(done.tenants.items(), key=lambda each: (-each[1], each[0]))
        render.show_table(("tenant", "#claimed"), [(name or "(none)", jobs) for name, jobs in rows], empty="")
