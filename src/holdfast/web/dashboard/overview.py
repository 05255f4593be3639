"""The front page: how much is done, how long jobs wait, what fails, what holds work back, who works."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from holdfast.model.limit import LimitInfo
from holdfast.model.tick import Level
from holdfast.store.call import Row
from holdfast.store.doctor import DoctorCalls
from holdfast.web.dashboard import queues
from holdfast.web.dashboard.section import SIGNED_IN, Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.routing import EXPLAINS, READS

section = Section("Overview", "/", key="o", needs=EXPLAINS)
MOST_QUEUES = 12
MOST_LIMITS = 12
MOST_GROUPS = 6
OLD = 600.0  # seconds after which a transaction is worth a line
SLOW = 10.0  # seconds for which slowly changing figures are shared
LEVELS = {  # what a level says, and the unit of its value
    "wait_over_target": ("Longest wait", "of its target"),
    "failing_share": ("Failing", "of attempts"),
    "leases_lost": ("Lost leases", ""),
    "upkeep_late": ("Upkeep late", "s"),
    "tick_duration": ("Longest tick", "s"),
}
SHARES = ("wait_over_target", "failing_share")  # shown as percentages


@section.page("/", "overview.html", SIGNED_IN)
async def show(visit: Visit) -> Values | Response:
    """Show the state of everything; send viewers who may not see it to the first page that they may see."""
    if not visit.may(EXPLAINS):
        return visit.redirect(first(visit))
    calls = visit.calls
    every, limits, workers, leader, levels, groups = await asyncio.gather(
        queues.read(visit),
        visit.shared(calls.limits.list(busy=True, limit=200, busiest_first=True), SLOW),
        visit.shared(calls.workers.list(), queues.WORKERS),
        visit.shared(calls.workers.leader(), SLOW),
        visit.shared(calls.figures.levels(), SLOW),
        visit.shared(calls.errors.list(limit=MOST_GROUPS, view=visit.view), SLOW),
    )
    figures = await visit.figures()
    horizon = await visit.shared(DoctorCalls(calls.schema).horizon(), SLOW)
    alive = [each for each in workers if each["alive"]]
    return {
        "title": "Overview",
        "figures": figures,
        "totals": totals(every["queues"]),
        **every,
        "queues": every["queues"][:MOST_QUEUES],
        "more_queues": max(0, len(every["queues"]) - MOST_QUEUES),
        "holding": [each for each in limits if holds(each)][:MOST_LIMITS],
        "pauses": [each for each in limits if each.paused],
        "unserved": [each for each in every["queues"] if each["lacks"]][:MOST_LIMITS],
        "workers": [each for each in alive if each["state"] == "alive"],
        "stopping": [each for each in alive if each["state"] != "alive"],
        "groups": groups,
        "leader": leader,
        "levels": [(each, *level_words(each)) for each in levels if each.value is not None and each.level],
        "leader_at": next((each for each in workers if leader and each["id"] == leader["worker"]), None),
        "horizon": [each for each in horizon if each["seconds"] is None or each["seconds"] > OLD],
    }


def first(visit: Visit) -> str:
    """Return the path of the first entry of the navigation, or raise a 403 if there is none."""
    entries = visit.dashboard.navigation(visit)
    if not entries:
        READS.check(visit.caller)
    return entries[0].path


def level_words(level: Level) -> tuple[str, str]:
    """Return the name of a level's metric, and its value beside the threshold of a warning."""
    name, unit = LEVELS.get(level.metric, (level.metric.replace("_", " ").capitalize(), ""))
    shown = "{:.0%}" if level.metric in SHARES else "{:,.3g}"
    value = " ".join(filter(None, (shown.format(level.value), unit)))
    return name, value if level.warning is None else f"{value}; warning from {shown.format(level.warning)}"


def totals(found: Iterable[Row]) -> Mapping[str, Any]:
    """Return the sums of all queues, their longest waits, and which sums are estimates."""
    rows = list(found)
    sums: dict[str, Any] = {name: sum(each[name] for each in rows) for name in queues.COUNTS}
    for name in queues.WAITS:
        sums[name] = max((each[name] for each in rows if each[name] is not None), default=None)
    oldest = max(rows, key=lambda each: each["oldest_wait"] or 0.0, default=None)
    return sums | {
        "oldest_queue": oldest["queue"] if oldest is not None and oldest["oldest_wait"] else None,
        "estimated": {name for each in rows for name in each["estimated"]},
    }


def holds(limit: LimitInfo) -> bool:
    """Return whether a limit keeps jobs from starting now."""
    full = limit.concurrency is not None and limit.running >= limit.concurrency
    empty = limit.tokens is not None and limit.tokens < 1
    return not limit.paused and (full or empty or limit.breaker in ("open", "half-open"))
