"""Error groups, failed attempts and logs over HTTP."""

from __future__ import annotations

import json
import uuid

import httpx
import pytest

from holdfast import Holdfast
from tests.support import serving
from tests.support.serving import Sql, http_fixture, json_body, operator_fixture, problem, shop_fixture  # noqa: F401

ERROR = {
    "type": "app.Broken",
    "message": "no",
    "frame": "app.py:send",
    "fingerprint": "0123456789abcdef",
    "traceback": "Traceback: secret",
    "output": "secret",
}
THEIRS = "fedcba9876543210"  # a group of other tenants


def fail_one(shop: Holdfast, sql: Sql, tenant: str = "acme", **error: str) -> str:
    """Return a job that has died, counted in its group."""
    id_ = shop.registry.tasks["shop.fail"].using(tenant=tenant).enqueue().id
    die(sql, **error)
    return id_


def die(sql: Sql, **error: str) -> None:
    """End all waiting jobs as dead, and count them in their groups."""
    call = "select fail(c.id, c.token, %s::jsonb, p_outcome => 'dead') from claim('w', '{default}', 100) c"
    sql(call, [json.dumps(ERROR | error)])
    sql("select fold_errors()")


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


async def test_a_tenant_sees_the_groups_of_its_own_dead_jobs_only(
    shop: Holdfast, http: httpx.AsyncClient, sql: Sql
) -> None:
    """The group of the same error has dead jobs of three tenants; the other one is another tenant's alone."""
    fail_one(shop, sql, "other", message="theirs", frame="theirs.py:f")
    id_ = fail_one(shop, sql)
    fail_one(shop, sql, "third", message="theirs")
    fail_one(shop, sql, "other", fingerprint=THEIRS)
    (group,) = json_body(listed := await http.get("/errors"))["items"]
    assert "theirs" not in listed.text and THEIRS not in listed.text
    assert (group["fingerprint"], group["message"], group["frame"]) == ("0123456789abcdef", "no", None)
    assert (group["attempts"], group["dead"], list(group["trend"].values())) == (1, 1, [1])
    assert group["first_at"] == group["last_at"]
    assert (group["example_job"], group["example"]["message"]) == (id_, "no")
    assert not group["example"].keys() & {"traceback", "output", "frame"}
    assert json_body(await http.get("/errors/0123456789abcdef")) == group
    assert json_body(await http.get("/errors", params={"task": "shop.send"})) == {"items": []}


async def test_a_group_of_other_tenants_is_unknown(shop: Holdfast, http: httpx.AsyncClient, sql: Sql) -> None:
    fail_one(shop, sql, "other", fingerprint=THEIRS)
    for method, path in (("GET", ""), ("POST", "/retry"), ("POST", "/discard")):
        foreign = problem(await http.request(method, f"/errors/{THEIRS}{path}"), 404, "not-found")
        nobodys = problem(await http.request(method, f"/errors/{'0' * 16}{path}"), 404, "not-found")
        assert foreign["detail"].replace(THEIRS, "0" * 16) == nobodys["detail"]
    assert sql("select count(*) from dead") == [(1,)]
    assert sql("select count(*) from actions where kind in ('retry', 'discard')") == [(0,)]


async def test_a_change_of_a_group_is_for_the_tenants_jobs_only(
    shop: Holdfast, http: httpx.AsyncClient, sql: Sql
) -> None:
    id_, foreign = fail_one(shop, sql), fail_one(shop, sql, "other")
    done = json_body(await http.post("/errors/0123456789abcdef/retry"), 201)
    assert (done["preview"], done["matched"], done["changed"], done["examples"]) == (1, 1, 1, [id_])
    assert (sql("select id::text from live"), sql("select id::text from dead")) == ([(id_,)], [(foreign,)])
    problem(await http.post("/errors/0123456789abcdef/discard"), 404, "not-found")  # none of its jobs is dead now
    assert sql("select id::text from dead") == [(foreign,)]


async def test_a_tenant_without_the_scope_reads_groups_and_changes_none(shop: Holdfast, sql: Sql) -> None:
    fail_one(shop, sql)
    async with serving.client(shop, serving.token(shop, "acme", ["jobs:read"])) as reader:
        assert len(json_body(await reader.get("/errors"))["items"]) == 1
        problem(await reader.post("/errors/0123456789abcdef/discard"), 403, "missing-scope")


@pytest.mark.parametrize("tenant", ["acme", None])
async def test_groups_of_deliveries_need_the_scope_of_webhooks(
    shop: Holdfast, operator: httpx.AsyncClient, sql: Sql, tenant: str | None
) -> None:
    shop.jobs.enqueue("holdfast.webhook", b"{}", tenant="acme")
    die(sql, fingerprint=THEIRS)
    async with serving.client(shop, serving.token(shop, tenant, ["jobs:read"])) as reader:
        assert json_body(await reader.get("/errors")) == {"items": []}
        problem(await reader.get(f"/errors/{THEIRS}"), 404, "not-found")
    assert len(json_body(await operator.get("/errors"))["items"]) == 1


async def test_jobs_and_dead_jobs_are_listed_by_group(shop: Holdfast, http: httpx.AsyncClient, sql: Sql) -> None:
    id_, _, _ = fail_one(shop, sql), fail_one(shop, sql, fingerprint=THEIRS), fail_one(shop, sql, "other")
    for path in ("/jobs", "/dead"):
        found = json_body(await http.get(path, params={"error_group": "0123456789abcdef"}))["items"]
        assert [job["id"] for job in found] == [id_]


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
