"""Batches, dead letters, limits, queues, workers, the outbox and webhooks over HTTP."""

from __future__ import annotations

import uuid

import httpx
import pytest

from holdfast import Event, Holdfast
from holdfast.errors import ConfigurationError
from holdfast.store.call import Call
from holdfast.store.tokens import TokenCalls
from tests.support import serving
from tests.support.serving import Sql, http_fixture, json_body, operator_fixture, shop_fixture  # noqa: F401 - fixtures

UNKNOWN = "018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f"


def die(sql: Sql, error: str = '{"type": "app.Broken", "message": "no"}') -> None:
    sql("select fail(c.id, c.token, %s::jsonb, p_outcome => 'dead') from claim('w', '{default}', 100) c", [error])


async def test_a_batch_is_made_with_its_jobs_and_shows_its_end(
    shop: Holdfast, http: httpx.AsyncClient, sql: Sql
) -> None:
    jobs = [{"task": "shop.fail"}, {"task": "shop.send", "args": {"to": "a"}}, {"task": "shop.fail"}]
    made = json_body(await http.post("/batches", json={"name": "import", "jobs": jobs, "on_done": "shop.done"}), 201)
    info = json_body(await http.get(f"/batches/{made['id']}"))
    assert (info["name"], info["tenant"], info["total"], info["open"]) == ("import", "acme", 3, False)
    listed = json_body(await http.get("/jobs", params={"batch": made["id"]}))["items"]
    assert {job["id"] for job in listed} == set(made["jobs"])
    await shop.atick(queues=["default"])
    assert json_body(await http.get(f"/batches/{made['id']}"))["status"] == "succeeded"
    assert sql("select tenant, payload ->> 'batch' from live where task = 'shop.done'") == [("acme", made["id"])]


async def test_an_open_batch_takes_jobs_until_it_is_closed(http: httpx.AsyncClient) -> None:
    id_ = json_body(await http.post("/batches", json={"name": "b", "open": True}), 201)["id"]
    json_body(await http.post("/jobs", json={"task": "shop.fail", "batch": id_}), 201)
    assert json_body(await http.get(f"/batches/{id_}"))["open"] is True
    assert json_body(await http.post(f"/batches/{id_}/close"))["open"] is False
    assert json_body(await http.post(f"/batches/{id_}/cancel")) == {"changed": 1}
    assert json_body(await http.get(f"/batches/{id_}"))["status"] == "canceled"
    assert [each["id"] for each in json_body(await http.get("/batches"))["items"]] == [id_]


async def test_a_batch_that_cannot_be_made_whole_is_not_made(http: httpx.AsyncClient, sql: Sql) -> None:
    for wrong in (
        {"task": "nothing"},
        {"task": "shop.send"},
        {"task": "shop.fail", "tenant": "other"},
        {"task": "shop.fail", "batch": str(uuid.uuid4())},
    ):
        json_body(await http.post("/batches", json={"name": "b", "jobs": [{"task": "shop.fail"}, wrong]}), 422)
    json_body(await http.post("/batches", json={"name": "b", "on_done": "nothing"}), 422)
    assert sql("select (select count(*) from batches), (select count(*) from jobs)") == [(0, 0)]


async def test_a_repeated_batch_is_made_once(http: httpx.AsyncClient, sql: Sql) -> None:
    body = {"name": "b", "jobs": [{"task": "shop.fail"}]}
    responses = [
        json_body(await http.post("/batches", json=body, headers={"Idempotency-Key": "k"}), 201) for _ in range(2)
    ]
    assert responses[0] == responses[1]
    assert sql("select (select count(*) from batches), (select count(*) from jobs)") == [(1, 1)]


