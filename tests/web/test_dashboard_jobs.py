"""The list of jobs, and the page of one."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from holdfast import Context, Dedupe, Holdfast, Limit, Retry
from holdfast.model.job import PublicJob
from holdfast.web import service
from holdfast.web.dashboard import jobs
from holdfast.web.dashboard.search import parse_args
from holdfast.web.jobs import FEW
from holdfast.web.problems import Problem
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture

HOSTILE = "</pre><script>alert(1)</script>\u202egnp.exe\x07<img src=x onerror=alert(2)>"


def rows(page: str) -> list[str]:
    """Return the ids of a table's rows."""
    return re.findall(r'<tr data-id="([^"]+)"', page)


async def enqueue(shop: Holdfast, to: str = "ada", tenant: str | None = None, **options: Any) -> str:
    return (await shop.registry.tasks["shop.send"].using(tenant=tenant, **options).aenqueue(to)).id


async def test_jobs_are_filtered_by_the_url(shop: Holdfast) -> None:
    ada, bob = await enqueue(shop, "ada", "acme"), await enqueue(shop, "bob", "globex", queue="mail")
    async with browser(shop, serving.token(shop, None)) as viewer:
        assert rows(await viewer.get("/jobs")) == [bob, ada]
        for query in (
            {"queue": "mail"},
            {"tenant": "globex", "task": ""},
            {"args": "to=bob"},
            {"args": '{"to": "bob"}'},
        ):
            assert rows(await viewer.get("/jobs", **query)) == [bob], query
        for query in ({"status": "dead"}, {"since": "2100-01-01T00:00:00Z"}, {"args": "copies=2"}, {"error": "X"}):
            assert "No job matches." in words(await viewer.get("/jobs", **query)), query
        page = words(await viewer.get("/jobs", 422, status="lost", colour="red"))
        assert "query.status: expected one of" in page and "query.colour: no such parameter" in page


