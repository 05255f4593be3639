"""What a client may cost: checked before its body is read, and bounded in bytes, time and number."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest
from starlette.types import Message, Receive, Scope, Send

from holdfast import Holdfast
from holdfast.store.select import PAGE_BYTES
from holdfast.web import app, guard, waiting
from holdfast.web.guard import Bounds, Guard
from holdfast.web.pages import MOST_PAGES, Pages
from tests.support import serving
from tests.support.serving import Sql, http_fixture, json_body, problem, shop_fixture  # noqa: F401 - fixtures

JSON = {"Content-Type": "application/json"}
SECRET = "0123456789abcdef"
MB = 1_048_576


def scope_of(method: str = "POST", path: str = "/v1/jobs", **headers: str) -> Scope:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": raw,
        "http_version": "1.1",
        "asgi": {"version": "3.0"},
        "scheme": "http",
        "server": ("x", 1),
        "client": ("x", 2),
    }


async def respond(application: Any, scope: Scope, receive: Receive) -> tuple[int, dict[bytes, bytes]]:
    """Send a request and return the status and the headers of its response."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await application(scope, receive, send)
    assert sent[-1]["type"] == "http.response.body" and not sent[-1].get("more_body")
    return sent[0]["status"], dict(sent[0]["headers"])


@pytest.mark.parametrize("bearer", ["", "Bearer hf_wrong", "Basic x"])
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/many", "/v1/tick", "/v1/limits", "/v1/webhooks/endpoints"])
async def test_without_a_token_no_byte_of_a_body_is_read_before_the_response(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch, bearer: str, path: str
) -> None:
    monkeypatch.setattr(guard, "LINGER", 0.01)
    events: list[Any] = []  # checked at the end: the framework handles errors raised while it reads a body

    async def receive() -> Message:
        events.append("read")
        return {"type": "http.request", "body": b"{}", "more_body": True}

    async def send(message: Message) -> None:
        events.append((message.get("status"), dict(message.get("headers", ())).get(b"connection")))

    scope = scope_of("PATCH" if path == "/v1/limits" else "POST", path, content_length="9", authorization=bearer)
    secret = Holdfast(shop.settings.dsn, tick_secrets=SECRET, max_body=1024)
    await app(serving.with_tasks(secret), tick_endpoint=True)(scope, receive, send)
    await secret.aclose()
    assert events[:2] == [(401, b"close"), (None, None)] and "read" in events[2:]


async def test_malformed_json_without_a_token_is_401(shop: Holdfast) -> None:
    async with serving.client(shop) as stranger:
        for body in (b"{", b"{}", b"[1]", b"\xff"):
            problem(await stranger.post("/jobs", content=body, headers=JSON), 401, "unauthorized")


@pytest.mark.parametrize(
    "headers", [{f"x-{n}": "" for n in range(guard.HEADERS + 1)}, {"x": "a" * guard.HEADER_BYTES}], ids=["many", "long"]
)
async def test_a_header_is_bounded_by_any_server(shop: Holdfast, headers: dict[str, str]) -> None:
    async with serving.client(shop, serving.token(shop)) as http:
        problem(await http.get("/jobs", headers=headers), 431, "header-too-large")


async def test_a_body_that_does_not_come_in_time_is_refused(shop: Holdfast) -> None:
    bearer = serving.token(shop)

    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    hasty = serving.with_tasks(Holdfast(shop.settings.dsn, client_timeout=0.1))
    scope = scope_of(content_length="9", authorization=f"Bearer {bearer}", content_type="application/json")
    status, headers = await respond(app(hasty), scope, never)
    assert status == 408 and headers[b"connection"] == b"close"
    await hasty.aclose()


async def test_a_body_that_is_announced_as_too_large_is_refused_unread(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "LINGER", 0.01)
    events: list[Any] = []

    async def receive() -> Message:
        events.append("read")
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        events.append(message.get("status"))

    size, bearer = f"{shop.settings.max_body + 1}", f"Bearer {serving.token(shop)}"
    scope = scope_of(content_length=size, authorization=bearer, content_type="application/json")
    await app(shop)(scope, receive, send)
    assert events[0] == 413


