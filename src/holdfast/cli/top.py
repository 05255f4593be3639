"""`holdfast top`: queues, tenants' shares, limits in use and workers, live."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.cli import limits, render
from holdfast.cli.options import AsJson
from holdfast.model import health

if TYPE_CHECKING:
    from holdfast.client import Holdfast

SHOWN = 10  # rows of a table without a terminal
CHARTED = 20  # minutes
WIDE = 120  # columns, from which tables stand side by side
REST_EVERY = 5.0  # seconds between reads of all but the snapshot
STALE = 10.0  # seconds
LEVELS = {"warning": "yellow", "critical": "red"}
UNITS = {"failing_share": "%", "wait_over_target": "x", "upkeep_late": "s"}

QUEUE = "~queue, #ready, #running, #/min=ended, #failed, #oldest=oldest_wait, #p50, #p95, #p99, note"
TASK = "~task, #ready, #running, #/min=ended, #failed, #p50, #p95"
TENANT = "~tenant, share, #running, #ready"
LIMIT = "~key, use, rate, breaker, ~paused, #throttled, ~note"
WORKER = "~worker=id, #slots=concurrency, ~queues, heartbeat"


def top(
    hf: Holdfast,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one picture and exit.")] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time between updates.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Watch queues, tenants' shares, limits in use and workers; Ctrl-C ends it.

    It reads the snapshot that the leader takes every second or two, so
    its cost does not depend on how many jobs wait: ~ marks an estimate
    for a large table. p50, p95 and p99 are the waits, from due to start,
    of the last minute; failed is the share of its attempts. The charts
    cover 20 minutes. Without a terminal, and with --json, it prints one
    picture.
    """
    if as_json:
        render.emit_json({**hf.queues.figures(), **rest(hf)})
    elif once or not render.out().is_terminal:
        render.out().print(draw(hf.queues.figures(), rest(hf), None))
    else:
        _watch(hf, every)


def rest(hf: Holdfast) -> dict[str, Any]:
    """Return what is not in the snapshot and changes slowly."""
    return {
        "minutes": hf.queues.minutes(CHARTED * 60),
        "levels": hf.workers.levels(),
        "limits": hf.limits.list(busy=True, limit=50, busiest_first=True),
        "alive": hf.workers.list(),
    }


def _watch(hf: Holdfast, every: float) -> None:
    from rich.live import Live

    try:
        with Live(console=render.out(), screen=True, auto_refresh=False) as live:
            due = 0.0
            while True:
                if time.monotonic() >= due:
                    slow, due = rest(hf), time.monotonic() + REST_EVERY
                live.update(draw(hf.queues.figures(), slow, render.out().height), refresh=True)
                time.sleep(every)
    except KeyboardInterrupt:
        return


def draw(now: dict[str, Any], slow: dict[str, Any], height: int | None) -> RenderableType:
    """Render a picture of at most this many lines."""
    wide = render.out().is_terminal and render.out().width >= WIDE
    head = [_first_line(now, slow), _health(now, slow), *_charts(now, slow["minutes"])]
    paused = {limit.key for limit in slow["limits"] if limit.paused}
    served = {name for worker in slow["alive"] if _alive(worker) for name in worker["queues"]}
    busy = [queue for queue in now["queues"] if queue["ready"] or queue["running"] or queue["ended"]]

    def queue_cells(queue: dict[str, Any]) -> dict[str, Any]:
        minutes = [row for row in slow["minutes"] if row["queue"] == queue["queue"]] if wide else []
        chart = render.sparkline([*_by_minute(now["at"], minutes, "ready"), queue["ready"]])
        return _queue(queue, paused, served) | ({"ready in 20 min": Text(chart, "cyan")} if wide else {})

    tables: dict[str, tuple[str, Sequence[Any], Any]] = {
        "queues": (f"{QUEUE}, ready in 20 min" if wide else QUEUE, busy, queue_cells),
        "tenants": (TENANT, [each for each in now["tenants"] if each["running"] or each["ready"]], _tenant),
        "keys": (LIMIT, slow["limits"], limits.more),
        "workers": (WORKER, sorted(slow["alive"], key=lambda worker: not worker["alive"]), _worker),
    }
    if wide or height is None:
        tables["tasks"] = (TASK, [task for task in now["tasks"] if task["ready"] or task["ended"]], _rates)
    counts = {name: len(items) for name, (_, items, _) in tables.items() if items}
    below = [name for name in counts if name != "queues"]
    pairs = [below[n : n + 2] for n in range(0, len(below), 2)] if wide else [[name] for name in below]
    bands = [["queues"], *pairs] if busy else pairs
    shown = _fit(counts, bands, None if height is None else height - len(head))
    return Group(*head, *(_side_by_side([_table(n, *tables[n], most=shown[n]) for n in band]) for band in bands))


def _fit(counts: dict[str, int], bands: list[list[str]], room: int | None) -> dict[str, int]:
    """Return how many rows of each table to show: SHOWN, or as many as there is room for. Tables of a band stand side
    by side."""
    if room is None:
        return dict.fromkeys(counts, SHOWN)
    shown = dict.fromkeys(counts, 0)
    room -= 3 * len(bands)  # an empty line, the header, and the line about more
    while room > 0 and (growing := [band for band in bands if any(shown[name] < counts[name] for name in band)]):
        for band in growing[:room]:
            shown |= {name: shown[name] + 1 for name in band}
        room -= len(growing)
    return shown


def _table(name: str, columns: str, items: Sequence[Any], more: Any, *, most: int) -> RenderableType:
    names, rows = render.rows_of(items[:most], columns, more)
    left = len(items) - len(rows)
    note = [Text(f"and {left:,} more {name}", "bright_black")] if left else []
    return Group(Text(""), render.make_table(names, rows, gap=1 if render.out().width < WIDE else 2), *note)


