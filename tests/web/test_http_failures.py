"""Error groups, failed attempts and logs over HTTP."""

from __future__ import annotations

import uuid

import httpx

from holdfast import Holdfast
from tests.support import serving
from tests.support.serving import Sql, http_fixture, json_body, operator_fixture, problem, shop_fixture  # noqa: F401

ERROR = """{"type": "app.Broken", "message": "no", "frame": "app.py:send", "fingerprint": "0123456789abcdef",
            "traceback": "Traceback: secret", "output": "secret"}"""


def fail_one(shop: Holdfast, sql: Sql, tenant: str = "acme") -> str:
    """Return a job that has died, counted in its group."""
    id_ = shop.registry.tasks["shop.fail"].using(tenant=tenant).enqueue().id
    sql("select fail(c.id, c.token, %s::jsonb, p_outcome => 'dead') from claim('w', '{default}', 100) c", [ERROR])
    sql("select fold_errors()")
    return id_


async def test_a_group_is_listed_and_shown_with_its_example_and_trend(
    shop: Holdfast, operator: httpx.AsyncClient, sql: Sql
) -> None:
    id_ = fail_one(shop, sql)
    (group,) = json_body(await operator.get("/errors", params={"task": "shop.fail"}))["items"]
    assert (group["fingerprint"], group["attempts"], group["dead"]) == ("0123456789abcdef", 1, 1)
    assert (group["example_job"], group["example"]["output"]) == (id_, "secret")
    assert list(group["trend"].values()) == [1]
    assert json_body(await operator.get("/errors/0123456789abcdef")) == group
    assert json_body(await operator.get("/errors", params={"task": "shop.send"})) == {"items": []}
    assert "no error group" in problem(await operator.get("/errors/0000000000000000"), 404, "not-found")["detail"]
    problem(await operator.get("/errors", params={"tusk": "a"}), 422, "invalid")


async def test_the_dead_jobs_of_a_group_are_retried_and_discarded_by_an_action(
    shop: Holdfast, operator: httpx.AsyncClient, sql: Sql
) -> None:
    id_ = fail_one(shop, sql)
    done = json_body(await operator.post("/errors/0123456789abcdef/retry", json={"reason": "fixed"}), 201)
    assert (done["kind"], done["changed"], done["reason"], done["by"]) == ("retry", 1, "fixed", "of None")
    assert sql("select id::text from live") == [(id_,)]
    gone = json_body(await operator.post("/errors/0123456789abcdef/discard"), 201)
    assert (gone["state"], gone["changed"]) == ("done", 0)
    problem(await operator.post("/errors/0000000000000000/discard"), 404, "not-found")


async def test_a_tenant_retries_its_own_jobs_of_a_group(shop: Holdfast, http: httpx.AsyncClient, sql: Sql) -> None:
    id_, foreign = fail_one(shop, sql), fail_one(shop, sql, "other")
    body = {"kind": "retry", "filter": {"error_group": "0123456789abcdef"}}
    assert json_body(await http.post("/actions", json=body), 201)["changed"] == 1
    assert (sql("select id::text from live"), sql("select id::text from dead")) == ([(id_,)], [(foreign,)])
    body["filter"] = {"error_group": "none"}
    assert "error_group" in problem(await http.post("/actions", json=body), 422, "invalid")["detail"]


async def test_a_tenant_sees_no_groups_because_they_count_all_tenants(
    shop: Holdfast, http: httpx.AsyncClient, sql: Sql
) -> None:
    fail_one(shop, sql, "other")
    for path in ("/errors", "/errors/0123456789abcdef"):
        assert "all tenants" in problem(await http.get(path), 403, "one-tenant")["detail"]
    problem(await http.post("/errors/0123456789abcdef/retry"), 403, "one-tenant")


async def test_only_operators_see_the_traceback_of_an_example(shop: Holdfast, sql: Sql) -> None:
    id_ = fail_one(shop, sql)
    async with serving.client(shop, serving.token(shop, None, ["jobs:read"])) as reader:
        (group,) = json_body(await reader.get("/errors"))["items"]
        assert sorted(group["example"]) == ["fingerprint", "frame", "message", "type"]
        (one,) = json_body(await reader.get(f"/jobs/{id_}/failures"))["items"]
        assert (one["frame"], one["worker"], one["message"]) == (None, None, "no")


async def test_the_failed_attempts_of_a_job_are_listed(
    shop: Holdfast, http: httpx.AsyncClient, operator: httpx.AsyncClient, sql: Sql
) -> None:
    id_, foreign = fail_one(shop, sql), fail_one(shop, sql, "other")
    (mine,) = json_body(await http.get(f"/jobs/{id_}/failures"))["items"]
    assert (mine["attempt"], mine["outcome"], mine["type"], mine["worker"]) == (1, "dead", "app.Broken", None)
    (seen,) = json_body(await operator.get(f"/jobs/{id_}/failures"))["items"]
    assert (seen["worker"], seen["frame"]) == ("w", "app.py:send")
    for unknown in (foreign, str(uuid.uuid4())):
        for part in ("failures", "log"):
            problem(await http.get(f"/jobs/{unknown}/{part}"), 404, "not-found")


async def test_the_log_of_a_job_is_shown(shop: Holdfast, http: httpx.AsyncClient, sql: Sql) -> None:
    id_ = json_body(await http.post("/jobs", json={"task": "shop.fail"}), 201)["id"]
    assert json_body(await http.get(f"/jobs/{id_}/log")) == {"items": []}
    lines = '[{"n": 1, "at": 0.5, "level": "info", "text": "half done"}]'
    sql("insert into job_logs values (%s, 1, 1, clock(), 1, %s, clock())", [id_, lines])
    (attempt,) = json_body(await http.get(f"/jobs/{id_}/log"))["items"]
    assert attempt["attempt"] == 1 and [line["text"] for line in attempt["lines"]] == ["half done"]
