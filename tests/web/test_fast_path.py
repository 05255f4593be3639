"""The fast path past the framework: it responds as the framework would, and takes only what it is sure of."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from holdfast import Holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.web import app
from holdfast.web.fast_path import FastPath
from holdfast.web.service import Service
from tests.support import serving
from tests.support.serving import Sql, http_fixture, shop_fixture  # noqa: F401 - fixtures

JSON = {"Content-Type": "application/json"}
LONG_WAY = {"Content-Type": "application/json; charset=utf-8"}
NOBODYS = str(uuid.UUID(int=7))
DEEP = b'{"task":"shop.send","args":{"to":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"


@pytest.fixture(name="long_ways")
def long_ways_fixture(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the requests that reached the framework."""
    calls: list[str] = []
    begin = FastPath.__init__

    def counting(self: FastPath, inner: Any, **options: Any) -> None:
        async def counted(scope: Any, receive: Any, send: Any) -> None:
            calls.append(scope.get("path", ""))
            await inner(scope, receive, send)

        begin(self, counted, **options)

    monkeypatch.setattr(FastPath, "__init__", counting)
    return calls


async def ready(http: httpx.AsyncClient, long_ways: list[str]) -> str:
    """Return the id of a new job; its token is remembered from then on."""
    made = serving.json_body(await http.post("/jobs", json={"task": "shop.send", "args": {"to": "ada"}}), 201)
    assert long_ways == []
    return str(made["id"])


def same(quick: httpx.Response, long: httpx.Response) -> None:
    assert (quick.status_code, dict(quick.headers), quick.content) == (
        long.status_code,
        dict(long.headers),
        long.content,
    )


async def test_the_fast_path_responds_to_a_read_as_the_framework_would(
    long_ways: list[str], http: httpx.AsyncClient
) -> None:
    id_ = await ready(http, long_ways)
    quick = await http.get(f"/jobs/{id_}")
    assert quick.status_code == 200 and quick.headers["etag"] and long_ways == []
    same(quick, await http.get(f"/jobs/{id_}?wait=0"))
    known = {"If-None-Match": quick.headers["etag"]}
    long_ways.clear()
    assert (await http.get(f"/jobs/{id_}", headers=known)).status_code == 304 and long_ways == []
    same(await http.get(f"/jobs/{id_}", headers=known), await http.get(f"/jobs/{id_}?wait=0", headers=known))
    same(await http.get(f"/jobs/{NOBODYS}"), await http.get(f"/jobs/{NOBODYS}?wait=0"))


async def test_a_job_is_made_past_the_framework(long_ways: list[str], http: httpx.AsyncClient, sql: Sql) -> None:
    await ready(http, long_ways)
    body = {"task": "shop.send", "args": {"to": "bob"}, "priority": 0}
    quick, long = await http.post("/jobs", json=body), await http.post("/jobs", json=body, headers=LONG_WAY)
    assert long_ways == ["/v1/jobs"] and quick.status_code == long.status_code == 201
    assert quick.headers == long.headers and quick.json().keys() == long.json().keys()
    assert sql("select tenant, priority, payload #>> '{to}' from live where priority = 0") == [("acme", 0, "bob")] * 2