def _side_by_side(drawn: list[RenderableType]) -> RenderableType:
    if len(drawn) == 1:
        return drawn[0]
    grid = Table.grid(padding=(0, 4, 0, 0), expand=True)
    for _ in drawn:
        grid.add_column(ratio=1)
    grid.add_row(*drawn)
    return grid


def _first_line(now: dict[str, Any], slow: dict[str, Any]) -> Text:
    running = sum(queue["running"] for queue in now["queues"])
    alive = sum(_alive(worker) for worker in slow["alive"])
    busy = min(running, now["slots"])
    ahead = f", {running - busy:,} claimed ahead" if running > busy else ""
    late = now["age"] > STALE
    at = datetime.fromisoformat(now["at"])
    parts = [
        Text("holdfast", "bold"),
        Text(f"{render.when(at)}, {render.duration(now['age'])} old", "red" if late else "bright_black"),
        Text(render.plural(alive, "worker"), "bold" if alive else "bold red"),
        Text(f"{busy:,} of {now['slots']:,} slots busy{ahead}", "bold"),
    ]
    return _one_line(parts)


def _one_line(parts: list[Text]) -> Text:
    line = Text("  ").join(parts)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _health(now: dict[str, Any], slow: dict[str, Any]) -> Text:
    """Return the line of health: the worst level and its causes, as in the header of the dashboard."""
    causes = health.causes(slow["levels"], now["queues"], slow["alive"])
    level = health.worst(causes)
    parts = [Text(f"{each.text}{_value(each)}", LEVELS[each.level]) for each in causes]
    return _one_line([Text("health"), Text(level, LEVELS.get(level, "green")), *parts])


def _value(cause: health.Cause) -> str:
    if cause.value is None:
        return ""
    if cause.metric == "failing_share":
        return f" {_percent(cause.value)}"
    return f" {render.number(round(cause.value, 1))}{UNITS.get(cause.metric or '', '')}"


def _charts(now: dict[str, Any], minutes: list[dict[str, Any]]) -> list[Text]:
    """Return throughput and depth, in figures and over the last minutes."""
    queues = now["queues"]
    ended, failed, ready, later, dead = (
        sum(queue[name] for queue in queues) for name in ("ended", "failed", "ready", "later", "dead")
    )
    waits = [queue["oldest_wait"] for queue in queues if queue["oldest_wait"] is not None]
    estimated = {name for queue in queues for name in queue["estimated"]}
    share = failed / ended if ended else 0.0
    rate = [Text(f"{ended:,.0f} a minute"), Text(f"{_percent(share)} failed", _failing(share))]
    depth = [
        Text(f"{render.about(ready, estimated='ready' in estimated)} ready"),
        *([Text(f"oldest {render.duration(max(waits))}")] if waits else []),
        *([Text(f"{render.about(dead, estimated='dead' in estimated)} dead", "red")] if dead else []),
        *([Text(f"{render.about(later, estimated='later' in estimated)} later", "bright_black")] if later else []),
    ]
    lines = []
    for name, total, colour, figures in (("ended", ended, "green", rate), ("ready", ready, "cyan", depth)):
        chart = Text(render.sparkline([*_by_minute(now["at"], minutes, name), total]), colour)
        lines.append(_one_line([Text(name), chart, *figures]))
    return lines


def _by_minute(at: str, minutes: list[dict[str, Any]], column: str) -> list[float]:
    """Return the sum of a column over all queues for each of the last minutes; 0 where there is none."""
    sums: dict[int, float] = {}
    for row in minutes:
        minute = int(row["minute"].timestamp() // 60)
        sums[minute] = sums.get(minute, 0.0) + (row[column] or 0)
    this = int(datetime.fromisoformat(at).timestamp() // 60)
    return [sums.get(minute, 0.0) for minute in range(this - CHARTED + 1, this)]


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 or not share else f"{share:.1%}"


def _failing(share: float) -> str:
    return "red" if share >= 0.2 else "yellow" if share >= 0.05 else ""


def _rates(item: dict[str, Any]) -> dict[str, Any]:
    share = item["failed"] / item["ended"] if item["ended"] else 0.0
    cells = {
        "ready": render.about(item["ready"], estimated="ready" in item["estimated"]),
        "/min": f"{item['ended']:,.0f}" if item["ended"] else "",
        "failed": Text(_percent(share) if share else "", _failing(share)),
    }
    return cells | {name: render.duration(item[name]) for name in ("p50", "p95", "p99") if name in item}


def _queue(queue: dict[str, Any], paused: set[str], served: set[str]) -> dict[str, Any]:
    orphaned = queue["ready"] + queue["running"] and queue["queue"] not in served
    notes = ["paused"] * (f"queue:{queue['queue']}" in paused) + ["no worker"] * bool(orphaned)
    note = Text(", ".join(notes), "red" if orphaned else "yellow")
    return _rates(queue) | {"oldest": render.duration(queue["oldest_wait"]), "note": note}


def _tenant(tenant: dict[str, Any]) -> dict[str, Any]:
    return {"share": render.bar(tenant["share"], 1, width=20)}


def _alive(worker: dict[str, Any]) -> bool:
    return bool(worker["alive"] and not worker["stopping"])


def _worker(worker: dict[str, Any]) -> dict[str, Any]:
    state = {"alive": "", "gone": ", lost"}.get(worker["state"], f", {worker['state']}")
    heartbeat = f"{render.duration(worker['heartbeat_age'])} ago{state}"
    return {"heartbeat": Text(heartbeat, "" if _alive(worker) else "yellow" if worker["alive"] else "red")}
