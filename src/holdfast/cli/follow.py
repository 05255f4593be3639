"""Follows something to its end: live on a terminal, else as a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import typer
from rich.text import Text

from holdfast.cli import render

T = TypeVar("T")
REPORT_EVERY = 10.0


def follow(states: Iterator[T], line: Callable[[T], Text], what: str) -> None:
    """Show each state until there are no more. Ctrl-C ends this only, with exit code 130."""
    try:
        _follow_live(states, line) if render.err().is_terminal else _follow_in_lines(states, line)
    except KeyboardInterrupt:
        render.note(f"no longer watching; {what} goes on")
        raise typer.Exit(130) from None


def _follow_live(states: Iterator[T], line: Callable[[T], Text]) -> None:
    from rich.live import Live

    with Live(console=render.err(), transient=True, auto_refresh=False) as live:
        for state in states:
            live.update(line(state), refresh=True)


def _follow_in_lines(states: Iterator[T], line: Callable[[T], Text]) -> None:
    due = 0.0
    for state in states:
        if time.monotonic() >= due:
            due = time.monotonic() + REPORT_EVERY
            render.err().print(line(state))


def progress_line(parts: list[Text], left: float | None, name: str) -> Text:
    """Return the parts of a line, the estimate of the remaining seconds, and the name."""
    if left is not None:
        parts = [*parts, Text(f"about {render.duration(max(1, round(left)))} left")]
    line = Text("  ").join([*parts, Text(render.printable(name))])
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
