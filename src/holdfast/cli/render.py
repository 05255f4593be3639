"""What commands print: tables for people, JSON for programs. Colours only where a terminal can show them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

COLOURS = {
    "queued": "cyan", "running": "blue", "retrying": "yellow", "succeeded": "green", "failed": "red",
    "dead": "red", "canceled": "bright_black", "ok": "green", "warning": "yellow", "error": "red",
}  # fmt: skip
_WIDE = 400  # a pipe has no width; lines must not be cut there
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def out() -> Console:
    """Standard output, for the answer."""
    return _console(stderr=False)


def err() -> Console:
    """Standard error, for everything that is not the answer."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def say(text: str, style: str | None = None) -> None:
    """One line of the answer, whole however long it is."""
    out().print(Text(printable(text), style or ""), soft_wrap=True)


def tell(text: str, style: str | None = None) -> None:
    """One line beside the answer."""
    err().print(Text(printable(text), style or ""), soft_wrap=True)


def emit_json(value: Any) -> None:
    """The answer as JSON."""
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    sys.stdout.write(text.decode() + "\n")
    sys.stdout.flush()


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """A table, or a line that says why there is none. Columns that start with # are numbers."""
    table, console = make_table(columns, rows, lines=out().is_terminal), out()
    if table.row_count:
        console.print(table)
    else:
        say(empty)


def make_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, lines: bool = True) -> Table:
    """The table itself; the first column is never cut."""
    table = Table(box=box.SIMPLE_HEAD if lines else None, pad_edge=False, header_style="bold")
    for place, name in enumerate(columns):
        right = name.startswith("#")
        table.add_column(name.lstrip("#"), justify="right" if right else "left", no_wrap=not place or right,
                         overflow="ellipsis")  # fmt: skip
    for row in rows:
        table.add_row(*map(cell, row))
    return table


def cell(value: Any) -> RenderableType:
    """One value as a cell; text from jobs is never taken for markup or terminal codes."""
    if isinstance(value, datetime):
        return Text(when(value))
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, int):
        return Text(f"{value:,}")
    if isinstance(value, list):
        return Text(printable(", ".join(map(str, value))))
    if value is None or isinstance(value, str):
        return Text(printable(value or ""), COLOURS.get(value or "", ""))
    return value if hasattr(value, "__rich_console__") else Text(printable(str(value)))


def show_fields(fields: dict[str, Any]) -> None:
    """Names and values under each other; nothing for values that are not there."""
    width = max(map(len, fields))
    for name, value in fields.items():
        if value is not None:
            shown = cell(value) if not isinstance(value, dict | list) else Text(as_json(value))
            out().print(Text(f"{name:<{width}}  ", "bold"), shown, sep="", soft_wrap=True)


def as_json(value: Any) -> str:
    """A value on one line."""
    return printable(msgspec.json.encode(value, enc_hook=str).decode())


def when(moment: datetime) -> str:
    """A moment in this machine's time zone."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def duration(seconds: float | None) -> str:
    """Seconds as people say them: 0.4 s, 12 s, 3 min, 2.5 h."""
    if seconds is None:
        return ""
    for unit, size in _UNITS:
        if seconds >= size * 2:
            return f"{seconds / size:.3g} {unit}"
    return f"{max(seconds, 0):.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def error_line(error: dict[str, Any] | None) -> str:
    """A job's last error on one line."""
    if not error:
        return ""
    name = str(error.get("type", "")).rpartition(".")[2]
    return " ".join(f"{name}: {error.get('message', '')}".split())


def printable(text: str) -> str:
    """Text without terminal codes; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def plural(number: int, noun: str) -> str:
    """1 job, 2 jobs, 1,000 jobs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
