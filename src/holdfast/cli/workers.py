"""`holdfast workers`: list the worker processes, and stop one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import render
from holdfast.cli.commands import Commands
from holdfast.cli.options import AsJson, Author

if TYPE_CHECKING:
    from holdfast.client import Holdfast

COLUMNS = (
    "id, state, ~host, pid, #running, #slots, ~queues, heartbeat, lease left, started=started_at, version, ~stopped by"
)
IDLE: dict[str, Any] = {"jobs": 0, "tasks": [], "oldest": None, "lease": None}

group = Commands(invoke_without_command=True)
WorkerId = Annotated[
    str, typer.Argument(metavar="ID", help="The worker's id, or a beginning that no other worker's id has.")
]


@group.listing(epilog="Example: holdfast workers --json")
def list_workers(hf: Holdfast, as_json: AsJson = False) -> None:
    """List workers: their state, running jobs, slots, heartbeats and leases; stop one.

    With --processes, each process is a worker of its own.
    """
    running = {each["worker"]: each for each in hf.workers.running()}
    found = [{**IDLE, **running.get(each["id"], {}), **each} for each in hf.workers.list()]
    for each in found:
        each.pop("worker", None)
    empty = "no worker is registered; start one with: holdfast worker MODULE:ATTRIBUTE"
    render.show_list(found, COLUMNS, _more, as_json=as_json, head=4, empty=empty)


def _more(it: dict[str, Any]) -> dict[str, Any]:
    reason = f": {it['stop_reason']}" if it["stop_reason"] else ""
    return {
        "running": it["jobs"],
        "slots": it["concurrency"],
        "queues": it["queues"] or "all",
        "heartbeat": f"{render.duration(it['heartbeat_age'])} ago",
        "lease left": None if it["lease"] is None else render.duration(max(it["lease"], 0)),
        "stopped by": it["stop_by"] and f"{it['stop_by']}{reason}",
    }


@group.command(epilog="Example: holdfast workers stop worker-1767225600000-1f2e3d4c --reason 'host is replaced'")
def stop(
    hf: Holdfast,
    id_: WorkerId,
    *,
    now: Annotated[
        bool, typer.Option("--now", help="Give running jobs back at once, instead of finishing them.")
    ] = False,
    author: Author,
    as_json: AsJson = False,
) -> None:
    """Ask one worker to claim nothing more, finish its jobs and exit 0.

    It reads the request every 2 seconds (setting upkeep). A supervisor does not start
    it again; other tools that restart processes may.
    """
    worker = hf.workers.stop(id_, now=now, **author)
    outcome = "stopping" if now else "draining"
    render.show_result({"id": worker, "outcome": outcome}, f"{worker}: {outcome}", as_json=as_json)
