"""The tenants: what each has waiting, and its share of the running jobs beside the fair one; pause and resume."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from holdfast.store.call import Row
from holdfast.web.dashboard import pauses
from holdfast.web.dashboard.section import Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.routing import EXPLAINS

COUNTS = ("ready", "running", "later", "dead")
EMPTY: Values = {"estimated": [], **dict.fromkeys(COUNTS, 0)}
section = Section("Tenants", "/tenants", key="n", needs=EXPLAINS)
pauses.offer(section, "tenant")


@section.page("/tenants", "tenants.html", EXPLAINS)
async def show(visit: Visit) -> Values:
    """Show the tenants of the newest snapshot, those with the most running jobs first, and those that are paused."""
    limits = visit.calls.limits
    figures, stops = await asyncio.gather(visit.figures(), visit.shared(limits.paused("tenant:", pauses.MOST), 2.0))
    paused = pauses.by_name("tenant", stops)
    known = [each["tenant"] for each in figures["tenants"]]
    tenants = figures["tenants"] + [{**EMPTY, "tenant": name} for name in sorted(paused.keys() - set(known))]
    keys = await visit.shared(limits.read([f"tenant:{name}" for name in known]), 5.0)
    weights = {name: each.weight for name, each in pauses.by_name("tenant", keys).items() if each.weight is not None}
    return {"title": "Tenants", "tenants": with_shares(tenants, weights, paused.keys()), "paused": paused}


def with_shares(tenants: Iterable[Row], weights: Mapping[str, float], paused: Iterable[str]) -> list[Row]:
    """Return tenants with their share of the running jobs. The fair share is the weight among those that have work to
    start or running; a tenant without such work, or paused, has none."""
    rows, idle = [{**each, "weight": weights.get(each["tenant"], 1.0)} for each in tenants], set(paused)
    working = {each["tenant"] for each in rows if each["ready"] + each["running"] > 0} - idle
    whole = sum(each["weight"] for each in rows if each["tenant"] in working)
    running = sum(each["running"] for each in rows)
    for each in rows:
        each["share"] = each["running"] / running if running else 0.0
        each["fair"] = each["weight"] / whole if each["tenant"] in working and whole else None
    return rows
