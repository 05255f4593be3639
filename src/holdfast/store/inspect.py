"""Read-only queries for operators: dead jobs, workers, and the checks of `holdfast doctor`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from holdfast.settings import Settings
from holdfast.store import connect
from holdfast.store.calls import Call, Rows
from holdfast.store.migrate import sql_files
from holdfast.store.session import ThreadSession
from holdfast.store.values import Filter

Row = dict[str, Any]

_SERVER = """
    SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_user::text,
           current_database()::text, extract(epoch FROM clock_timestamp())::float8"""

_CONNECTIONS = """
    SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
           sum(CASE name WHEN 'max_connections' THEN setting::int ELSE -setting::int END)
    FROM pg_settings
    WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')"""

_HORIZON = """
    SELECT 'transaction', pid::text, extract(epoch FROM clock_timestamp() - xact_start)::float8, state,
           left(regexp_replace(query, '\\s+', ' ', 'g'), 60)
    FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND xact_start IS NOT NULL
      AND pid <> pg_backend_pid() AND datname = current_database() AND backend_type <> 'autovacuum worker'
    UNION ALL
    SELECT 'prepared transaction', gid, extract(epoch FROM clock_timestamp() - prepared)::float8,
           owner::text, ''
    FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT 'replication slot', slot_name, NULL, CASE WHEN active THEN 'active' ELSE 'inactive' END,
           age(xmin)::text
    FROM pg_replication_slots WHERE xmin IS NOT NULL AND (NOT active OR age(xmin) > 1000000)
    ORDER BY 3 DESC NULLS LAST"""

_LIVE_TABLE = """
    SELECT s.n_live_tup, s.n_dead_tup,
           extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::float8,
           pg_total_relation_size(s.relid),
           coalesce(c.reloptions::text ~ 'autovacuum_enabled=(false|off|0)', false),
           current_setting('autovacuum')
    FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
    WHERE s.relid = to_regclass(%s)"""

MOST_COUNTED = 10_000  # counts for people stop here
_SCAN = 1000  # waiting jobs and queues that unknown_tasks() reads

_RIGHTS = """
    SELECT p.proname::text, bool_and(has_function_privilege(p.oid, 'execute')
                                     AND has_schema_privilege(n.oid, 'usage'))
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = %s AND p.proname = ANY(%s) GROUP BY 1"""


