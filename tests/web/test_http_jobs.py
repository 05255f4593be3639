"""Jobs over HTTP: create, get, list, wait, cancel, retry; permissions, and what errors look like."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.errors import ConfigurationError
from holdfast.web import app, waiting
from tests.support import serving
from tests.support.serving import Sql, http_fixture, problem, shop_fixture  # noqa: F401 - fixtures


async def made(http: httpx.AsyncClient, **job: Any) -> str:
    response = await http.post("/jobs", json={"task": "shop.send", "args": {"to": "ada"}, **job})
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


async def streamed(http: httpx.AsyncClient, id_: str) -> asyncio.Task[httpx.Response]:
    """Return a stream of a job's changes that has begun."""
    streaming = asyncio.create_task(http.get(f"/jobs/{id_}/events"))
    await until(waiting.waiting)
    return streaming


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(40):
        while not condition():  # noqa: ASYNC110 - there is no signal for it
            await asyncio.sleep(0.01)


async def test_a_job_is_made_for_the_tokens_tenant_and_looked_at(http: httpx.AsyncClient) -> None:
    response = await http.post("/jobs", json={"task": "shop.send", "args": {"to": "ada", "copies": 2}, "priority": 1})
    assert response.status_code == 201 and response.json()["existing"] is False
    job = (await http.get(f"/jobs/{response.json()['id']}")).json()
    assert (job["task"], job["tenant"], job["status"], job["priority"]) == ("shop.send", "acme", "queued", 1)
    assert job["args"] == {"to": "ada", "copies": 2} and "dedupe_key" not in job and "locked_by" not in job


async def test_a_job_is_under_its_tasks_limits_whatever_creates_it(http: httpx.AsyncClient, sql: Sql) -> None:
    await made(http, args={"to": "ada", "host": "example.org"})
    assert sql("select keys from live") == [(["host:example.org"],)]


async def test_all_options_of_a_job_arrive(http: httpx.AsyncClient, sql: Sql) -> None:
    await made(http, queue="mail", priority=0, max_attempts=7, delay=60, deadline=600)
    assert sql(
        "select queue, priority, max_attempts, deadline is not null, run_at > clock() + interval '50 s' from later"
    ) == [("mail", 0, 7, True, True)]
    await made(http, run_at="2099-01-01T00:00:00+02:00")
    assert sql("select count(*) from later where run_at = '2098-12-31 22:00+00'") == [(1,)]


async def test_arguments_that_the_handler_could_not_take_are_refused(http: httpx.AsyncClient, sql: Sql) -> None:
    for args in (
        {},
        {"to": 1},
        {"to": "ada", "copies": "two"},
        {"to": "ada", "more": 1},
        {"to": "\ud800"},
        {"to": "a\x00b"},
    ):
        content = json.dumps({"task": "shop.send", "args": args})
        problem(await http.post("/jobs", content=content), 422, "invalid-payload")
        many = json.dumps({"jobs": [{"task": "shop.fail"}, json.loads(content)]})
        problem(await http.post("/jobs/many", content=many), 422, "invalid-payload")
    assert sql("select count(*) from jobs") == [(0,)]


