"""Monitoring over HTTP: metrics for Prometheus, levels, usage, and readiness."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Holdfast
from holdfast.errors import UsageError
from holdfast.store.call import Call
from holdfast.telemetry.metrics import MOST_LABELS, OTHERS
from holdfast.web import app, observe
from tests.support import browsing, flow, serving
from tests.support.serving import Sql, http_fixture, json_body, operator_fixture, problem, shop_fixture  # noqa: F401 - fixtures


def samples(response: httpx.Response) -> dict[tuple[str, ...], float]:
    """Return samples by name and label values, in the order of the labels' names."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/plain")
    return {
        (each.name, *(value for _, value in sorted(each.labels.items()))): each.value
        for family in text_string_to_metric_families(response.text)
        for each in family.samples
    }


async def test_figures_of_the_database_and_of_the_service_are_shown(operator: httpx.AsyncClient, sql: Sql) -> None:
    flow.put(sql, queue="mail", number=3, age=60)
    sql("select take_snapshot()")
    for path in ("/jobs", "/jobs/no-id", "/nothing", "/queues"):
        await operator.get(path)
    await operator.put("/jobs")
    read = samples(await operator.get("/metrics"))
    assert read["holdfast_queue_jobs", "mail", "ready"] == 3
    assert read["holdfast_queue_oldest_wait_seconds", "mail"] >= 60
    assert read["holdfast_health_level", "wait_over_target"] == 1
    assert read["holdfast_http_requests_total", "GET /v1/jobs", "200"] == 1
    assert read["holdfast_http_requests_total", "GET /v1/jobs/{job_id}", "422"] == 1
    assert read["holdfast_http_requests_total", OTHERS, "404"] == 1
    assert read["holdfast_http_requests_total", OTHERS, "405"] == 1
    assert read["holdfast_http_request_duration_seconds_count", "GET /v1/queues"] == 1
    assert read["holdfast_http_requests_waiting",] == 0


async def test_uptime_probes_may_send_head(shop: Holdfast, dsn: str) -> None:
    async with serving.client(shop) as anonymous:
        for path in ("/health/live", "/health/ready"):
            assert (await anonymous.head(path)).status_code == 200
            refused = problem(await anonymous.post(path), 405, "method-not-allowed")
            assert "allowed: GET, HEAD" in refused["detail"]
    with Holdfast(dsn) as other, browsing.served(other) as base:
        response = await asyncio.to_thread(httpx.head, f"{base}/v1/health/live")
        assert response.status_code == 200 and response.content == b""


async def test_a_scraper_needs_a_token_that_is_good_for_nothing_else(shop: Holdfast, http: httpx.AsyncClient) -> None:
    problem(await http.get("/metrics"), 403, "missing-scope")
    problem(await http.get("/levels"), 403, "missing-scope")
    with pytest.raises(UsageError, match="metrics covers all tenants"):
        serving.token(shop, "acme", scopes=["metrics"])
    for scopes in (["metrics"], ["operate"]):
        async with serving.client(shop, serving.token(shop, None, scopes=scopes)) as scraper:
            for path in ("/metrics", "/levels"):
                assert (await scraper.get(path)).status_code == 200
            problem(await scraper.get("/jobs"), 403, "missing-scope")
            assert ((await scraper.get("/queues")).status_code == 403) == (scopes == ["metrics"])


