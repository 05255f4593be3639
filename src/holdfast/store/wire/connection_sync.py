# Generated from connection_async.py by tools/async_to_sync.py. Change that file, and run `make sync`.
"""A connection that is checked, and given the settings that our calls rely on, when it is opened."""

from __future__ import annotations

from typing import Any

import psycopg

from holdfast.store.wire import hosts
from holdfast.store.wire.deadline import watch
from holdfast.store.wire.opener import READ_COMMITTED, Opener, is_iso


class Connection(psycopg.Connection[Any]):
    """A connection that `opener` checks when it is opened. `prepared`: names of statements (prepared.py)."""

    prepared: set[bytes]

    @classmethod
    def connect(  # type: ignore[override]
        cls, conninfo: str = "", *, opener: Opener, **kwargs: Any
    ) -> Connection:
        with opener.opening():
            conn = super().connect(hosts.primary_first(conninfo), **kwargs)
            conn.prepared = set()
            try:
                with watch.within(conn, opener.settings.call_timeout):
                    pids = watch.abandoned(conn)
                    cursor = conn.execute(*opener.question(pids), prepare=False)
                    if opener.judge(conn, pids, cursor.fetchone()):
                        conn.set_isolation_level(READ_COMMITTED)
                    if not is_iso(conn):
                        conn.execute("SET datestyle TO 'ISO'", prepare=False)
            except BaseException:
                conn.close()
                raise
            hosts.remember(conninfo, conn)
            return conn
