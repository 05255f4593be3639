"""No tenant sees, changes or learns of another tenant's data: every endpoint, with canaries."""

from __future__ import annotations

import random
import re
from typing import Any

import httpx

from holdfast import Holdfast
from holdfast.web import app
from tests.support import serving
from tests.support.serving import Sql, shop_fixture  # noqa: F401 - a fixture

TENANTS = ("ada", "bob", "eve")
# Everything that could reveal a change, or rows: what a tenant does must leave other tenants' values unchanged.
STATE = """
    select 'job', j.id::text, (to_jsonb(j) - 'heartbeat_at')::text from jobs j where tenant = any (%s)
    union all select 'batch', b.id::text, b::text from batch_progress b where tenant = any (%s)
    union all select 'endpoint', e.id::text, e::text from webhook_endpoints e where tenant = any (%s)
    union all select 'signal', s.name, s::text from signals s where tenant = any (%s) order by 1, 2"""
BODIES: dict[str, Any] = {
    "POST /v1/jobs": {"task": "shop.fail"},
    "POST /v1/jobs/many": {"jobs": [{"task": "shop.fail"}]},
    "POST /v1/jobs/cancel": "ids",
    "POST /v1/jobs/{job_id}/edit": {"args": {"why": "edited"}},
    "POST /v1/actions": {"kind": "discard", "filter": {"queue": "doomed"}},
    "POST /v1/actions/preview": {"kind": "discard", "filter": {"queue": "doomed"}},
    "POST /v1/dead/retry": "ids",
    "POST /v1/dead/discard": "ids",
    "POST /v1/batches": {"name": "b", "jobs": [{"task": "shop.fail"}]},
    "POST /v1/signals": {"name": "ready", "value": 1},
    "POST /v1/outbox": {"channel": "email", "payload": 1, "key": "k"},
    "POST /v1/webhooks/endpoints": {"url": "https://example.org/"},
    "PATCH /v1/webhooks/endpoints/{endpoint_id}": {"timeout": 3},
    "POST /v1/webhooks/events": {"type": "order.paid", "body": {}},
    "PATCH /v1/limits": {"key": "k", "concurrency": 1},
    "POST /v1/keys/pause": {"key": "k"},
    "POST /v1/keys/resume": {"key": "k"},
    "POST /v1/keys/reset": {"key": "k"},
}
OPERATORS = re.compile(r"/v1/(limits|keys|queues|workers|metrics|levels|figures)|/why$")


class World:
    """What three tenants have: things of every kind, with a word in each that no other tenant may read."""

    def __init__(self, shop: Holdfast, sql: Sql) -> None:
        self.ids: dict[str, dict[str, list[str]]] = {each: {} for each in TENANTS}
        for tenant in TENANTS:
            self._fill(shop, sql, tenant)

    @staticmethod
    def canary(tenant: str) -> str:
        return f"canary-of-{tenant}"

    def _fill(self, shop: Holdfast, sql: Sql, tenant: str) -> None:
        word, fail = self.canary(tenant), shop.registry.tasks["shop.fail"].using(tenant=tenant)
        dead = fail.using(queue="doomed").enqueue(word)
        sql(
            "select fail(c.id, c.token, %s::jsonb, p_outcome => 'dead') from claim('w', '{doomed}') c",
            [f'{{"message": "{word}"}}'],
        )
        canceled, waiting, later = fail.enqueue(word), fail.enqueue(word), fail.using(delay=600).enqueue(word)
        shop.jobs.cancel(canceled.id)
        with shop.batch(word, tenant=tenant) as batch:
            fail.using(batch=batch).enqueue(word)
        endpoint = shop.webhooks.add(f"https://example.org/{word}", tenant=tenant, description=word)
        event = {"type": "order.paid", "body": {"word": word}, "tenant": tenant}
        from holdfast.model.webhook import Event

        delivery = shop.webhooks.publish(None, Event(**event)).deliveries[0]
        sql("insert into usage_counts values (clock(), %s, %s, 1, 1, 0, 1, 1)", [tenant, f"task.{word}"])
        message = shop.outbox.emit(None, "email", {"word": word}, key=word, tenant=tenant)
        start = "select start_action('retry', '{\"queue\": \"nothing\"}', p_reason => %s, p_tenant => %s)::text"
        action = sql(start, [word, tenant])[0][0]
        self.ids[tenant] = {
            "action_id": [action],
            "fingerprint": [row[0] for row in sql("select fingerprint from dead where id = %s", [dead.id])],
            "job_id": [dead.id, canceled.id, waiting.id, later.id, delivery, message.id],
            "batch_id": [batch.id],
            "message_id": [message.id],
            "endpoint_id": [endpoint.id],
            "delivery_id": [delivery],
            "dead": [dead.id],
        }

    def every(self, *tenants: str) -> set[str]:
        return {id_ for tenant in tenants for some in self.ids[tenant].values() for id_ in some}


def endpoints(shop: Holdfast) -> list[tuple[str, str]]:
    """Return every method and path of the service."""
    paths = app(shop).openapi()["paths"]
    return [(method.upper(), path) for path, ways in sorted(paths.items()) for method in sorted(ways)]


