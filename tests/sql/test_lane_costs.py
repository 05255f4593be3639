"""What a claim reads while a transaction elsewhere keeps every finished job's index entry alive."""

from __future__ import annotations

import time

import flow
import pytest
import sql_core as core
from flow import Sql

from holdfast.worker.lanes import Lanes

CLAIM = "select * from claim('w', '{default}', 50, '1 minute', %s::jsonb, false, 50)"


class Client:
    """Claims and finishes as a worker does, with a memory of lanes."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self.lanes = Lanes(["default"])

    def hint(self) -> str:
        self.lanes.found(True, 0.0)
        return self.lanes.hint(0.0, 50)

    def round(self) -> int:
        rows = self._sql(
            "select id::text, token, task, payload::text, attempt, max_attempts, queue, priority, tenant, "
            f"date_part('epoch', run_at), batch::text, headers, lane, keys from ({CLAIM}) c", [self.hint()]
        )  # fmt: skip
        info = rows.pop()[3] if rows and rows[-1][0] is None else None
        self.lanes.learn(rows, info, len(rows) >= 50, 0.0, 0.0)
        self._sql("select finish(%s::uuid[], %s::bigint[])", [[row[0] for row in rows], [row[1] for row in rows]])
        return len(rows)


@pytest.mark.parametrize("tenants", [1, 20])
def test_a_quick_claim_does_not_walk_what_is_finished(dsn: str, sql: Sql, tenants: int) -> None:
    with core.session(dsn, autocommit=False) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from live")
        for n in range(tenants):
            flow.put(sql, tenant=f"t{n}", number=4000 // tenants)
        client = Client(sql)
        until = time.monotonic() + 60
        while sql("select count(*) from history")[0][0] < 3500 and time.monotonic() < until:
            client.round()
        plan = sql(f"explain (analyze, buffers, format json) {CLAIM}", [client.hint()])[0][0]
    assert not client.lanes.careful
    read = plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
    assert read < 3000, f"{read} pages for 50 jobs"