async def test_dead_jobs_are_listed_retried_and_discarded(http: httpx.AsyncClient, sql: Sql) -> None:
    ids = json_body(await http.post("/jobs/many", json={"jobs": [{"task": "shop.fail"}] * 5}), 201)["ids"]
    die(sql)
    assert [job["id"] for job in json_body(await http.get("/dead", params={"error": "Broken"}))["items"]] == ids[::-1]
    assert json_body(await http.get("/dead", params={"task": "shop.send"}))["items"] == []
    first = json_body(await http.post("/dead/retry", json={"ids": ids[:2]}))
    assert (sorted(first["ids"]), first["left"]) == (ids[:2], [])
    gone = json_body(await http.post("/dead/discard", json={"ids": [ids[4], ids[0]]}))
    assert gone == {"ids": [ids[4]], "left": [ids[0]]}
    assert len(json_body(await http.get("/dead"))["items"]) == 2
    assert json_body(await http.get("/actions"))["items"] == []


async def test_a_change_with_a_reason_is_kept_in_the_log(http: httpx.AsyncClient, sql: Sql) -> None:
    ids = json_body(await http.post("/jobs/many", json={"jobs": [{"task": "shop.fail"}] * 2}), 201)["ids"]
    die(sql)
    gone = json_body(await http.post("/dead/discard", json={"ids": [*ids, UNKNOWN], "reason": "sent by hand"}))
    assert (gone["ids"], gone["left"]) == (ids, [UNKNOWN])
    (log,) = json_body(await http.get("/actions", params={"kind": "discard"}))["items"]
    assert (log["by"], log["reason"], log["changed"]) == ("of acme", "sent by hand", 2)


async def test_what_operators_do_to_limits_is_kept_with_their_names(operator: httpx.AsyncClient) -> None:
    json_body(await operator.patch("/limits", json={"key": "host:a", "concurrency": 3, "reason": "slow"}))
    json_body(await operator.request("DELETE", "/limits", params={"key": "host:a", "reason": "fast again"}))
    json_body(await operator.post("/keys/pause", json={"key": "host:a", "reason": "down"}))
    json_body(await operator.post("/keys/resume", json={"key": "host:a", "reason": "up"}))
    json_body(await operator.post("/queues/done/pause"))
    json_body(await operator.post("/queues/done/resume"))
    log = json_body(await operator.get("/actions", params={"by": "of None"}))["items"]
    assert [(each["kind"], each["target"], each["reason"]) for each in log[::-1]] == [
        ("limits.set", "host:a", "slow"),
        ("limits.clear", "host:a", "fast again"),
        ("pause", "host:a", "down"),
        ("resume", "host:a", "up"),
        ("pause", "queue:done", None),
        ("resume", "queue:done", None),
    ]


async def test_a_worker_is_asked_to_stop(operator: httpx.AsyncClient, sql: Sql) -> None:
    sql("select register_worker('w-1', 'host', 1, '1', '{default}', 4, '[]')")
    assert json_body(await operator.post("/workers/w-1/stop", json={"reason": "it leaks"})) == {"id": "w-1"}
    (it,) = json_body(await operator.get("/workers"))["items"]
    assert (it["state"], it["stop_by"], it["stop_reason"]) == ("draining", "of None", "it leaks")
    assert json_body(await operator.post("/workers/w-/stop", json={"now": True})) == {"id": "w-1"}
    assert json_body(await operator.get("/workers"))["items"][0]["state"] == "stopping"
    assert "it may have ended" in json_body(await operator.post("/workers/nobody/stop"), 404)["detail"]
    log = json_body(await operator.get("/actions", params={"by": "of None"}))["items"]
    assert [(each["kind"], each["target"]) for each in log] == [("workers.stop", "w-1"), ("workers.drain", "w-1")]


async def test_a_tenant_stops_no_worker_and_sees_no_key(http: httpx.AsyncClient) -> None:
    json_body(await http.post("/workers/w/stop"), 403)
    json_body(await http.get("/keys", params={"key": "host:a"}), 403)


