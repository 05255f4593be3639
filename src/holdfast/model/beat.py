"""The timetable of Celery's beat as cron expressions. Celery is not imported: its schedules are read by attribute.

An interval counts from midnight. One that divides a day is one or more cron expressions: every 45 s is at seconds 0
and 45 of each third minute, at second 30 of the next minute, and at second 15 of the one after that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.errors import HoldfastError
from holdfast.model.schedule import Cron

K = TypeVar("K")
MINUTE, HOUR, DAY, WEEK = 60, 3600, 86_400, 604_800
MOST_LINES = 6  # cron expressions for one interval
# Celery's name, the lowest and the highest value of each cron field.
FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day_of_month", 1, 31), ("month_of_year", 1, 12), ("day_of_week", 0, 6))
# What the options of an entry become; the rest has no counterpart.
OPTIONS = {"queue": "queue", "expires": "deadline"}


class NotConvertible(HoldfastError):
    """An entry that a cron expression cannot represent."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of `beat_schedule`: a task by name, when it comes due, its arguments, options of using(), notes, and
    what is said of dropped options."""

    name: str
    task: str
    cron: Cron
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: dict[str, Any]
    notes: list[str]
    dropped: list[str]


def read(name: str, given: Mapping[str, Any], zone: str) -> list[Entry]:
    """Return an entry of `beat_schedule`, or several if it takes several cron expressions; raise NotConvertible with
    the reason if no cron expression can represent it."""
    fields = dict(given)  # of a dict, or of Celery's ScheduleEntry
    task, options = fields.get("task"), dict(fields.get("options") or {})
    args, kwargs = tuple(fields.get("args") or ()), dict(fields.get("kwargs") or {})
    if not task:
        raise NotConvertible("it names no task")
    if fields.get("schedule") is None:
        raise NotConvertible("it has no schedule")
    texts = cron_texts(fields["schedule"])
    _check_arguments(args, kwargs)
    dropped = [f"option {each}={value!r} was left out" for each, value in options.items() if not _kept(each, value)]
    return [
        Entry(
            name=name if len(texts) == 1 else f"{name} {number}/{len(texts)}",
            task=task,
            cron=Cron(text, zone),
            args=args,
            kwargs=kwargs,
            options={OPTIONS[each]: value for each, value in options.items() if _kept(each, value)},
            notes=_of_several(name, texts) if number == 1 else [],
            dropped=dropped if number == 1 else [],
        )
        for number, text in enumerate(texts, 1)
    ]


def _of_several(name: str, texts: Collection[str]) -> list[str]:
    return (
        [f"{name}: one cron line cannot say this interval, so it is {len(texts)} schedules"] if len(texts) > 1 else []
    )


def _check_arguments(args: tuple[Any, ...], kwargs: Mapping[Any, Any]) -> None:
    for name in kwargs:
        if not isinstance(name, str):
            raise NotConvertible(f"the name of an argument must be a string, got {name!r}")
    for found in _sets((*args, *kwargs.values())):
        raise NotConvertible(
            f"argument {found!r:.60} is a {type(found).__name__}, which JSON does not have; use a list"
        )


def _sets(value: Any) -> Iterator[Any]:
    """Yield the sets in an argument."""
    if isinstance(value, set | frozenset):
        yield value
    elif isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _sets(each)


def _kept(option: str, value: Any) -> bool:
    return option in OPTIONS and (option == "queue" or (isinstance(value, int | float) and value > 0))


def cron_texts(schedule: Any) -> list[str]:
    """Return the cron expressions of a crontab, an interval, a timedelta or a number of seconds."""
    if all(hasattr(schedule, name) for name, _, _ in FIELDS):
        return [_crontab_text([set(getattr(schedule, name)) for name, _, _ in FIELDS])]
    every = getattr(schedule, "run_every", schedule)
    if isinstance(every, timedelta):
        every = every.total_seconds()
    if isinstance(every, bool) or not isinstance(every, int | float):
        raise NotConvertible(f"a schedule of type {type(schedule).__name__} has no cron expression")
    return _interval_texts(every)


def _interval_texts(seconds: float) -> list[str]:
    if not seconds > 0:
        raise NotConvertible(f"an interval must be positive, got {seconds:g} s")
    texts = dict(_intervals())
    if seconds in texts:
        return [texts[int(seconds)]]
    near = min(texts, key=lambda each: abs(each - seconds))
    nearest = f"the nearest single cron line is every {near} s: {texts[near]!r}"
    if seconds % 1 or DAY % seconds:
        why = "is not in whole seconds" if seconds % 1 else "does not divide a day"
        raise NotConvertible(f"every {seconds:g} s has no cron expression, because it {why}; {nearest}")
    lines = list(_lines(int(seconds)))
    if len(lines) > MOST_LINES:
        raise NotConvertible(f"every {seconds:g} s takes {len(lines)} cron expressions; {nearest}")
    return lines


def _lines(interval: int) -> Iterator[str]:
    """Yield the cron expressions of an interval that divides a day, counted from midnight."""
    times = [(at // HOUR, at % HOUR // MINUTE, at % MINUTE) for at in range(0, DAY, interval)]
    by_minute = _grouped(((hour, minute), second) for hour, minute, second in times)
    by_hour = _grouped(((hour, seconds), minute) for (hour, minute), seconds in by_minute)
    # Hours with the same minutes, and these with the same seconds, are one line.
    for (seconds, minutes), hours in _grouped(((seconds, minutes), hour) for (hour, seconds), minutes in by_hour):
        second = "" if seconds == (0,) else f"{_field_text(seconds, 0, 59)} "
        yield f"{second}{_field_text(minutes, 0, 59)} {_field_text(hours, 0, 23)} * * *"


def _grouped(pairs: Iterable[tuple[K, int]]) -> Iterable[tuple[K, tuple[int, ...]]]:
    """Return each key with its values, in the order in which the keys come first."""
    found = defaultdict[K, list[int]](list)
    for key, value in pairs:
        found[key].append(value)
    return [(key, tuple(values)) for key, values in found.items()]


def _intervals() -> Iterator[tuple[int, str]]:
    """Yield the intervals that a cron expression can represent, in seconds, each with its expression."""
    yield from ((n, f"{_every(n)} * * * * *") for n in range(1, MINUTE) if MINUTE % n == 0)
    yield from ((n * MINUTE, f"{_every(n)} * * * *") for n in range(1, 60) if 60 % n == 0)
    yield from ((n * HOUR, f"0 {_every(n)} * * *") for n in range(1, 24) if 24 % n == 0)
    yield from ((DAY, "0 0 * * *"), (WEEK, "0 0 * * 0"))


def _every(n: int) -> str:
    return "*" if n == 1 else f"*/{n}"


def _crontab_text(values: list[set[int]]) -> str:
    texts = [_field_text(found, low, high) for found, (_, low, high) in zip(values, FIELDS, strict=True)]
    day, weekday = texts[2], texts[4]
    if not day.startswith("*") and not weekday.startswith(
        "*"
    ):  # Celery means both; a cron expression would mean either
        texts[2], texts[4] = "*", _nth_weekday(values[2], values[4])
    return " ".join(texts)


def _field_text(values: Iterable[int], low: int, high: int) -> str:
    found = sorted(values)
    for step in range(1, high):
        if found == [*range(low, high + 1, step)] and (len(found) > 2 or step == 1):
            return _every(step)
        if found == [*range(found[0], high + 1, step)] and len(found) > 3 and step > 1:
            return f"{found[0]}-{high}/{step}"
    if len(found) > 2 and found[-1] - found[0] == len(found) - 1:
        return f"{found[0]}-{found[-1]}"
    return ",".join(map(str, found))


def _nth_weekday(days: set[int], weekdays: set[int]) -> str:
    """Return the field for `the second Monday` and the like, which Celery writes as days 8 to 14 and Monday."""
    for week in range(4):
        if days == {*range(week * 7 + 1, week * 7 + 8)}:
            return ",".join(f"{weekday}#{week + 1}" for weekday in sorted(weekdays))
    raise NotConvertible(
        "it asks for a day of the month and a day of the week together, which a cron expression can represent only for "
        "whole weeks (days 1-7 and Monday: '* * MON#1'); check the day in the handler"
    )
