"""`holdfast signal`, `holdfast jobs steps`, `rerun` and `undo`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from holdfast import Holdfast
from tests.support.program import as_json, holdfast

Sql = Callable[..., list[tuple[Any, ...]]]


def test_steps_are_shown_and_a_signal_wakes_their_job(hf: Holdfast, dsn: str, sql: Sql) -> None:
    ((id_, _),) = sql("select * from enqueue('order')")
    ((token,),) = sql("select token from claim('w')")
    step = {"id": str(id_), "token": token, "name": "charge", "result": 1, "undo": {"task": "refund"}}
    sql("select store_steps(%s::json)", [json.dumps([step])])
    wait = {"kind": "signal", "name": "approved", "seconds": None}
    outcome = {"id": str(id_), "token": token, "outcome": "parked", "wait": wait}
    sql("select finish('{}', '{}', %s::jsonb)", [json.dumps([outcome])])
    shown = holdfast(dsn, "jobs", "steps", str(id_)).stdout
    assert all(word in shown for word in ("charge", "approved", "done", "waits", "refund"))
    assert "signal approved" in holdfast(dsn, "jobs", "show", str(id_)).stdout
    assert "it has waited for the signal 'approved'" in holdfast(dsn, "why", str(id_)).stdout
    assert [each["id"] for each in as_json(holdfast(dsn, "jobs", "--status", "waiting", "--json"))] == [str(id_)]
    assert "the value must be JSON" in holdfast(dsn, "signal", "approved", "{").output
    assert as_json(holdfast(dsn, "signal", "approved", '{"by": "ann"}', "--json"))["existing"] is False
    assert "already" in holdfast(dsn, "signal", "approved").stdout
    assert sql("select status::text from jobs") == [("queued",)]


def test_a_job_is_undone_and_rerun(hf: Holdfast, dsn: str, sql: Sql) -> None:
    ((id_, _),) = sql("select * from enqueue('order')")
    ((token,),) = sql("select token from claim('w')")
    step = {"id": str(id_), "token": token, "name": "charge", "undo": {"task": "refund"}}
    sql("select store_steps(%s::json)", [json.dumps([step])])
    assert "it is running" in holdfast(dsn, "jobs", "undo", str(id_)).output
    sql("select finish(%s, %s)", [[id_], [token]])
    assert "1 steps are being undone" in holdfast(dsn, "jobs", "undo", str(id_)).stdout
    assert "has no step 'x'" in holdfast(dsn, "jobs", "rerun", str(id_), "--from-step", "x").output
    assert as_json(holdfast(dsn, "jobs", "rerun", str(id_), "--json"))["outcome"] == "queued"