@pytest.mark.parametrize("name", ["shop.sent", "holdfast.webhook", "channel:email", "nothing"])
async def test_only_the_applications_own_tasks_can_be_enqueued(http: httpx.AsyncClient, name: str) -> None:
    result = problem(await http.post("/jobs", json={"task": name, "args": {}}), 422, "unknown-task")
    assert name in result["detail"] and ("shop.send" in result["detail"]) == (name == "shop.sent")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"task": "shop.fail", "tasc": 1}',
        b'{"task": "shop.fail", "priority": 4}',
        b'{"task": "shop.fail", "delay": -1}',
        b'{"task": "shop.fail", "delay": NaN}',
        b'{"task": "shop.fail", "run_at": "2030-01-01T00:00:00"}',
        b'{"task": "shop.fail", "run_at": "9999-12-31T23:00-12:00"}',
        b'{"task": "shop.fail", "delay": 1, "run_at": "2030-01-01T00:00:00Z"}',
        b'{"task": "shop.fail", "queue": "a/b"}',
        b'{"task": "shop\\u0000"}',
        b'{"task": "shop.fail", "dedupe": {"key": "k", "scope": "running", "keep": 1}}',
        b'{"task": "shop.fail", "args": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
        b'{"task": "shop.fail", "args": {"why": ' + b"9" * 5000 + b"}}",
    ],
)
async def test_bodies_that_cannot_work_are_problems_and_never_failures(http: httpx.AsyncClient, body: bytes) -> None:
    response = await http.post("/jobs", content=body)
    assert response.status_code in (400, 422), response.text
    assert response.headers["content-type"] == "application/problem+json"


async def test_many_jobs_are_made_all_or_none_and_in_order(http: httpx.AsyncClient, sql: Sql) -> None:
    one, two = {"task": "shop.fail"}, {"task": "shop.send", "queue": "mail"}
    response = await http.post(
        "/jobs/many",
        json={
            "jobs": [
                {**two, "args": {"to": "a"}},
                one,
                {**two, "args": {"to": "b"}},
                {**one, "dedupe": {"key": "k"}},
                {**one, "dedupe": {"key": "k"}},
            ]
        },
    )
    assert response.status_code == 201, response.text
    ids = response.json()["ids"]
    assert ids[3] == ids[4] and len(set(ids)) == 4
    assert [(await http.get(f"/jobs/{id_}")).json()["args"] for id_ in ids[:3]] == [{"to": "a"}, {}, {"to": "b"}]
    problem(await http.post("/jobs/many", json={"jobs": [one, {"task": "nothing"}]}), 422, "unknown-task")
    problem(await http.post("/jobs/many", json={"jobs": []}), 422, "invalid")
    problem(await http.post("/jobs/many", json={"jobs": [one] * 1001}), 422, "invalid")
    assert sql("select count(*), count(distinct tenant) from jobs") == [(4, 1)]


async def test_a_dedupe_key_is_held_as_the_request_says(http: httpx.AsyncClient) -> None:
    keyed = {"task": "shop.fail", "dedupe": {"key": "k", "scope": "success", "keep": 60}}
    first = (await http.post("/jobs", json=keyed)).json()
    again = (await http.post("/jobs", json=keyed)).json()
    assert again == {"id": first["id"], "existing": True}
    keyed["dedupe"] = {"key": "k", "on_conflict": "raise"}
    problem(await http.post("/jobs", json=keyed), 409, "duplicate")


async def test_the_response_to_a_repeated_request_is_the_first_one(http: httpx.AsyncClient, sql: Sql) -> None:
    key = {"Idempotency-Key": "order-7"}
    body = {"task": "shop.send", "args": {"to": "ada"}}
    first = await http.post("/jobs", json=body, headers=key)
    again = await http.post("/jobs", json=body, headers=key)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotent-replayed"] == "true" and "idempotent-replayed" not in first.headers
    problem(await http.post("/jobs", json={**body, "priority": 1}, headers=key), 409, "key-reused")
    problem(await http.post("/jobs/many", json={"jobs": [body]}, headers=key), 409, "key-reused")
    problem(await http.post("/jobs", json=body, headers={"Idempotency-Key": "x" * 201}), 422, "invalid")
    assert sql("select count(*) from jobs") == [(1,)]


async def test_a_request_that_failed_leaves_its_key_free(http: httpx.AsyncClient, sql: Sql) -> None:
    key = {"Idempotency-Key": "k"}
    problem(await http.post("/jobs", json={"task": "nothing"}, headers=key), 422, "unknown-task")
    assert (await http.post("/jobs", json={"task": "shop.fail"}, headers=key)).status_code == 201
    assert sql("select count(*) from responses") == [(1,)]


