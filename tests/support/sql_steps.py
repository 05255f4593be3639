"""Durable steps by the SQL functions alone: a claimed job stores steps, waits, and calls children."""

from __future__ import annotations

import json
from typing import Any

from tests.support import sql_core as core
from tests.support.sql_core import Claimed, Sql

UNDO = {"task": "undo", "payload": {}}


def store(sql: Sql, job: Claimed, name: str, result: Any = None, **more: Any) -> str:
    step = {"id": str(job.id), "token": job.token, "name": name, "result": result, "attempt": 1, "seconds": 0, **more}
    return sql("select outcome from store_steps(%s::json)", [json.dumps([step])])[0][0]


def read(sql: Sql, job: Claimed) -> dict[str, Any]:
    """Return the results of steps that have ended, by name; of one that timed out "timed out"."""
    rows = sql("select * from read_steps(array[%s]::uuid[], array[%s]::bigint[])", [job.id, job.token])
    return {row[1]: "timed out" if row[4] else json.loads(row[5] or "null") for row in rows if row[3]}


def park(sql: Sql, job: Claimed, kind: str, name: str, seconds: float | None = None, locked: str = "skip") -> bool:
    """Return whether the job was parked, or resumed at once; else it is still the worker's."""
    outcome = {
        "id": str(job.id),
        "token": job.token,
        "outcome": "parked",
        "wait": {"kind": kind, "name": name, "seconds": seconds},
    }
    return sql("select finish('{}', '{}', %s::jsonb, null, %s)", [json.dumps([outcome]), locked]) == []


def signal(sql: Sql, name: str, value: Any = None, tenant: str | None = None) -> bool:
    return sql("select signal(%s, %s::jsonb, %s)", [name, json.dumps(value), tenant])[0][0]


def started(sql: Sql, **options: Any) -> Claimed:
    core.put(sql, **options)
    return core.claim_one(sql)


def child(sql: Sql, job: Claimed, name: str = "child", **options: Any) -> str:
    made = {"task": "child", "queue": "children", **options}
    return sql("select start_child(%s, %s, %s, %s::jsonb)", [job.id, job.token, name, json.dumps(made)])[0][0]
