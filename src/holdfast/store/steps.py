"""Calls on durable steps: store, read, children, signals, undo, rerun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.model.step import Relatives, StepInfo, StoredStep
from holdfast.model.view import EVERYTHING, View
from holdfast.store.call import Call, Rows, array, as_json, first, text_array


class NewStep(msgspec.Struct, omit_defaults=True, gc=False):
    """A step that has ended, as it is sent to the database."""

    id: str
    token: int
    name: str
    result: msgspec.Raw | None = None
    undo: msgspec.Raw | None = None
    attempt: int = 1
    seconds: float = 0.0


class StepCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._store = f"SELECT outcome FROM {schema}.store_steps(%s::json, %s) ORDER BY place"
        self._read = (
            "SELECT place, name, kind, finished, timed_out, result, ref::text, detail "
            f"FROM {schema}.read_steps(%s::uuid[], %s::bigint[])"
        )

    def store(self, steps: Sequence[NewStep], *, hold: bool = False) -> Call[list[str]]:
        """Store steps; return for each: stored, existing, lost or locked. hold: in a transaction with other rows."""
        return Call(self._store, (msgspec.json.encode(steps).decode(), hold), lambda rows: [row[0] for row in rows])

    def refusal(self, step: NewStep) -> Call[list[str]]:
        """Store a step; return nothing, or why it is refused."""
        call = self.store([step], hold=True)
        sql = f"SELECT outcome FROM ({call.sql}) stored WHERE outcome <> 'stored'"
        return Call(sql, call.params, call.read)

    def keep_result(self, step: NewStep) -> Call[None]:
        """Store the result of a step that was stored in its function's own transaction."""
        sql = f"SELECT {self.schema}.store_step_result(%s::uuid, %s, %s, %s::json, %s::jsonb)"
        result, undo = (None if each is None else bytes(each).decode() for each in (step.result, step.undo))
        return Call(sql, (step.id, step.token, step.name, result, undo), lambda _: None)

    def read(self, ids: Sequence[str], tokens: Sequence[int]) -> Call[list[list[StoredStep]]]:
        """Return the steps of each of the jobs."""

        def grouped(rows: Rows) -> list[list[StoredStep]]:
            found: list[list[StoredStep]] = [[] for _ in ids]
            for place, *row in rows:
                found[place - 1].append(StoredStep(*row))
            return found

        return Call(self._read, (array(ids), array(tokens)), grouped)

    def start_child(self, id_: str, token: int, name: str, job: dict[str, Any]) -> Call[str]:
        sql = f"SELECT {self.schema}.start_child(%s::uuid, %s, %s, %s::jsonb)"
        return Call(sql, (id_, token, name, as_json(job)), first)

    def start_batch(
        self, id_: str, token: int, name: str, batch: str, tenant: str | None, detail: dict[str, Any]
    ) -> Call[str]:
        sql = f"SELECT {self.schema}.start_batch(%s::uuid, %s, %s, %s::uuid, %s, %s::jsonb)"
        return Call(sql, (id_, token, name, batch, tenant, as_json(detail)), first)

    def signal(self, name: str, value: bytes, tenant: str | None, keep: float | None) -> Call[bool]:
        sql = f"SELECT {self.schema}.signal(%s, %s::jsonb, %s, make_interval(secs => %s))"
        return Call(sql, (name, value.decode(), tenant, keep), first)

    def compensate(self, id_: str, by: str | None, reason: str | None, view: View = EVERYTHING) -> Call[int]:
        sql = f"SELECT {self.schema}.compensate(%s::uuid, %s, %s, %s, %s)"
        return Call(sql, (id_, by, reason, view.tenant, view.changes_deliveries), first)

    def rerun(
        self,
        id_: str,
        from_step: str | None,
        keys: Sequence[str] | None,
        by: str | None,
        reason: str | None,
        view: View = EVERYTHING,
    ) -> Call[str | None]:
        """Queue a job that has ended again. keys are those of its limits, None if its task is not known here. Return
        its id, or None if a newer job holds its dedupe key."""
        limits = None if keys is None else text_array(keys)
        sql = f"SELECT {self.schema}.rerun(%s::uuid, %s, %s::text[], %s, %s, %s, %s)::text"
        return Call(sql, (id_, from_step, limits, by, reason, view.tenant, view.changes_deliveries), first)

    def list(self, id_: str, view: View = EVERYTHING) -> Call[list[StepInfo]]:
        """Return the steps of a job in the order in which they began or, if they run code, ended. Of its children and
        undo jobs, those that the view shows have their ids."""
        s = self.schema
        jobs = f"SELECT unnest(ARRAY[ref, undo_job]) FROM {s}.steps WHERE job = %(id)s::uuid"
        sql = (
            "SELECT name, kind, started_at, finished_at, due_at, coalesce(timed_out, false), attempt, result::jsonb, "
            "CASE WHEN %(everyone)s OR kind = 'batch' OR ref = ANY (seen) THEN ref::text END, undo ->> 'task', "
            f"CASE WHEN %(everyone)s OR undo_job = ANY (seen) THEN undo_job::text END FROM {s}.steps, "
            f"(SELECT CASE WHEN NOT %(everyone)s THEN {s}.seen_jobs(false, %(tenant)s, %(deliveries)s, ARRAY({jobs})) "
            "END AS seen) v WHERE job = %(id)s::uuid ORDER BY number LIMIT 1000"
        )
        return Call(sql, _viewed(id_, view), lambda rows: [StepInfo(*row) for row in rows])

    def relatives(self, id_: str, view: View = EVERYTHING) -> Call[Relatives]:
        """Return the parent, the children, the predecessors and the followers of a job, those that the view shows."""
        s = self.schema
        seen = f"{s}.seen_jobs(%(everyone)s, %(tenant)s, %(deliveries)s, ARRAY({{}} LIMIT 100))"
        lists = (
            f"SELECT p.job FROM {s}.steps p WHERE p.ref = %(id)s::uuid OR p.ref = "
            f"(SELECT j.batch FROM {s}.jobs j WHERE j.id = %(id)s::uuid)",
            f"SELECT ref FROM {s}.steps WHERE job = %(id)s::uuid AND kind = 'call' AND ref IS NOT NULL ORDER BY number",
            f"SELECT job FROM {s}.follows WHERE follower = %(id)s::uuid ORDER BY job",
            f"SELECT follower FROM {s}.follows WHERE job = %(id)s::uuid ORDER BY follower",
        )
        sql = "SELECT " + ", ".join(f"{seen.format(each)}::text[]" for each in lists)
        return Call(sql, _viewed(id_, view), lambda rows: Relatives(next(iter(rows[0][0]), None), *rows[0][1:]))


def _viewed(id_: str, view: View) -> Any:
    """Return the parameters of a query for a job, and for who reads it."""
    return {"id": id_, "everyone": view.everyone, "tenant": view.tenant, "deliveries": view.reads_deliveries}