async def test_a_key_is_returned_with_what_its_breaker_did(operator: httpx.AsyncClient, sql: Sql) -> None:
    json_body(await operator.patch("/limits", json={"key": "host:a", "breaker_after": 2}))
    at = "clock() - interval '90 s'"
    sql(f"insert into breaker_events (key, at, event, failures, open_until) values ('host:a', {at}, 'opened', 2, {at})")
    sql("select record_breakers(array[('host:a', 'reset', 2, null)::breaker_change], 'ada', 'it is back')")
    found = json_body(await operator.get("/keys", params={"key": "host:a"}))
    assert (found["limit"]["key"], found["limit"]["breaker_after"]) == ("host:a", 2)
    last, first = found["breaker"]
    assert (first["event"], first["failures"], first["seconds"], first["by"]) == ("opened", 2, None, None)
    assert (last["event"], last["by"], last["reason"]) == ("reset", "ada", "it is back")
    assert 90 <= last["seconds"] < 150
    assert json_body(await operator.get("/keys", params={"key": "host:b"})) == {"limit": None, "breaker": []}


async def test_what_is_done_to_endpoints_and_batches_is_kept_with_names(
    operator: httpx.AsyncClient, http: httpx.AsyncClient
) -> None:
    new = {"url": "https://one.example.com", "reason": "new shop"}
    id_ = json_body(await operator.post("/webhooks/endpoints", json=new), 201)["id"]
    path = f"/webhooks/endpoints/{id_}"
    json_body(await operator.patch(path, json={"timeout": 5, "reason": "slow"}))
    json_body(await operator.post(f"{path}/rotate", json={"reason": "leaked"}))
    json_body(await operator.post(f"{path}/disable", json={"reason": "down"}))
    json_body(await operator.post(f"{path}/disable"))
    json_body(await operator.post(f"{path}/enable", json={"reason": "up"}))
    json_body(await operator.delete(path, params={"reason": "closed"}))
    batch = json_body(await http.post("/batches", json={"name": "b", "open": True}), 201)["id"]
    for _ in range(2):
        json_body(await http.post(f"/batches/{batch}/cancel", json={"reason": "wrong file"}))
    log = [each for each in json_body(await operator.get("/actions"))["items"] if each["kind"] != "tokens.create"][::-1]
    assert [(each["kind"], each["target"], each["by"], each["reason"]) for each in log] == [
        ("webhooks.add", id_, "of None", "new shop"),
        ("webhooks.change", id_, "of None", "slow"),
        ("webhooks.rotate", id_, "of None", "leaked"),
        ("webhooks.disable", id_, "of None", "down"),
        ("webhooks.enable", id_, "of None", "up"),
        ("webhooks.remove", id_, "of None", "closed"),
        ("batches.cancel", batch, "of acme", "wrong file"),
    ]
    assert "whsec_" not in str(log)


async def test_limits_are_looked_at_changed_and_cleared(operator: httpx.AsyncClient, sql: Sql) -> None:
    assert json_body(await operator.patch("/limits", json={"key": "host:a", "concurrency": 3}))["changed"] == 1
    (it,) = json_body(await operator.get("/limits", params={"prefix": "host:"}))["items"]
    assert (it["key"], it["concurrency"], it["changed_by"]) == ("host:a", 3, "of None")
    assert json_body(await operator.request("DELETE", "/limits", params={"key": "host:a"}))["changed"] == 1
    for wrong in ({"key": "host:a"}, {"key": "", "rate": 1}, {"key": "a", "concurrency": -1}, {"key": "a", "rte": 1}):
        json_body(await operator.patch("/limits", json=wrong), 422)


async def test_keys_and_queues_are_paused_and_resumed(operator: httpx.AsyncClient, sql: Sql) -> None:
    why = {"reason": "provider down", "seconds": 60}
    assert json_body(await operator.post("/queues/mail/pause", json=why))["changed"] == 1
    assert json_body(await operator.post("/queues/mail/pause")) == {"changed": 0}
    assert sql("select key, paused, paused_by from limit_settings") == [("queue:mail", True, "of None")]
    assert json_body(await operator.post("/queues/mail/resume")) == {"changed": 1}
    assert json_body(await operator.post("/keys/pause", json={"key": "tenant:acme", "reason": "late"})) == {
        "changed": 1
    }
    assert json_body(await operator.post("/keys/resume", json={"key": "tenant:acme"})) == {"changed": 1}
    assert json_body(await operator.post("/keys/reset", json={"key": "tenant:acme"})) == {"changed": 0}


