"""Compare two trees by turns: `python -m bench.compare OLD [NEW] [--rounds 5] [WORKLOAD ...]`.

Each round runs bench/costs.py (of this tree) with the code of the one and of the other, in an order that alternates.
Prints each run as it ends, and at the end a table in Markdown: medians of old and new, and the goal where there is one.
HOLDFAST_DSN names the server; each tree has a database of its own there, bench_old and bench_new.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg

HERE = Path(__file__).resolve().parents[1]
LONGEST = 300  # seconds of one run


def database(name: str) -> str:
    """Make an empty database, and return its DSN."""
    dsn = os.environ["HOLDFAST_DSN"]
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        conn.execute(f"CREATE DATABASE {name}".encode())
    return psycopg.conninfo.make_conninfo(dsn, dbname=name)


def run(tree: Path, dsn: str, workload: str) -> dict[str, float]:
    """Run a workload with the code of a tree."""
    env = os.environ | {"PYTHONPATH": f"{tree / 'src'}:{HERE}", "HOLDFAST_DSN": dsn}
    command = [sys.executable, "-m", "bench.costs", workload]
    done = subprocess.run(command, cwd=HERE, env=env, capture_output=True, text=True, timeout=LONGEST, check=False)
    if done.returncode:
        sys.stderr.write(f"{tree}: {workload} failed: {done.stderr[-500:]}\n")
        return {}
    found: dict[str, float] = json.loads(done.stdout)
    found.pop("workload")
    return found


def rounds(trees: dict[str, Path], number: int, workloads: list[str]) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Run all workloads in turns; return the figures by workload and tree."""
    dsns = {name: database(f"bench_{name}") for name in trees}
    found: dict[str, dict[str, list[dict[str, float]]]] = {each: {name: [] for name in trees} for each in workloads}
    for turn in range(number):
        for workload in workloads:
            for name in list(trees) if turn % 2 == 0 else reversed(trees):
                figures = run(trees[name], dsns[name], workload)
                print(json.dumps({"round": turn + 1, "tree": name, "workload": workload, **figures}), flush=True)
                if figures:
                    found[workload][name].append(figures)
    for name in trees:
        with psycopg.connect(os.environ["HOLDFAST_DSN"], autocommit=True) as conn:
            conn.execute(f"DROP DATABASE IF EXISTS bench_{name} WITH (FORCE)".encode())
    return found


def table(found: dict[str, dict[str, list[dict[str, float]]]]) -> Iterator[str]:
    """Yield the lines of a table of medians."""
    yield "| workload | figure | old | new | new to old |\n|---|---|---|---|---|"
    for workload, runs in found.items():
        if not (runs["old"] and runs["new"]):
            yield f"| {workload} | not measured | | | |"
            continue
        for figure in runs["new"][0]:
            old, new = (statistics.median(each.get(figure, 0.0) for each in runs[name]) for name in ("old", "new"))
            yield f"| {workload} | {figure} | {old:,.2f} | {new:,.2f} | {new / old if old else 0:.2f} |"


def main() -> None:
    """Compare, and print the table."""
    parser = argparse.ArgumentParser("python -m bench.compare")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=HERE)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workload", "-w", action="append")
    given = parser.parse_args()
    from bench.costs import ALL

    found = rounds({"old": given.old.resolve(), "new": given.new.resolve()}, given.rounds, given.workload or list(ALL))
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
