"""Actions over HTTP: previews, starts, the log, aborts; edits and searches. What cannot be meant changes nothing."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Holdfast
from tests.support import serving
from tests.support.serving import Sql, http_fixture, json_body, operator_fixture, problem, shop_fixture  # noqa: F401

COUNTS = "select count(*), count(*) filter (where task = 'shop.fail') from dead"


def die(sql: Sql, error: str = '{"type": "app.Broken", "message": "no"}') -> None:
    sql("select fail(c.id, c.token, %s::jsonb, p_outcome => 'dead') from claim('w', '{default}', 100) c", [error])


def dead_jobs(shop: Holdfast, sql: Sql, tenant: str | None = "acme", count: int = 3) -> list[str]:
    """Return new jobs that have died."""
    ids = [shop.registry.tasks["shop.fail"].using(tenant=tenant).enqueue(str(n)).id for n in range(count)]
    die(sql)
    return ids


async def start(http: httpx.AsyncClient, kind: str, status: int = 201, **body: Any) -> Any:
    return json_body(await http.post("/actions", json={"kind": kind, **body}), status)


async def test_an_action_is_previewed_started_and_found_in_the_log(
    shop: Holdfast, http: httpx.AsyncClient, sql: Sql
) -> None:
    ids = dead_jobs(shop, sql)
    body = {"kind": "retry", "filter": {"task": "shop.fail", "error": "Broken"}}
    seen = json_body(await http.post("/actions/preview", json=body))
    assert (seen["matching"], seen["complete"], sorted(seen["examples"])) == (3, True, ids)
    done = json_body(await http.post("/actions", json=body | {"reason": "provider is back"}), 201)
    assert (done["state"], done["changed"], done["by"], done["reason"]) == ("done", 3, "of acme", "provider is back")
    assert sql("select count(*) from live") == [(3,)]
    assert json_body(await http.get(f"/actions/{done['id']}")) == done
    (listed,) = json_body(await http.get("/actions", params={"kind": "retry", "state": "done"}))["items"]
    assert listed == done
    assert json_body(await http.get("/actions", params={"by": "ada"})) == {"items": [], "next": None}


@pytest.mark.parametrize(
    ("kind", "options", "found"),
    [
        ("prioritize", {"priority": 1}, "priority = 1"),
        ("move", {"queue": "mail"}, "queue = 'mail'"),
        ("reschedule", {"run_at": "2100-01-01T00:00:00Z"}, "run_at = '2100-01-01T00:00:00Z'"),
    ],
)
async def test_one_waiting_job_is_changed_by_its_id(
    http: httpx.AsyncClient, sql: Sql, kind: str, options: dict[str, Any], found: str
) -> None:
    ids = json_body(await http.post("/jobs/many", json={"jobs": [{"task": "shop.fail"}] * 2}), 201)["ids"]
    done = await start(http, kind, ids=ids[:1], options=options)
    assert (done["state"], done["changed"], done["target"]) == ("done", 1, ids[0])
    assert sql(f"select id::text from jobs where {found}") == [(ids[0],)]


async def test_jobs_are_canceled_by_a_filter(http: httpx.AsyncClient, sql: Sql) -> None:
    ids = [json_body(await http.post("/jobs", json={"task": "shop.send", "args": {"to": to}}), 201) for to in "ab"]
    done = await start(http, "cancel", filter={"args": {"to": "a"}, "status": ["queued"], "since": "1h"})
    assert done["changed"] == 1
    assert sql("select id::text from live") == [(ids[1]["id"],)]


@pytest.mark.parametrize(
    ("body", "at"),
    [
        ({"kind": "retry", "filter": {}}, "the filter is empty"),
        ({"kind": "retry"}, "either filter or ids"),
        ({"kind": "retry", "filter": {"task": "a"}, "ids": [str(uuid.uuid4())]}, "either filter or ids"),
        ({"kind": "retry", "filter": {"tusk": "a"}}, "body.filter: no such field 'tusk'"),
        ({"kind": "retry", "filter": {"task": 7}}, "body.filter.task"),
        ({"kind": "retry", "filter": {"task": None}}, "body.filter.task"),
        ({"kind": "retry", "filter": {"batch": "7"}}, "body.filter.batch"),
        ({"kind": "retry", "filter": {"since": "yesterday"}}, "body.filter.since"),
        ({"kind": "retry", "filter": {"status": "queued"}}, "retry changes jobs that are failed or dead"),
        ({"kind": "retry", "filter": {"status": "deda"}}, "body.filter.status"),
        ({"kind": "retry", "filter": {"args": {}}}, "body.filter.args"),
        ({"kind": "retry", "filter": {"args": {"a": "\x00"}}}, "body.filter contains a NUL"),
        (
            {"kind": "retry", "filter": {"task": "shop.fail", "since": "1h", "until": "2001-01-01T00:00:00Z"}},
            "time span",
        ),
        ({"kind": "remove", "filter": {"task": "shop.fail"}}, "body.kind"),
        ({"kind": "retry", "filter": {"task": "shop.fail"}, "options": {"priority": 1}}, "retry takes no options"),
        ({"kind": "move", "filter": {"task": "shop.fail"}}, "move takes the option queue"),
        ({"kind": "move", "filter": {"task": "shop.fail"}, "options": {"queue": "a/b"}}, "body.options.queue"),
        ({"kind": "prioritize", "filter": {"task": "shop.fail"}, "options": {"priority": 4}}, "body.options.priority"),
        ({"kind": "cancel", "filter": {"finished_since": "1h"}}, "finished_since"),
        ({"kind": "retry", "ids": ["x"]}, "body.ids.0"),
        ({"kind": "retry", "filter": {"task": "shop.fail"}, "by": "ada"}, "body.by: no such field"),
    ],
)
async def test_what_cannot_be_meant_is_refused_and_changes_nothing(
    shop: Holdfast, http: httpx.AsyncClient, sql: Sql, body: dict[str, Any], at: str
) -> None:
    dead_jobs(shop, sql)
    assert at in problem(await http.post("/actions", json=body), 422, body_kind(at))["detail"]
    assert sql(COUNTS) == [(3, 3)] and sql("select count(*) from actions where kind = 'retry'") == [(0,)]


def body_kind(at: str) -> str:
    return "invalid-payload" if "NUL" in at else "invalid"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["status", "task", "queue", "tenant", "batch", "error", "since", "finished_until", "args", "x"]
)


async def test_no_filter_fails_the_service_or_reaches_another_tenant(
    shop: Holdfast, http: httpx.AsyncClient, sql: Sql
) -> None:
    others = dead_jobs(shop, sql, "other")
    for body in filters():
        response = await http.post("/actions", json=body)
        assert response.status_code in (201, 403, 422), (body, response.text)
        if response.status_code == 201:
            assert response.json()["changed"] == 0
    assert [row[0] for row in sql("select id::text from dead order by id")] == others


def filters() -> list[dict[str, Any]]:
    """Return bodies of actions, most of which cannot be meant."""
    found: list[dict[str, Any]] = []

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.dictionaries(FIELDS, JSON, max_size=3), st.sampled_from(["retry", "discard", "cancel", 7]))
    def make(which: dict[str, Any], kind: Any) -> None:
        found.append({"kind": kind, "filter": which})

    make()
    return found


async def test_a_tenant_acts_on_and_sees_only_its_own(
    shop: Holdfast, http: httpx.AsyncClient, operator: httpx.AsyncClient, sql: Sql
) -> None:
    mine, others = dead_jobs(shop, sql), dead_jobs(shop, sql, "other")
    foreign = await start(operator, "retry", filter={"tenant": "nobody"})
    body = {"kind": "discard", "filter": {"tenant": "other"}}
    assert "body.filter.tenant" in problem(await http.post("/actions", json=body), 403, "forbidden")["detail"]
    problem(await http.post("/actions/preview", json=body), 403, "forbidden")
    assert (await start(http, "discard", ids=others))["changed"] == 0
    assert (await start(http, "discard", filter={"status": ["failed", "dead"]}))["changed"] == len(mine)
    assert [row[0] for row in sql("select id::text from dead order by id")] == others
    problem(await http.get(f"/actions/{foreign['id']}"), 404, "not-found")
    problem(await http.post(f"/actions/{foreign['id']}/abort"), 404, "not-found")
    assert {each["by"] for each in json_body(await http.get("/actions"))["items"]} == {"of acme"}
    assert len(json_body(await operator.get("/actions"))["items"]) > 2


async def test_a_tenants_action_keeps_to_its_tenant_for_its_whole_life(
    shop: Holdfast, http: httpx.AsyncClient, sql: Sql
) -> None:
    """With an Idempotency-Key nothing is processed in the request, so upkeep does all of it."""
    mine, others = dead_jobs(shop, sql), dead_jobs(shop, sql, "other")
    body = {"kind": "discard", "filter": {"task": "shop.fail"}}
    first, again = [
        json_body(await http.post("/actions", json=body, headers={"Idempotency-Key": "k"}), 201) for _ in range(2)
    ]
    assert first == again and first["state"] == "running" and sql(COUNTS) == [(6, 6)]
    done = await shop.actions.ajoin(first["id"], timeout=30)
    assert done.changed == len(mine)
    assert [row[0] for row in sql("select id::text from dead order by id")] == others


async def test_an_action_is_aborted(shop: Holdfast, http: httpx.AsyncClient, sql: Sql) -> None:
    dead_jobs(shop, sql)
    body = {"kind": "retry", "filter": {"task": "shop.fail"}}
    id_ = json_body(await http.post("/actions", json=body, headers={"Idempotency-Key": "k"}), 201)["id"]
    assert json_body(await http.post(f"/actions/{id_}/abort", json={"reason": "wrong"}))["state"] == "aborted"
    assert json_body(await http.post(f"/actions/{id_}/abort"))["state"] == "aborted"
    (log,) = json_body(await http.get("/actions", params={"kind": "abort"}))["items"]
    assert (log["target"], log["by"], log["reason"]) == (id_, "of acme", "wrong")
    assert sql(COUNTS) == [(3, 3)]
    problem(await http.post(f"/actions/{uuid.uuid4()}/abort"), 404, "not-found")


async def test_scopes_bound_what_a_token_may_start_and_read(shop: Holdfast, sql: Sql) -> None:
    dead_jobs(shop, sql)
    async with serving.client(shop, serving.token(shop, "acme", ["jobs:read"])) as reader:
        problem(await reader.post("/actions", json={"kind": "retry", "filter": {"task": "a"}}), 403, "missing-scope")
        problem(await reader.get("/actions"), 403, "missing-scope")
    token = shop.tokens.create("writer", tenant=None, scopes=["jobs:write"], priority=2)[0]
    async with serving.client(shop, token) as writer:
        done = await start(writer, "retry", filter={"task": "shop.fail"})
        assert json_body(await writer.get(f"/actions/{done['id']}")) == done
        problem(await writer.get("/actions"), 403, "missing-scope")
        made = sql("select id::text from actions where kind = 'tokens.create' limit 1")[0][0]
        problem(await writer.get(f"/actions/{made}"), 403, "missing-scope")
        better = {"kind": "prioritize", "filter": {"task": "shop.fail"}, "options": {"priority": 1}}
        problem(await writer.post("/actions", json=better), 403, "priority")


async def test_the_log_is_read_page_by_page(http: httpx.AsyncClient) -> None:
    made = [(await start(http, "cancel", filter={"queue": f"q{n}"}))["id"] for n in range(12)]
    found, cursor = [], None
    while True:
        page = json_body(await http.get("/actions", params={"limit": 5} | ({"cursor": cursor} if cursor else {})))
        found += [each["id"] for each in page["items"]]
        if (cursor := page["next"]) is None:
            break
    assert found == made[::-1]


async def test_a_job_is_edited_and_a_dead_one_retried(http: httpx.AsyncClient, sql: Sql) -> None:
    body = {"task": "shop.send", "args": {"to": "a", "copies": 2}}
    id_ = json_body(await http.post("/jobs", json=body), 201)["id"]
    change = {"args": {"to": "b"}, "reason": "a typo"}
    assert json_body(await http.post(f"/jobs/{id_}/edit", json=change)) == {"id": id_, "outcome": "edited"}
    assert json_body(await http.get(f"/jobs/{id_}"))["args"] == {"to": "b", "copies": 2}
    die(sql)
    assert json_body(await http.post(f"/jobs/{id_}/edit", json={"args": {"to": "c"}}))["outcome"] == "retried"
    assert sql("select payload ->> 'to', keys from live") == [("c", ["host:h"])]
    log = json_body(await http.get("/actions", params={"kind": "edit", "target": id_}))["items"]
    assert [(each["before"]["args"]["to"], each["by"], each["reason"]) for each in log] == [
        ("b", "of acme", None),
        ("a", "of acme", "a typo"),
    ]


async def test_an_edit_that_does_not_fit_changes_nothing(shop: Holdfast, http: httpx.AsyncClient, sql: Sql) -> None:
    id_ = json_body(await http.post("/jobs", json={"task": "shop.send", "args": {"to": "a"}}), 201)["id"]
    foreign = shop.registry.tasks["shop.fail"].using(tenant="other").enqueue().id
    before = sql("select id, payload::text from live order by id")
    problem(await http.post(f"/jobs/{id_}/edit", json={"args": {"copies": "many"}}), 422, "invalid-payload")
    problem(await http.post(f"/jobs/{id_}/edit", json={"args": {"tow": "b"}}), 422, "invalid-payload")
    for wrong in ({}, {"args": {}}, {"args": []}, {"args": {"to": "b"}, "by": "ada"}):
        problem(await http.post(f"/jobs/{id_}/edit", json=wrong), 422, "invalid")
    for unknown in (foreign, str(uuid.uuid4())):
        problem(await http.post(f"/jobs/{unknown}/edit", json={"args": {"why": "b"}}), 404, "not-found")
    assert sql("select id, payload::text from live order by id") == before
    json_body(await http.post(f"/jobs/{id_}/cancel"))
    detail = problem(await http.post(f"/jobs/{id_}/edit", json={"args": {"to": "b"}}), 409, "conflict")["detail"]
    assert "it is canceled" in detail


async def test_the_arguments_of_an_unknown_task_are_bounded_too(http: httpx.AsyncClient, sql: Sql) -> None:
    id_ = json_body(await http.post("/jobs", json={"task": "shop.fail"}), 201)["id"]
    sql("update live set task = 'gone'")
    problem(await http.post(f"/jobs/{id_}/edit", json={"args": {"a": "\x00"}}), 422, "invalid-payload")
    assert json_body(await http.post(f"/jobs/{id_}/edit", json={"args": {"a": 1}}))["outcome"] == "edited"


async def test_jobs_are_found_by_an_argument_page_by_page(
    shop: Holdfast, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [{"task": "shop.send", "args": {"to": "ab"[n % 2], "copies": n}} for n in range(30)]
    ids = json_body(await http.post("/jobs/many", json={"jobs": jobs}), 201)["ids"]
    shop.registry.tasks["shop.send"].using(tenant="other").enqueue("a")
    found, cursor = [], None
    while True:
        params = {"args": '{"to": "a"}', "limit": 4} | ({"cursor": cursor} if cursor else {})
        page = json_body(await http.get("/jobs", params=params))
        found += [each["id"] for each in page["items"]]
        if (cursor := page["next"]) is None:
            break
    assert found == ids[::2][::-1]
    both = {"args": '{"to": "a", "copies": 4}', "task": "shop.send"}
    assert [each["id"] for each in json_body(await http.get("/jobs", params=both))["items"]] == [ids[4]]


@pytest.mark.parametrize("args", ["{", "{}", "[]", "7", '"a"', '{"a": "\\u0000"}', "{" * 2000, '{"a": 1e9999}'])
async def test_a_search_that_cannot_be_meant_is_refused(http: httpx.AsyncClient, args: str) -> None:
    response = await http.get("/jobs", params={"args": args})
    assert response.status_code == 422 and "query.args" in response.json()["detail"], response.text


async def test_a_search_in_time_bounds_what_it_reads(http: httpx.AsyncClient) -> None:
    json_body(await http.post("/jobs", json={"task": "shop.send", "args": {"to": "a"}}), 201)
    until = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    assert json_body(await http.get("/jobs", params={"args": '{"to": "a"}', "until": until}))["items"] == []


async def test_a_tenant_sees_its_changes_of_endpoints_and_batches_and_no_operators(
    shop: Holdfast, http: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    endpoint = json_body(await http.post("/webhooks/endpoints", json={"url": "https://example.org/hook"}), 201)["id"]
    path = f"/webhooks/endpoints/{endpoint}"
    json_body(await http.patch(path, json={"description": "ours"}))
    json_body(await operator.patch(path, json={"description": "theirs"}))
    for what in ("rotate", "disable", "enable"):
        json_body(await http.post(f"{path}/{what}"))
    json_body(await http.delete(path))
    batch = json_body(await http.post("/batches", json={"name": "b", "open": True}), 201)["id"]
    json_body(await http.post(f"/batches/{batch}/cancel", json={"reason": "wrong"}))
    seen = [each["kind"] for each in json_body(await http.get("/actions"))["items"]]
    webhooks = [f"webhooks.{each}" for each in ("remove", "enable", "disable", "rotate", "change", "add")]
    assert seen == ["batches.cancel", *webhooks]
