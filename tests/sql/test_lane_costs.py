"""What a claim reads while a transaction elsewhere keeps every finished job's index entry alive."""

from __future__ import annotations

import pytest

from tests.support import flow
from tests.support import sql_core as core
from tests.support.flow import Sql

RATE = {"rate": 1e6, "per": 1, "burst": 1e6}
CLAIM = "select id, token from claim('w', '{default}', 50, '1 minute', null, false, 50)"


def work(sql: Sql, until: int) -> None:
    """Claim and finish as a worker does."""
    while sql("select count(*) from history")[0][0] < until:
        rows = [row for row in sql(CLAIM) if row[0] is not None]
        assert rows
        sql("select finish(%s::uuid[], %s::bigint[])", [[row[0] for row in rows], [row[1] for row in rows]])


def pages_read(sql: Sql) -> int:
    """Return how many pages the next claim reads."""
    ((explained,),) = sql(f"explain (analyze, buffers, format json) {CLAIM}")
    plan = explained[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


@pytest.mark.parametrize(
    ("tenants", "keys", "limit"),
    [(1, [], None), (20, [], None), (20, ["k"], {"concurrency": 60}), (20, ["k"], RATE)],
    ids=["one tenant", "tenants", "under a limit", "under a rate"],
)
def test_a_claim_does_not_walk_what_is_finished(
    dsn: str, sql: Sql, tenants: int, keys: list[str], limit: dict[str, float] | None
) -> None:
    if limit is not None:
        flow.limit(sql, "k", **limit)
    with core.session(dsn, autocommit=False) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from live")
        for n in range(tenants):
            flow.put(sql, tenant=f"t{n}", keys=keys, number=4000 // tenants)
        work(sql, until=3500)
        read = pages_read(sql)
    assert read < 3000, f"{read} pages for 50 jobs"