async def test_requests_with_one_key_at_once_make_one_job(http: httpx.AsyncClient, sql: Sql) -> None:
    responses = await asyncio.gather(
        *(http.post("/jobs", json={"task": "shop.fail"}, headers={"Idempotency-Key": "k"}) for _ in range(8))
    )
    assert len({response.json()["id"] for response in responses}) == 1
    assert sql("select count(*) from jobs") == [(1,)]


async def test_another_tenants_key_is_another_key(shop: Holdfast, http: httpx.AsyncClient, sql: Sql) -> None:
    async with serving.client(shop, serving.token(shop, "other")) as other:
        for each in (http, other):
            response = await each.post("/jobs", json={"task": "shop.fail"}, headers={"Idempotency-Key": "k"})
            assert "idempotent-replayed" not in response.headers
    assert sql("select count(*) from jobs") == [(2,)]


async def test_the_tag_of_a_job_changes_when_it_does(shop: Holdfast, http: httpx.AsyncClient) -> None:
    id_ = await made(http)
    tag = (await http.get(f"/jobs/{id_}")).headers["etag"]
    same = await http.get(f"/jobs/{id_}", headers={"If-None-Match": tag})
    assert (same.status_code, same.content) == (304, b"")
    await http.post(f"/jobs/{id_}/cancel")
    other = await http.get(f"/jobs/{id_}", headers={"If-None-Match": tag})
    assert other.status_code == 200 and other.headers["etag"] != tag


