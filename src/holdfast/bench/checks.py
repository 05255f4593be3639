"""What a run under limits must look like, judged from what was recorded: pure functions over numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Interval(NamedTuple):
    """One attempt under a key, in seconds on one clock. It may be cut short on both sides: then it can only hide an
    overlap, never make one up."""

    key: Any
    start: float
    end: float


def most_at_once(intervals: Iterable[Interval]) -> dict[Any, int]:
    """How many ran at once under each key at its busiest moment. One that ends when another starts does not meet it."""
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
    """How long each place under a key stayed empty between one attempt and the next, for keys of which jobs waited all
    the time: the k-th start after the first k follows the k-th end."""
    by_key: dict[Any, list[Interval]] = defaultdict(list)
    for each in intervals:
        by_key[each.key].append(each)
    found: list[float] = []
    for mine in by_key.values():
        starts, ends = sorted(each.start for each in mine), sorted(each.end for each in mine)
        found += [max(start - end, 0.0) for start, end in zip(starts[room:], ends, strict=False)]
    return found


def most_in_window(starts: Iterable[float], seconds: float) -> int:
    """The most starts within any window of so many seconds."""
    times = sorted(starts)
    most = first = 0
    for last, time in enumerate(times):
        while times[first] <= time - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


class Served(NamedTuple):
    """Who was served how often by the moment when everybody had been served."""

    starts: int
    tenants: int
    most: int
    greediest: Any

    def allowed(self, cap: int) -> float:
        """Twice an equal share, and a cap for what one claim may take of one tenant."""
        return 2 * self.starts / self.tenants + cap


def served(claims: Iterable[tuple[Any, Any]]) -> Served:
    """Reads (moment, tenant) of each start, in any order; starts of one moment belong to one claim."""
    first: dict[Any, Any] = {}
    starts = sorted(claims)
    for moment, tenant in starts:
        first.setdefault(tenant, moment)
    everybody = max(first.values())
    counts = Counter(tenant for moment, tenant in starts if moment <= everybody)
    ((greediest, most),) = counts.most_common(1)
    return Served(sum(counts.values()), len(first), most, greediest)
