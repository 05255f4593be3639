"""Helpers for the state of flow control: rules, limits, and jobs that run under them, written as a claim would."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from tests.support.flow import fold  # noqa: F401 - re-exported
from tests.support.sql_core import Sql


def rule(sql: Sql, template: str, **code: float) -> None:
    """Add a rule as a worker registers it."""
    sql(
        "insert into limit_rules (template, pattern, code, updated_at) values (%s, %s, %s::jsonb, clock())",
        [template, re.sub(r"\{\w+\}", "%", template), json.dumps(code)],
    )


def change(sql: Sql, key: str, by: str | None = None, **names: float | None) -> int:
    """Call set_limit() and return the number of keys it changed."""
    return sql("select set_limit(%s, %s::jsonb, %s)", [key, json.dumps(names), by])[0][0]


def arrive(sql: Sql, queue: str = "default") -> None:
    """Put the lanes of new jobs into the ring, as the next claim does."""
    sql("select lock_ring(), fold_arrivals(%s, next_token())", [queue])


def meet(sql: Sql, *keys: str) -> None:
    """Make keys that jobs were enqueued under, and that the ring knows."""
    ids = [wait(sql, key) for key in keys]
    arrive(sql)
    sql("delete from live where id = any(%s)", [ids])


def use(sql: Sql, key: str) -> dict[str, Any]:
    """Return a key's row of limit_use."""
    ((found,),) = sql("select to_jsonb(u) from limit_use u where key = %s", [key])
    return found


def wait(sql: Sql, *keys: str, queue: str = "default", tenant: str | None = None, priority: int = 2) -> uuid.UUID:
    """Insert a job that waits under keys."""
    id_ = uuid.uuid4()
    sql(
        "insert into live (id, task, queue, tenant, priority, keys, lane, run_at, created_at) "
        "values (%s, 't', %s, %s, %s, %s, lane_of(%s, %s), clock(), clock())",
        [id_, queue, tenant, priority, list(keys) or None, tenant, list(keys)],
    )
    return id_


def hold(sql: Sql, *keys: str, worker: str = "w", tenant: str | None = None, ago: float = 0) -> uuid.UUID:
    """Insert a job that was claimed `ago` seconds ago and is counted under its keys."""
    id_, ((token,),) = uuid.uuid4(), sql("select next_token()")
    sql(
        "insert into live (id, task, tenant, keys, lane, token, claimed_at, attempt) "
        "values (%s, 't', %s, %s, lane_of(%s, %s), %s, clock() - make_interval(secs => %s), 1)",
        [id_, tenant, list(keys) or None, tenant, list(keys), token, ago],
    )
    sql(
        "insert into claims select token, %s, claimed_at, clock(), clock() + interval '1 minute', array[id] "
        "from live where id = %s",
        [worker, id_],
    )
    for key in keys:
        sql(
            "insert into limits as m (key, kind, running) values (%s, kind_of(%s), 1) "
            "on conflict (key) do update set running = m.running + 1",
            [key, key],
        )
    return id_


def end(sql: Sql, id_: uuid.UUID) -> None:
    """End the job as succeeded, before a claim folds in what it released."""
    sql(
        "insert into releases (ended) "
        "select array[(k, 1, 1, 0, null)::released] from live, unnest(keys) k where id = %s",
        [id_],
    )
    sql("delete from live where id = %s", [id_])


def serve(
    sql: Sql, worker: str = "w", queues: str = "{default}", tasks: tuple[str, ...] = ("t",), slots: int = 50
) -> None:
    """Register a live worker."""
    handlers = [{"name": name, "queue": "default", "max_attempts": 5, "retry": {}} for name in tasks]
    sql("select register_worker(%s, 'h', 1, '1', %s, %s, %s::jsonb)", [worker, queues, slots, json.dumps(handlers)])
