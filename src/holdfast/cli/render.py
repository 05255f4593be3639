"""What commands print: tables for people, JSON for programs. Colours only where a terminal can show them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from rich.console import Console, JustifyMethod
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
    """A table, or a line that says why there is none."""
    table = make_table(columns, rows)
    if table.row_count:
        out().print(table)
    else:
        say(empty)


def make_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """The table itself: `#name` is a column of numbers, `~name` one that gives way when the terminal is narrow."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for name in columns:
        justify: JustifyMethod = "right" if name.startswith("#") else "left"
        table.add_column(name.lstrip("#~"), justify=justify, no_wrap=not name.startswith("~"))
    for row in rows:
        table.add_row(*map(cell, row))
    return table


def cell(value: Any) -> Text:
    """One value on one line; text from jobs is never taken for markup or terminal codes."""
    shown = Text(_cell_text(value), COLOURS.get(value, "") if isinstance(value, str) else "")
    shown.no_wrap, shown.overflow = True, "ellipsis"
    return shown


def _cell_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return when(value)
    if isinstance(value, list):
        return printable(", ".join(map(str, value)))
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def show_fields(fields: dict[str, Any]) -> None:
    """Names and values under each other; nothing for values that are not there."""
    width = max(map(len, fields))
    for name, value in fields.items():
        if value is not None:
            shown = _field_text(value)
            style = COLOURS.get(shown, "") if name == "status" else ""
            out().print(Text(f"{name:<{width}}  ", "bold"), Text(shown, style), sep="", soft_wrap=True)


def _field_text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone().isoformat(" ", "milliseconds")
    return as_json(value) if isinstance(value, dict | list) else _cell_text(value)


def as_json(value: Any) -> str:
    """A value on one line."""
    return printable(msgspec.json.encode(value, enc_hook=str).decode())


def when(moment: datetime) -> str:
    """A moment in this machine's time zone, short when it is of today."""
    here = moment.astimezone()
    return f"{here:%H:%M:%S}" if here.date() == datetime.now().astimezone().date() else f"{here:%Y-%m-%d %H:%M:%S}"


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
