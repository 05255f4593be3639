"""The way of a request: its route, checks before and after the body, and mounting in other frameworks' applications."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from holdfast import Holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.store.wire.pools_async import AsyncPool
from holdfast.web import app
from holdfast.web.problems import Problem
from holdfast.web.routing import Router, Routes
from tests.support import serving
from tests.support.serving import Sql, http_fixture, shop_fixture  # noqa: F401 - fixtures

JSON = {"Content-Type": "application/json"}
NOBODYS = str(uuid.UUID(int=7))
NESTED = b"[" * 30_000 + b"]" * 30_000
DEEP = b'{"task":"shop.send","args":{"to":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


def test_a_route_is_found_by_its_whole_path_then_by_a_pattern() -> None:
    routes = Routes("/things", "things")

    async def act(ctx: Any) -> None: ...

    async def one(ctx: Any, thing: str) -> None: ...

    routes.post("/many", None)(act)
    routes.get("/{thing}", None)(one)
    routes.post("/{thing}/close", None)(one)
    router = Router(routes.all)
    assert router.find("POST", "/v1/things/many")[0].act is act
    assert router.find("GET", "/v1/things/many")[1] == {"thing": "many"}
    assert router.find("POST", "/v1/things/7/close")[1] == {"thing": "7"}
    for method, path, status in (
        ("PUT", "/v1/things/many", 405),
        ("GET", "/v1/things/7/close", 405),
        ("GET", "/v1/things/", 404),
        ("GET", "/v1/things/7/8", 404),
        ("GET", "/", 404),
    ):
        with pytest.raises(Problem) as caught:
            router.find(method, path)
        assert caught.value.status == status, path
    with pytest.raises(Problem) as caught:
        router.find("PUT", "/v1/things/many")
    assert caught.value.headers == {"Allow": "GET, POST"}


NEW = b'{"task":"shop.send","args":{"to":"ada"}}'
REFUSED = {
    "unknown task": (b'{"task":"shop.nothing"}', "no task named 'shop.nothing'"),
    "unknown argument": (b'{"task":"shop.send","args":{"to":"ada","cc":"bob"}}', "cc"),
    "wrong type": (b'{"task":"shop.send","args":{"to":7}}', "to"),
    "unknown field": (b'{"task":"t","when":"now"}', "body.when: no such field; known: args"),
    "another tenant": (NEW[:-1] + b',"tenant":"globex"}', "the token belongs to another tenant"),
    "an unknown batch": (NEW[:-1] + b',"batch":"%b"}' % NOBODYS.encode(), f"there is no batch {NOBODYS}"),
    "not a number": (b'{"task":"t","args":{"a":NaN}}', "body: not JSON in UTF-8, or it contains NaN"),
    "no JSON": (b'{"task":', "body: not JSON at character 8"),
    "no text": (b'\xff\xfe{"task"', "body: "),
    "nothing": (b"", "body: send a JSON object with task"),
    "a list": (b"[]", "body: send a JSON object with task"),
    "a list of arguments": (b'{"task":"shop.send","args":[]}', "body: args: expected object"),
    "a word of a set": (b'{"task":"t","dedupe":{"key":"k","scope":"x"}}', "'running', 'success', got 'x'"),
    "a nested field": (b'{"task":"t","dedupe":{"key":"k","sope":"x"}}', "body.dedupe: no such field 'sope'"),
    "no zone": (b'{"task":"t","run_at":"2030-01-01T00:00:00"}', "body.run_at: expected datetime with a time"),
    "far away": (b'{"task":"t","run_at":"2630-01-01T00:00:00Z"}', "between the years 1970 and 2200, got '2630"),
    "a NUL": (b'{"task":"t\\u0000"}', "body.task: contains a NUL, which PostgreSQL cannot store"),
    "a slash": (b'{"task":"t","queue":"a/b"}', "body.queue: may not contain a slash, got 'a/b'"),
    "a clash": (b'{"task":"t","dedupe":{"key":"k","keep":1}}', "body.dedupe: keep goes with scope 'success'"),
    "two": (b'{"task":7,"delay":-1}', "body.task: expected str, got 7; body.delay: expected float >= 0.0, got -1"),
    "a misspelling": (b'{"task":"t","tsak":{}}', "body.tsak: no such field; did you mean 'task'?"),
    "very deep": (DEEP, ""),
    "very deep in a field with a type": (b'{"task":"t","queue":' + NESTED + b"}", "body"),
    "very deep behind a wrong value": (b'{"task":7,"dedupe":' + NESTED + b"}", "body"),
    "no JSON behind a wrong value": (b'{"task":7,', "body: not JSON at character 10"),
}


@pytest.mark.parametrize(("body", "detail"), REFUSED.values(), ids=REFUSED)
async def test_a_body_that_cannot_work_is_refused_with_the_place_and_the_value(
    http: httpx.AsyncClient, sql: Sql, body: bytes, detail: str
) -> None:
    response = await http.post("/jobs", content=body, headers=JSON)
    assert 400 <= response.status_code < 500, response.text
    assert detail in response.json()["detail"]
    assert sql("select count(*) from live") == [(0,)]


async def test_of_a_list_the_wrong_item_is_named(http: httpx.AsyncClient) -> None:
    response = await http.post(
        "/jobs/many", json={"jobs": [{"task": "shop.fail"}, {"task": "shop.fail", "delay": "x"}]}
    )
    detail = serving.problem(response, 422, "invalid")["detail"]
    assert detail == "body.jobs.1.delay: expected float | null, got 'x'"


async def test_the_scope_is_checked_before_the_body_is_read(shop: Holdfast) -> None:
    reader = serving.token(shop, scopes=["jobs:read"])
    async with serving.client(shop, reader) as http:
        response = await http.post("/jobs", content=b"nonsense", headers=JSON)
        serving.problem(response, 403, "missing-scope")


async def test_a_token_that_is_revoked_while_the_body_comes_makes_no_job(hf: Holdfast, dsn: str, sql: Sql) -> None:
    strict = serving.with_tasks(Holdfast(dsn, token_cache=0.0))
    bearer, info = hf.tokens.create("x", tenant="acme", scopes=["jobs:write"])
    body = b'{"task":"shop.send","args":{"to":"ada"}}'

    async def slow() -> Any:
        yield body[:9]
        await asyncio.to_thread(hf.tokens.revoke, info.id)
        yield body[9:]

    async with serving.client(strict, bearer) as http:
        response = await http.post("/jobs", content=slow(), headers=JSON | {"Content-Length": str(len(body))})
        serving.problem(response, 401, "unauthorized")
    assert sql("select count(*) from live") == [(0,)]
    await strict.aclose()


async def test_a_client_that_leaves_in_the_middle_of_its_body_makes_no_job(shop: Holdfast, sql: Sql) -> None:
    messages: list[Message] = [
        {"type": "http.request", "body": b'{"task":"shop.fail"}', "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"authorization", f"Bearer {serving.token(shop)}".encode()), (b"content-length", b"99")]
    scope = {"type": "http", "method": "POST", "path": "/v1/jobs", "query_string": b"", "headers": headers}
    await app(shop)(scope, receive, send)
    assert sent[0]["status"] == 400 and sql("select count(*) from live") == [(0,)]


async def test_a_body_longer_than_it_says_is_refused_as_too_long(shop: Holdfast) -> None:
    """Servers that let a length through beside chunks."""
    small = serving.with_tasks(Holdfast(shop.settings.dsn, max_body=1024))
    body = b'{"task":"shop.send","args":{"to":"%b"}}' % (b"a" * 2000)
    async with serving.client(small, serving.token(shop)) as http:
        both = JSON | {"Content-Length": "3", "Transfer-Encoding": "chunked"}
        serving.problem(await http.post("/jobs", content=body, headers=both), 413, "too-large")
    await small.aclose()


async def test_a_job_whose_fate_is_not_known_is_not_sent_again(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []

    async def lost(self: AsyncPool, call: Any, conn: Any = None) -> Any:
        if call.job is None:  # the token
            return await run(self, call, conn)
        sent.append(call.job.id)
        raise DatabaseUnavailable("the response was lost")

    run = AsyncPool.run

    monkeypatch.setattr(AsyncPool, "run", lost)
    response = await http.post("/jobs", json={"task": "shop.send", "args": {"to": "ada"}})
    serving.problem(response, 503, "unavailable")
    assert len(sent) == 1


async def test_a_websocket_is_closed(shop: Holdfast) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(shop)({"type": "websocket", "path": "/v1/jobs", "headers": []}, receive, send)
    assert [each["type"] for each in sent] == ["websocket.close"]
