"""A connection that is checked, and given the settings that our calls rely on, when it is opened."""

from __future__ import annotations

from typing import Any

import psycopg

from holdfast.store.wire import hosts
from holdfast.store.wire.deadline import watch
from holdfast.store.wire.opener import READ_COMMITTED, Opener, is_iso


class AsyncConnection(psycopg.AsyncConnection[Any]):
    """A connection that `opener` checks when it is opened. `prepared`: names of statements (prepared.py)."""

    prepared: set[bytes]

    @classmethod
    async def connect(  # type: ignore[override]
        cls, conninfo: str = "", *, opener: Opener, **kwargs: Any
    ) -> AsyncConnection:
        with opener.opening():
            conn = await super().connect(hosts.primary_first(conninfo), **kwargs)
            conn.prepared = set()
            try:
                with watch.within(conn, opener.settings.call_timeout):
                    pids = watch.abandoned(conn)
                    cursor = await conn.execute(*opener.question(pids), prepare=False)
                    if opener.judge(conn, pids, await cursor.fetchone()):
                        await conn.set_isolation_level(READ_COMMITTED)
                    if not is_iso(conn):
                        await conn.execute("SET datestyle TO 'ISO'", prepare=False)
            except BaseException:
                await conn.close()
                raise
            hosts.remember(conninfo, conn)
            return conn
