"""The ends of jobs that others wait for: old snapshots, locks, and people who retry jobs meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.support import sql_core as core
from tests.support.sql_core import Sql
from tests.support.sql_steps import child, park, read, signal, started


@contextmanager
def old_snapshot(dsn: str) -> Iterator[psycopg.Connection]:
    """Open a repeatable-read transaction, which sees nothing that is committed from now on."""
    with core.session(dsn, autocommit=False) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("select count(*) from live")
        yield conn


def upkeep(sql: Sql) -> None:
    sql("select upkeep('w', '10 s')")


def test_a_signal_with_an_old_snapshot_is_refused(dsn: str, sql: Sql) -> None:
    job = started(sql)
    with old_snapshot(dsn) as caller:
        park(sql, job, "signal", "paid")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="cannot give a signal in a repeatable read"):
            signal(core.runner(caller), "paid", 1)
    assert signal(sql, "paid", 1)
    assert read(sql, core.claim_one(sql)) == {"paid": 1}


def test_a_child_that_an_old_snapshot_cancels_resumes_its_parent(dsn: str, sql: Sql) -> None:
    job = started(sql)
    child(sql, job)
    ((its_id,),) = sql("select ref from steps")
    with old_snapshot(dsn) as caller:
        park(sql, job, "call", "child")
        assert core.cancel(core.runner(caller), its_id) == ["canceled"]
        caller.commit()
    upkeep(sql)
    assert read(sql, core.claim_one(sql))["child"]["status"] == "canceled"


@pytest.mark.parametrize("early", [0, 1])
def test_a_job_that_an_old_snapshot_cancels_ends_those_that_follow_it(dsn: str, sql: Sql, early: int) -> None:
    first = core.put(sql)
    for _ in range(early):
        core.put(sql, after=[first])
    with old_snapshot(dsn) as caller:
        then = core.put(sql, after=[first])
        try:
            core.cancel(core.runner(caller), first)
            caller.commit()
        except psycopg.errors.SerializationFailure:  # to be repeated, as in every such transaction
            core.cancel(sql, first)
    upkeep(sql)
    assert core.status(sql, then) == "canceled"
    assert core.count(sql, "follows") == core.count(sql, "endings") == 0


def test_a_job_that_follows_two_starts_though_one_ends_with_an_old_snapshot(dsn: str, sql: Sql) -> None:
    first, second = core.put(sql, queue="first"), core.put(sql, queue="second")
    then = core.put(sql, after=[first, second])
    one, other = core.claim_one(sql, queues=["first"]), core.claim_one(sql, queues=["second"])
    with old_snapshot(dsn) as caller:
        core.finish(sql, one)
        core.finish(core.runner(caller), other)
        caller.commit()
    upkeep(sql)
    assert core.claim_one(sql).id == then
    assert core.count(sql, "follows") == core.count(sql, "endings") == 0
