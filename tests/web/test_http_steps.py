"""Steps and signals over HTTP, and on the pages of the dashboard."""

from __future__ import annotations

import json

import httpx
import pytest

from holdfast import Holdfast
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import Sql, http_fixture, json_body, operator_fixture, shop_fixture  # noqa: F401 - fixtures

UNKNOWN = "018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f"


def park(sql: Sql, tenant: str | None = "acme", *, ended: bool = False) -> str:
    """Make a job with a step that waits for a signal, or has succeeded; return its id."""
    sql("select enqueue('shop.fail', p_tenant => %s)", [tenant])
    ((id_, token),) = sql("select id, token from claim('w', '{default}', 1)")
    step = {"id": str(id_), "token": token, "name": "charge", "result": 1, "undo": {"task": "shop.fail"}}
    sql("select store_steps(%s::json)", [json.dumps([step])])
    wait = {"wait": {"kind": "signal", "name": "approved", "seconds": None}}
    outcome = {"id": str(id_), "token": token} | ({"outcome": "succeeded"} if ended else {"outcome": "parked"} | wait)
    sql("select finish('{}', '{}', %s::jsonb)", [json.dumps([outcome])])
    return str(id_)


async def test_a_signal_wakes_the_jobs_of_the_callers_tenant_alone(
    shop: Holdfast, http: httpx.AsyncClient, sql: Sql
) -> None:
    own, other = park(sql), park(sql, "other")
    info = json_body(await http.get(f"/jobs/{own}"))
    assert (info["status"], info["waits_for"]) == ("waiting", "signal approved")
    assert [each["id"] for each in json_body(await http.get("/jobs?status=waiting"))["items"]] == [own]
    sent = {"name": "approved", "value": {"by": "ann"}}
    assert json_body(await http.post("/signals", json=sent), 201) == {"name": "approved", "existing": False}
    assert json_body(await http.post("/signals", json=sent), 201) == {"name": "approved", "existing": True}
    assert [row[0] for row in sql("select status::text from jobs where id = any (%s) order by id", [[own, other]])] == [
        "queued",
        "waiting",
    ]
    assert (await http.post("/signals", json={**sent, "tenant": "other"})).status_code in (403, 422)
    assert (await http.post("/signals", json={"name": ""})).status_code == 422


async def test_the_steps_of_another_tenants_job_are_not_found(http: httpx.AsyncClient, sql: Sql) -> None:
    own, other = park(sql, ended=True), park(sql, "other", ended=True)
    steps = json_body(await http.get(f"/jobs/{own}/steps"))
    assert [(each["name"], each["kind"], each["result"]) for each in steps["items"]] == [("charge", "step", 1)]
    assert steps["relatives"] == {"parent": None, "children": [], "after": [], "followers": []}
    for id_ in (other, UNKNOWN):
        assert (await http.get(f"/jobs/{id_}/steps")).status_code == 404
        assert (await http.post(f"/jobs/{id_}/rerun")).status_code == 404
        assert (await http.post(f"/jobs/{id_}/compensate")).status_code == 404


async def test_relatives_of_other_tenants_are_not_shown(shop: Holdfast, http: httpx.AsyncClient, sql: Sql) -> None:
    def enqueue(tenant: str, after: list[str]) -> str:
        query = "select id::text from enqueue('shop.fail', p_tenant => %s, p_after => %s::uuid[])"
        return str(sql(query, [tenant, after])[0][0])

    own, theirs = park(sql), park(sql, "other")
    call = "insert into steps (job, name, kind, ref, started_at) values (%s, 'call', 'call', %s::uuid, now())"
    sql(call, [theirs, own])
    sql(call, [own, theirs])
    following, strange = enqueue("acme", [own, theirs]), enqueue("other", [own])
    of_own = json_body(await http.get(f"/jobs/{own}/steps"))
    assert of_own["relatives"] == {"parent": None, "children": [], "after": [], "followers": [following]}
    assert theirs not in str(of_own)
    assert json_body(await http.get(f"/jobs/{following}/steps"))["relatives"]["after"] == [own]
    async with browser(shop, serving.token(shop)) as viewer:
        page = await viewer.get(f"/jobs/{own}")
        assert theirs not in page and strange not in page and following in page
    async with serving.client(shop, serving.token(shop, None)) as operator:
        every = json_body(await operator.get(f"/jobs/{own}/steps"))["relatives"]
    assert (every["parent"], every["children"], sorted(every["followers"])) == (
        theirs,
        [theirs],
        sorted([following, strange]),
    )