async def test_operators_see_queues_workers_and_why_a_job_waits(operator: httpx.AsyncClient, sql: Sql) -> None:
    id_ = json_body(await operator.post("/jobs", json={"task": "shop.fail", "queue": "mail"}), 201)["id"]
    sql("select register_worker('w', 'h', 1, '1', '{mail}', 1, '[]')")
    assert [(q["queue"], q["ready"]) for q in json_body(await operator.get("/queues"))["items"]] == [("mail", 1)]
    assert [(w["id"], w["alive"]) for w in json_body(await operator.get("/workers"))["items"]] == [("w", True)]
    json_body(await operator.post("/queues/mail/pause"))
    assert "paused" in json_body(await operator.get(f"/jobs/{id_}/why"))["sentence"]
    json_body(await operator.get(f"/jobs/{uuid.uuid4()}/why"), 404)


async def test_paused_queues_are_shown_and_an_unknown_name_is_doubted(operator: httpx.AsyncClient) -> None:
    body = json_body(await operator.post("/queues/doen/pause", json={"reason": "first"}))
    assert body == {"changed": 1, "warning": "no worker has registered queue:doen yet; did you mean queue:done?"}
    assert json_body(await operator.post("/queues/doen/pause", json={"reason": "second", "seconds": 60})) == {
        "changed": 0
    }
    (it,) = json_body(await operator.get("/queues"))["items"]
    assert (it["queue"], it["ready"], it["paused"]["by"], it["paused"]["reason"]) == ("doen", 0, "of None", "second")
    assert it["paused"]["since"] < it["paused"]["until"]
    assert json_body(await operator.post("/queues/done/pause")) == {"changed": 1}
    body = json_body(await operator.post("/keys/pause", json={"key": "task:shop.fial"}))
    assert body["warning"].endswith("did you mean task:shop.fail?")


async def test_a_key_that_fits_no_rule_is_changed_with_a_warning(operator: httpx.AsyncClient, sql: Sql) -> None:
    doubt = (
        "hots:a matches no declared limit, and no job has been claimed under it yet; "
        "keys are queue:NAME, task:NAME, tenant:NAME"
    )
    assert json_body(await operator.post("/keys/pause", json={"key": "hots:a"})) == {"changed": 1, "warning": doubt}
    sql("delete from limit_settings")
    body = json_body(await operator.patch("/limits", json={"key": "hots:a", "concurrency": 1}))
    assert body == {"changed": 1, "warning": doubt}
    for known in ("hots:a", "host:a", "tenant:new"):
        assert "warning" not in json_body(await operator.patch("/limits", json={"key": known, "concurrency": 1}))
    assert json_body(await operator.post("/keys/pause", json={"key": "host:b"})) == {"changed": 1}


@pytest.mark.parametrize("path", ["/limits", "/queues", "/workers", f"/jobs/{UNKNOWN}/why"])
async def test_endpoints_about_all_tenants_refuse_a_tenants_token(http: httpx.AsyncClient, path: str) -> None:
    json_body(await http.get(path), 403)


