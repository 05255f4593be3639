"""Output of commands: tables for people, JSON for programs, colors on terminals only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import typer
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from holdfast.telemetry import logs

COLOURS = {
    "queued": "cyan",
    "running": "blue",
    "retrying": "yellow",
    "waiting": "cyan",
    "succeeded": "green",
    "canceled": "bright_black",
    "failed": "red",
    "dead": "red",
    "ok": "green",
    "warning": "yellow",
    "error": "red",
}
T = TypeVar("T")
_WIDE = 400  # width for pipes, where lines must not be cut
_NARROW = 16  # minimum width of a flexible column
_BARS = "·▁▂▃▄▅▆▇█"
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def out() -> Console:
    """Return the console of standard output, for results."""
    return _console(stderr=False)


def err() -> Console:
    """Return the console of standard error, for everything else."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def echo(text: str, style: str | None = None) -> None:
    """Print a line to standard output, without wrapping it."""
    out().print(Text(printable(text), style or ""), soft_wrap=True)


def note(text: str, style: str | None = None) -> None:
    """Print a line to standard error, without wrapping it."""
    err().print(Text(printable(text), style or ""), soft_wrap=True)


def emit_json(value: Any) -> None:
    """Print a value as JSON."""
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    sys.stdout.write(logs.printable_json(text.decode()) + "\n")
    sys.stdout.flush()


def show_result(value: Any, text: str, *, as_json: bool) -> None:
    """Print a result: as JSON, or a line about it."""
    if as_json:
        emit_json(value)
    else:
        echo(text)


def show_list(
    found: Sequence[T],
    columns: str,
    more: Callable[[T], dict[str, Any]] | None = None,
    *,
    as_json: bool,
    head: int,
    empty: str,
    limit: int | None = None,
) -> None:
    """Print a list as JSON or as a table, with a note if there may be more than `limit`. See rows_of()."""
    if as_json:
        emit_json(found)
        return
    names, rows = rows_of(found, columns, more)
    show_rows(names, rows, head=head, empty=empty)
    if len(found) == limit:
        note(f"these are the newest {limit}; --limit shows more")


def rows_of(
    found: Iterable[T], columns: str, more: Callable[[T], dict[str, Any]] | None = None
) -> tuple[list[str], list[list[Any]]]:
    """Return the columns and rows of a table. Columns are as in pick(), with `~` and `#` as in make_table(); `more`
    returns values that are no attributes of an item."""
    plain = columns.replace("~", "").replace("#", "")
    rows = [list((pick(each, plain) | (more(each) if more else {})).values()) for each in found]
    return [name.partition("=")[0] for name in columns.split(", ")], rows


def pick(item: Any, names: str) -> dict[str, Any]:
    """Return values of an object or a dict by name: "id, last error, made=created_at"."""
    found = {}
    for each in names.split(", "):
        label, _, attribute = each.partition("=")
        attribute = attribute or label.replace(" ", "_")
        found[label] = item.get(attribute) if isinstance(item, dict) else getattr(item, attribute, None)
    return found


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation, unless --yes was given. Without a terminal, only a piped answer confirms."""
    if yes:
        return
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort:
        if not sys.stdin.isatty():
            note("\nnot confirmed; without a terminal, pass --yes", "yellow")
        raise


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """Print a table, or the text `empty` if there are no rows."""
    table = make_table(columns, rows)
    if table.row_count:
        out().print(table)
    else:
        echo(empty)


def show_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, head: int, empty: str) -> None:
    """Print a table if the terminal is wide enough. Otherwise print the first `head` values of each row on a line, and
    the remaining ones below it, by name."""
    rows, console = list(rows), out()
    widths = [max((cell(row[i]).cell_len for row in rows), default=0) for i in range(len(columns))]
    if not rows or _needed(columns, widths) <= console.width:
        show_table(columns, rows, empty=empty)
        return
    for row in rows:
        line = [cell(value) for value in row[:head]]
        for shown, width in zip(line[:-1], widths, strict=False):
            shown.pad_right(min(width, console.width // 2) - shown.cell_len)
        console.print(Text("  ").join(line), no_wrap=True, overflow="ellipsis")
        for below in _below(columns[head:], row[head:], console.width - 6):
            show_wrapped(below, first="    ", then="      ")


def show_wrapped(text: Text, *, first: str | Text, then: str) -> None:
    """Print text wrapped to the terminal's width, with prefixes; on one line if there is no terminal."""
    console = out()
    if not console.is_terminal:
        console.print(Text.assemble(first, text), soft_wrap=True)
        return
    for n, line in enumerate(text.wrap(console, max(console.width - max(len(first), len(then)), _NARROW))):
        line.rstrip()
        console.print(Text.assemble(then if n else first, line), soft_wrap=True)


