"""What is in force for a key is the last setting, whatever else happens to the key; nothing is left of what was taken
back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support import flow
from tests.support import sql_core as core

Sql = Callable[..., list[tuple[Any, ...]]]


def test_a_claim_that_meets_a_new_key_does_not_undo_what_an_operator_sets_at_that_moment(dsn: str, sql: Sql) -> None:
    """Neither waits for the other: the claim goes by what is committed, and the next one by what has been set."""
    sql("""select register_limits('[{"template": "k:{n}", "pattern": "k:%", "code": {"concurrency": 2}}]')""")
    with core.session(dsn, autocommit=False) as operator:
        operator.execute("""select set_limit('k:1', '{"concurrency": 7}')""")
        flow.put(sql, keys=["k:1"], number=10)
        sql("set lock_timeout = '1s'")
        assert len(flow.claim(sql, limit=20)) == 2
        operator.commit()
    assert len(flow.claim(sql, limit=20)) == 5
    assert sql("select concurrency, running, override ->> 'concurrency' from limit_state") == [(7, 7, "7")]
    assert flow.drift(sql) == []


def test_a_pause_that_is_over_leaves_nothing_that_claims_have_to_look_at(sql: Sql) -> None:
    for key in ("queue:default", "task:t", "tenant:a", "k"):
        sql("select pause(%s)", [key])
        flow.fold(sql)
        sql("select resume(%s)", [key])
    flow.fold(sql)
    assert core.count(sql, "limit_settings") == 0
    assert sql("select key from limits") == [("k",)]
    sql("""select set_limit('tenant:a', '{"weight": 2}')""")
    sql("select pause('tenant:a')")
    sql("select resume('tenant:a')")
    assert sql("select key, weight from limit_settings") == [("tenant:a", 2)], "its weight was not taken back"
    sql("select clear_limit('tenant:a')")
    flow.fold(sql)
    assert core.count(sql, "limit_settings") == 0
    assert sql("select key from limits where kind = 'tenant'") == []


def test_a_key_under_which_something_runs_is_kept(sql: Sql) -> None:
    core.put(sql, tenant="a")
    sql("""select set_limit('tenant:a', '{"concurrency": 2}')""")
    job = core.claim_one(sql)
    sql("select clear_limit('tenant:a')")
    flow.fold(sql)
    assert sql("select running from limits where key = 'tenant:a'") == [(1,)]
    assert core.finish(sql, job) == []
    flow.fold(sql)
    assert sql("select running from limits where key = 'tenant:a'") == [(0,)]


@pytest.mark.parametrize("limit", [None, 1], ids=["paused", "concurrency"])
def test_a_limit_of_a_task_does_not_let_others_of_its_order_overtake(sql: Sql, limit: int | None) -> None:
    """The first of the order waits for its task, and the second for the first."""
    flow.limit(sql, "task:slow", concurrency=1)
    flow.put(sql, task="slow")
    (busy,) = (job for _ in range(2) for job in flow.claim(sql))
    sql("select clear_limit('task:slow')")
    (first,) = flow.put(sql, task="slow", keys=["order:a"], age=2)
    (second,) = flow.put(sql, task="quick", keys=["order:a"], age=1)
    if limit is None:
        sql("select pause('task:slow')")
    else:
        flow.limit(sql, "task:slow", concurrency=limit)
    assert [job for _ in range(4) for job in flow.claim(sql)] == []
    flow.end(sql, busy)
    sql("select resume('task:slow')")
    order = []
    while jobs := flow.claim(sql):
        order += [job.id for job in jobs]
        flow.end(sql, *jobs)
    assert order == [first, second]
    assert flow.drift(sql) == []