async def test_however_many_scrape_the_database_is_queried_once_in_a_while(
    shop: Holdfast, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, under_way, most = 0, 0, 0
    run = shop.database.async_pool.run

    async def counting(call: Call[Any], conn: Any = None) -> Any:
        nonlocal queries, under_way, most
        if "figures()" not in call.sql:
            return await run(call, conn)
        queries, under_way = queries + 1, under_way + 1
        most = max(most, under_way)
        try:
            return await run(call, conn)
        finally:
            under_way -= 1

    monkeypatch.setattr(shop.database.async_pool, "run", counting)
    monkeypatch.setattr(observe, "FRESH", 60.0)  # a hundred requests may take longer than a second
    began = time.monotonic()
    responses = await asyncio.gather(*(operator.get("/metrics") for _ in range(100)))
    assert {response.status_code for response in responses} == {200}
    assert queries <= 1 + (time.monotonic() - began) / observe.FRESH
    monkeypatch.setattr(observe, "FRESH", 0.0)
    monkeypatch.setattr(observe, "FRESH_FACTOR", 0)
    operator_ = serving.client(shop, serving.token(shop, None))
    await asyncio.gather(*(operator_.get("/metrics") for _ in range(50)))
    assert most == 1 and queries > 1
    await operator_.aclose()


async def test_queues_that_anybody_may_name_are_a_bounded_number_of_labels(
    operator: httpx.AsyncClient, sql: Sql
) -> None:
    sql("select enqueue('t', '{}', p_queue => 'q' || n) from generate_series(1, %s) n", [MOST_LABELS + 50])
    read = samples(await operator.get("/metrics"))
    queues = {key[1]: value for key, value in read.items() if key[0] == "holdfast_queue_jobs" and key[2] == "ready"}
    assert len(queues) == MOST_LABELS + 1 and queues[OTHERS] == 50
    assert sum(queues.values()) == MOST_LABELS + 50


async def test_the_levels_are_returned_with_what_was_measured_and_the_thresholds(
    operator: httpx.AsyncClient, sql: Sql
) -> None:
    assert json_body(await operator.get("/levels"))["level"] is None
    flow.put(sql, queue="mail", number=3, age=600)
    sql("select take_snapshot()")
    sql("select record_tick('w1', '{default}', 31, 120, 3, 2, 1, 4, 0, '{}', 'tick', 7)")
    levels = json_body(await operator.get("/levels"))
    assert levels["level"] == "critical"
    items = {each["metric"]: tuple(each.values())[1:] for each in levels["items"]}
    assert 10 <= items["wait_over_target"][0] < 12 and items["wait_over_target"][1:] == ("critical", 1, 5)
    assert items["tick_duration"] == (31, None, None, None), "no thresholds unless an operator sets some"
    assert [(row["worker_id"], row["tick_count"]) for row in levels["workers"]] == [("w1", 1)]


def use(sql: Sql, *rows: Sequence[Any]) -> None:
    for row in rows:
        minute = "date_trunc('minute', clock() - %s::interval)"
        sql(f"insert into usage_counts values ({minute}, %s, %s, 1, %s, 1, 2.5, 0.5)", row)


async def test_usage_is_returned_by_tenant_task_and_time_and_a_tenant_sees_its_own(
    http: httpx.AsyncClient, operator: httpx.AsyncClient, sql: Sql
) -> None:
    use(
        sql,
        ["1 min", "acme", "a", 3],
        ["2 min", "acme", "b", 5],
        ["1 min", "other", "a", 7],
        ["1 min", "", "a", 9],
        ["3 days", "acme", "a", 11],
    )

    async def used(client: httpx.AsyncClient, **params: Any) -> Any:
        return json_body(await client.get("/usage", params=params))["items"]

    both = {"failures": 1, "run_seconds": 2.5, "queue_seconds": 0.5}
    mine = [{"tenant": "acme", "task": task, "runs": runs, **both} for task, runs in (("a", 3), ("b", 5))]
    assert sorted(await used(http), key=lambda each: each["task"]) == mine
    assert await used(http, tenant="other") == []
    assert await used(http, by="tenant", since="2020-01-01T00:00:00Z") == [
        {"tenant": "acme", "runs": 19, "failures": 3, "run_seconds": 7.5, "queue_seconds": 1.5}
    ]
    assert sum(each["runs"] for each in await used(http, by="")) == 8
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    (old,) = await used(http, by="day,task", since="2020-01-01T00:00:00Z", until=yesterday)
    assert (old["task"], old["runs"]) == ("a", 11) and datetime.fromisoformat(old["day"])
    assert {each["tenant"]: each["runs"] for each in await used(operator, task="a")} == {"acme": 3, "other": 7, None: 9}
    for wrong in ({"by": "colour"}, {"since": "yesterday"}, {"limit": "0"}):
        assert (await http.get("/usage", params=wrong)).status_code == 422


def test_every_route_has_a_name_among_the_figures(shop: Holdfast) -> None:
    made = app(shop)
    routes = {f"{method.upper()} {path}" for path, ways in made.openapi()["paths"].items() for method in ways}
    for each in routes:
        made.figures.stats.note(each, "200", 0.1)
    assert set(made.figures.stats.read()) == routes