def _needed(columns: Sequence[str], widths: Sequence[int]) -> int:
    """Return the minimum width of a table, whose flexible columns may shrink."""
    full = [max(len(name.lstrip("#~")), width) for name, width in zip(columns, widths, strict=True)]
    return sum(min(w, _NARROW) if c.startswith("~") else w for c, w in zip(columns, full, strict=True)) + 2 * len(full)


def _below(columns: Sequence[str], row: Sequence[Any], width: int) -> list[Text]:
    """Return names and values on as few lines as possible, without empty values and 0."""
    lines: list[Text] = []
    for name, value in zip(columns, row, strict=True):
        if value:
            part = Text.assemble((f"{name.lstrip('#~')} ", "bright_black"), cell(value))
            if lines and lines[-1].cell_len + 2 + part.cell_len <= width:
                lines[-1] = Text("  ").join([lines[-1], part])
            else:
                lines.append(part)
    return lines


def make_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, gap: int = 2) -> Table:
    """Return a table: `#name` is a column of numbers, `~name` one that shrinks on a narrow terminal."""
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for name in columns:
        justify: JustifyMethod = "right" if name.startswith("#") else "left"
        table.add_column(name.lstrip("#~"), justify=justify, no_wrap=not name.startswith("~"))
    for row in rows:
        table.add_row(*map(cell, row))
    return table


def cell(value: Any) -> Text:
    """Return a value on one line. Text from jobs is never interpreted as markup or terminal codes."""
    if isinstance(value, Text):
        return value
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
    """Print names and values, one a line, without those that are None."""
    width = max(map(len, fields))
    for name, value in fields.items():
        if value is not None:
            shown = value if isinstance(value, Text) else Text(_field_text(value))
            if name == "status":
                shown.stylize(COLOURS.get(shown.plain, ""))
            out().print(Text(f"{name:<{width}}  ", "bold"), shown, sep="", soft_wrap=True)


def _field_text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone().isoformat(" ", "milliseconds")
    return as_json(value) if isinstance(value, dict | list) else _cell_text(value)


def as_json(value: Any) -> str:
    """Return a value as JSON on one line."""
    return printable(msgspec.json.encode(value, enc_hook=str).decode())


def when(moment: datetime) -> str:
    """Return a time in this machine's time zone, without the date if it is today."""
    here = moment.astimezone()
    return f"{here:%H:%M:%S}" if here.date() == datetime.now().astimezone().date() else f"{here:%Y-%m-%d %H:%M:%S}"


def duration(seconds: float | None) -> str:
    """Return seconds as 20 ms, 0.4 s, 12 s, 3 min or 2.5 h."""
    if seconds is None:
        return ""
    for unit, size in _UNITS:
        if seconds >= size * 2:
            return f"{seconds / size:,.0f} {unit}" if seconds >= size * 100 else f"{seconds / size:.3g} {unit}"
    if seconds < 0.1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def bar(done: float, total: float, *, width: int = 10) -> Text:
    """Return a progress bar such as [######....]  63 %, which is full only at the end."""
    share = min(max(done, 0), total) if total > 0 else 0
    full, percent = (int(size * share // total) if total > 0 else 0 for size in (width, 100))
    dots = ("." * (width - full), "bright_black")
    return Text.assemble("[", ("#" * full, "green"), dots, f"] {percent:>3} %", no_wrap=True)


def sparkline(values: Sequence[float]) -> str:
    """Return a chart, one character a value: a dot for 0, a full block for the greatest."""
    most = max(values, default=0)
    return "".join(_BARS[-int(-value * 8 // most)] if value > 0 else _BARS[0] for value in values)


def number(value: float) -> str:
    """Return a number as 1,234,567 or 0.25."""
    return f"{value:,.10g}"


def error_line(error: dict[str, Any] | None) -> str:
    """Return a job's last error on one line."""
    if not error:
        return ""
    name = str(error.get("type", "")).rpartition(".")[2]
    return " ".join(f"{name}: {error.get('message') or ''}".split())


def printable(text: str) -> str:
    """Return text without terminal codes; line ends and tabs stay."""
    return logs.printable(text, keep="\n\t")


def about(number: int, *, estimated: bool) -> str:
    """Return 1,234, or ~1,234 for an estimate."""
    return f"{'~' if estimated else ''}{number:,}"


def up_to(number: int, most: int | None) -> str:
    """Return a number that was counted up to `most` + 1, as 10,000+ if it is above `most`."""
    return f"{number:,}" if most is None or number <= most else f"{most:,}+"


def plural(number: int, noun: str, most: int | None = None) -> str:
    """Return 1 job, 2 jobs, 1,000 batches, 3 deliveries; 10,000+ jobs if counted up to `most`."""
    many = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{up_to(number, most)} {noun if number == 1 else many}"