def test_every_endpoint_with_a_body_is_tried_below(shop: Holdfast) -> None:
    """A new endpoint needs an entry here, or it is not tried for leaks."""
    described = app(shop).openapi()["paths"]
    needs = {
        f"{method.upper()} {path}"
        for path, ways in described.items()
        for method, way in ways.items()
        if way.get("requestBody", {}).get("required")
    }
    assert needs == set(BODIES)


async def test_no_endpoint_shows_or_changes_anything_of_another_tenant(
    shop: Holdfast, sql: Sql, seeded: random.Random
) -> None:
    world = World(shop, sql)
    me = seeded.choice(TENANTS)
    others = [each for each in TENANTS if each != me]
    before = sql(STATE, [others] * 4)
    hidden = {*map(world.canary, others), *world.every(*others)}
    tried = 0
    async with serving.client(shop, serving.token(shop, me)) as http:
        for method, path in endpoints(shop):
            for victim in others:
                for request in requests(method, path, world, victim):
                    response = await http.request(**request)
                    check(response, request, hidden)
                    tried += 1
    assert tried > 150
    assert sql(STATE, [others] * 4) == before


def requests(method: str, path: str, world: World, victim: str) -> list[dict[str, Any]]:
    """Return requests that name another tenant's things in every possible place."""
    foreign = world.ids[victim]
    name = next(iter(re.findall(r"{(\w+)}", path)), None)
    body = BODIES.get(f"{method} {path}")
    if body == "ids":
        body = {"ids": foreign["job_id"]}
    params: dict[str, str] = {"tenant": victim, "limit": "500"} if method == "GET" and name is None else {}
    if method == "DELETE" and name is None:
        params = {"key": "k"}
    made = [
        {"method": method, "url": re.sub(r"{\w+}", id_, path).removeprefix("/v1"), "json": body, "params": params}
        for id_ in (foreign.get(name, ["default"]) if name else [""])
    ]
    if "/actions" in path and isinstance(body, dict):
        made.append({**made[0], "json": {**body, "filter": {"tenant": victim}}})
        made.append({**made[0], "json": {**body, "filter": {"batch": foreign["batch_id"][0]}}})
        made.append({**made[0], "json": {"kind": "discard", "ids": foreign["job_id"]}})
    if method == "GET" and name is None:  # lists also without an owner, and by the ids of other tenants
        made.append({**made[0], "params": {}})
        made.append({**made[0], "params": {"batch": foreign["batch_id"][0]}})
        made.append({**made[0], "params": {"endpoint": foreign["endpoint_id"][0]}})
    if isinstance(body, dict) and method == "POST" and name is None and not OPERATORS.search(path):
        made.append({**made[0], "json": {**body, "tenant": victim}})
        made.append({**made[0], "json": {**body, "batch": foreign["batch_id"][0]}})
    return made


def check(response: httpx.Response, request: dict[str, Any], hidden: set[str]) -> None:
    sent = f"{request['url']} {request['json']} {request['params']}"
    assert response.status_code < 500, (request, response.text)
    text = response.text + str(response.headers)
    # An error may repeat what the request itself named; nothing else.
    assert [word for word in hidden if word in text and word not in sent] == [], request
    if OPERATORS.search("/v1" + request["url"]):
        assert response.status_code == 403, request
    elif re.search(r"/[0-9a-f]{8}-", request["url"]):
        assert response.status_code == 404, (request, response.text)
        assert response.json()["type"].endswith(":not-found")


async def test_a_foreign_id_and_an_unknown_one_get_the_same_response(shop: Holdfast, sql: Sql) -> None:
    world = World(shop, sql)
    nobodys = "00000000-0000-7000-8000-000000000000"
    async with serving.client(shop, serving.token(shop, "ada")) as http:
        for method, path in endpoints(shop):
            name = next(iter(re.findall(r"{(\w+)}", path)), None)
            if name in (None, "queue") or OPERATORS.search(path):
                continue
            responses = []
            for id_ in (nobodys, world.ids["bob"][name][0]):
                url = path.replace("{" + name + "}", id_).removeprefix("/v1")
                response = await http.request(method, url, json=BODIES.get(f"{method} {path}"))
                responses.append((response.status_code, response.text.replace(id_, "ID")))
            assert responses[0] == responses[1] and responses[0][0] == 404, (method, path)


async def test_each_tenant_finds_all_that_is_its_own(shop: Holdfast, sql: Sql) -> None:
    world = World(shop, sql)
    for tenant in TENANTS:
        async with serving.client(shop, serving.token(shop, tenant)) as http:
            for kind, path in [
                ("job_id", "/jobs"),
                ("batch_id", "/batches"),
                ("message_id", "/outbox"),
                ("endpoint_id", "/webhooks/endpoints"),
                ("delivery_id", "/webhooks/deliveries"),
                ("dead", "/dead"),
                ("action_id", "/actions"),
                ("fingerprint", "/errors"),
            ]:
                text = (await http.get(path)).text
                assert [id_ for id_ in world.ids[tenant][kind] if id_ not in text] == [], path
            assert world.canary(tenant) in (await http.get("/usage")).text


async def test_without_a_token_only_health_endpoints_respond(shop: Holdfast) -> None:
    async with serving.client(shop) as http:
        for method, path in endpoints(shop):
            url = re.sub(r"{\w+}", "00000000-0000-7000-8000-000000000000", path).removeprefix("/v1")
            response = await http.request(method, url, json=BODIES.get(f"{method} {path}"))
            assert response.status_code == (200 if "/health/" in path else 401), (method, path)
