"""The program that `holdfast import-beat` prints: imports, and a line for each schedule."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from keyword import iskeyword
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo

from holdfast.model.beat import Entry, NotConvertible

if TYPE_CHECKING:
    from holdfast.client.task import Task

# Types whose repr() is Python, and the import that it needs.
IMPORTS: dict[type, str | None] = {
    **dict.fromkeys((type(None), bool, int, float, str, bytes)),
    **dict.fromkeys((date, datetime, time, timedelta, timezone), "import datetime"),
    Decimal: "from decimal import Decimal",
    UUID: "from uuid import UUID",
    ZoneInfo: "import zoneinfo",
}
GUESSED = (
    "# The imports are guessed from the names of the tasks; --tasks MODULE:ATTRIBUTE takes them from a Holdfast "
    "application."
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a task can be imported from; the module is None if that is unknown."""

    module: str | None
    attribute: str


def guessed(task: str) -> Source:
    """Return where a Celery task of that name is by default."""
    module, _, attribute = task.rpartition(".")
    return Source(module, attribute) if all(map(_is_name, (*module.split("."), attribute))) else Source(None, attribute)


def source(task: Task[Any, Any], module: str) -> Source:
    """Return where a Holdfast task can be imported from: its own module, or that of the application."""
    for each in (task.module, module):
        loaded = sys.modules.get(each)
        for name, value in vars(loaded).items() if loaded else ():
            if value is task:
                return Source(each, name)
    return Source(None, task.name.rpartition(".")[2])


def program(
    command: str, found: Sequence[Entry], sources: Mapping[str, Source] | None, left_out: Iterable[str]
) -> Iterator[str]:
    """Yield the lines of a program that declares the schedules. Without sources of the tasks they are guessed."""
    yield f"# Made by `{command}`. Put each line beside its task."
    if sources is None:
        yield GUESSED
        sources = {each.task: guessed(each.task) for each in found}
    names = _names(sources)
    for block in ({*_imports(found)}, {*_cron_import(found)}, {*_task_imports(names)}):
        if block:
            yield from (*sorted(block), "")
    for each in found:
        yield from (f"# {note}" for note in (*each.notes, *each.dropped))
        yield _line(each, names[sources[each.task]])
    yield from (f"# left out: {each}" for each in left_out)


def check_writable(entry: Entry) -> None:
    """Raise NotConvertible for arguments that are no Python expression."""
    list(_imports([entry]))


def _names(sources: Mapping[str, Source]) -> dict[Source, str]:
    """Return the name in the program of each task: its attribute, with its module where two share that."""
    shared = Counter(each.attribute for each in {*sources.values()})
    return {
        each: _identifier(f"{each.module or ''}.{each.attribute}" if shared[each.attribute] > 1 else each.attribute)
        for each in sources.values()
    }


def _identifier(text: str) -> str:
    kept = "".join(each if each.isalnum() else "_" for each in text)
    return kept if _is_name(kept) else f"task_{kept}"


def _is_name(text: str) -> bool:
    return text.isidentifier() and not iskeyword(text)


def _cron_import(found: Iterable[Entry]) -> Iterator[str]:
    if any(each.cron.zone != "UTC" for each in found):
        yield "from holdfast import Cron"


def _task_imports(names: Mapping[Source, str]) -> Iterator[str]:
    for each, name in names.items():
        if each.module is None:
            yield f"# {name}: import the task {each.attribute!r} from where it is"
        else:
            renamed = "" if each.attribute == name else f" as {name}"
            yield f"from {each.module} import {each.attribute}{renamed}"


def _imports(found: Iterable[Entry]) -> Iterator[str]:
    """Yield the imports that the arguments need."""
    for entry in found:
        for each in (*entry.args, *entry.kwargs.values()):
            yield from _imports_of(each)


def _imports_of(value: Any) -> Iterator[str]:
    kind = type(value)
    if kind in (list, tuple, dict):
        for each in value.items() if kind is dict else value:
            yield from _imports_of(each)
    elif kind not in IMPORTS or (kind is float and not math.isfinite(value)):
        raise NotConvertible(f"argument {value!r:.60} of type {kind.__name__} cannot be written as code")
    elif (needed := IMPORTS[kind]) is not None:
        yield needed
        if (zone := getattr(value, "tzinfo", None)) is not None:
            yield from _imports_of(zone)


def _line(entry: Entry, name: str) -> str:
    using = f".using({_keywords(entry.options)})" if entry.options else ""
    cron = entry.cron
    when = repr(cron.text) if cron.zone == "UTC" else f"Cron({cron.text!r}, zone={cron.zone!r})"
    given = [repr(entry.name), when, *map(repr, entry.args), *([_keywords(entry.kwargs)] if entry.kwargs else [])]
    return f"{name}{using}.schedule({', '.join(given)})"


def _keywords(given: Mapping[str, Any]) -> str:
    """Return keyword arguments; names that are no identifiers are in a dict."""
    rest = {name: value for name, value in given.items() if not _is_name(name)}
    named = [f"{name}={value!r}" for name, value in given.items() if name not in rest]
    return ", ".join([*named, *([f"**{rest!r}"] if rest else [])])