async def test_a_job_is_compensated_and_rerun(http: httpx.AsyncClient, sql: Sql) -> None:
    job = park(sql, ended=True)
    wrong = await http.post(f"/jobs/{job}/rerun", json={"from_step": "x"})
    assert wrong.status_code in (409, 422) and "has no step" in wrong.text
    assert json_body(await http.post(f"/jobs/{job}/compensate", json={"reason": "wrong"})) == {"id": job, "undone": 1}
    assert json_body(await http.post(f"/jobs/{job}/rerun"))["id"] == job
    assert sql("select status::text from jobs where id = %s", [job]) == [("queued",)]
    assert [row[0] for row in sql("select kind from actions where kind like 'jobs.%%' order by id")] == [
        "jobs.compensate",
        "jobs.rerun",
    ]


@pytest.mark.parametrize("what", ["rerun", "compensate"])
async def test_a_change_is_made_in_the_transaction_of_its_idempotency_key(
    http: httpx.AsyncClient, sql: Sql, what: str
) -> None:
    job, key = park(sql, ended=True), {"Idempotency-Key": "k"}
    first = json_body(await http.post(f"/jobs/{job}/{what}", headers=key))
    assert json_body(await http.post(f"/jobs/{job}/{what}", headers=key)) == first
    assert sql("select a.xmin = r.xmin from actions a, responses r where kind like 'jobs.%'") == [(True,)]


@pytest.mark.parametrize("what", ["rerun", "compensate"])
async def test_a_token_that_may_not_change_deliveries_does_not_find_one(shop: Holdfast, sql: Sql, what: str) -> None:
    sql("select enqueue('holdfast.webhook', p_tenant => 'acme')")
    ((id_, token),) = sql("select id, token from claim('w', '{default}', 1)")
    sql("select fail(%s, %s, p_outcome => 'dead')", [id_, token])
    bearer = serving.token(shop, scopes=["jobs:read", "jobs:write", "webhooks:read"])
    async with serving.client(shop, bearer) as http:
        assert (await http.get(f"/jobs/{id_}")).status_code == 200
        assert (await http.post(f"/jobs/{id_}/{what}")).status_code == 404
    assert sql("select status::text from jobs") == [("dead",)]


async def test_a_rerun_job_has_its_limits_again_where_its_task_is_known(
    shop: Holdfast, http: httpx.AsyncClient, sql: Sql, dsn: str
) -> None:
    job = json_body(await http.post("/jobs", json={"task": "shop.send", "args": {"to": "x"}}), 201)["id"]
    ((token,),) = sql("select token from claim('w', '{default}', 1)")
    sql("select finish(array[%s]::uuid[], array[%s]::bigint[])", [job, token])
    rule = {"template": "host:{host}", "pattern": "host:%", "code": {"concurrency": 100}}
    sql("select register_limits(%s)", [json.dumps([rule])])
    other = Holdfast(dsn)
    async with serving.client(other, serving.token(shop)) as elsewhere:
        refused = await elsewhere.post(f"/jobs/{job}/rerun")
        assert "its task shop.send may have limits" in refused.text
    await other.aclose()
    json_body(await http.post(f"/jobs/{job}/rerun"))
    assert sql("select keys from live") == [(["host:h"],)]


async def test_a_tenant_sees_what_it_did(http: httpx.AsyncClient, sql: Sql) -> None:
    job = park(sql, ended=True)
    for what in ("compensate", "rerun"):
        json_body(await http.post(f"/jobs/{job}/{what}"))
    seen = json_body(await http.get("/actions"))["items"]
    assert [each["kind"] for each in seen] == ["jobs.rerun", "jobs.compensate"]


async def test_the_page_of_a_job_shows_its_steps_family_and_order(shop: Holdfast, sql: Sql) -> None:
    job = park(sql, None)
    row = "insert into steps (job, name, kind, ref, started_at) values (%s, 'ship', 'call', %s, now())"
    ((child, _),) = sql("select id::text, outcome from enqueue('shop.fail')")
    sql(row, [job, child])
    ((then, _),) = sql("select * from enqueue('shop.fail', p_after => array[%s]::uuid[])", [job])
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get(f"/jobs/{job}")
        shown = words(page)
        assert "it has waited for the signal 'approved'" in shown
        assert "Steps charge step" in shown and "undone by shop.fail" in shown and "approved signal, waits" in shown
        assert f"child {child}" in shown and f"...{str(then)[-8:]}" in shown and "<svg" in page
        assert f'href="/dashboard/jobs/{then}"' in page or f"/jobs/{then}" in page
        assert "it starts after job" in words(await viewer.get(f"/jobs/{then}"))
