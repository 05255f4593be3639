"""The checks of `holdfast doctor` that are about the server: settings, vacuum, rights, files, poolers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.settings import Settings
from holdfast.store.call import Call, Row, dicts, firsts, mapping, one_dict
from holdfast.store.horizon import HORIZON
from holdfast.store.wire import connect, hosts

_SERVER = """
    SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_user::text,
           current_database()::text, extract(epoch FROM clock_timestamp())::float8"""

_CONNECTIONS = """
    SELECT (SELECT count(*) FROM pg_stat_activity  -- the type of other roles' backends is hidden from most users
             WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'),
           sum(CASE name WHEN 'max_connections' THEN setting::int ELSE -setting::int END)
    FROM pg_settings
    WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')"""

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
        return dicts(HORIZON, "kind, name, seconds, state, detail")

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


def probe_servers(settings: Settings) -> list[tuple[str, str]]:
    """Return the address of each server of the DSN and its role, or why it has none."""
    info = connect.conninfo(settings.with_(pooler=True), "doctor")
    found = []
    for host, hostaddr, port in hosts.servers(conninfo_to_dict(info)):
        one = make_conninfo(info, host=host or None, hostaddr=hostaddr or None, port=port or None)
        found.append(
            (f"{host or hostaddr or 'local'}:{port or 5432}", _role(make_conninfo(one, target_session_attrs="any")))
        )
    return found


def _role(info: str) -> str:
    try:
        with psycopg.connect(info, autocommit=True, prepare_threshold=None) as conn:
            row = conn.execute("SELECT pg_is_in_recovery()").fetchone()
            return "standby" if row and row[0] else "primary"
    except psycopg.Error as error:
        return f"unreachable ({str(error).strip().splitlines()[0]})"


def _backend(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("SELECT pg_backend_pid()").fetchone()
    return int(row[0]) if row else 0
