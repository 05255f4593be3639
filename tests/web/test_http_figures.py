"""Figures over HTTP, from snapshots."""

from __future__ import annotations

import httpx
import pytest

from holdfast import Holdfast
from tests.support import serving
from tests.support.serving import Sql, http_fixture, json_body, operator_fixture, problem, shop_fixture  # noqa: F401

PATHS = ("/figures", "/figures/minutes", "/queues", "/queues/default/wanted")


async def test_a_snapshot_has_queues_tasks_tenants_and_its_age(operator: httpx.AsyncClient, sql: Sql) -> None:
    body = {"jobs": [{"task": "shop.fail", "tenant": "acme"}] * 3}
    json_body(await operator.post("/jobs/many", json=body), 201)
    found = json_body(await operator.get("/figures"))
    assert 0 <= found["age"] < 5 and found["workers"] == 0
    ((queue,), (task,), (tenant,)) = found["queues"], found["tasks"], found["tenants"]
    assert (queue["queue"], queue["ready"], queue["estimated"], queue["p99"]) == ("default", 3, [], None)
    assert (task["task"], task["ready"]) == ("shop.fail", 3)
    assert (tenant["tenant"], tenant["ready"], tenant["share"]) == ("acme", 3, 0)


async def test_queues_come_from_the_snapshot_and_pauses_are_of_now(operator: httpx.AsyncClient, sql: Sql) -> None:
    json_body(await operator.post("/jobs", json={"task": "shop.fail"}), 201)
    first = json_body(await operator.get("/queues"))
    assert [(each["queue"], each["ready"], each["paused"]) for each in first["items"]] == [("default", 1, None)]
    json_body(await operator.post("/queues/done/pause"))
    sql("update snapshots set at = clock() - interval '4 seconds'")
    then = json_body(await operator.get("/queues"))
    assert 3 < then["age"] < 5 and then["at"] < first["at"]
    assert [(each["queue"], each["ready"], each["paused"] is None) for each in then["items"]] == [
        ("default", 1, True),
        ("done", 0, False),
    ]


async def test_minutes_are_listed_for_all_queues_or_one(operator: httpx.AsyncClient, sql: Sql) -> None:
    for queue in ("mail", "done"):
        sql(
            "insert into minutes (minute, queue, ended, failed, lost, run_seconds, p50, ready) values "
            "(date_trunc('minute', clock()) - interval '2 minutes', %s, 5, 1, 0, 2.5, 0.001, 7)",
            [queue],
        )
    both = json_body(await operator.get("/figures/minutes"))["items"]
    assert [(each["queue"], each["ended"], each["ready"], each["dead"]) for each in both] == [
        ("done", 5, 7, None),
        ("mail", 5, 7, None),
    ]
    assert json_body(await operator.get("/figures/minutes", params={"queue": "mail", "seconds": 600}))["items"] == [
        both[1]
    ]
    assert json_body(await operator.get("/figures/minutes", params={"seconds": 60}))["items"] == []


async def test_an_autoscaler_reads_how_many_slots_a_queue_wants(operator: httpx.AsyncClient) -> None:
    json_body(await operator.post("/jobs/many", json={"jobs": [{"task": "shop.fail"}] * 120}), 201)
    assert json_body(await operator.get("/queues/default/wanted", params={"seconds": 10})) == {"wanted": 12}
    assert json_body(await operator.get("/queues/nothing/wanted")) == {"wanted": 0}


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "x", "1e99"])
@pytest.mark.parametrize("path", ["/figures/minutes", "/queues/default/wanted"])
async def test_lengths_of_time_are_bounded(operator: httpx.AsyncClient, path: str, value: str) -> None:
    detail = problem(await operator.get(path, params={"seconds": value}), 422, "invalid")["detail"]
    assert "query.seconds" in detail


@pytest.mark.parametrize("path", PATHS)
async def test_figures_are_for_all_tenants_only(shop: Holdfast, http: httpx.AsyncClient, path: str) -> None:
    problem(await http.get(path), 403, "missing-scope")
    async with serving.client(shop, serving.token(shop, None, ["metrics"])) as watcher:
        assert (await watcher.get(path)).status_code == (403 if path == "/queues" else 200)
