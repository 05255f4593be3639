"""Health: what is not good, and how bad it is, for the dashboard and `holdfast top`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.model.tick import Level

Row = Mapping[str, Any]
LEVELS = {"good": 0, "warning": 1, "critical": 2}


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is not good: a metric with its value, or what the workers lack, in `text` alone."""

    level: str
    text: str
    metric: str | None = None
    value: float | None = None


def worst(causes: Sequence[Cause]) -> str:
    """Return the level of the whole: that of the first cause."""
    return causes[0].level if causes else "good"


def causes(levels: Iterable[Level], queues: Iterable[Row], workers: Sequence[Row]) -> list[Cause]:
    """Return what is not good, the worst first. Without a worker nothing runs, whatever the figures say."""
    found = [
        Cause(each.level, each.metric.replace("_", " "), each.metric, each.value)
        for each in levels
        if each.level is not None and each.level != "good"
    ]
    found += [Cause("warning", f"queue {each['queue']}: {what}") for each in queues if (what := lacks(each, workers))]
    alive = {each["state"] for each in workers if each["alive"]}
    if not alive:
        found.append(Cause("critical", "no worker is alive"))
    elif "alive" not in alive:
        found.append(Cause("warning", "all workers are stopping"))
    return sorted(found, key=lambda each: -LEVELS[each.level])


def lacks(queue: Row, workers: Sequence[Row]) -> str:
    """Return what a queue with ready jobs lacks: "no worker" if none serves it, "stopping" if all that do are."""
    if not queue["ready"]:
        return ""
    states = {each["state"] for each in workers if each["alive"] and queue["queue"] in each["queues"]}
    return "no worker" if not states else "" if "alive" in states else "stopping"
