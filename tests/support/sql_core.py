"""Helpers for Holdfast's SQL functions, for tests that drive the core without the Python client."""

from __future__ import annotations

import json
import uuid
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

Sql = Callable[..., list[tuple[Any, ...]]]
Claimed = namedtuple(
    "Claimed",
    "id token task payload attempt max_attempts queue priority tenant run_at created_at dedupe_key batch headers "
    "lane keys info",
)
Job = namedtuple(
    "Job",
    "id task tenant queue priority payload status attempts max_attempts run_at last_error created_at started_at "
    "finished_at result dedupe_key locked_by locked_at heartbeat_at lease_expires_at token batch deadline progress "
    "failures fingerprint place waits_for",
)
LONGEST_STATEMENT = 30  # seconds: a statement that waits for a lock forever fails, and names the place
PLACES = (
    "select 'live' as place, id from live union all select 'later', id from later "
    "union all select 'dead', id from dead union all select 'history', id from history"
)
STATE = {
    "jobs": "select j::text from jobs j order by 1",
    "places": f"{PLACES} order by 1, 2",
    "dedupe": "select * from dedupe order by key",
    "claims": "select * from claims order by token",
}


@contextmanager
def session(dsn: str, schema: str = "holdfast", *, autocommit: bool = True) -> Iterator[psycopg.Connection]:
    """Open a session with Holdfast's schema on the search path."""
    options = f"-c search_path={schema},pg_temp -c statement_timeout={LONGEST_STATEMENT}s"
    with psycopg.connect(dsn, autocommit=autocommit, options=options) as conn:
        yield conn


def runner(conn: psycopg.Connection) -> Sql:
    """Return the same as the fixture `sql`, on a given connection."""

    def run(query: str, params: Any = None) -> list[tuple[Any, ...]]:
        cursor = conn.execute(query, params)
        return cursor.fetchall() if cursor.description else []

    return run


def enqueue(sql: Sql, task: str = "t", **options: Any) -> tuple[uuid.UUID, str]:
    """Call enqueue() by named parameters; payload and retry are Python values. Return id and outcome."""
    casts = {
        "payload": "jsonb",
        "retry": "jsonb",
        "delay": "interval",
        "dedupe_keep": "interval",
        "run_at": "timestamptz",
    }
    casts |= {"id": "uuid", "dedupe_scope": "dedupe_scope", "after": "uuid[]", "deadline": "interval"}
    names, values = ["p_task => %s"], [task]
    for name, value in options.items():
        names.append(f"p_{name} => %s" + (f"::{casts[name]}" if name in casts else ""))
        values.append(json.dumps(value) if name in ("payload", "retry") and value is not None else value)
    return sql(f"select id, outcome from enqueue({', '.join(names)})", values)[0]


def put(sql: Sql, task: str = "t", **options: Any) -> uuid.UUID:
    """Enqueue a job that must be new and return its id."""
    id_, outcome = enqueue(sql, task, **options)
    assert outcome == "created"
    return id_


def claim(
    sql: Sql,
    worker: str = "w",
    limit: int = 10,
    *,
    queues: Iterable[str] = ("default",),
    ttl: float = 60,
    after: dict[str, Any] | None = None,
    asleep: bool = False,
) -> list[Claimed]:
    rows = sql(
        "select * from claim(%s, %s::text[], %s, make_interval(secs => %s), %s::jsonb, %s)",
        [worker, list(queues), limit, ttl, after and json.dumps(after), asleep],
    )
    return [Claimed(*row) for row in rows]


def claim_one(sql: Sql, worker: str = "w", **options: Any) -> Claimed:
    (job,) = claim(sql, worker, 1, **options)
    return job


def finish(sql: Sql, *jobs: Claimed) -> list[uuid.UUID]:
    """End jobs as succeeded and return the refused ids."""
    return firsts(sql("select finish(%s::uuid[], %s::bigint[])", [[j.id for j in jobs], [j.token for j in jobs]]))


def fail(sql: Sql, job: Claimed, error: Any = None, delay: str | None = None, outcome: str | None = "error") -> bool:
    error = json.dumps({"type": "Oops"} if error is None else error)
    query = "select fail(%s, %s, %s::jsonb, %s::interval, %s)"
    return sql(query, [job.id, job.token, error, delay, outcome])[0][0]


def snooze(sql: Sql, job: Claimed, delay: str = "1 minute") -> bool:
    return sql("select snooze(%s, %s, %s::interval)", [job.id, job.token, delay])[0][0]


def release(sql: Sql, *jobs: Claimed) -> list[uuid.UUID]:
    return firsts(sql("select release(%s::uuid[], %s::bigint[])", [[j.id for j in jobs], [j.token for j in jobs]]))


def renew(sql: Sql, worker: str, *tokens: int, ttl: str = "60 seconds") -> list[int]:
    return firsts(sql("select renew(%s, %s::bigint[], %s::interval)", [worker, list(tokens), ttl]))


def reclaim(sql: Sql) -> list[tuple[Any, ...]]:
    return sql("select token, worker, expired_at, ids from reclaim()")


def expire(sql: Sql) -> None:
    """Let every lease run out, without a clock."""
    sql("update claims set expires_at = '2000-01-01'")


def lose(sql: Sql) -> list[tuple[Any, ...]]:
    """Let every lease run out and reclaim the jobs, as the leader does: until there are no more."""
    expire(sql)
    lost: list[tuple[Any, ...]] = []
    while some := reclaim(sql):
        lost += some
    return lost


def promote(sql: Sql, limit: int = 1000) -> list[uuid.UUID]:
    return sql("select promote(%s)", [limit])[0][0]


def cancel(sql: Sql, *ids: uuid.UUID) -> list[str]:
    return [row[1] for row in sql("select id, outcome from cancel(%s::uuid[])", [list(ids)])]


def retry_dead(sql: Sql, *ids: uuid.UUID) -> list[uuid.UUID]:
    return firsts(sql("select retry_dead(%s::uuid[])", [list(ids)]))


def discard_dead(sql: Sql, *ids: uuid.UUID) -> list[uuid.UUID]:
    return firsts(sql("select discard_dead(%s::uuid[])", [list(ids)]))


def one_job_in_every_place(sql: Sql) -> dict[str, uuid.UUID]:
    made = {"dead": put(sql, max_attempts=1), "history": put(sql)}
    for job in claim(sql):
        fail(sql, job, outcome="dead") if job.id == made["dead"] else finish(sql, job)
    made["running"] = put(sql)
    claim_one(sql)
    made["live"] = put(sql)
    made["later"] = put(sql, delay="100 years")
    return made


def look(sql: Sql, id_: uuid.UUID) -> Job:
    """Return the one row of a job in the jobs view."""
    rows = sql("select * from jobs where id = %s", [id_])
    assert len(rows) == 1, f"job {id_} is in {len(rows)} places"
    return Job(*rows[0])


def status(sql: Sql, id_: uuid.UUID) -> str:
    ((found,),) = sql("select status::text from jobs where id = %s", [id_])
    return found


def place(sql: Sql, id_: uuid.UUID) -> str:
    (found,) = sql(f"select place from ({PLACES}) p where id = %s", [id_])
    return found[0]


def count(sql: Sql, table: str) -> int:
    return sql(f"select count(*) from {table}")[0][0]


def state(sql: Sql) -> dict[str, Any]:
    """Return everything about jobs that an operation could change."""
    return {name: sql(query) for name, query in STATE.items()}


def firsts(rows: list[tuple[Any, ...]]) -> list[Any]:
    return [row[0] for row in rows]