async def test_messages_are_emitted_once_and_sent_again_when_they_died(http: httpx.AsyncClient, sql: Sql) -> None:
    body = {"channel": "email", "payload": {"to": "ada"}, "key": "invoice-7"}
    first = json_body(await http.post("/outbox", json=body), 201)
    assert json_body(await http.post("/outbox", json=body), 201) == {"id": first["id"], "existing": True}
    it = json_body(await http.get(f"/outbox/{first['id']}"))
    assert (it["tenant"], it["status"], it["payload"]) == ("acme", "pending", {"to": "ada"})
    json_body(await http.post(f"/outbox/{first['id']}/retry"), 409)
    sql("select fail(c.id, c.token, '{}', p_outcome => 'dead') from claim('w', '{outbox}') c")
    listed = json_body(await http.get("/outbox", params={"channel": "email", "status": "dead"}))["items"]
    assert [each["id"] for each in listed] == [first["id"]]
    json_body(await http.post(f"/outbox/{first['id']}/retry"))
    assert json_body(await http.get(f"/outbox/{first['id']}"))["status"] == "pending"
    json_body(await http.post("/outbox", json={**body, "channel": "no such name!"}), 422)


HOOK = {"url": "https://hooks.example.org/in", "events": ["order.*"]}


async def test_an_endpoint_is_made_changed_and_removed_and_its_secret_is_shown_once(http: httpx.AsyncClient) -> None:
    made = json_body(await http.post("/webhooks/endpoints", json=HOOK), 201)
    path = f"/webhooks/endpoints/{made['id']}"
    assert made["secret"].startswith("whsec_") and made["tenant"] == "acme"
    assert json_body(await http.get(path))["secret"] is None
    assert made["secret"] not in (await http.get("/webhooks/endpoints")).text
    changed = json_body(await http.patch(path, json={"timeout": 5, "events": None}))
    assert (changed["timeout"], changed["events"], changed["url"]) == (5, None, made["url"])
    for wrong in ({}, {"url": None}, {"url": "http://example.org"}, {"events": []}, {"timeout": 0}):
        json_body(await http.patch(path, json=wrong), 422)
    secret = json_body(await http.post(f"{path}/rotate", json={"keep_old_for": 60}))["secret"]
    assert secret != made["secret"] and json_body(await http.get(path))["secrets"] == 2
    assert json_body(await http.post(f"{path}/disable", json={"reason": "moves"})) == {"changed": 1}
    assert json_body(await http.get(path))["disabled_reason"] == "moves"
    assert json_body(await http.post(f"{path}/enable")) == {"changed": 1}
    assert json_body(await http.delete(path)) == {"changed": 1}
    json_body(await http.get(path), 404)


async def test_the_record_of_a_response_holds_no_secret(http: httpx.AsyncClient, sql: Sql) -> None:
    key = {"Idempotency-Key": "k"}
    first = json_body(await http.post("/webhooks/endpoints", json=HOOK, headers=key), 201)
    again = json_body(await http.post("/webhooks/endpoints", json=HOOK, headers=key), 201)
    assert again == {**first, "secret": None} and first["secret"]
    path = f"/webhooks/endpoints/{first['id']}/rotate"
    secret = json_body(await http.post(path, headers={"Idempotency-Key": "r"}))["secret"]
    assert json_body(await http.post(path, headers={"Idempotency-Key": "r"}))["secret"] is None
    kept = str(sql("select a::text from responses a"))
    assert secret not in kept and first["secret"] not in kept
    assert sql("select count(*) from webhook_endpoints") == [(1,)]