REFUSED = {
    "unknown task": b'{"task":"shop.nothing"}',
    "unknown argument": b'{"task":"shop.send","args":{"to":"ada","cc":"bob"}}',
    "wrong type": b'{"task":"shop.send","args":{"to":7}}',
    "unknown field": b'{"task":"shop.send","args":{"to":"ada"},"when":"now"}',
    "another tenant": b'{"task":"shop.send","args":{"to":"ada"},"tenant":"globex"}',
    "an unknown batch": b'{"task":"shop.send","args":{"to":"ada"},"batch":"%b"}' % NOBODYS.encode(),
    "not a number": b'{"task":"shop.send","args":{"to":"ada","copies":NaN}}',
    "no JSON": b'{"task":',
    "no text": b'\xff\xfe{"task"',
    "nothing": b"",
    "a list": b"[]",
    "very deep": DEEP,
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
async def test_refusals_have_the_same_message(
    long_ways: list[str], http: httpx.AsyncClient, sql: Sql, body: bytes
) -> None:
    await ready(http, long_ways)
    quick = await http.post("/jobs", content=body, headers=JSON)
    assert 400 <= quick.status_code < 500, quick.text
    same(quick, await http.post("/jobs", content=body, headers=LONG_WAY))
    assert sql("select count(*) from live") == [(1,)]


async def test_unusual_requests_go_through_the_framework(
    long_ways: list[str], shop: Holdfast, http: httpx.AsyncClient
) -> None:
    id_ = await ready(http, long_ways)
    body = b'{"task":"shop.send","args":{"to":"ada"}}'

    async def in_pieces() -> Any:
        yield body[:9]
        yield body[9:]

    assert (await http.get(f"/jobs/{id_.upper()}")).status_code == 200
    assert (await http.get(f"/jobs/{id_}/events", headers={"Accept": "x"}, params={"stray": "1"})).status_code == 422
    assert (await http.post("/jobs", content=in_pieces(), headers=JSON)).status_code == 201
    assert (await http.post("/jobs", content=body, headers=JSON | {"Idempotency-Key": "k"})).status_code == 201
    assert (await http.delete(f"/jobs/{id_}")).status_code == 405
    assert len(long_ways) == 5
    reader = serving.token(shop, scopes=["jobs:read"])
    for _ in range(2):  # the second time the token is remembered, and still not for this
        response = await http.post("/jobs", content=body, headers=JSON | {"Authorization": f"Bearer {reader}"})
        serving.problem(response, 403, "missing-scope")


async def test_a_revoked_token_is_not_remembered_for_ever(
    long_ways: list[str], shop: Holdfast, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await ready(http, long_ways)
    shop.tokens.revoke(next(each.id for each in shop.tokens.list()))
    later = [0.0]
    monkeypatch.setattr("holdfast.web.service.time.monotonic", lambda: later[0])
    later[0] = 1e9
    serving.problem(await http.get(f"/jobs/{id_}"), 401, "unauthorized")


async def test_a_token_that_is_revoked_while_the_body_comes_makes_no_job(
    long_ways: list[str], shop: Holdfast, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, sql: Sql
) -> None:
    await ready(http, long_ways)
    body, later = b'{"task":"shop.send","args":{"to":"ada"}}', [0.0]
    monkeypatch.setattr("holdfast.web.service.time.monotonic", lambda: later[0] or time.perf_counter())

    async def slow() -> Any:
        yield body[:9]
        await asyncio.to_thread(shop.tokens.revoke, next(each.id for each in shop.tokens.list()))
        later[0] = 1e9
        yield body[9:]

    response = await http.post("/jobs", content=slow(), headers=JSON | {"Content-Length": str(len(body))})
    serving.problem(response, 401, "unauthorized")
    assert sql("select count(*) from live") == [(1,)]


async def test_a_body_longer_than_it_says_is_refused_as_too_long(
    long_ways: list[str], shop: Holdfast, sql: Sql
) -> None:
    """Servers that let a length through beside chunks."""
    shop.settings = shop.settings.with_(max_body=1024)
    async with serving.client(shop, serving.token(shop)) as http:
        await ready(http, long_ways)
        both = JSON | {"Content-Length": "3", "Transfer-Encoding": "chunked"}
        response = await http.post(
            "/jobs", content=b'{"task":"shop.send","args":{"to":"%b"}}' % (b"a" * 2000), headers=both
        )
        serving.problem(response, 413, "too-large")


async def test_a_job_whose_fate_is_not_known_is_not_sent_again(
    long_ways: list[str], http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(http, long_ways)
    sent = []

    async def lost(self: Service, job: Any, caller: Any) -> None:
        sent.append(job.id)
        raise DatabaseUnavailable("the answer was lost")

    monkeypatch.setattr(Service, "enqueue", lost)
    response = await http.post("/jobs", json={"task": "shop.send", "args": {"to": "ada"}})
    serving.problem(response, 503, "unavailable")
    assert len(sent) == 1 and long_ways == []


async def test_requests_on_the_fast_path_are_counted_by_route(long_ways: list[str], shop: Holdfast) -> None:
    async with serving.client(shop, serving.token(shop, None)) as http:
        id_ = await ready(http, long_ways)
        await http.get(f"/jobs/{id_}")
        await http.post("/jobs", json={"task": "shop.send", "args": {"to": "bob"}})
        assert long_ways == []
        text = (await http.get("/metrics")).text
    for route, number in (("GET /v1/jobs/{job_id}", 1), ("POST /v1/jobs", 2)):
        assert f'holdfast_http_request_duration_seconds_count{{route="{route}"}} {number}.0' in text.splitlines()


async def test_inside_another_application_it_is_found_too(long_ways: list[str], shop: Holdfast) -> None:
    outer = FastAPI()
    outer.mount("/holdfast", app(shop))
    bearer = {"Authorization": f"Bearer {serving.token(shop)}"}
    transport = httpx.ASGITransport(outer)
    async with httpx.AsyncClient(transport=transport, base_url="http://it/holdfast/v1", headers=bearer) as http:
        made = serving.json_body(await http.post("/jobs", json={"task": "shop.send", "args": {"to": "ada"}}), 201)
        long_ways.clear()
        assert (await http.get(f"/jobs/{made['id']}")).status_code == 200
        assert (await http.post("/jobs", json={"task": "shop.send", "args": {"to": "bob"}})).status_code == 201
        assert long_ways == []
