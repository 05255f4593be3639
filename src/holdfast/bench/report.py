"""Output of bench results: a row for each as soon as it is known, or a JSON line for programs.

Rows are at most 80 columns wide and go to standard output. Progress goes to standard error: live on a terminal,
otherwise as a line when a workload starts and then every LINE_INTERVAL seconds.
"""

from __future__ import annotations

import dataclasses
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

LINE_INTERVAL = 30.0  # seconds between lines where there is no terminal
WIDTH = 78  # of a row, and of the text below it
INDENT = "    "
HEAD = f"{'workload':<16} {'jobs':>9} {'jobs/s':>9} {'limit/s':>9} {'ratio':>6} {'p50 ms':>8} {'p99 ms':>8} {'took':>6}"


class ReportProgress(Protocol):
    """Takes a text about what a workload is doing, and the share of it that is done when that is known."""

    def __call__(self, text: str, share: float | None = None) -> None: ...


class Report:
    """The report of one run of the bench."""

    def __init__(self, *, json: bool, workloads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._json = json
        self._workloads = workloads
        self._begun = 0
        self._started_at = 0.0
        self._err = Console(stderr=True, highlight=False, markup=False)
        if not json:
            self._err.print(Text("ratio is jobs/s to limit/s, both measured in the same run", "bright_black"))
            self._say(HEAD)

    @contextmanager
    def measuring(self, name: str, what: str) -> Iterator[ReportProgress]:
        """Show progress of a workload while a block runs."""
        self._begun += 1
        self._started_at = self._clock()
        place = f"{name} ({self._begun} of {self._workloads})"
        with self._live(place, what) if self._err.is_terminal else _lines(place, what, self._clock) as report:
            yield report

    def show(self, result: Any, explanation: str) -> None:
        """Print a result, and what was measured."""
        if self._json:
            self._say(msgspec.json.encode(_rounded(result)).decode())
        else:
            self._say(row(result, explanation, self._clock() - self._started_at))
        for problem in result.problems:
            sys.stderr.write(f"{result.name} FAILED: {problem}\n")

    @contextmanager
    def _live(self, place: str, what: str) -> Iterator[ReportProgress]:
        """Show a bar of the whole run."""
        doing = TextColumn("{task.fields[doing]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
        columns = (BarColumn(20), TimeElapsedColumn(), TextColumn("{task.description}"), doing)
        # Rows go to standard output, which may not be this terminal, so the bar must not redirect it.
        shown = partial(Progress, *columns, console=self._err, expand=True, transient=True)
        with shown(redirect_stdout=False, redirect_stderr=False) as bar:
            before = self._begun - 1
            task = bar.add_task(place, total=self._workloads, completed=before, doing=what)

            def report(text: str, share: float | None = None) -> None:
                bar.update(task, doing=text, completed=None if share is None else before + share)

            yield report

    def _say(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


@contextmanager
def _lines(place: str, what: str, clock: Callable[[], float]) -> Iterator[ReportProgress]:
    began = shown_at = clock()

    def report(text: str, share: float | None = None) -> None:
        nonlocal shown_at
        if (now := clock()) - shown_at >= LINE_INTERVAL:
            shown_at = now
            sys.stderr.write(f"{now - began:.0f} s: {text}\n")

    sys.stderr.write(f"measuring {place}: {what}\n")
    yield report


def row(result: Any, explanation: str, seconds: float) -> str:
    """Return a result as one row, with the explanation and the note below."""
    parts = [
        f"{result.name:<16} {result.jobs:>9,} {result.jobs_per_s:>9,.0f} {result.limit_jobs_per_s or 0:>9,.0f}",
        f"{result.ratio or 0:>6.2f} {_ms(result.p50_ms):>8} {_ms(result.p99_ms):>8} {seconds:>4.0f} s",
    ]
    below = [line for text in (explanation, result.note) for line in textwrap.wrap(text, WIDTH - len(INDENT))]
    return "\n".join([" ".join(parts), *(INDENT + line for line in below)])


def _rounded(result: Any) -> dict[str, Any]:
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in dataclasses.asdict(result).items()}


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"
