"""`holdfast top`: queues, tenants' shares, limits in use and workers, live."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.cli import limits, render
from holdfast.cli.options import AsJson

if TYPE_CHECKING:
    from holdfast.client import Holdfast

MOST = 10_000  # tenants
SHOWN = 10
BAR = 24
WORKER = "worker=id, #claimed=running, #slots=concurrency, ~queues, last heartbeat"


def top(
    hf: Holdfast,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and exit.")] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time between updates.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Watch queues, tenants' shares, limits in use and workers; Ctrl-C ends it.

    The cost does not depend on how many jobs wait: ~ marks an estimate
    for a large table. Claimed jobs are those that run, and a few that
    come next. Without a terminal, and with --json, it prints one
    snapshot.
    """
    if as_json:
        render.emit_json(look(hf))
    elif once or not render.out().is_terminal:
        render.out().print(draw(look(hf), None))
    else:
        _watch(hf, every)


def look(hf: Holdfast) -> dict[str, Any]:
    """Return a snapshot: each part as a list, the busiest first."""
    running, workers = hf.queues.running(), hf.workers.list()
    for worker in workers:
        worker["running"] = sum(each["running"] for each in running if each["worker"] == worker["id"])
    depth, tenants = hf.queues.list(), hf.limits.tenant_shares(MOST)
    totals = hf.queues.totals()
    keys = hf.limits.list(busy=True, limit=SHOWN, busiest_first=True)
    return {
        **totals,
        "later": sum(queue["later"] for queue in depth),
        "later_estimated": any("later" in queue["estimated"] for queue in depth),
        "queues": _queues(depth, running, workers),
        "tenants": tenants[:SHOWN],
        "more_tenants": len(tenants[SHOWN:]),
        "limits": keys,
        "more_limits": max(hf.limits.count_busy() - SHOWN, 0) if len(keys) == SHOWN else 0,
        "workers": workers,
    }


def _queues(
    depth: list[dict[str, Any]], running: list[dict[str, Any]], workers: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    served = {name for worker in workers if worker["alive"] and not worker["stopping"] for name in worker["queues"]}
    queues = [
        {
            "queue": (name := queue["queue"]),
            "ready": queue["ready"],
            "running": sum(each["running"] for each in running if each["queue"] == name),
            "estimated": "ready" in queue["estimated"],
            "paused": queue["paused"] is not None,
            "served": name in served,
        }
        for queue in depth
        if queue["ready"] or queue["running"]
    ]
    return sorted(queues, key=lambda queue: (-queue["ready"], queue["queue"]))


def _watch(hf: Holdfast, every: float) -> None:
    from rich.live import Live

    try:
        with Live(console=render.out(), screen=True, auto_refresh=False) as live:
            before = None
            while True:
                now = look(hf)
                live.update(draw(now, before), refresh=True)
                before = now
                time.sleep(every)
    except KeyboardInterrupt:
        return


def draw(now: dict[str, Any], before: dict[str, Any] | None) -> RenderableType:
    """Render a snapshot; with the previous one, also how many jobs end in a second."""
    parts: list[RenderableType] = [_head(now, before)]
    tables = {
        "queues": render.rows_of(now["queues"][:SHOWN], "queue, #ready, #claimed=running, note", _queue),
        "tenants": render.rows_of(now["tenants"], "tenant, share, #claimed=running, #weight", _tenant),
        "limits": render.rows_of(now["limits"], limits.COLUMNS, limits.more),
        "workers": render.rows_of(_living_first(now)[:SHOWN], WORKER, _worker),
    }
    more = {
        "queues": len(now["queues"][SHOWN:]),
        "tenants": now["more_tenants"],
        "limits": now["more_limits"],
        "workers": len(now["workers"][SHOWN:]),
    }
    for name, (columns, rows) in tables.items():
        table = render.make_table(columns, rows)
        if table.row_count:
            parts += [Text(""), table]
        if more[name]:
            parts.append(Text(f"and {more[name]:,} more {'keys' if name == 'limits' else name}", "bright_black"))
    return Group(*parts)


def _head(now: dict[str, Any], before: dict[str, Any] | None) -> Text:
    alive = [worker for worker in now["workers"] if worker["alive"]]
    slots = sum(worker["concurrency"] for worker in alive)
    # A worker claims a few jobs ahead, and ended jobs stay claimed until their outcome is stored.
    busy = sum(min(worker["running"], worker["concurrency"]) for worker in alive)
    more = sum(worker["running"] for worker in alive) - busy
    ahead = f", {more:,} claimed ahead" if more else ""
    parts = [render.when(now["at"]), render.plural(len(alive), "worker"), f"{busy:,} of {slots:,} slots busy{ahead}"]
    if now["later"]:
        parts.append(f"{render.about(now['later'], estimated=now['later_estimated'])} later")
    if before is not None:
        parts.append(f"{_ended(now, before):,.0f} ended a second")
    return Text("  ".join(parts), "bold", no_wrap=True, overflow="ellipsis")


def _ended(now: dict[str, Any], before: dict[str, Any]) -> float:
    passed = (now["at"] - before["at"]).total_seconds()
    return max(now["ended"] - before["ended"], 0) / passed if passed > 0 else 0.0


def _queue(queue: dict[str, Any]) -> dict[str, Any]:
    notes = {"paused": queue["paused"], "no worker": not queue["served"]}
    note = Text(", ".join(name for name, holds in notes.items() if holds), "yellow")
    return {"ready": render.about(queue["ready"], estimated=queue["estimated"]), "note": note}


def _tenant(tenant: dict[str, Any]) -> dict[str, Any]:
    name = Text("(no tenant)", "bright_black") if tenant["tenant"] is None else tenant["tenant"]
    weight = None if tenant["weight"] == 1 else render.number(tenant["weight"])
    return {"tenant": name, "share": render.bar(tenant["share"], 1, width=BAR), "weight": weight}


def _worker(worker: dict[str, Any]) -> dict[str, Any]:
    state = ", stopping" if worker["stopping"] else "" if worker["alive"] else ", lost"
    heartbeat = f"{render.duration(worker['heartbeat_age'])} ago{state}"
    return {"last heartbeat": Text(heartbeat, "" if worker["alive"] else "red")}


def _living_first(now: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(now["workers"], key=lambda worker: not worker["alive"])