async def test_a_search_by_arguments_begins_with_few_jobs(shop: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments may be large. When the time is over after the first step, the page says that there are more jobs."""
    monkeypatch.setattr(service, "LONGEST_LOOK", -1.0)
    await shop.registry.tasks["shop.send"].aenqueue_many([{"to": "ada"}] * (FEW + 1))
    token = serving.token(shop, None)
    async with browser(shop, token) as viewer, serving.client(shop, token) as http:
        assert 'rel="next"' in await viewer.get("/jobs", args="to=bob")
        assert 'rel="next"' not in await viewer.get("/jobs", error="X")
        assert serving.json_body(await http.get("/jobs", params={"args": '{"to": "bob"}'}))["next"] is not None


async def test_pages_follow_each_other_while_jobs_are_added(shop: Holdfast) -> None:
    ids = [await enqueue(shop, str(number)) for number in range(7)]
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/jobs?limit=3&queue=default")
        seen = rows(page)
        while older := re.search(r'<a href="([^"]+)" rel="next">', page):
            await enqueue(shop, "later")
            page = await viewer.get(older[1].replace("&amp;", "&"))
            seen += rows(page)
        assert seen == ids[::-1]


async def test_a_tenant_sees_its_own_jobs_only(shop: Holdfast) -> None:
    mine, other = await enqueue(shop, "ada", "acme"), await enqueue(shop, "bob", "globex")
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        assert rows(await tenant.get("/jobs")) == [mine]
        assert "No job matches." in words(await tenant.get("/jobs?tenant=globex"))
        page = await tenant.get(f"/jobs/{mine}")
        assert "It waits for its turn." in words(page) and "Limits" not in words(page) and "Edit" not in words(page)
        await tenant.get(f"/jobs/{other}", 404)
        for act in ("cancel", "retry", "discard"):
            assert (await tenant.post(f"/jobs/{other}/{act}")).status_code == 404
        assert (await tenant.http.get(f"/live?job={other}")).status_code == 404
    assert shop.jobs.get(other).status == "queued"


async def test_the_page_of_a_job_says_why_it_waits_and_under_which_limits(shop: Holdfast) -> None:
    id_ = await enqueue(shop, tenant="acme")
    shop.limits.pause("queue:default", reason="moving")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = words(await viewer.get(f"/jobs/{id_}"))
        assert "queue:default was paused" in page and "(moving), until it is resumed" in page
        assert "host:h" in page and "enqueued" in page
        assert "hf.jobs.enqueue('shop.send', b'{" in page and "curl -X POST http://service/v1/jobs" in page
        assert "select * from holdfast.enqueue(p_task => 'shop.send'" in page
        part = await viewer.get(f"/jobs/{id_}?fragment=why,acts")
        assert part.count("<section") == 1 and 'id="acts"' in part


async def test_the_page_of_a_job_shows_the_commands_of_why_to_those_who_may_change_something(shop: Holdfast) -> None:
    id_ = await enqueue(shop)
    shop.limits.pause("queue:default")
    shop.limits.set("host:h", concurrency=0)
    commands = ["holdfast resume queue:default", "holdfast limits clear host:h --only concurrency"]
    for scopes, shown in (
        (["jobs:read", "operate"], commands),
        (["jobs:read", "jobs:write"], commands),
        (["jobs:read"], []),
    ):
        async with browser(shop, serving.token(shop, None, scopes)) as viewer:
            page = await viewer.get(f"/jobs/{id_}")
            assert re.findall(r"<code>(holdfast (?:resume|limits) .*?)</code>", page) == shown, scopes


async def test_the_code_that_enqueues_a_job_once_more_keeps_its_limits(shop: Holdfast, sql: serving.Sql) -> None:
    id_ = await enqueue(shop, tenant="acme")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get(f"/jobs/{id_}")
    codes = [html.unescape(each) for each in re.findall(r'<pre id="snippet-\d" tabindex="0">(.*?)</pre>', page, re.S)]
    again = eval(codes[0], {"hf": shop}).id  # noqa: S307 - the test's own
    ((third,),) = sql(codes[2].replace("select *", "select id::text"))
    keys = [shop.database.sync_pool.run(shop.database.calls.jobs.details(each)).keys for each in (id_, again, third)]
    assert keys == [["host:h"]] * 3
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        shown = words(await tenant.get(f"/jobs/{id_}"))
        assert "curl -X POST" in shown and "hf.jobs.enqueue" not in shown, "a tenant does not see the keys"


async def test_what_holds_a_job_up_is_linked_and_a_pause_is_ended_there(shop: Holdfast, sql: serving.Sql) -> None:
    holder, id_ = [await enqueue(shop, tenant="acme") for _ in range(2)]
    shop.limits.set("host:h", concurrency=1)
    sql("select claim('worker<1>', '{default}', 1)")
    shop.limits.pause("tenant:acme", reason="<b>unpaid</b>")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get(f"/jobs/{id_}")
        assert '<a href="/limits/key?key=tenant%3Aacme">tenant:acme</a> was paused' in page
        assert (
            f'<a href="/jobs/{holder}">{holder}</a> on <a href="/workers#worker-worker%3C1%3E">worker&lt;1&gt;</a>'
            in page
        )
        assert "<b>unpaid" not in page and "tenant:acme paused Resume" in words(page), "beside the job's limits"
        page = words(await viewer.act(f"/jobs/{id_}/resume", name="tenant:acme"))
        assert "Resumed tenant:acme." in page and "was paused" not in page
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        assert (await tenant.post(f"/jobs/{id_}/resume", name="tenant:acme")).status_code == 403


@pytest.mark.parametrize("everyone", [True, False])
async def test_the_parts_of_a_page_agree_when_the_job_ends_while_it_is_read(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch, everyone: bool
) -> None:
    """The page comes from several queries; the job may start and end between them."""
    id_ = await enqueue(shop, tenant="acme")
    look, first = jobs.look, iter([True])

    async def look_before_the_end(*args: Any) -> PublicJob:
        found = await look(*args)
        if next(first, False):
            await shop.atick()
        return found

    monkeypatch.setattr(jobs, "look", look_before_the_end)
    async with browser(shop, serving.token(shop, None if everyone else "acme")) as viewer:
        page = words(await viewer.get(f"/jobs/{id_}"))
        assert "succeeded It succeeded." in page or "succeeded it succeeded" in page
        assert "attempt 1" in page and "Attempts 1 of" in page and "Cancel" not in page and "Edit" not in page


async def test_all_parts_of_a_page_follow_the_same_changes_until_the_job_has_ended(shop: Holdfast) -> None:
    id_ = await enqueue(shop)
    parts = ("acts", "why", "life", "facts", "steps", "outcome")
    async with browser(shop, serving.token(shop, None)) as viewer:
        for follows in ('data-live="job figures"', 'data-live="job"'):
            page = await viewer.get(f"/jobs/{id_}")
            assert [each for each in parts if not re.search(rf'id="{each}" {follows}>', page)] == []
            await shop.atick()


async def test_the_page_of_a_running_job_has_the_form_for_when_it_fails(shop: Holdfast, sql: serving.Sql) -> None:
    id_ = await enqueue(shop)
    sql("select claim('w', '{default}', 1)")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get(f"/jobs/{id_}")
        assert 'popovertarget="edit">Edit' not in page and '<form id="edit"' in page
        sql("select fail(id, token, '{}', null, 'dead') from live")
        assert 'popovertarget="edit">Edit and retry' in await viewer.get(f"/jobs/{id_}?fragment=acts")


async def test_a_delayed_job_is_started_now(shop: Holdfast) -> None:
    id_, due = await enqueue(shop, delay=3600), await enqueue(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        assert "Start now" not in await viewer.get(f"/jobs/{due}")
        assert "Start now" in await viewer.get(f"/jobs/{id_}")
        page = words(await viewer.act(f"/jobs/{id_}/start"))
        assert "Starts as soon as a slot and its limits allow." in page and "Start now" not in page
    (action,) = shop.actions.list(target=id_)
    assert (action.kind, action.by) == ("reschedule", "of None")


async def test_what_a_job_contains_is_shown_as_text(shop: Holdfast) -> None:
    id_ = await enqueue(shop, HOSTILE + "x" * 100_000)
    short = await enqueue(shop, HOSTILE)
    async with browser(shop, serving.token(shop, None)) as viewer:
        for path in (f"/jobs/{id_}", f"/jobs/{short}", "/jobs"):
            page = await viewer.get(path)
            assert "<script>alert" not in page and "<img src=x" not in page
            assert "\u202e" not in page and "\x07" not in page
        page = await viewer.get(f"/jobs/{short}")
        assert "\\u202egnp.exe" in page
        assert len(await viewer.get(f"/jobs/{id_}")) < 150_000 and "more characters" in await viewer.get(f"/jobs/{id_}")


async def test_a_job_is_canceled_with_a_reason_that_the_audit_keeps(shop: Holdfast) -> None:
    id_ = await enqueue(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get(f"/jobs/{id_}")
        page = words(await viewer.act(f"/jobs/{id_}/cancel", reason="a mistake"))
        assert "Canceled." in page and "canceled" in page
        page = words(await viewer.act(f"/jobs/{id_}/cancel"))
        assert "It had ended already." in page
    (action, *_) = reversed(shop.actions.list(target=id_))
    assert (action.kind, action.by, action.reason) == ("cancel", "of None", "a mistake")


async def test_a_dead_job_shows_its_error_and_is_edited_and_retried_or_discarded(shop: Holdfast) -> None:
    async def failing(to: str) -> None:
        raise ConnectionError(f"no route to {to}")

    task = shop.task(name="shop.break", retry=Retry.fixed(1, max_attempts=1))(failing)
    ids = [(await task.aenqueue(to)).id for to in ("ada", "bob")]
    await shop.atick()
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = words(await viewer.get(f"/jobs/{ids[0]}"))
        assert "ConnectionError" in page and "no route to ada" in page and "Traceback" in page and "attempt 1" in page
        page = words(await viewer.act(f"/jobs/{ids[0]}/edit", args='{"to": "eve"}'))
        assert "Edited and retried." in page and '"to": "eve"' in page
        response = await viewer.post(f"/jobs/{ids[0]}/edit", args="{to}")
        assert response.status_code == 422 and "form.args: not JSON" in response.text
        assert "Discarded." in words(await viewer.act(f"/jobs/{ids[1]}/discard", reason="test"))
        assert "Not changed" in words(await viewer.act(f"/jobs/{ids[1]}/retry"))


async def test_the_form_of_arguments_keeps_long_numbers_and_removes_what_is_deleted(
    shop: Holdfast, sql: serving.Sql
) -> None:
    numbers = '{"a": 123456789012345678901234567890, "b": 0.1234567890123456789012345, "c": 1}'
    id_ = await enqueue(shop)
    sql("update live set task = 'gone', payload = %s::jsonb", [numbers])
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get(f"/jobs/{id_}")
        found = re.search(r'<textarea name="args"[^>]*>(.*?)</textarea>', page, re.S)
        assert found is not None
        shown = html.unescape(found[1]).replace(',\n  "c": 1', "")
        assert "Edited." in words(await viewer.act(f"/jobs/{id_}/edit", args=shown))
        for wrong, why in (("[1]", "expected a JSON object"), ("{to}", "not JSON"), ('{"a": "\\ud800"}', "not JSON")):
            response = await viewer.post(f"/jobs/{id_}/edit", args=wrong)
            assert response.status_code == 422 and why in response.text, words(response.text)
        assert sql("select payload::jsonb = %s::jsonb from live", [numbers.replace(', "c": 1', "")]) == [(True,)]
        await viewer.act(f"/jobs/{id_}/cancel")
        response = await viewer.post(f"/jobs/{id_}/edit", args="{}")
        assert response.status_code == 409 and "it is canceled" in response.text


async def test_details_logs_and_tracebacks_are_shown_only_with_operate(shop: Holdfast) -> None:
    async def failing(ctx: Context, to: str) -> None:
        ctx.log(f"called {to}")
        raise ConnectionError(f"no route to {to}")

    once, limits = Retry.fixed(1, max_attempts=1), [Limit("route:{to}", concurrency=1)]
    task = shop.task(name="shop.break", retry=once, limits=limits)(failing)
    id_ = (await task.using(dedupe=Dedupe("success", 60, key="order-42")).aenqueue("ada")).id
    await shop.atick()
    inside = ("Traceback", "called ada", "order-42", "route:ada")
    async with browser(shop, serving.token(shop, None, ["jobs:read", "operate"])) as operator:
        page = words(await operator.get(f"/jobs/{id_}"))
        assert [each for each in inside if each in page] == [*inside]
    async with browser(shop, serving.token(shop, None, ["jobs:read", "jobs:write"])) as viewer:
        page = words(await viewer.get(f"/jobs/{id_}"))
        assert "no route to ada" in page and not [each for each in inside if each in page]


async def test_a_viewer_without_jobs_write_has_no_buttons(shop: Holdfast) -> None:
    id_ = await enqueue(shop)
    async with browser(shop, serving.token(shop, None, ["jobs:read"])) as viewer:
        page = await viewer.get(f"/jobs/{id_}")
        assert f"/jobs/{id_}/cancel" not in page and "Edit" not in words(page)
        assert (await viewer.post(f"/jobs/{id_}/cancel")).status_code == 403
        await viewer.get("/jobs/00000000-0000-7000-8000-000000000000", 404)
        await viewer.get("/jobs/x", 422)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("to=ada", {"to": "ada"}),
        ("copies=2", {"copies": 2}),
        ("to=a=b", {"to": "a=b"}),
        ('{"a": {"b": null}}', {"a": {"b": None}}),
        (None, None),
    ],
)
def test_arguments_to_search_for(given: str | None, found: Any) -> None:
    assert parse_args(given) == found


@pytest.mark.parametrize("given", ["to", "{x}", "{"])
def test_arguments_that_cannot_be_read(given: str) -> None:
    with pytest.raises(Problem, match=r"query\.args: expected to=ada"):
        parse_args(given)
