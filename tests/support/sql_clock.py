"""A clock that tests set: the database's clock() is replaced by one that stands still until it is moved.

It is a table that every session sees, so pooled connections and cached plans follow at once. The real
function comes back at the end of the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import psycopg
import pytest

from holdfast.store.migrations import sql_files

REAL = dict(sql_files("functions"))["clock.sql"]
STOPPED = """
create table test_clock (at timestamptz not null);
insert into test_clock values (date_trunc('second', now()));
create or replace function clock() returns timestamptz language sql stable return (select at from test_clock);
"""


class Clock:
    """The database's clock, stopped at a full second."""

    def __init__(self, conn: psycopg.Connection) -> None:
        self._conn = conn
        self.start = self.now

    @property
    def now(self) -> datetime:
        return self._conn.execute("select clock()").fetchone()[0]

    def advance(self, seconds: float) -> datetime:
        """Move the clock, also back, and return the new time."""
        return self.set(self.now + timedelta(seconds=seconds))

    def set(self, at: datetime) -> datetime:
        self._conn.execute("update test_clock set at = %s", [at])
        return at


@contextmanager
def stopped_clock(dsn: str, schema: str = "holdfast") -> Iterator[Clock]:
    with psycopg.connect(dsn, autocommit=True, options=f"-c search_path={schema},pg_temp") as conn:
        conn.execute(STOPPED)
        try:
            yield Clock(conn)
        finally:
            conn.execute(REAL)
            conn.execute("drop table test_clock")
            # A test may have pruned the partitions of days to come.
            conn.execute("truncate history")
            conn.execute("select make_partitions()")


@pytest.fixture(name="clock")
def clock_fixture(dsn: str) -> Iterator[Clock]:
    with stopped_clock(dsn) as clock:
        yield clock


@pytest.fixture(name="each_clock")
def each_clock_fixture(each_dsn: str) -> Iterator[Clock]:
    with stopped_clock(each_dsn) as clock:
        yield clock
