"""Follows something to its end: live on a terminal, else as a line now and then."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import typer
from rich.text import Text

from holdfast.cli import render

T = TypeVar("T")
REPORT_EVERY = 10.0
KNOWN_AFTER = 1.0  # seconds after which a pace is an estimate


def follow(states: Iterator[T], line: Callable[[T], Text], what: str) -> None:
    """Show each state until there are no more. Ctrl-C ends this only, with exit code 130."""
    with following(line, what) as show:
        for state in states:
            show(state)


@contextlib.contextmanager
def following(line: Callable[[T], Text], what: str, hint: str | None = None) -> Iterator[Callable[[T], None]]:
    """Return a function that shows a state. Ctrl-C ends the program with exit code 130, after a hint."""
    try:
        with _shown_live(line) if render.err().is_terminal else _shown_in_lines(line) as show:
            yield show
    except KeyboardInterrupt:
        render.note("\n".join([f"no longer watching; {what} continues", *([hint] if hint else [])]))
        raise typer.Exit(130) from None


@contextlib.contextmanager
def _shown_live(line: Callable[[T], Text]) -> Iterator[Callable[[T], None]]:
    from rich.live import Live

    with Live(console=render.err(), transient=True, auto_refresh=False) as live:
        yield lambda state: live.update(line(state), refresh=True)


@contextlib.contextmanager
def _shown_in_lines(line: Callable[[T], Text]) -> Iterator[Callable[[T], None]]:
    due = 0.0

    def show(state: T) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + REPORT_EVERY
            render.err().print(line(state))

    yield show


class TimeLeft:
    """An estimate of the remaining time, from the pace since the start of watching."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None

    def estimate(self, done: int, total: int) -> float | None:
        """Return the seconds until the end, or None while unknown or when nothing is left."""
        now = time.monotonic()
        began, before = self._began = self._began or (now, done)
        ended, passed = done - before, now - began
        return (total - done) / ended * passed if total > done and ended > 0 and passed > KNOWN_AFTER else None


def progress_line(parts: list[Text], left: float | None, name: str) -> Text:
    """Return the parts of a line, the estimate of the remaining seconds, and the name."""
    if left is not None:
        parts = [*parts, Text(f"about {render.duration(max(1, round(left)))} left")]
    line = Text("  ").join([*parts, Text(render.printable(name))])
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
