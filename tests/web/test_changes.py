"""Requests that wait for jobs: notified soon, by one query for all of them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.store.call import Call
from holdfast.web import changes, waiting
from tests.support import serving
from tests.support.running import until
from tests.support.serving import Sql, http_fixture, json_body, shop_fixture  # noqa: F401 - fixtures


async def test_five_hundred_who_wait_cost_one_query_in_each_interval(
    shop: Holdfast, http: httpx.AsyncClient, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[tuple[float, str]] = []
    run = shop.database.async_pool.run

    async def noting(call: Call[Any], conn: Any = None) -> Any:
        if "use_token" not in call.sql:  # looked up again after 5 seconds, which a slow machine may take
            queries.append((time.monotonic(), "marks" if "job_marks" in call.sql else "other"))
        return await run(call, conn)

    ids = json_body(await http.post("/jobs/many", json={"jobs": [{"task": "shop.fail"}] * 500}), 201)["ids"]
    monkeypatch.setattr(shop.database.async_pool, "run", noting)
    http.headers["Authorization"] = f"Bearer {serving.token(shop, None)}"  # of one tenant fewer may wait
    requests = [asyncio.create_task(http.get(f"/jobs/{id_}", params={"wait": 50})) for id_ in ids]
    await until(lambda: waiting.waiting() == 500)
    await until(lambda: [kind for _, kind in queries[-4:]] == ["marks"] * 4)  # the first looks are over
    began, from_here = time.monotonic(), len(queries)
    await until(lambda: len(queries) >= from_here + 5)
    took = time.monotonic() - began
    assert {kind for _, kind in queries[from_here:]} == {"marks"}
    assert len(queries) - from_here <= took / changes.POLL_INTERVAL + 1
    sql("select finish(array_agg(id), array_agg(token)) from claim('w', '{default}', 500)")
    responses = await asyncio.gather(*requests)
    assert {response.json()["status"] for response in responses} == {"succeeded"}
    assert not waiting.waiting()


async def test_a_change_of_any_kind_is_a_new_mark(shop: Holdfast, sql: Sql) -> None:
    id_ = shop.registry.tasks["shop.fail"].enqueue().id
    marks: list[str] = []

    def note() -> None:
        marks.extend(sql("select job_marks(%s::uuid[])", [[id_]])[0][0])

    note()
    token = sql("select token from claim('w')")[0][0]
    note()
    sql("select report_progress(%s::jsonb)", [f'[{{"id": "{id_}", "token": {token}, "done": 1, "total": 2}}]'])
    note()
    sql("select fail(%s, %s, p_delay => '1 hour')", [id_, token])
    note()
    sql("update later set run_at = clock()")
    sql("select promote()")
    note()
    sql("select finish(array_agg(id), array_agg(token)) from claim('w')")
    note()
    assert len(set(marks)) == 6


async def test_a_waiting_request_fails_at_once_when_the_database_is_away() -> None:
    async def broken(ids: Any) -> list[str]:
        raise OSError("away")

    with changes.ChangePoller(broken).watch("a job") as mark:
        async with asyncio.timeout(20):
            await mark.changed(60)
            await mark.changed(60)
