"""Check an address, its server and its schema by connecting once, before a pool or a worker relies on them."""

from __future__ import annotations

import time

import psycopg

from holdfast.settings import Settings
from holdfast.store.plan import find_version
from holdfast.store.wire import connect, hosts
from holdfast.store.wire.connection_sync import Connection
from holdfast.store.wire.opener import CALLS, LOANS, Opener


def connect_once(settings: Settings, name: str = CALLS, seconds: float = 0.0) -> str:
    """Return the conninfo, after connecting once: a wrong address, server or schema is reported at once. Where the
    server says that it starts, or that the primary is elsewhere, wait for that long; a handler's worker has been
    connected before, so its handlers wait for any server."""
    opener = Opener(settings, name, lent=name == LOANS)
    info, patience = opener.conninfo(), hosts.Patience(seconds)
    while True:
        try:
            with Connection.connect(info, **opener.kwargs()) as conn:
                connect.check_server(conn.info.server_version)
                found = find_version(lambda sql: conn.execute(sql.encode()).fetchall(), settings.schema)
                connect.check_schema(found, settings.schema, settings.database)
            return info
        except psycopg.Error as error:
            pause = patience.pause() if connect.may_change(info, error, name == LOANS) else None
            if pause is None:
                raise connect.explain(error, settings) from error
            time.sleep(pause)
