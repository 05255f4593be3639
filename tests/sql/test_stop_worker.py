"""Operators' requests to stop workers."""

from __future__ import annotations

import psycopg
import pytest

from tests.support import sql_core as core
from tests.support.sql_core import Sql


def register(sql: Sql, worker: str) -> None:
    sql("select register_worker(%s, 'host', 1, '1', '{default}', 4, '[]')", [worker])


def wanted(sql: Sql, worker: str) -> str | None:
    """Return what a worker reads in its next round of upkeep."""
    return sql("select stop from upkeep(%s, '1 minute')", [worker])[0][0]


def stop(sql: Sql, worker: str, now: bool = False) -> str | None:
    return sql("select stop_worker(%s, %s, 'ada', 'host is replaced')", [worker, now])[0][0]


def test_a_worker_reads_a_request_in_its_next_round_and_no_other_does(each_sql: Sql) -> None:
    register(each_sql, "w-1")
    register(each_sql, "w-2")
    assert wanted(each_sql, "w-1") is None
    assert stop(each_sql, "w-1") == "w-1"
    assert (wanted(each_sql, "w-1"), wanted(each_sql, "w-2")) == ("drain", None)


def test_a_request_to_stop_now_replaces_one_to_drain_and_not_the_reverse(sql: Sql) -> None:
    register(sql, "w")
    for now, expected in ((False, "drain"), (True, "now"), (False, "now")):
        stop(sql, "w", now)
        assert wanted(sql, "w") == expected


def test_requests_are_recorded_once_with_who_and_why(sql: Sql) -> None:
    register(sql, "w")
    for now in (False, False, True, True):
        stop(sql, "w", now)
    assert sql("select kind, target, by, reason from audit order by id") == [
        ("workers.drain", "w", "ada", "host is replaced"),
        ("workers.stop", "w", "ada", "host is replaced"),
    ]


def test_the_beginning_of_an_id_is_enough_if_it_fits_one_living_worker(sql: Sql) -> None:
    for worker in ("mail-1", "mail-12", "web-1", "web-2"):
        register(sql, worker)
    sql("update workers set heartbeat_at = clock() - interval '1 hour' where id = 'web-1'")
    assert stop(sql, "mail-1") == "mail-1"
    assert stop(sql, "web-") == "web-2"
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="begins with 'mail': mail-1, mail-12; give more"):
        stop(sql, "mail")


@pytest.mark.parametrize("worker", ["nobody", ""])
def test_an_unknown_worker_is_not_stopped(sql: Sql, worker: str) -> None:
    register(sql, "w")
    assert stop(sql, worker) is None
    assert core.count(sql, "actions") == core.count(sql, "worker_stops") == 0


def test_a_request_goes_with_its_worker(sql: Sql) -> None:
    register(sql, "w")
    stop(sql, "w")
    sql("select unregister_worker('w', false)")
    assert wanted(sql, "w") == "drain", "a worker that stops may still be asked to stop at once"
    sql("select unregister_worker('w')")
    assert core.count(sql, "worker_stops") == 0


def test_a_request_to_a_worker_that_was_lost_is_pruned(sql: Sql) -> None:
    register(sql, "w")
    stop(sql, "w")
    sql("update workers set heartbeat_at = clock() - interval '2 hours'")
    sql("update worker_stops set requested_at = clock() - interval '2 hours'")
    sql("select prune()")
    assert core.count(sql, "worker_stops") == 0
