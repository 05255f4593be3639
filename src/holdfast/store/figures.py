"""Calls on figures: the snapshots that upkeep takes, and the minutes behind charts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.model.tick import Figures, Level
from holdfast.store.call import Call, Row, array, dicts, first
from holdfast.store.horizon import HORIZON, OLD
from holdfast.store.select import given

STATES = ("ready", "running", "later", "dead")
_HOLDERS = f"""
    SELECT jsonb_object_agg(kind, number)
    FROM (SELECT kind, count(*) AS number FROM ({HORIZON}) h (kind, name, seconds, state, detail)
          WHERE seconds IS NULL OR seconds > %s GROUP BY kind) k"""


class FigureCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def take(self) -> Call[bool | None]:
        """Store a snapshot, unless there is one of this second. Return whether jobs are due, run or ended in the last
        minute; None if nothing was stored."""
        return Call(f"SELECT {self.schema}.take_snapshot()", (), first)

    def read(self) -> Call[Row]:
        """Return the newest snapshot: queues, tasks, tenants, workers, slots, its time and its age in seconds."""
        return Call(f"SELECT {self.schema}.figures()", (), first)

    def marks(self, jobs: Sequence[str]) -> Call[tuple[Row, list[str]]]:
        """Return the newest snapshot, and a mark for each job that changes with the job."""
        return Call(
            f"SELECT {self.schema}.figures(), {self.schema}.job_marks(%s::uuid[])",
            (array(jobs),),
            lambda rows: (rows[0][0], rows[0][1]),
        )

    def minutes(self, since: float = 3600, *, queue: str | None = None, limit: int | None = None) -> Call[list[Row]]:
        """Return the attempts and depth of each queue, or of one, in each minute of the last `since` seconds, oldest
        first; the newest rows, if there are more than `limit`."""
        some = given("queue = %s", queue)
        columns = "minute, queue, ended, failed, lost, run_seconds, p50, p95, p99, ready, running, later, dead"
        return dicts(
            f"""SELECT {columns} FROM (
                    SELECT * FROM {self.schema}.minutes
                    WHERE minute > {self.schema}.clock() - make_interval(secs => %s) AND {some.sql}
                    ORDER BY minute DESC, queue DESC LIMIT %s) m
                ORDER BY minute, queue""",
            columns,
            (since, *some.params, limit),
        )

    def wanted_workers(self, queue: str, seconds: float) -> Call[int]:
        """Return how many slots would start the present backlog of a queue in this time and keep up with its rate."""
        return Call(f"SELECT {self.schema}.wanted_workers(%s, %s)", (queue, seconds), first)

    def levels(self) -> Call[list[Level]]:
        """Return the metrics of the last five minutes and their levels."""
        return Call(
            f"SELECT metric, value, level, warning, critical FROM {self.schema}.health_levels",
            (),
            lambda rows: [Level(*row) for row in rows],
        )

    def metrics(self, limit: int, others: str, *, old: float = OLD) -> Call[Figures]:
        """Return what Prometheus shows. The fullest queues have a row each, the rest share one. old: seconds from which
        a transaction counts as holding the horizon."""
        return Call(
            f"SELECT {self.schema}.figures(), (SELECT jsonb_agg(jsonb_build_array(metric, value, level)) "
            f"FROM {self.schema}.health_levels), ({_HOLDERS})",
            (old,),
            lambda rows: _figures(rows[0][0], rows[0][1], rows[0][2] or {}, limit, others),
        )


def _figures(snapshot: Row, levels: list[list[Any]], holders: dict[str, int], limit: int, others: str) -> Figures:
    jobs: dict[str, dict[str, int]] = {}
    waits: dict[str, float] = {}
    for place, queue in enumerate(snapshot["queues"]):
        name = queue["queue"] if place < limit else others
        counts = jobs.setdefault(name, dict.fromkeys(STATES, 0))
        for state in STATES:
            counts[state] += queue[state]
        waits[name] = max(waits.get(name, 0.0), queue["oldest_wait"] or 0.0)
    estimated = {name for queue in snapshot["queues"] for name in queue["estimated"]}
    taken_at = datetime.fromisoformat(snapshot["at"]).timestamp()
    return Figures(jobs, waits, snapshot["workers"], [Level(*each) for each in levels], estimated, taken_at, holders)