async def test_data_after_a_refusal_is_discarded_for_a_while_and_not_kept() -> None:
    bounds = Bounds(max_body=10 * 65_536, max_requests=10, client_timeout=5)
    pieces, sent = 0, 0

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    async def receive() -> Message:
        nonlocal pieces
        assert sent == 2, "the response came first"
        pieces += 1
        return {"type": "http.request", "body": b"x" * 65_536, "more_body": True}

    async def send(message: Message) -> None:
        nonlocal sent
        sent += 1

    await Guard(inner, bounds)(scope_of(transfer_encoding="chunked"), receive, send)
    assert pieces == 11 and sent == 3


async def test_a_client_that_takes_nothing_is_given_up() -> None:
    bounds = Bounds(max_body=1024, max_requests=10, client_timeout=0.05)
    begun: list[bytes] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 300_000})
        raise AssertionError("it went on")

    async def send(message: Message) -> None:
        begun.append(message.get("body", b""))
        if len(begun) == 3:
            await asyncio.Event().wait()

    async def receive() -> Message:
        raise AssertionError

    await Guard(inner, bounds)(scope_of("GET"), receive, send)
    assert [len(each) for each in begun] == [0, guard.PIECE, guard.PIECE]


async def test_a_full_house_refuses_at_once_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    bounds = Bounds(max_body=1024, max_requests=3, client_timeout=5)
    go, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        begun.release()
        if not scope["path"].endswith("/live"):
            await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        raise AssertionError

    guarded = Guard(inner, bounds)
    held = [asyncio.create_task(respond(guarded, scope_of("GET"), receive)) for _ in range(3)]
    for _ in held:
        await begun.acquire()
    with caplog.at_level(logging.WARNING, "holdfast"):
        for _ in range(5):
            status, headers = await respond(guarded, scope_of("GET"), receive)
            assert status == 503 and headers[b"retry-after"] == b"1"
    assert ["requests refused" in each.getMessage() for each in caplog.records] == [True]
    assert (await respond(guarded, scope_of("GET", "/v1/health/live"), receive))[0] == 200
    go.set()
    assert [status for status, _ in await asyncio.gather(*held)] == [200] * 3
    assert (await respond(guarded, scope_of("GET"), receive))[0] == 200


async def test_a_tenant_has_a_quarter_of_the_places_and_others_have_theirs(hf: Holdfast, dsn: str) -> None:
    small = serving.with_tasks(Holdfast(dsn, max_requests=8))
    id_ = small.registry.tasks["shop.fail"].using(tenant="acme", delay=3600).enqueue().id
    application = app(small)
    transport = httpx.ASGITransport(application)
    bearers = [serving.token(hf), serving.token(hf, "globex")]
    async with httpx.AsyncClient(transport=transport, base_url="http://service/v1", timeout=60) as http:
        first, other = ({"Authorization": f"Bearer {each}"} for each in bearers)
        held = [asyncio.create_task(http.get(f"/jobs/{id_}?wait=60", headers=first)) for _ in range(2)]
        await until(lambda: waiting.waiting() == 2)
        problem(await http.get(f"/jobs/{id_}", headers=first), 429, "too-many")
        assert (await http.get("/jobs", headers=other)).status_code == 200
        for each in held:
            each.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        assert (await http.get(f"/jobs/{id_}", headers=first)).status_code == 200
    await small.aclose()


