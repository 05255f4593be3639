"""How bench results are shown: a table for people, a JSON line each for programs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table


@contextmanager
def progress(json: bool, names: Sequence[str]) -> Iterator[Callable[[str, Any], None]]:
    """Shows results as they come; the table when all are there."""
    results: list[Any] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(f"measuring {names[0]}", total=len(names))

        def show(name: str, result: Any) -> None:
            results.append(result)
            following = names[len(results)] if len(results) < len(names) else "done"
            bar.update(task, advance=1, description=f"measuring {following}")
            if json:
                sys.stdout.write(msgspec.json.encode(_rounded(result)).decode() + "\n")
                sys.stdout.flush()
            for problem in result.problems:
                sys.stderr.write(f"{name} FAILED: {problem}\n")

        yield show
    if not json:
        Console().print(_table(results))


def _table(results: Sequence[Any]) -> Table:
    table = Table(title="Holdfast against the bare SQL limit, one run on this machine")
    for name in ("workload", "jobs", "jobs/s", "limit/s", "ratio", "p50 ms", "p99 ms", "note"):
        table.add_column(name, justify="left" if name in ("workload", "note") else "right")
    for each in results:
        shown = _rounded(each)
        table.add_row(each.name, f"{each.jobs:,}", f"{each.jobs_per_s:,.0f}", f"{each.limit_jobs_per_s or 0:,.0f}",
                      f"{each.ratio:.2f}", _or_blank(shown["p50_ms"]), _or_blank(shown["p99_ms"]),
                      each.note)  # fmt: skip
    return table


def _rounded(result: Any) -> dict[str, Any]:
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in dataclasses.asdict(result).items()}


def _or_blank(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