class Inspections:
    """The queries, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def dead_jobs(self, where: Filter, *, limit: int) -> Call[list[Row]]:
        """Return failed and dead jobs that were neither retried nor discarded, newest first."""
        conditions, params = where.sql()
        return _dicts(
            f"""SELECT id::text, status::text, task, tenant, queue, priority, attempt, max_attempts,
                       created_at, started_at, finished_at, worker, payload, last_error
                FROM {self.schema}.dead WHERE {conditions} ORDER BY finished_at DESC, id LIMIT %s""",
            "id, status, task, tenant, queue, priority, attempts, max_attempts, created_at, "
            "started_at, finished_at, worker, payload, last_error",
            (*params, limit),
        )

    def workers(self) -> Call[list[Row]]:
        """Return every worker, with the seconds since its last heartbeat and whether it counts as alive."""
        return _dicts(
            f"""SELECT id, host, pid, version, queues, concurrency, started_at, heartbeat_at,
                       extract(epoch FROM clock_timestamp() - heartbeat_at)::float8, stopping,
                       {self.schema}.is_alive(id, heartbeat_at)
                FROM {self.schema}.workers ORDER BY started_at, id""",
            "id, host, pid, version, queues, concurrency, started_at, heartbeat_at, heartbeat_age, stopping, alive",
        )

    def task_queues(self) -> Call[dict[str, str]]:
        """Return the queue of each task that a worker has registered."""
        return Call(f"SELECT name, queue FROM {self.schema}.tasks", (), _mapping)

    def server(self) -> Call[Row]:
        """Return the server's version, user, database and clock."""
        return _dict(_SERVER, "number, version, user, database, epoch")

    def settings(self, names: Sequence[str]) -> Call[dict[str, str]]:
        """Return server settings as this connection sees them."""
        return Call("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", (list(names),), _mapping)

    def waiting_for_standby(self, seconds: float) -> Call[int]:
        """Return how many commits have waited longer than this for a synchronous standby."""
        sql = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' "
            "AND query_start < clock_timestamp() - make_interval(secs => %s)"
        )
        return Call(sql, (seconds,), lambda rows: int(rows[0][0]))

    def connections(self) -> Call[Row]:
        """Return how many clients are connected, and the limit."""
        return _dict(_CONNECTIONS, "used, most")

    def horizon(self) -> Call[list[Row]]:
        """Return what keeps vacuum from removing dead rows, oldest first; seconds is None if unknown."""
        return _dicts(_HORIZON, "kind, name, seconds, state, detail")

    def live_table(self) -> Call[Row | None]:
        """Return live and dead rows of the live table, and when it was last vacuumed."""
        params = (f"{self.schema}.live",)
        call = _dicts(_LIVE_TABLE, "live, dead, vacuumed_ago, bytes, switched_off, autovacuum", params)
        return Call(call.sql, params, lambda rows: next(iter(call.read(rows)), None))

    def rights(self, functions: Sequence[str]) -> Call[dict[str, bool]]:
        """Return whether the current user may execute each function; missing functions are left out."""
        return Call(_RIGHTS, (self.schema, list(functions)), _mapping)

    def roles(self) -> Call[list[str]]:
        """Return which of the roles that migrate creates exist."""
        names = [f"{self.schema}_{each}" for each in ("enqueue", "worker", "reader", "service", "admin")]
        return Call("SELECT rolname::text FROM pg_roles WHERE rolname = ANY(%s)", (names,), _firsts)

    def history(self) -> Call[Row]:
        """Return for how many days from today history has partitions, and the rows in the default one."""
        return _dict(
            f"""SELECT
                    (SELECT count(*)
                     FROM generate_series(0, 60) d,
                          to_char((now() AT TIME ZONE 'UTC')::date + d, 'YYYYMMDD') day
                     WHERE to_regclass(format('%%I.%%I', %s::text, 'history_' || day)) IS NOT NULL),
                    (SELECT count(*) FROM (SELECT FROM {self.schema}.history_default LIMIT 10000) s)""",
            "days, stray",
            (self.schema,),
        )

    def expired_claims(self, grace: float) -> Call[Row]:
        """Return the leases that expired more than `grace` seconds ago and were not reclaimed."""
        return _dict(
            f"""SELECT count(*), extract(epoch FROM clock_timestamp() - min(expires_at))::float8
                FROM {self.schema}.claims WHERE expires_at < clock_timestamp() - make_interval(secs => %s)""",
            "claims, oldest",
            (grace,),
        )

    def lingering_batches(self) -> Call[list[Row]]:
        """Return those of the oldest 10,000 unfinished batches whose jobs have all ended, with their age."""
        return _dicts(
            f"""SELECT id::text, name, open, extract(epoch FROM clock_timestamp() - created_at)::float8
                FROM {self.schema}.batch_progress
                WHERE id = ANY(ARRAY(SELECT b.id FROM {self.schema}.batches b WHERE b.finished_at IS NULL
                                     ORDER BY b.id LIMIT {MOST_COUNTED}))
                  AND finished_at IS NULL AND processed >= total
                ORDER BY created_at, id""",
            "id, name, open, age",
        )

    def unserved_queues(self) -> Call[list[Row]]:
        """Return queues that no live worker serves, with their due jobs, counted up to MOST_COUNTED + 1.

        The names come from a skip scan of the fetch index, so the backlog of other queues costs nothing.
        """
        live = f"{self.schema}.live"
        return _dicts(
            f"""{self._names_of_queues()}, served AS (
                    SELECT DISTINCT unnest(queues) AS queue FROM {self.schema}.workers
                    WHERE NOT stopping AND {self.schema}.is_alive(id, heartbeat_at))
                SELECT n.queue, (SELECT count(*) FROM (
                    SELECT FROM {live} l WHERE l.queue = n.queue AND l.token IS NULL LIMIT {MOST_COUNTED + 1}) c)
                FROM names n WHERE n.queue IS NOT NULL AND n.queue NOT IN (SELECT queue FROM served)
                ORDER BY 1""",
            "queue, jobs",
        )

    def unknown_tasks(self) -> Call[list[Row]]:
        """Return the tasks that no worker has registered, with counts, in a sample: the first jobs of each queue and
        those due soonest. Return nothing before the first worker has registered its tasks."""
        waiting = f"SELECT l.queue, l.task FROM {self.schema}.live l WHERE l.queue = n.queue AND l.token IS NULL"
        known = f"SELECT name FROM {self.schema}.tasks"
        return _dicts(
            f"""{self._names_of_queues()}
                SELECT queue, task, count(*) FROM (
                    SELECT w.* FROM (SELECT * FROM names WHERE queue IS NOT NULL LIMIT {_SCAN}) n,
                        LATERAL ({waiting} LIMIT {_SCAN}) w
                    UNION ALL (SELECT queue, task FROM {self.schema}.later ORDER BY run_at, id LIMIT {_SCAN})) looked_at
                WHERE task NOT IN ({known}) AND EXISTS ({known}) GROUP BY 1, 2 ORDER BY 3 DESC, 2""",
            "queue, task, jobs",
        )

    def _names_of_queues(self) -> str:
        live = f"{self.schema}.live"
        return f"""WITH RECURSIVE names AS (
                    SELECT min(queue) AS queue FROM {live}
                    UNION ALL
                    SELECT (SELECT min(l.queue) FROM {live} l WHERE l.queue > n.queue)
                    FROM names n WHERE n.queue IS NOT NULL)"""

    def run_tally(self, queue: str, first_id: str) -> Call[list[tuple[str | None, str, str | None, int]]]:
        """Count the jobs of a queue since an id by tenant, status and worker."""
        return Call(
            f"""SELECT tenant, status::text, locked_by, count(*) FROM {self.schema}.jobs
                WHERE queue = %s AND id >= %s::uuid GROUP BY 1, 2, 3""",
            (queue, first_id),
            lambda rows: [(r[0], r[1], r[2], r[3]) for r in rows],
        )

    def run_summary(self, queue: str, first_id: str) -> Call[Row]:
        """Return counts, run time and waiting times of a queue's jobs since an id."""
        return _dict(
            f"""SELECT count(*), count(DISTINCT id),
                       count(*) FILTER (WHERE status IN ('succeeded', 'failed', 'dead', 'canceled')),
                       extract(epoch FROM max(finished_at) - min(started_at))::float8,
                       percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - run_at)),
                       percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - run_at)),
                       coalesce(sum(attempts), 0)::int8
                FROM {self.schema}.jobs WHERE queue = %s AND id >= %s::uuid""",
            "rows, jobs, final, seconds, wait_p50, wait_p99, attempts",
            (queue, first_id),
        )


