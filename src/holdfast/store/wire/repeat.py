"""Which calls are repeated after a failure, when, and what their callers see in the end.

While the primary is away or changes, a call waits: connect_timeout in all, counted from the first failure, besides the
call_timeout of each reply. Then it raises DatabaseUnavailable (decision 035).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg_pool import PoolTimeout

from holdfast.errors import DatabaseUnavailable
from holdfast.store.call import Call
from holdfast.store.wire import connect, hosts
from holdfast.store.wire.opener import Opener

T = TypeVar("T")
Lost = (*connect.LOST, PoolTimeout)
_TRIES = 3  # of a call that conflicts with others, or fails with an error that is no sign of a failover
_WAIT_ERRORS = (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable, PoolTimeout)
# Begins a handler's transaction: its statements may take as long as its task's timeout allows. Returns whether it can
# write, because it ends with finish().
BEGIN = "SELECT current_setting('transaction_read_only') = 'on', set_config('statement_timeout', '0', true)"


class Repeats:
    """When and how to repeat one call."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._left = _TRIES
        self._away: Exception | None = None  # the last sign that there is no primary
        self.patience = hosts.Patience(opener.settings.connect_timeout)

    def next(self, call: Call[T], error: Exception) -> tuple[Call[T], float]:
        """Return what to run after a failure, the same call or its safe form, and after how many seconds; or raise. A
        call that timed out while it waited for a connection or a lock is not repeated."""
        self._left -= 1
        again, waits = isinstance(error, connect.AGAIN), isinstance(error, _WAIT_ERRORS)
        away = not waits and hosts.is_away(error)
        if away:
            self._away = error
        pause = self.patience.pause() if away else 0.05 * (_TRIES - self._left)
        if pause is None or waits or not (away or (self._left and (again or isinstance(error, connect.LOST)))):
            raise explain_failure(self._cause(error), self._opener) from error
        return (call if again or call.repeat is None else call.repeat()), pause

    def _cause(self, error: Exception) -> Exception:
        """Return the cause of a failure: for a pool that opened no connection and does not say why, the last sign that
        there is no primary."""
        unexplained = isinstance(error, PoolTimeout) and self._opener.failure is None
        return self._away if unexplained and self._away is not None else error


@contextmanager
def dropped_if_read_only(conn: Any) -> Iterator[None]:
    """Close a connection that turns out to be a standby's, so that its pool does not use it again."""
    try:
        yield
    except psycopg.errors.ReadOnlySqlTransaction:
        conn.pgconn.finish()
        raise


def check_writable(row: Any) -> None:
    if row[0]:
        raise psycopg.errors.ReadOnlySqlTransaction("cannot write in a read-only transaction")


def pause_before_begin(error: Exception, patience: hosts.Patience) -> float:
    """Return the seconds until a handler's transaction is begun again, or raise."""
    pause = patience.pause() if hosts.is_away(error) and not isinstance(error, PoolTimeout) else None
    if pause is None:
        raise error
    return pause


def refuse_pool_timeout(error: Exception, opener: Opener) -> None:
    """Raise what explains that no connection was had in time; any other loss is for the caller to repair."""
    if isinstance(error, PoolTimeout):
        raise explain_failure(error, opener) from error


def explain_failure(error: Exception, opener: Opener) -> Exception:
    """Return the error to raise; for a pool timeout, the reason why no connection could be opened."""
    if not isinstance(error, PoolTimeout):
        return connect.explain(error, opener.settings)
    if opener.failure is not None:
        return connect.explain(opener.failure, opener.settings, known_good=True)
    settings = opener.settings
    return DatabaseUnavailable(
        f"no connection was free for {settings.connect_timeout:g} s: all {settings.pool_size} of this process are in "
        "use; raise HOLDFAST_POOL_SIZE"
    )