async def test_no_tenant_has_more_places_to_wait_than_its_own_however_many_come_at_once(
    shop: Holdfast, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOST_OF_ONE", 5)
    id_ = shop.registry.tasks["shop.fail"].using(tenant="acme", delay=3600).enqueue().id
    responses = [asyncio.create_task(http.get(f"/jobs/{id_}?wait=60")) for _ in range(40)]
    streams = [asyncio.create_task(http.get(f"/jobs/{id_}/events")) for _ in range(40)]
    done = set[Any]()
    async with asyncio.timeout(40):
        while len(done) < 75:
            done, _ = await asyncio.wait([*responses, *streams], timeout=0.05)
    assert {each.result().status_code for each in done} == {429} and waiting.waiting() == 5
    for each in (*responses, *streams):
        each.cancel()
    await asyncio.gather(*responses, *streams, return_exceptions=True)
    await until(lambda: not waiting.waiting())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(40):
        while not holds():  # noqa: ASYNC110 - the service has no event to wait for
            await asyncio.sleep(0.01)


def numbers(text: bytes, size: int) -> bytes:
    return b"[" + b",".join([text] * (size // (len(text) + 1))) + b"]"


async def test_numbers_count_as_they_are_stored(shop: Holdfast, http: httpx.AsyncClient, sql: Sql) -> None:
    @shop.task(name="shop.any")
    async def anything(x: Any = None) -> None: ...

    def body(value: bytes) -> bytes:
        return b'{"task":"shop.any","delay":9,"args":{"x":' + value + b"}}"

    problem(await http.post("/jobs", content=body(numbers(b"1e308", MB - 100)), headers=JSON), 413, "too-large")
    problem(await http.post("/jobs", content=body(numbers(b"1e308", 40_000)), headers=JSON), 422, "invalid-payload")
    problem(await http.post("/jobs", content=body(b"1e-100000"), headers=JSON), 422, "invalid-payload")
    assert sql("select count(*) from jobs") == [(0,)]
    json_body(await http.post("/jobs", content=body(numbers(b"1e308", 15_000)), headers=JSON), 201)
    text = b'"%b"' % (b"1e308 " * 100_000)  # no number
    json_body(await http.post("/jobs", content=body(text), headers=JSON), 201)
    assert sql("select max(octet_length(payload::text)) < 1048576 from later") == [(True,)]


async def test_arguments_are_decoded_once_and_never_encoded(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.model import payload
    from holdfast.model.signature import Signature

    calls: list[str] = []

    def counting(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return act(*args, **options)

        return counted

    monkeypatch.setattr(payload, "encode", counting("encode", payload.encode))
    decode = Signature._decode

    def decoding(self: Signature, data: Any) -> Any:
        if not (isinstance(data, payload.Encoded) and data.reader is self):
            calls.append("decode")
        return decode(self, data)

    monkeypatch.setattr(Signature, "_decode", decoding)
    job = {"task": "shop.send", "args": {"to": "ada", "host": "example.org"}}
    for path, body in (("/jobs", job), ("/jobs/many", {"jobs": [job]}), ("/batches", {"name": "b", "jobs": [job]})):
        json_body(await http.post(path, json=body), 201)
        assert calls == ["decode"], path
        calls.clear()


@pytest.mark.parametrize(
    "body",
    [
        b'{"jobs":' + numbers(b"{}", MB) + b"}",
        b'{"jobs":' + numbers(b'{"task":1}', MB) + b"}",
        b'{"ids":' + numbers(b"[]", MB) + b"}",
        b"{" + b",".join(b'"%d":0' % n for n in range(100_000)) + b"}",
        b'{"task":"shop.send","args":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    ],
    ids=["no jobs", "many jobs", "ids", "keys", "deep"],
)
async def test_a_body_that_is_large_where_it_must_not_be_is_refused(http: httpx.AsyncClient, body: bytes) -> None:
    for path in ("/jobs", "/jobs/many"):
        assert (await http.post(path, content=body, headers=JSON)).status_code in (413, 422)


async def test_a_payload_in_lines_is_stored_whole(http: httpx.AsyncClient, sql: Sql) -> None:
    first, second = b'{\n\t"why":\r\n"a\\nb"}', b'{"why":"c"\n}'
    body = b'{"jobs":[{"task":"shop.fail","args":%b},{"task":"shop.fail","args":%b}]}' % (first, second)
    json_body(await http.post("/jobs/many", content=body, headers=JSON), 201)
    assert sql("select payload ->> 'why' from live order by id") == [("a\nb",), ("c",)]


async def test_a_page_is_bounded_by_bytes(shop: Holdfast, http: httpx.AsyncClient, sql: Sql) -> None:
    sql(
        "select enqueue('shop.fail', jsonb_build_object('why', repeat('x', 1000000)), p_tenant => 'acme') "
        "from generate_series(1, 6)"
    )
    sizes, ids, cursor = [], [], {}
    while True:
        page = await http.get("/jobs", params={"limit": 500, **cursor})
        sizes.append(len(page.content))
        ids += [each["id"] for each in page.json()["items"]]
        if page.json()["next"] is None:
            break
        cursor = {"cursor": page.json()["next"]}
    assert ids == [str(id_) for (id_,) in sql("select id from live order by id desc")]
    assert len(sizes) > 1 and max(sizes) < PAGE_BYTES + 1_100_000


async def test_a_row_that_cannot_be_decoded_is_shown_and_spoils_no_other(
    shop: Holdfast, http: httpx.AsyncClient, sql: Sql
) -> None:
    id_ = shop.registry.tasks["shop.fail"].using(tenant="acme").enqueue().id
    deep = '{"why":' + "[" * 3000 + "]" * 3000 + "}"
    poison = sql(
        "insert into live (id, task, tenant, queue, payload, lane) values (uuid7(), 'shop.fail', 'acme', "
        f"'nobody', '{deep}', lane_of('acme', null)) returning id::text"
    )[0][0]
    responses = await asyncio.gather(*(http.get(f"/jobs/{each}") for each in [id_, poison] * 20))
    assert {each.status_code for each in responses} == {200}
    assert (await http.get("/jobs")).status_code == 200


async def test_a_large_job_is_read_beside_the_small_ones(shop: Holdfast, http: httpx.AsyncClient) -> None:
    task = shop.registry.tasks["shop.fail"].using(tenant="acme")
    small, large = task.enqueue().id, task.enqueue(why="x" * 500_000).id
    for _ in range(2):  # the second time its size is known
        responses = await asyncio.gather(*(http.get(f"/jobs/{each}") for each in [small, large] * 10))
        assert [len(each.json()["args"].get("why", "")) for each in responses] == [0, 500_000] * 10


async def test_a_cursor_shows_nothing_and_opens_for_its_own_tenant_alone(shop: Holdfast, sql: Sql) -> None:
    sql("select enqueue('shop.fail', '{}', p_tenant => t) from unnest(array['acme', 'globex', 'acme', 'globex']) t")
    async with (
        serving.client(shop, serving.token(shop)) as acme,
        serving.client(shop, serving.token(shop, "globex")) as globex,
    ):
        cursor = json_body(await acme.get("/jobs", params={"limit": 1}))["next"]
        ids = [str(id_).replace("-", "") for (id_,) in sql("select id from live")]
        shown = base64.urlsafe_b64decode(cursor + "==").hex()
        assert not any(id_[:10] in text for id_ in ids for text in (cursor, shown))
        assert len(json_body(await acme.get("/jobs", params={"cursor": cursor}))["items"]) == 1
        problem(await globex.get("/jobs", params={"cursor": cursor}), 422, "invalid")
        for forged in ("", "x", ids[0], cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB"), cursor * 2):
            problem(await acme.get("/jobs", params={"cursor": forged}), 422, "invalid")


async def test_a_token_may_have_a_best_priority(shop: Holdfast, sql: Sql) -> None:
    @shop.task(name="shop.urgent", priority=0)
    async def urgent() -> None: ...

    async with serving.client(shop, serving.token(shop, priority=2)) as http:
        for path, wrap in (("/jobs", lambda job: job), ("/jobs/many", lambda job: {"jobs": [job]})):
            refused = wrap({"task": "shop.fail", "priority": 1})
            problem(await http.post(path, json=refused), 403, "priority")
            for job in ({"task": "shop.fail", "priority": 3}, {"task": "shop.fail"}, {"task": "shop.urgent"}):
                json_body(await http.post(path, json=wrap(job)), 201)
    assert sql("select priority, count(*) from live group by 1 order by 1") == [(2, 4), (3, 2)]


async def test_a_tokens_best_priority_holds_for_callbacks_messages_and_events(shop: Holdfast, sql: Sql) -> None:
    @shop.task(name="shop.urgent", priority=0)
    async def urgent() -> None: ...

    @shop.channel("urgent", priority=0)
    async def deliver(delivery: Any) -> None: ...

    shop.webhooks.add("https://hook.example/path", tenant="acme")
    async with serving.client(shop, serving.token(shop, priority=3)) as http:
        batch = {"name": "b", "jobs": [{"task": "shop.urgent"}], "on_done": "shop.urgent"}
        id_ = json_body(await http.post("/batches", json=batch), 201)["id"]
        assert sql("select on_done ->> 'priority' from batches where id = %s", [id_]) == [("3",)]
        json_body(await http.post("/outbox", json={"channel": "urgent", "key": "k", "payload": {}}), 201)
        json_body(await http.post("/webhooks/events", json={"type": "pay.made", "body": {}}), 201)
    assert sql("select distinct priority from jobs") == [(3,)]


async def test_nothing_is_redirected_to_a_host_that_the_client_names(shop: Holdfast) -> None:
    async with serving.client(shop, serving.token(shop)) as http:
        response = await http.post("/jobs/", json={}, headers={"Host": "evil.example"})
        assert response.status_code == 404 and "location" not in response.headers


async def test_the_document_is_encoded_once(shop: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving.client(shop) as stranger:
        first = await stranger.get("/openapi.json")
        monkeypatch.setattr(Pages, "document", None)
        monkeypatch.setattr(msgspec.json, "encode", None)
        assert (await stranger.get("/openapi.json")).content == first.content and first.json()["paths"]


@pytest.mark.parametrize(("root", "path"), [("", "/v1"), ("/holdfast", "/holdfast/v1"), ("/holdfast", "/v1")])
async def test_a_token_is_valid_wherever_the_application_is_mounted(shop: Holdfast, root: str, path: str) -> None:
    """A server or an application may leave the place out of the path, as a proxy that strips it does."""
    id_ = shop.registry.tasks["shop.fail"].using(tenant="acme").enqueue().id

    async def receive() -> Message:
        raise AssertionError("the body was read")

    for bearer, expected in ((serving.token(shop), 200), ("hf_wrong", 401)):
        scope = scope_of("GET", f"{path}/jobs/{id_}", authorization=f"Bearer {bearer}") | {"root_path": root}
        assert (await respond(app(shop), scope, receive))[0] == expected


async def test_a_path_that_ends_as_the_probe_does_has_no_place_of_its_own(shop: Holdfast) -> None:
    begun = asyncio.Event()

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def receive() -> Message:
        raise AssertionError

    guarded = Guard(inner, Bounds(max_body=1024, max_requests=1, client_timeout=5))
    held = asyncio.create_task(respond(guarded, scope_of("GET"), receive))
    await begun.wait()
    async with asyncio.timeout(40):
        for path in ("/v1/jobs/health/live", "/v1/health/live/health/live", "/health/live"):
            assert (await respond(guarded, scope_of("GET", path), receive))[0] == 503
    held.cancel()


async def test_a_body_of_no_stated_length_is_bounded_by_http_2_too(shop: Holdfast) -> None:
    """There a body has neither a length nor a transfer coding."""
    bearer, received = serving.token(shop), 0

    async def endless() -> Message:
        nonlocal received
        received += 65_536
        assert received < 20 * MB
        return {"type": "http.request", "body": b" " * 65_536, "more_body": True}

    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    hasty = serving.with_tasks(Holdfast(shop.settings.dsn, client_timeout=0.2, max_body=MB))
    for receive, expected in ((endless, 413), (never, 408)):
        scope = scope_of(authorization=f"Bearer {bearer}", content_type="application/json") | {"http_version": "2"}
        status, headers = await respond(app(hasty), scope, receive)
        assert status == expected and b"connection" not in headers  # HTTP/2 has no such header
    await hasty.aclose()


async def test_documents_are_kept_for_a_few_places_only(shop: Holdfast) -> None:
    """Mounted at "/{shop}", the application has as many places as clients name."""
    application = app(shop)

    async def receive() -> Message:
        raise AssertionError

    for n in range(50):
        scope = scope_of("GET", f"/{n}/v1/openapi.json") | {"root_path": f"/{n}"}
        assert (await respond(application, scope, receive))[0] == 200
    assert len(application.pages._made) <= MOST_PAGES
