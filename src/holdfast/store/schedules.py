"""Calls on schedules: register, fire, pause."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.model.job import ids as job_ids
from holdfast.model.schedule import Due, Schedule, ScheduleInfo
from holdfast.store.call import Call, first, last, void
from holdfast.store.enqueue import job_fields
from holdfast.store.queues import QUEUE

_COLUMNS = (
    "s.name, task, cron, zone, missed::text, payload, options, paused, next_at, last_at, last_job::text, problem, "
    "registered_at"
)


@dataclass(frozen=True, slots=True)
class NextSlot:
    """A schedule and the time from which to look for its next slot; `now` is the database's time."""

    name: str
    cron: str
    zone: str
    missed: Any
    next_at: datetime
    now: datetime

    @property
    def wait(self) -> float:
        """Return the seconds until it is due, 0 or less if it is. UTC avoids the connection's daylight saving time."""
        return (self.next_at.astimezone(UTC) - self.now.astimezone(UTC)).total_seconds()


@dataclass(frozen=True, slots=True)
class FireResult:
    """The result of firing a schedule: the number of jobs (None if there was nothing to fire), the problem if it could
    not be fired, and the first job."""

    name: str
    jobs: int | None
    problem: str | None
    job: str | None


class ScheduleCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def register(self, schedules: Iterable[Schedule]) -> Call[builtins.list[str]]:
        return Call(
            f"SELECT {self.schema}.register_schedules(%s::jsonb)",
            (msgspec.json.encode([_definition(each) for each in schedules]).decode(),),
            lambda rows: list(rows[0][0]),
        )

    def next(self, limit: int, without: Sequence[str]) -> Call[builtins.list[NextSlot]]:
        return Call(
            f"SELECT name, cron, zone, missed::text, next_at, now FROM {self.schema}.next_schedules(%s, %s)",
            (limit, list(without)),
            lambda rows: [NextSlot(*row) for row in rows],
        )

    def fire(self, fires: Iterable[tuple[NextSlot, Due]]) -> Call[builtins.list[FireResult]]:
        slots = [
            {
                "name": it.name,
                "cron": it.cron,
                "zone": it.zone,
                "next_at": it.next_at,
                "slots": due.slots,
                "then": due.then,
            }
            for it, due in fires
        ]
        return Call(
            f"SELECT name, cardinality(ids), problem, ids[1]::text FROM {self.schema}.fire_schedules(%s::jsonb)",
            (msgspec.json.encode(slots).decode(),),
            lambda rows: [FireResult(*row) for row in rows],
            due=lambda fired: last([each.job for each in fired if each.job]),
        )

    def flag(self, problems: dict[str, str]) -> Call[None]:
        """Record why schedules could not be fired."""
        named = [{"name": name, "problem": problem} for name, problem in problems.items()]
        return void(self.schema, "fire_schedules", "%s::jsonb", msgspec.json.encode(named).decode())

    def pause(self, name: str, *, paused: bool, by: str | None = None, reason: str | None = None) -> Call[bool]:
        query = f"SELECT {self.schema}.pause_schedule(%s, %s, %s, %s)"
        return Call(query, (name, paused, by, reason), first)

    def run(self, name: str, by: str | None = None, reason: str | None = None) -> Call[str | None]:
        query = f"SELECT {self.schema}.run_schedule(%s, %s::uuid, %s, %s)::text"
        return Call(query, (name, job_ids.make(), by, reason), first, due=lambda job: job)

    def remove(self, name: str, by: str | None = None, reason: str | None = None) -> Call[bool]:
        return Call(f"SELECT {self.schema}.remove_schedule(%s, %s, %s)", (name, by, reason), first)

    def list(self) -> Call[builtins.list[ScheduleInfo]]:
        return Call(
            f"""WITH alive AS (SELECT * FROM {self.schema}.workers w WHERE {self.schema}.is_alive(w.id, w.heartbeat_at))
                SELECT {_COLUMNS}, s.task = ANY (w.tasks), {QUEUE} = ANY (w.queues), {self.schema}.clock()
                FROM {self.schema}.schedules s, (
                    SELECT array(SELECT unnest(tasks) FROM alive) AS tasks,
                           array(SELECT unnest(queues) FROM alive WHERE NOT stopping) AS queues) w
                ORDER BY s.name""",
            (),
            lambda rows: [ScheduleInfo(*map(_in_utc, row)) for row in rows],
        )


def _definition(it: Schedule) -> dict[str, Any]:
    options = job_fields(it.job)
    payload, task, _ = options.pop("payload"), options.pop("task"), options.pop("id")
    return {
        "name": it.name,
        "task": task,
        "cron": it.cron.text,
        "zone": it.cron.zone,
        "missed": it.cron.missed,
        "payload": payload,
        "options": options,
    }


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value