async def test_a_response_that_could_not_be_recorded_leaves_nothing_done(
    http: httpx.AsyncClient, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/webhooks/endpoints/{json_body(await http.post('/webhooks/endpoints', json=HOOK), 201)['id']}"
    monkeypatch.setattr(TokenCalls, "store_response", lambda *_: Call("select 1/0", (), list))
    for url in ("/webhooks/endpoints", f"{path}/rotate", f"{path}/test"):
        body = HOOK if url == "/webhooks/endpoints" else None
        assert (await http.post(url, json=body, headers={"Idempotency-Key": "k"})).is_error
    assert len(json_body(await http.get("/webhooks/endpoints"))["items"]) == 1
    assert json_body(await http.get(path))["secrets"] == 1
    assert json_body(await http.get("/webhooks/deliveries"))["items"] == []


async def test_private_addresses_are_not_for_tenants(http: httpx.AsyncClient, operator: httpx.AsyncClient) -> None:
    inside = {"url": "http://127.0.0.1:1/in", "dev": True, "tenant": "acme"}
    json_body(await http.post("/webhooks/endpoints", json=inside), 403)
    id_ = json_body(await operator.post("/webhooks/endpoints", json=inside), 201)["id"]
    json_body(await http.patch(f"/webhooks/endpoints/{id_}", json={"dev": True}), 403)
    json_body(await http.patch(f"/webhooks/endpoints/{id_}", json={"url": "http://127.0.0.1:2/admin"}), 403)
    json_body(await http.patch(f"/webhooks/endpoints/{id_}", json={"timeout": 3}))
    json_body(await http.patch(f"/webhooks/endpoints/{id_}", json={"url": "https://example.org/", "dev": False}))


async def test_events_are_published_to_the_tenants_endpoints_and_sent_again(http: httpx.AsyncClient) -> None:
    endpoint = json_body(await http.post("/webhooks/endpoints", json=HOOK), 201)["id"]
    new = {"type": "order.paid", "body": {"order": 7}, "key": "7"}
    first = json_body(await http.post("/webhooks/events", json=new), 201)
    assert len(first["deliveries"]) == 1
    assert json_body(await http.post("/webhooks/events", json=new), 201)["existing"] is True
    (it,) = json_body(await http.get("/webhooks/deliveries", params={"endpoint": endpoint}))["items"]
    assert (it["id"], it["event_type"], it["status"]) == (first["deliveries"][0], "order.paid", "PENDING")
    assert json_body(await http.get(f"/webhooks/deliveries/{it['id']}"))["body"] == '{"order":7}'
    json_body(await http.post(f"/jobs/{it['id']}/cancel"))
    again = json_body(await http.post(f"/webhooks/deliveries/{it['id']}/redeliver"))
    assert again["outcome"] == "copied" and again["delivery"] != it["id"]
    json_body(await http.post(f"/webhooks/deliveries/{uuid.uuid4()}/redeliver"), 404)
    assert json_body(await http.post(f"/webhooks/endpoints/{endpoint}/test"), 201)["id"]


async def test_the_service_needs_the_rights_of_its_role_and_no_others(hf: Holdfast, dsn: str) -> None:
    bearers = serving.token(hf), serving.token(hf, None)
    with serving.with_tasks(Holdfast(f"{dsn} options='-c role=holdfast_service'")) as least:
        async with serving.client(least, bearers[0]) as http, serving.client(least, bearers[1]) as operator:
            id_ = json_body(await http.post("/jobs", json={"task": "shop.send", "args": {"to": "a"}}), 201)["id"]
            for job in ({"delay": 60}, {"dedupe": {"key": "k"}}):
                json_body(
                    await http.post("/jobs", json={"task": "shop.fail", **job}, headers={"Idempotency-Key": str(job)}),
                    201,
                )
            json_body(await http.post("/jobs/many", json={"jobs": [{"task": "shop.fail"}] * 3}), 201)
            batch = json_body(await http.post("/batches", json={"name": "b", "jobs": [{"task": "shop.fail"}]}), 201)[
                "id"
            ]
            for path in (
                f"/jobs/{id_}",
                "/jobs",
                "/dead",
                "/batches",
                f"/batches/{batch}",
                "/outbox",
                "/health/ready",
                "/usage",
                "/webhooks/endpoints",
                "/webhooks/deliveries",
            ):
                json_body(await http.get(path))
            for path in (f"/jobs/{id_}/cancel", f"/batches/{batch}/cancel"):
                json_body(await http.post(path))
            json_body(await http.post("/dead/retry", json={"ids": [id_]}))
            json_body(await http.post("/outbox", json={"channel": "email", "payload": 1, "key": "k"}), 201)
            hook = json_body(await http.post("/webhooks/endpoints", json=HOOK), 201)["id"]
            json_body(await http.post("/webhooks/events", json={"type": "order.paid", "body": 1}), 201)
            for verb in ("rotate", "disable", "enable"):
                json_body(await http.post(f"/webhooks/endpoints/{hook}/{verb}"))
            for path in ("/limits", "/queues", "/workers", f"/jobs/{id_}/why", "/levels"):
                json_body(await operator.get(path))
            assert (await operator.get("/metrics")).status_code == 200
            json_body(await operator.patch("/limits", json={"key": "k", "concurrency": 1}))
            json_body(await operator.post("/queues/mail/pause"))
        with pytest.raises(ConfigurationError, match="may not do this"):
            await least.database.async_pool.run(
                least.database.calls.jobs.claim("w", ["default"], 1, 60, None, False, 1)
            )
        await least.aclose()


# -- deliveries are jobs, but not for tokens of jobs alone


@pytest.mark.parametrize("tenant", ["acme", None], ids=["of a tenant", "of all"])
async def test_tokens_for_jobs_alone_neither_see_nor_change_deliveries(
    shop: Holdfast, sql: Sql, tenant: str | None
) -> None:
    shop.webhooks.add("https://hook.example/path", tenant="acme")
    (dead,) = shop.webhooks.publish(None, Event("pay.made", {}, tenant="acme")).deliveries
    sql("select fail(c.id, c.token, '{}', p_outcome => 'dead') from claim('w', '{webhooks}') c")
    (waiting,) = shop.webhooks.publish(None, Event("pay.made", {}, tenant="acme")).deliveries
    mine = shop.registry.tasks["shop.fail"].using(tenant="acme").enqueue("x").id
    jobs_only = serving.token(shop, tenant, ["jobs:read", "jobs:write"])
    before = sql("select id, status::text, attempts from jobs order by id")
    async with serving.client(shop, jobs_only) as http:
        for path in (f"/jobs/{waiting}", f"/jobs/{dead}", f"/jobs/{waiting}?wait=1", f"/jobs/{waiting}/events"):
            assert (await http.get(path)).status_code == 404
        for path in ("/jobs?limit=50", "/jobs?task=holdfast.webhook", "/dead", "/dead?task=holdfast.webhook"):
            response = await http.get(path)
            assert response.status_code == 200 and waiting not in response.text and dead not in response.text
        assert [each["id"] for each in json_body(await http.get("/jobs"))["items"]] == [mine]
        for path in (f"/jobs/{waiting}/cancel", f"/jobs/{dead}/retry"):
            assert (await http.post(path)).status_code == 404
        body = json_body(await http.post("/jobs/cancel", json={"ids": [waiting, dead]}))
        assert {each["outcome"] for each in body["items"]} == {"unknown"}
        for move in ("retry", "discard"):
            assert json_body(await http.post(f"/dead/{move}", json={"ids": [dead]}))["ids"] == []
            body = {"kind": move, "filter": {"task": "holdfast.webhook"}}
            assert json_body(await http.post("/actions", json=body), 201)["changed"] == 0
        if tenant is None:
            assert (await http.get(f"/jobs/{waiting}/why")).status_code == 404
    assert sql("select id, status::text, attempts from jobs order by id") == before


async def test_tokens_for_jobs_and_webhooks_see_and_change_deliveries_as_jobs(
    shop: Holdfast, http: httpx.AsyncClient
) -> None:
    shop.webhooks.add("https://hook.example/path", tenant="acme")
    (delivery,) = shop.webhooks.publish(None, Event("pay.made", {}, tenant="acme")).deliveries
    assert json_body(await http.get(f"/jobs/{delivery}"))["task"] == "holdfast.webhook"
    reads = serving.token(shop, "acme", ["jobs:read", "jobs:write", "webhooks:read"])
    async with serving.client(shop, reads) as other:
        assert [each["id"] for each in json_body(await other.get("/jobs"))["items"]] == [delivery]
        assert (await other.post(f"/jobs/{delivery}/cancel")).status_code == 404
    assert json_body(await http.post(f"/jobs/{delivery}/cancel"))["outcome"] == "canceled"
