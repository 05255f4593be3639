"""Lists for a tenant whose jobs lie among many of other tenants: short pages with a cursor, and nothing left out."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.web import service
from tests.support.serving import Sql, http_fixture, json_body, operator_fixture, shop_fixture  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a list to seven jobs, as when its time is over."""
    monkeypatch.setattr(service, "FIRST_STEP", 7)
    monkeypatch.setattr(service, "LONGEST_LOOK", -1.0)


async def all_pages(http: httpx.AsyncClient, path: str, **params: Any) -> list[list[str]]:
    """Return the ids on each page, to the end."""
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = json_body(await http.get(path, params={**params, **cursor}))
        pages.append([each["id"] for each in page["items"]])
        if page["next"] is None:
            return pages
        assert page["next"] != cursor.get("cursor"), "it does not go on"
        cursor = {"cursor": page["next"]}


def spread(sql: Sql) -> None:
    """Insert a hundred jobs, every eleventh of acme, in turn in each of the places where a job can be."""
    sql(
        "select enqueue('shop.fail', '{}', p_queue => 'q' || n % 5, "
        "p_tenant => case when n % 11 = 0 then 'acme' else 'x' end) from generate_series(0, 99) n"
    )
    sql("select finish(array_agg(id), array_agg(token)) from claim('w', '{q1}', 100)")
    sql("select fail(id, token, '{\"message\": \"no\"}', p_outcome => 'dead') from claim('w', '{q2}', 100)")
    sql("select snooze(id, token, '1 hour') from claim('w', '{q3}', 100)")
    sql("select claim('w', '{q4}', 100)")


async def test_every_job_is_on_one_page_however_many_of_others_lie_between(
    http: httpx.AsyncClient, operator: httpx.AsyncClient, sql: Sql
) -> None:
    spread(sql)
    assert {place for (place,) in sql("select distinct status::text from jobs")} >= {"queued", "running", "succeeded"}
    for client, params, where in (
        (http, {}, "tenant = 'acme'"),
        (http, {"limit": 2}, "tenant = 'acme'"),
        (operator, {"limit": 3}, "true"),
        (operator, {"queue": "q4"}, "queue = 'q4'"),
        (operator, {"status": "dead"}, "status = 'dead'"),
    ):
        expected = [str(id_) for (id_,) in sql(f"select id from jobs where {where} order by id desc")]
        pages = await all_pages(client, "/jobs", **params)
        assert [id_ for page in pages for id_ in page] == expected and expected
        assert all(len(page) <= min(params.get("limit", 50), 7) for page in pages)


async def test_dead_letters_are_not_looked_for_among_the_living(
    http: httpx.AsyncClient, operator: httpx.AsyncClient, sql: Sql
) -> None:
    spread(sql)
    for client, where in ((http, "tenant = 'acme'"), (operator, "true")):
        expected = [str(id_) for (id_,) in sql(f"select id from dead where {where} order by id desc")]
        pages = await all_pages(client, "/dead")
        assert [id_ for page in pages for id_ in page] == expected and expected
        assert len(pages) <= 4  # 20 dead, seven at a time


async def test_messages_and_deliveries_are_found_behind_jobs(shop: Holdfast, http: httpx.AsyncClient, sql: Sql) -> None:
    message = shop.outbox.emit(None, "email", {"a": 1}, key="k", tenant="acme").id
    json_body(await http.post("/webhooks/endpoints", json={"url": "https://example.org/"}), 201)
    delivery = json_body(await http.post("/webhooks/events", json={"type": "a", "body": 1}), 201)["deliveries"][0]
    spread(sql)
    assert await all_pages(http, "/outbox") == [[message]]  # it has indexes of its own
    pages = await all_pages(http, "/webhooks/deliveries")
    assert [each for page in pages for each in page] == [delivery] and len(pages) > 10


async def test_jobs_of_a_status_are_searched_in_their_own_tables(operator: httpx.AsyncClient, sql: Sql) -> None:
    spread(sql)
    pages = await all_pages(operator, "/jobs", status="succeeded")
    assert sum(len(page) for page in pages) == 20 and len(pages) <= 4  # seven at a time


async def test_within_its_time_a_list_goes_on_by_itself(
    http: httpx.AsyncClient, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LONGEST_LOOK", 60.0)
    spread(sql)
    (page,) = await all_pages(http, "/jobs")
    assert len(page) == 10 and page == sorted(page, reverse=True)
    assert [len(each) for each in await all_pages(http, "/jobs", limit=4)] == [4, 4, 2]


def shown(response: httpx.Response) -> str:
    assert response.status_code == 200
    return response.text


@pytest.mark.parametrize(
    "payload",
    ['{"a": ' + "[" * 3000 + "]" * 3000 + "}", '{"a": ' * 990 + "1" + "}" * 990, '{"n": ' + "9" * 6000 + "}"],
    ids=["lists", "objects", "digits"],
)
async def test_a_payload_that_python_cannot_decode_breaks_no_list(
    shop: Holdfast, sql: Sql, http: httpx.AsyncClient, payload: str
) -> None:
    """Inserted without the client, whose checks it never met."""
    sql("insert into live (id, task, tenant, lane, payload) values (uuid7(), 'shop.fail', 'acme', 5, %s)", [payload])
    ((id_,),) = sql("select id::text from live")
    assert payload in shown(await http.get("/jobs"))  # returned as it is stored
    assert payload in shown(await http.get(f"/jobs/{id_}"))
    sql("select fail(c.id, c.token, '{}', p_outcome => 'dead') from claim('w') c")
    assert payload in shown(await http.get("/dead"))
    found = await shop.jobs.aget(id_)
    assert found is not None and list(found.payload) == ["unreadable"]
