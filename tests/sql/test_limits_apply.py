"""What is in force for a key is what was last said, whoever else works on the key; nothing is left of what was taken
back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import sql_core as core
from running import until

Sql = Callable[..., list[tuple[Any, ...]]]
RULE = """insert into limit_rules values ('k:{n}', 'k:%', '{"concurrency": 2}', '{}', now())"""


async def test_a_claim_that_meets_a_new_key_does_not_undo_what_an_operator_sets_at_that_moment(
    dsn: str, sql: Sql
) -> None:
    sql(RULE)
    with core.session(dsn, autocommit=False) as operator, core.session(dsn) as other:
        operator.execute("""select set_limit('k:1', '{"concurrency": 7}')""")
        claim = threading.Thread(target=lambda: other.execute("select apply_limits('{k:1}')"))
        claim.start()
        await until(lambda: sql("select count(*) > 0 from pg_locks where not granted")[0][0])
        operator.commit()
        claim.join()
    assert sql("select concurrency, override ->> 'concurrency' from limits") == [(7, "7")]


def test_a_pause_that_is_over_leaves_nothing_that_claims_have_to_look_at(sql: Sql) -> None:
    for key in ("queue:default", "task:t", "tenant:a", "k"):
        sql("select pause(%s)", [key])
        sql("select resume(%s)", [key])
    assert sql("select key from limits") == [("k",)]
    sql("""select set_limit('tenant:a', '{"weight": 2}')""")
    sql("select pause('tenant:a')")
    sql("select resume('tenant:a')")
    assert sql("select key from limits where kind = 'tenant'") == [("tenant:a",)], "its weight was not taken back"
    sql("select clear_limit('tenant:a')")
    assert sql("select key from limits where kind = 'tenant'") == []


def test_a_key_under_which_something_runs_is_kept(sql: Sql) -> None:
    core.put(sql, tenant="a")
    sql("""select set_limit('tenant:a', '{"concurrency": 2}')""")
    job = core.claim_one(sql)
    sql("select clear_limit('tenant:a')")
    assert sql("select running from limits where key = 'tenant:a'") == [(1,)]
    assert core.finish(sql, job) == []
    assert sql("select running from limits where key = 'tenant:a'") == [(0,)]
