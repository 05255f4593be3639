"""From the data file: the chart docs/pictures/peers.svg, and the tables of docs/compared.md and README.md."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
DATA = Path(__file__).with_name("results.json")
CHART = ROOT / "docs" / "pictures" / "peers.svg"
PAGE = ROOT / "docs" / "compared.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
COLUMNS = {
    "enqueue": "one call each /s",
    "bulk": "in bulk /s",
    "drain": "1 process /s",
    "drain2": "2 processes /s",
    "latency": "pick-up p50 / p99",
    "tenants": "100 limited tenants /s",
}
STYLE = """
  text { font: 13px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #1f2933 }
  .paper { fill: #ffffff } .bar { fill: #9db4cc } .ours { fill: #2b6cb0 } .small { font-size: 12px; fill: #52606d }
  .title { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e8ee } .paper { fill: #1b212b } .bar { fill: #4d6580 } .ours { fill: #5b9be0 }
    .small { fill: #b4bfca }
  }
"""
ROW, LEFT, WIDTH, CHART_WIDTH = 26, 150, 780, 500
Data = dict[str, Any]


def collect(runs: list[Data], peers: list[Data], machine: Data) -> Data:
    """Return all that is published: the machine, and each peer with its versions, settings, runs and medians."""
    for peer in peers:
        own = [run for run in runs if run["peer"] == peer["name"] and run["size"] == 1]
        peer["runs"] = {name: [_figures(run) for run in own if run["workload"] == name] for name in COLUMNS}
        peer["medians"] = {name: _median(found) for name, found in peer["runs"].items() if found}
    return {"command": "python -m bench.peers --write", "machine": machine, "peers": peers}


def _figures(run: Data) -> Data:
    return {name: round(value, 3) for name, value in run.items() if name in ("jobs", "per_s", "p50_ms", "p99_ms")}


def _median(runs: list[Data]) -> Data:
    names = [name for name in runs[0] if name != "jobs"]
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in names}


def load() -> Data:
    """Return the data file."""
    data: Data = json.loads(DATA.read_text(encoding="utf-8"))
    return data


def write(data: Data) -> None:
    """Write the data file, the chart and the table."""
    DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    CHART.write_text(chart(data), encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(data)}{END}{rest.partition(END)[2]}", encoding="utf-8")


def show(runs: list[Data]) -> None:
    """Print the medians of the runs so far."""
    for peer in dict.fromkeys(run["peer"] for run in runs):
        for name in COLUMNS:
            found = [_figures(run) for run in runs if (run["peer"], run["workload"]) == (peer, name)]
            if found:
                print(f"{peer:16} {name:8} {len(found)} runs  median {_median(found)}")


def table(data: Data) -> str:
    """Return the table of medians, and what was measured, in Markdown."""
    machine, peers = data["machine"], data["peers"]
    best = {name: _best(name, peers) for name in COLUMNS}
    rows = [f"| {_named(peer)} | {' | '.join(_cell(name, peer, best[name]) for name in COLUMNS)} |" for peer in peers]
    return "\n".join(
        [
            f"| | {' | '.join(COLUMNS.values())} |",
            f"|---|{'---|' * len(COLUMNS)}",
            *rows,
            "",
            _circumstances(machine, _rounds(peers)),
            "",
            "| | versions | settings | limit of a tenant |",
            "|---|---|---|---|",
            *(_details(peer) for peer in peers),
            "",
        ]
    )


def _circumstances(machine: Data, rounds: int) -> str:
    server = machine["postgresql"]
    return (
        f"Medians of {rounds} {'round' if rounds == 1 else 'rounds'} in turns, {machine['day']}: "
        f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gb']} GB, "
        f"PostgreSQL {server['server_version'].split()[0]} with fsync {server['fsync']} and synchronous_commit "
        f"{server['synchronous_commit']}, Redis with {machine['redis']}. The best of a column is bold."
    )


def _details(peer: Data) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in peer["versions"].items())
    return f"| {peer['name']} | {versions} | {peer['settings']} | {peer['tenants'] or 'none'} |"


def _named(peer: Data) -> str:
    return f"{peer['name']} on {peer['store']}" if peer["store"] != "PostgreSQL" else str(peer["name"])


def _rounds(peers: list[Data]) -> int:
    return min(len(runs) for peer in peers for runs in peer["runs"].values() if runs)


def _key(workload: str) -> str:
    return "p50_ms" if workload == "latency" else "per_s"


def _best(workload: str, peers: list[Data]) -> float:
    found = [peer["medians"][workload][_key(workload)] for peer in peers if workload in peer["medians"]]
    return min(found, default=0.0) if workload == "latency" else max(found, default=0.0)


def _cell(workload: str, peer: Data, best: float) -> str:
    median = peer["medians"].get(workload)
    if median is None:
        return "-"
    value = median[_key(workload)]
    text = f"{value:.1f} / {median['p99_ms']:.0f} ms" if workload == "latency" else rounded(value)
    return f"**{text}**" if value == best else text


def rounded(value: float) -> str:
    """Return a rate with three digits that mean something."""
    digits = max(0, len(str(int(value))) - 3)
    return f"{round(value / 10**digits) * 10**digits:,}"


def chart(data: Data) -> str:
    """Return bars of the drain of one process, the fastest first."""
    peers = sorted(data["peers"], key=lambda peer: -_drained(peer))
    height = 62 + ROW * len(peers) + 26
    machine = data["machine"]
    version = machine["postgresql"]["server_version"].split()[0]
    note = f"{machine['cores']} cores, PostgreSQL {version}, {machine['day']}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">',
            f"<title>Jobs a second with one worker process: {escape(_spoken(peers))}</title><style>{STYLE}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{height}" rx="6"/>',
            '<text class="title" x="20" y="28">Jobs a second, one worker process</text>',
            '<text class="small" x="20" y="46">no-op jobs, each with its fastest documented settings, medians</text>',
            *_bars(peers),
            f'<text class="small" x="20" y="{height - 12}">{escape(note)}; python -m bench.peers</text>',
            "</svg>\n",
        ]
    )


def _spoken(peers: Sequence[Data]) -> str:
    return ", ".join(f"{peer['name']} {rounded(_drained(peer))}" for peer in peers)


def _drained(peer: Data) -> float:
    return float(peer["medians"]["drain"]["per_s"])


def _bars(peers: Sequence[Data]) -> Iterator[str]:
    most = _drained(peers[0])
    for row, peer in enumerate(peers):
        y, rate = 62 + ROW * row, _drained(peer)
        kind = "ours" if peer["name"] == "Holdfast" else "bar"
        width = max(1, round(CHART_WIDTH * rate / most))
        yield f'<text x="{LEFT - 10}" y="{y + 13}" text-anchor="end">{escape(_named(peer))}</text>'
        yield f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width}" height="18" rx="2"/>'
        yield f'<text class="small" x="{LEFT + width + 8}" y="{y + 13}">{rounded(rate)}</text>'