@dataclass(frozen=True, slots=True)
class Pending:
    """What `migrate` would do: the versions, missing migrations, and functions and views that differ."""

    found: int | None
    expected: int
    migrations: list[str]
    functions: list[str]

    @property
    def up_to_date(self) -> bool:
        return self.found == self.expected and not self.migrations and not self.functions


def find_pending(session: ThreadSession, schema: str) -> Pending:
    """Compare a database's schema with this release's files, without changes or locks."""
    files, wanted = dict(sql_files("migrations")), _replaceable()
    expected = max(int(name[:4]) for name in files)
    if not session.run(Call("SELECT to_regclass(%s) IS NOT NULL", (f"{schema}.schema_files",), _firsts))[0]:
        return Pending(None, expected, sorted(files), sorted(wanted))
    applied = set(session.run(Call(f"SELECT version FROM {schema}.schema_info", (), _firsts)))
    known = session.run(Call(f"SELECT name, checksum FROM {schema}.schema_files", (), _mapping))
    differ = [name for name in sorted({*known, *wanted}) if known.get(name) != wanted.get(name)]
    missing = [name for name in sorted(files) if int(name[:4]) not in applied]
    return Pending(max(applied, default=None), expected, missing, differ)


@dataclass(frozen=True, slots=True)
class Pooling:
    """Whether a pooler stands before the server, and whether it changes backends between transactions."""

    present: bool
    moves: bool


def probe_pooler(settings: Settings) -> Pooling:
    """Detect a pooler by its made-up process id, and transaction mode by connections that share a backend.

    The first connection reads its backend; the second opens a transaction, which takes a backend for itself. In
    transaction mode both have the same backend, or the first gets another one afterwards.
    """
    info = connect.conninfo(settings.with_(pooler=True), "doctor")
    try:
        with (
            psycopg.connect(info, autocommit=True, prepare_threshold=None) as one,
            psycopg.connect(info, prepare_threshold=None) as other,
        ):
            before, between, after = _backend(one), _backend(other), _backend(one)
            return Pooling(one.info.backend_pid != before, before == between or before != after)
    except psycopg.Error as error:
        raise connect.explain(error, settings) from error


def _backend(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("SELECT pg_backend_pid()").fetchone()
    return int(row[0]) if row else 0


def _replaceable() -> dict[str, str]:
    texts = {f"{kind}/{name}": text for kind in ("functions", "views") for name, text in sql_files(kind)}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}


def _dicts(sql: str, names: str, params: Sequence[Any] = ()) -> Call[list[Row]]:
    keys = names.split(", ")
    return Call(sql, params, lambda rows: [dict(zip(keys, row, strict=True)) for row in rows])


def _dict(sql: str, names: str, params: Sequence[Any] = ()) -> Call[Row]:
    call = _dicts(sql, names, params)
    return Call(sql, params, lambda rows: call.read(rows)[0])


def _firsts(rows: Rows) -> list[Any]:
    return [row[0] for row in rows]


def _mapping(rows: Rows) -> dict[str, Any]:
    return {row[0]: row[1] for row in rows}