async def test_a_list_goes_on_where_the_page_before_ended(http: httpx.AsyncClient) -> None:
    ids = (await http.post("/jobs/many", json={"jobs": [{"task": "shop.fail"}] * 5})).json()["ids"]
    found: list[str] = []
    cursor: dict[str, Any] = {}
    for _ in range(4):
        page = (await http.get("/jobs", params={"limit": 2, **cursor})).json()
        found += [job["id"] for job in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert found == ids[::-1]


async def test_a_list_is_filtered_by_everything_it_names(http: httpx.AsyncClient) -> None:
    one = await made(http, queue="mail")
    two = await made(http, delay=60)
    await http.post(f"/jobs/{two}/cancel")

    async def found(**where: str) -> list[str]:
        response = await http.get("/jobs", params=where)
        assert response.status_code == 200, response.text
        return [job["id"] for job in response.json()["items"]]

    assert await found(status="canceled") == [two]
    assert await found(queue="mail", task="shop.send") == [one]
    assert await found(tenant="acme") == [two, one] and await found(tenant="other") == []
    assert await found(since="2020-01-01T00:00:00Z") == [two, one] and await found(until="2020-01-01T00:00:00Z") == []
    for wrong in (
        {"status": "over"},
        {"limit": "501"},
        {"limit": "0"},
        {"cursor": "x"},
        {"since": "2020-01-01"},
        {"task": "a\x00"},
    ):
        problem(await http.get("/jobs", params=wrong), 422, "invalid")


async def test_a_request_that_waits_for_a_job_gets_a_response_when_it_has_ended(
    shop: Holdfast, http: httpx.AsyncClient
) -> None:
    id_ = await made(http)
    assert (await http.get(f"/jobs/{id_}", params={"wait": 0.05})).json()["status"] == "queued"
    waiting = asyncio.create_task(http.get(f"/jobs/{id_}", params={"wait": 50}))
    await shop.atick()
    job = (await waiting).json()
    assert (job["status"], job["result"]) == ("succeeded", "ada x 1")


async def test_a_jobs_changes_are_streamed_until_it_has_ended(shop: Holdfast, http: httpx.AsyncClient) -> None:
    id_ = await made(http)
    streaming = await streamed(http, id_)
    await shop.atick()
    response = await streaming
    assert response.headers["content-type"].startswith("text/event-stream")
    statuses = [json.loads(line[6:])["status"] for line in response.text.splitlines() if line.startswith("data: ")]
    assert statuses[0] == "queued" and statuses[-1] == "succeeded" and len(statuses) == len(set(statuses))
    assert not waiting.waiting()


async def test_the_number_of_waiting_requests_is_bounded(
    shop: Holdfast, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOST_WAITING", 0)
    id_ = await made(http)
    result = await http.get(f"/jobs/{id_}", params={"wait": 50})
    assert problem(result, 429, "too-many") and result.headers["retry-after"]
    problem(await http.get(f"/jobs/{id_}/events"), 429, "too-many")


async def test_one_tenant_cannot_take_the_places_of_other_tenants(
    shop: Holdfast, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOST_OF_ONE", 1)
    streaming = await streamed(http, await made(http))
    problem(await http.get(f"/jobs/{await made(http)}", params={"wait": 50}), 429, "too-many")
    async with serving.client(shop, serving.token(shop, "other")) as other:
        assert (await other.get(f"/jobs/{await made(other)}", params={"wait": 0.01})).status_code == 200
    streaming.cancel()


async def test_a_revoked_token_gets_nothing_more_while_it_waits(hf: Holdfast, dsn: str) -> None:
    with Holdfast(dsn, token_cache=0.0) as strict:
        bearer, info = strict.tokens.create("x", tenant="acme", scopes=["jobs:read", "jobs:write"])
        async with serving.client(serving.with_tasks(strict), bearer) as http:
            id_ = await made(http)
            streaming = await streamed(http, id_)
            polling = asyncio.create_task(http.get(f"/jobs/{id_}", params={"wait": 50}))
            await until(lambda: waiting.waiting() == 2)
            strict.tokens.revoke(info.id)
            async with asyncio.timeout(10):
                assert (await streaming).text.count("event: job") == 1
                assert (await polling).json()["status"] == "queued"
        await strict.aclose()


async def test_a_disconnected_client_waits_no_more(shop: Holdfast, http: httpx.AsyncClient) -> None:
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"/v1/jobs/{await made(http)}",
        "query_string": b"wait=50",
        "headers": [(b"authorization", http.headers["authorization"].encode())],
    }
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None: ...

    asking = asyncio.create_task(app(shop)(scope, receive, send))
    await until(waiting.waiting)
    gone.set()
    async with asyncio.timeout(10):
        await asking
    assert not waiting.waiting()


async def test_jobs_are_canceled_one_or_many(http: httpx.AsyncClient) -> None:
    one, two = await made(http), await made(http)
    unknown = str(uuid.uuid4())
    assert (await http.post(f"/jobs/{one}/cancel")).json() == {"id": one, "outcome": "canceled"}
    result = (await http.post("/jobs/cancel", json={"ids": [one, two, unknown]})).json()["items"]
    assert [each["outcome"] for each in result] == ["finished", "canceled", "unknown"]
    problem(await http.post(f"/jobs/{unknown}/cancel"), 404, "not-found")


async def test_a_dead_job_is_put_back_and_another_is_not(http: httpx.AsyncClient, sql: Sql) -> None:
    id_ = await made(http, max_attempts=1)
    problem(await http.post(f"/jobs/{id_}/retry"), 409, "conflict")
    error = json.dumps({"message": "no", "traceback": "secret path", "output": "secret path"})
    sql("select fail(id, token, %s::jsonb) from claim('w')", [error])
    job = await http.get(f"/jobs/{id_}")
    assert job.json()["status"] == "dead" and "secret path" not in job.text
    listed = await http.get("/jobs?status=dead")
    assert [each["id"] for each in listed.json()["items"]] == [id_] and "secret path" not in listed.text
    assert (await http.post(f"/jobs/{id_}/retry")).status_code == 200
    assert (await http.get(f"/jobs/{id_}")).json()["status"] in ("queued", "retrying")
    problem(await http.post(f"/jobs/{uuid.uuid4()}/retry"), 404, "not-found")


async def test_without_a_valid_token_nothing_is_returned(shop: Holdfast, http: httpx.AsyncClient) -> None:
    for header in (
        {},
        {"Authorization": "Bearer hf_nonsense"},
        {"Authorization": "Basic aGY6"},
        {"Authorization": "Bearer "},
        {"Authorization": b"Bearer hf_\xff"},
    ):
        async with serving.client(shop) as anybody:
            response = await anybody.get("/jobs", headers=header)
            problem(response, 401, "unauthorized")
            assert response.headers["www-authenticate"] == "Bearer"


async def test_a_token_does_what_its_scopes_say(shop: Holdfast) -> None:
    async with serving.client(shop, serving.token(shop, scopes=["jobs:read"])) as reader:
        assert (await reader.get("/jobs")).status_code == 200
        problem(await reader.post("/jobs", json={"task": "shop.fail"}), 403, "missing-scope")
        problem(await reader.get("/webhooks/endpoints"), 403, "missing-scope")
    async with serving.client(shop, serving.token(shop, scopes=["jobs:write"])) as writer:
        problem(await writer.get("/jobs"), 403, "missing-scope")
        assert (await writer.post("/jobs", json={"task": "shop.fail"})).status_code == 201


async def test_a_revoked_token_is_forgotten_when_the_cache_is(hf: Holdfast, dsn: str) -> None:
    with Holdfast(dsn, token_cache=0.0) as strict:
        bearer, info = strict.tokens.create("x", tenant="acme", scopes=["jobs:read"])
        async with serving.client(serving.with_tasks(strict), bearer) as http:
            assert (await http.get("/jobs")).status_code == 200
            strict.tokens.revoke(info.id)
            problem(await http.get("/jobs"), 401, "unauthorized")
        await strict.aclose()


async def test_the_tenant_comes_from_the_token_and_an_operator_may_name_one(shop: Holdfast, sql: Sql) -> None:
    async with serving.client(shop, serving.token(shop)) as http:
        assert (await http.post("/jobs", json={"task": "shop.fail", "tenant": "acme"})).status_code == 201
        problem(await http.post("/jobs", json={"task": "shop.fail", "tenant": "other"}), 403, "forbidden")
    async with serving.client(shop, serving.token(shop, None)) as operator:
        for tenant in ("other", None):
            assert (await operator.post("/jobs", json={"task": "shop.fail", "tenant": tenant})).status_code == 201
        assert len((await operator.get("/jobs")).json()["items"]) == 3
    assert sql("select tenant from live order by id") == [("acme",), ("other",), (None,)]


async def test_a_body_that_is_too_large_is_refused_whatever_length_it_claims(hf: Holdfast, dsn: str) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 1024

    with Holdfast(dsn, max_body=4096) as small:
        async with serving.client(serving.with_tasks(small), serving.token(small)) as http:
            problem(await http.post("/jobs", content=b" " * 5000), 413, "too-large")
            problem(await http.post("/jobs", content=endless()), 413, "too-large")
        await small.aclose()


async def test_every_response_forbids_storing_it(http: httpx.AsyncClient) -> None:
    for path in ("/jobs", f"/jobs/{uuid.uuid4()}", "/nothing"):
        assert (await http.get(path)).headers["cache-control"] == "no-store"
    problem(await http.get("/nothing"), 404, "not-found")
    problem(await http.put("/jobs"), 405, "method-not-allowed")
    one = f"/jobs/{uuid.uuid4()}"
    for method, path, allowed in (
        ("PUT", "/jobs", "GET, POST"),
        ("PUT", "/limits", "DELETE, GET, PATCH"),
        ("DELETE", one, "GET"),
        ("GET", "/dead/retry", "POST"),
    ):
        response = await http.request(method, path)
        assert response.headers["allow"] == allowed and allowed in response.json()["detail"]


async def test_the_service_can_be_mounted_in_another_application(shop: Holdfast) -> None:
    from fastapi import FastAPI

    host = FastAPI()
    host.mount("/holdfast", app(shop))
    headers = {"Authorization": f"Bearer {serving.token(shop)}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(host), base_url="http://host", headers=headers) as http:
        response = await http.post("/holdfast/v1/jobs", json={"task": "shop.fail"})
        assert response.status_code == 201
        problem(await http.get(f"/holdfast/v1/jobs/{uuid.uuid4()}"), 404, "not-found")


async def test_a_database_that_is_away_is_a_503_that_names_no_server(caplog: pytest.LogCaptureFixture) -> None:
    away = serving.with_tasks(Holdfast("postgresql://nobody:very-secret@127.0.0.1:1/none", connect_timeout=0.5))
    async with serving.client(away, "hf_x") as http:
        for response in (await http.get("/jobs"), await http.get("/health/ready")):
            assert response.status_code == 503 and "127.0.0.1" not in response.text and "secret" not in response.text
        await http.get("/jobs")
        assert (await http.get("/health/live")).json()["status"] == "ok"
    (line,) = [each for each in caplog.records if each.name == "holdfast.web" and each.levelno >= logging.WARNING]
    assert "127.0.0.1:1/none" in str(line.fields) and "very-secret" not in str(line.fields), "the log says which, once"


async def test_the_service_is_ready_when_the_database_has_its_schema(http: httpx.AsyncClient, sql: Sql) -> None:
    assert (await http.get("/health/ready")).json() == {"status": "ok", "checks": {"database": "ok", "schema": "ok"}}
    newer = sql("insert into schema_info select max(version) + 1, now() from schema_info returning version")[0][0]
    try:
        health = problem(await http.get("/health/ready"), 503, "not-ready")
        assert health["checks"]["database"] == "ok" and f"at version {newer}" in health["checks"]["schema"]
    finally:
        sql("delete from schema_info where version = %s", [newer])


async def test_the_tick_endpoint_is_off_unless_it_is_wanted_and_then_needs_a_secret(dsn: str, hf: Holdfast) -> None:
    async with serving.client(hf) as http:
        assert (await http.post("/tick")).status_code == 404
    for weak in ("", " , ", "short"):
        with pytest.raises(ConfigurationError, match="HOLDFAST_TICK_SECRETS"):
            app(Holdfast(dsn, tick_secrets=weak), tick_endpoint=True)


async def test_a_tick_runs_jobs_for_a_caller_with_one_of_two_secrets(dsn: str, hf: Holdfast) -> None:
    old, new = "an old secret of cron", "ein neuer Schlüssel für cron"
    with Holdfast(dsn, tick_secrets=f"{old}, {new}") as ticking:
        serving.with_tasks(ticking)
        for _ in range(3):
            ticking.registry.tasks["shop.fail"].enqueue()
        async with serving.client(ticking, tick_endpoint=True) as http:
            for wrong in ({}, {"x-internal-secret": "an other secret of cron"}, {"x-internal-secret": b"\xff\xfe"}):
                problem(await http.post("/tick", headers=wrong), 401, "unauthorized")
                problem(await http.post("/tick", headers=wrong, json={"max_jobs": "x"}), 401, "unauthorized")
            misspelt = await http.post("/tick?maxjobs=1", headers={"x-internal-secret": old})
            assert "no such parameter" in problem(misspelt, 422, "invalid")["detail"]
            elsewhere = await http.post("/tick", headers={"x-internal-secret": old}, json={"queues": ["mail"]})
            assert elsewhere.json()["claimed"] == 0
            first = await http.post("/tick", headers={"x-internal-secret": old}, json={"max_jobs": 2})
            assert first.status_code == 200, first.text
            assert first.json()["ok"] is True and first.json()["claimed"] == 2
            sent = {b"x-internal-secret": new.encode()}
            both = await asyncio.gather(*(http.post("/tick", headers=sent) for _ in range(2)))
            assert sum(response.json()["succeeded"] for response in both) == 1
        await ticking.aclose()


async def test_a_dedupe_key_may_be_a_string(http: httpx.AsyncClient, sql: Sql) -> None:
    first = await made(http, dedupe="order-42")
    assert await made(http, dedupe={"key": "order-42"}) == first
    assert sql("select count(*) from jobs") == [(1,)]


async def test_a_discarded_job_says_so_and_is_not_put_back(http: httpx.AsyncClient, sql: Sql) -> None:
    id_ = await made(http, max_attempts=1)
    sql("select fail(id, token, '{\"message\": \"no\"}') from claim('w')")
    assert (await http.get(f"/jobs/{id_}")).json()["discarded"] is False
    sql("select discard_dead(%s::uuid[])", [[id_]])
    job = (await http.get(f"/jobs/{id_}")).json()
    assert (job["status"], job["discarded"]) == ("dead", True)
    assert [job["discarded"] for job in (await http.get("/jobs")).json()["items"]] == [True]
    assert "it was discarded" in problem(await http.post(f"/jobs/{id_}/retry"), 409, "conflict")["detail"]


@pytest.mark.parametrize("bad", [{"task": "shop.sned"}, {"task": "shop.fail", "args": {"x": 1}}], ids=["task", "args"])
async def test_of_many_jobs_the_bad_one_is_named(http: httpx.AsyncClient, sql: Sql, bad: dict[str, Any]) -> None:
    response = await http.post("/jobs/many", json={"jobs": [{"task": "shop.fail"}, bad]})
    assert response.status_code == 422 and response.json()["detail"].startswith("jobs.1: ")
    assert sql("select count(*) from jobs") == [(0,)]


async def test_since_takes_a_length_of_time(http: httpx.AsyncClient, sql: Sql) -> None:
    id_ = await made(http)
    for since, found in (("30d", [id_]), ("2020-01-01T00:00:00Z", [id_]), ("0s", [])):
        assert [job["id"] for job in (await http.get("/jobs", params={"since": since})).json()["items"]] == found
    problem(await http.get("/jobs", params={"since": "30 days"}), 422, "invalid")
    problem(await http.get("/jobs", params={"since": "2026-01-01T00:00:00"}), 422, "invalid")


async def test_a_caller_without_a_token_learns_which_part_is_wrong(shop: Holdfast) -> None:
    revoked, info = shop.tokens.create("x", tenant="acme", scopes=["jobs:read"])
    shop.tokens.revoke(info.id)
    details = []
    async with serving.client(shop) as anybody:
        for given in (None, "Basic x", f"Bearer {revoked}", "Bearer hf_nonsense"):
            response = await anybody.get("/jobs", headers={} if given is None else {"Authorization": given})
            details.append(problem(response, 401, "unauthorized")["detail"])
    assert "no token was sent" in details[0] and "invalid Authorization header" in details[1]
    assert details[2] == details[3] and "unknown, expired or revoked" in details[2]
    async with serving.client(shop, serving.token(shop)) as tenants:
        detail = problem(await tenants.get("/queues"), 403, "missing-scope")["detail"]
        assert detail.endswith("holdfast tokens create NAME --scopes operate --all-tenants")


async def test_a_404_says_where_to_look(shop: Holdfast) -> None:
    async with serving.client(shop) as http:
        for path in ("/nothing", "/"):
            assert "/v1/openapi.json lists" in problem(await http.get(path), 404, "not-found")["detail"]
        assert "without --tick" in problem(await http.post("/tick"), 404, "not-found")["detail"]


async def test_a_service_without_an_application_says_so(shop: Holdfast) -> None:
    bearer = serving.token(shop)
    bare = Holdfast(shop.settings.dsn, schema=shop.settings.schema)
    async with serving.client(bare, bearer) as http:
        result = problem(await http.post("/jobs", json={"task": "shop.send"}), 422, "unknown-task")
    assert result["detail"] == (
        "no task named 'shop.send': this service was started without your application: holdfast serve MODULE:ATTRIBUTE"
    )
