"""Open Holdfast's own connections with the settings that its calls rely on, and limit their number.

Startup options set them, but a pooler refuses or ignores those, so each new connection is checked. DateStyle is set
again where it differs: PgBouncer keeps it for each client, even in transaction mode. The isolation level cannot be set
for such a session, so its calls run in transactions that name it (`transaction_for`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import psycopg

from holdfast.settings import Settings
from holdfast.store.wire import connect
from holdfast.store.wire.deadline import MOST_ABANDONED, TooManyAbandoned, watch

# Two pools, because handlers that enqueue while they hold a lent connection would deadlock on one. Lent connections
# are checked first, because a handler's transaction is not repeated here when its connection is dead.
CALLS, LOANS = "client", "transaction"
READ_COMMITTED = psycopg.IsolationLevel.READ_COMMITTED
_NOTHING: Any = nullcontext()
_LONG = "application_name LIKE 'holdfast %%' AND query_start < clock_timestamp() - make_interval(secs => %s)"


class Opener:
    """Opens connections for one purpose; `failure` is the last error, which pools do not report."""

    def __init__(self, settings: Settings, name: str, *, lent: bool = False) -> None:
        self.settings = settings
        self.failure: Exception | None = None
        self._name = name
        self._lent = lent

    def conninfo(self) -> str:
        return connect.conninfo(self.settings, self._name, lent=self._lent)

    def kwargs(self) -> dict[str, Any]:
        """Return the arguments of Connection.connect besides the conninfo."""
        return {**connect.options(self.settings), "opener": self}

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Record whether the block, which connects, failed."""
        try:
            yield
        except Exception as error:
            self.failure = error
            raise
        self.failure = None

    def question(self, pids: list[int]) -> tuple[str, list[Any]]:
        """Return the query for a new connection: its isolation level, and which abandoned calls still run.

        A pooler makes up process ids, so behind one every overdue call of Holdfast counts.
        """
        if not pids:
            return "SELECT current_setting('default_transaction_isolation'), NULL, NULL", []
        ours, value = ("pid = ANY (%s)", pids) if not self.settings.pooler else (_LONG, self.settings.call_timeout)
        return (
            "SELECT current_setting('default_transaction_isolation'), array_agg(pid), min(wait_event) "
            f"FROM pg_stat_activity WHERE {ours} AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Client'",
            [value],
        )

    def judge(self, conn: Any, pids: list[int], row: Any) -> bool:
        """Return whether calls need transactions that name the isolation level, or raise TooManyAbandoned."""
        isolation, busy, reason = row
        watch.forget(conn, pids if not busy else () if self.settings.pooler else set(pids) - set(busy))
        if busy and min(len(busy), len(pids)) >= MOST_ABANDONED:
            standby = "; is the synchronous standby away (synchronous_standby_names)?" if reason == "SyncRep" else ""
            raise TooManyAbandoned(
                f"{len(busy)} calls that timed out are still running there, waiting for {reason}; "
                f"no further connection is opened until they end{standby}"
            )
        return not self._lent and isolation != "read committed"


def is_iso(conn: Any) -> bool:
    """Return whether a connection sends dates as ISO."""
    return str(conn.info.parameter_status("DateStyle") or "ISO").startswith("ISO")


def transaction_for(conn: Any) -> Any:
    """Return a transaction for one call if the session's isolation level is wrong, else a null context."""
    return _NOTHING if conn.isolation_level is None else conn.transaction()
