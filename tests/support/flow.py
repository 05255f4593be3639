"""Helpers for flow control in SQL, and the invariants of limits."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Sql = Callable[..., list[tuple[Any, ...]]]
# One statement, so one snapshot: jobs and counters of one committed state.
HELD = """
select k.key, count(*)::int as held from live l cross join lateral unnest(l.keys || l.held) as k(key)
where l.token is not null group by k.key
"""
COUNTED = f"""
select key, sum(held)::int as held from (
    {HELD} union all select unnest(held), 1 from live where token is null union all select unnest(held), 1 from later) u
group by key
"""
DRIFT = f"""
select coalesce(m.key, h.key), m.running, coalesce(o.freed, 0), coalesce(h.held, 0)
from limits m
full join ({COUNTED}) h on h.key = m.key
left join (select key, sum(jobs)::int as freed from releases, unnest(ended) group by key) o on o.key = m.key
where m.running - coalesce(o.freed, 0) is distinct from coalesce(h.held, 0)
"""
ABOVE = f"""
select h.key, h.held, m.concurrency from ({HELD}) h join limit_state m on m.key = h.key where h.held > m.concurrency
"""


class Taken(NamedTuple):
    """A claimed job."""

    id: uuid.UUID
    token: int
    tenant: str | None
    queue: str
    task: str
    priority: int
    attempt: int
    keys: tuple[str, ...]

    @property
    def every_key(self) -> tuple[str, ...]:
        """Return the keys it was enqueued under, and those of its queue, task and tenant, each once."""
        tenant = () if self.tenant is None else (f"tenant:{self.tenant}",)
        return tuple(dict.fromkeys((*self.keys, f"queue:{self.queue}", f"task:{self.task}", *tenant)))


def put(
    sql: Sql,
    *,
    task: str = "t",
    queue: str = "default",
    priority: int = 2,
    tenant: str | None = None,
    keys: Iterable[str] = (),
    age: float = 0,
    max_attempts: int = 1000,
    payload: Any = None,
    number: int = 1,
    ids: list[uuid.UUID] | None = None,
) -> list[uuid.UUID]:
    """Insert jobs into live, as enqueue leaves them."""
    mine = sorted(set(keys)) or None
    ids = [uuid.uuid4() for _ in range(number)] if ids is None else ids
    sql(
        "insert into live (id, queue, priority, lane, tenant, keys, task, max_attempts, payload, run_at, created_at, "
        "retry) "
        "select id, %(queue)s, %(priority)s, lane_of(%(tenant)s, %(keys)s::text[]), %(tenant)s, %(keys)s::text[], "
        "%(task)s, %(max)s, %(payload)s::json, clock() - make_interval(secs => %(age)s), clock(), "
        '\'{"kind": "fixed", "delay": 0}\' from unnest(%(ids)s::uuid[]) id',
        {
            "queue": queue,
            "priority": priority,
            "tenant": tenant,
            "keys": mine,
            "task": task,
            "max": max_attempts,
            "payload": json.dumps({} if payload is None else payload),
            "age": age,
            "ids": ids,
        },
    )
    return ids


def claim(
    sql: Sql,
    worker: str = "w",
    limit: int = 10,
    *,
    queues: Iterable[str] = ("default",),
    ttl: float = 60,
    free: int | None = None,
    per_tenant: int | None = None,
    served: dict[str, int] | None = None,
) -> list[Taken]:
    """Claim as a client without state."""
    rows = sql(
        "select id, token, tenant, queue, task, priority, attempt, keys from claim(%s, %s::text[], %s, "
        "make_interval(secs => %s), null, false, %s, %s, %s::jsonb) where id is not null",
        [worker, list(queues), limit, ttl, free, per_tenant, json.dumps(served) if served else None],
    )
    return [Taken(*row[:-1], tuple(row[-1] or ())) for row in rows]


def claim_on(sql: Sql, worker: str = "w", limit: int = 10) -> list[Taken]:
    """Claim as a worker, which goes on while a claim without jobs says that there is more."""
    while True:
        rows = sql(
            "select id, token, tenant, queue, task, priority, attempt, keys, info from claim(%s, p_limit => %s, "
            "p_free => %s)",
            [worker, limit, limit],
        )
        if rows[0][0] is not None:
            return [Taken(*row[:7], tuple(row[7] or ())) for row in rows]
        if not rows[0][-1]["more"]:
            return []


def fold(sql: Sql) -> None:
    """Fold in what has ended, and what operators have changed, as the next claim does."""
    sql("select lock_ring(), fold_releases(next_token())")


def end(sql: Sql, *jobs: Taken, outcome: str = "succeeded", **more: Any) -> list[uuid.UUID]:
    """End jobs in one call and return the refused ids."""
    if outcome == "succeeded" and not more:
        params = [[j.id for j in jobs], [j.token for j in jobs]]
        return [row[0] for row in sql("select finish(%s::uuid[], %s::bigint[])", params)]
    results = [{"id": str(j.id), "token": j.token, "outcome": outcome, **more} for j in jobs]
    return [row[0] for row in sql("select finish('{}', '{}', %s::jsonb)", [json.dumps(results)])]


def limit(sql: Sql, key: str, **override: Any) -> None:
    """Set what is in force for a key, in place of the earlier setting."""
    sql(
        "insert into limit_settings (key, kind, override) values (%s, kind_of(%s), %s::jsonb) on conflict (key) "
        "do update set override = excluded.override",
        [key, key, json.dumps(override)],
    )
    sql("select touch_limit(%s)", [key])


def pause(sql: Sql, key: str, paused: bool = True) -> None:
    sql(
        "insert into limit_settings (key, kind, paused, paused_at) values (%s, kind_of(%s), %s, clock()) "
        "on conflict (key) do update set paused = excluded.paused, paused_at = excluded.paused_at",
        [key, key, paused],
    )
    sql("select touch_limit(%s)", [key])


def held(sql: Sql) -> dict[str, int]:
    """Return how many claimed jobs there are under each key."""
    return dict(sql(HELD))


def drift(sql: Sql) -> list[tuple[Any, ...]]:
    """Return keys with a wrong counter: key, counted, released and not yet folded, really held."""
    return sql(DRIFT)
