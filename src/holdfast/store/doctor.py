"""The checks of `holdfast doctor` that are about the server: settings, vacuum, rights, files, poolers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from holdfast.settings import Settings
from holdfast.store.call import Call, Row, dicts, firsts, mapping, one_dict
from holdfast.store.migrate import sql_files
from holdfast.store.wire import connect
from holdfast.store.wire.session import ThreadSession

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

_RIGHTS = """
    SELECT p.proname::text, bool_and(has_function_privilege(p.oid, 'execute')
                                     AND has_schema_privilege(n.oid, 'usage'))
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = %s AND p.proname = ANY(%s) GROUP BY 1"""


class DoctorCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def server(self) -> Call[Row]:
        """Return the server's version, user, database and clock."""
        return one_dict(_SERVER, "number, version, user, database, epoch")

    def settings(self, names: Sequence[str]) -> Call[dict[str, str]]:
        """Return server settings as this connection sees them."""
        return Call("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", (list(names),), mapping)

    def waiting_for_standby(self, seconds: float) -> Call[int]:
        """Return how many commits have waited longer than this for a synchronous standby."""
        sql = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' "
            "AND query_start < clock_timestamp() - make_interval(secs => %s)"
        )
        return Call(sql, (seconds,), lambda rows: int(rows[0][0]))

    def connections(self) -> Call[Row]:
        """Return how many clients are connected, and the limit."""
        return one_dict(_CONNECTIONS, "used, most")

    def horizon(self) -> Call[list[Row]]:
        """Return what keeps vacuum from removing dead rows, oldest first; seconds is None if unknown."""
        return dicts(_HORIZON, "kind, name, seconds, state, detail")

    def live_table(self) -> Call[Row | None]:
        """Return live and dead rows of the live table, and when it was last vacuumed."""
        params = (f"{self.schema}.live",)
        call = dicts(_LIVE_TABLE, "live, dead, vacuumed_ago, bytes, switched_off, autovacuum", params)
        return Call(call.sql, params, lambda rows: next(iter(call.read(rows)), None))

    def rights(self, functions: Sequence[str]) -> Call[dict[str, bool]]:
        """Return whether the current user may execute each function; missing functions are left out."""
        return Call(_RIGHTS, (self.schema, list(functions)), mapping)

    def roles(self) -> Call[list[str]]:
        """Return which of the roles that migrate creates exist."""
        names = [f"{self.schema}_{each}" for each in ("enqueue", "worker", "reader", "service", "admin")]
        return Call("SELECT rolname::text FROM pg_roles WHERE rolname = ANY(%s)", (names,), firsts)

    def history(self) -> Call[Row]:
        """Return for how many days from today history has partitions, and the rows in the default one."""
        return one_dict(
            f"""SELECT
                    (SELECT count(*)
                     FROM generate_series(0, 60) d,
                          to_char((now() AT TIME ZONE 'UTC')::date + d, 'YYYYMMDD') day
                     WHERE to_regclass(format('%%I.%%I', %s::text, 'history_' || day)) IS NOT NULL),
                    (SELECT count(*) FROM (SELECT FROM {self.schema}.history_default LIMIT 10000) s)""",
            "days, stray",
            (self.schema,),
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
    if not session.run(Call("SELECT to_regclass(%s) IS NOT NULL", (f"{schema}.schema_files",), firsts))[0]:
        return Pending(None, expected, sorted(files), sorted(wanted))
    applied = set(session.run(Call(f"SELECT version FROM {schema}.schema_info", (), firsts)))
    known = session.run(Call(f"SELECT name, checksum FROM {schema}.schema_files", (), mapping))
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
