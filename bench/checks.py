"""Checks of recorded runs under limits: pure functions over numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Interval(NamedTuple):
    """One attempt under a key, in seconds on one clock. It may be shorter than the attempt, which can hide an overlap
    but never invent one."""

    key: Any
    start: float
    end: float


def most_at_once(intervals: Iterable[Interval]) -> dict[Any, int]:
    """Return the peak concurrency of each key. An end and a start at the same time do not overlap."""
    steps: dict[Any, list[tuple[float, int]]] = defaultdict(list)
    for key, start, end in intervals:
        steps[key] += ((start, 1), (end, -1)) if end > start else ()
    return {key: _peak(sorted(each)) for key, each in steps.items()}


def _peak(steps: Sequence[tuple[float, int]]) -> int:
    running = peak = 0
    for _, change in steps:
        running += change
        peak = max(peak, running)
    return peak


def gaps(intervals: Iterable[Interval], room: int) -> list[float]:
    """Return how long each slot of a key stayed empty between two attempts, for keys whose jobs always waited: the k-th
    start after the first `room` follows the k-th end."""
    by_key: dict[Any, list[Interval]] = defaultdict(list)
    for each in intervals:
        by_key[each.key].append(each)
    found: list[float] = []
    for mine in by_key.values():
        starts, ends = sorted(each.start for each in mine), sorted(each.end for each in mine)
        found += [max(start - end, 0.0) for start, end in zip(starts[room:], ends, strict=False)]
    return found


def most_in_window(starts: Iterable[float], seconds: float) -> int:
    """Return the maximum number of starts in any window of `seconds` seconds."""
    times = sorted(starts)
    most = first = 0
    for last, time in enumerate(times):
        while times[first] <= time - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
