"""Dead letters by error group, and the progress of a change of many jobs."""

from __future__ import annotations

import re

import pytest

from holdfast import Holdfast, Retry
from holdfast.web.dashboard import dead
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture


async def kill_some(shop: Holdfast, number: int = 3) -> list[str]:
    """Let jobs die of one error, and one of another."""

    @shop.task(name="shop.break", retry=Retry.fixed(1, max_attempts=1))
    async def broken(to: str) -> None:
        if to == "odd":
            raise KeyError(to)
        raise ConnectionError(f"no route to <b>{to}</b>")

    made = [(await broken.aenqueue(f"host {each}")).id for each in range(number)]
    await broken.aenqueue("odd")
    await shop.atick()
    await shop.database.async_pool.run(shop.database.calls.workers.upkeep("test", 60.0))  # folds the errors
    return made


def group_of(page: str, name: str) -> str:
    """Return the path of the group of an error."""
    return next(path for path, text in re.findall(r'<a href="(/dead/\w+)">(\w+)</a>', page) if text == name)


async def test_errors_are_grouped_and_a_group_is_retried(shop: Holdfast) -> None:
    ids = await kill_some(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/dead")
        assert page.count("<tr data-id") == 2 and "<b>" not in page
        assert "ConnectionError" in await viewer.get("/"), "the front page shows what fails"
        path = group_of(page, "ConnectionError")
        page = await viewer.get(path)
        assert set(re.findall(r'<tr data-id="([^"]+)"', page)) == set(ids)
        assert "Retry all 3" in words(page) and "Traceback" in words(page)
        page = words(await viewer.act(f"{path}/retry", reason="the network is back"))
        assert "3 of 3 jobs changed" in page and "the network is back" in page and "Started." in page
        assert "None of its jobs is dead now." in words(await viewer.get(path))
    assert [shop.jobs.get(each).status for each in ids] == ["retrying"] * 3


async def test_pages_of_a_group_follow_each_other(shop: Holdfast) -> None:
    ids = await kill_some(shop, 5)
    async with browser(shop, serving.token(shop, None)) as viewer:
        path = group_of(await viewer.get("/dead", task="shop.break"), "ConnectionError")
        page, seen = await viewer.get(f"{path}?limit=2"), []
        while True:
            seen += re.findall(r'<tr data-id="([^"]+)"', page)
            if not (older := re.search(r'<a href="([^"]+)" rel="next">', page)):
                break
            page = await viewer.get(older[1].replace("&amp;", "&") + "&limit=2")
        assert seen == ids[::-1]


async def test_the_number_of_dead_jobs_follows_changes_and_says_what_it_counts(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kill_some(shop)
    async with browser(shop, serving.token(shop, None)) as viewer:
        part = words(await viewer.get("/dead?fragment=groups"))
        assert "4 dead Error" in part
        monkeypatch.setattr(dead, "MOST", 1)
        assert "1 dead in the 1 groups with the latest failures" in words(await viewer.get("/dead"))


async def test_only_a_fingerprint_is_looked_up(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        for wrong in ("%00", "0" * 33, "A", "0.0"):
            assert "path.fingerprint: " in words(await viewer.get(f"/dead/{wrong}", 422))
            assert (await viewer.post(f"/dead/{wrong}/retry")).status_code == 422


async def test_a_group_is_discarded_only_with_jobs_write(shop: Holdfast) -> None:
    await kill_some(shop, 1)
    async with browser(shop, serving.token(shop, None, ["jobs:read"])) as looking:
        path = group_of(await looking.get("/dead"), "ConnectionError")
        assert "Retry all" not in words(await looking.get(path))
        assert (await looking.post(f"{path}/discard")).status_code == 403
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get(path)
        page = await viewer.act(f"{path}/discard")
        assert "1 of 1 jobs changed" in words(page)
        assert (await viewer.post(f"{path}/burn")).status_code == 422
        await viewer.get("/dead/0000000000000000", 404)


async def test_the_example_of_a_group_has_its_traceback_only_with_operate(shop: Holdfast) -> None:
    await kill_some(shop, 1)
    for scopes, shown in ((["jobs:read"], False), (["jobs:read", "operate"], True)):
        async with browser(shop, serving.token(shop, None, scopes)) as viewer:
            page = words(await viewer.get(group_of(await viewer.get("/dead"), "ConnectionError")))
            assert "no route to" in page and ("Traceback" in page) == shown


async def test_a_tenant_sees_and_retries_its_own_groups_only(shop: Holdfast) -> None:
    await kill_some(shop, 1)
    async with browser(shop, serving.token(shop, None)) as viewer:
        path = group_of(await viewer.get("/dead"), "ConnectionError")
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        assert "Nothing has failed." in words(await tenant.get("/dead"))
        await tenant.get(path, 404)
        page = words(await tenant.act(f"{path}/retry"))
        assert "0 of 0 jobs changed" in page
    assert shop.dead.count() == 2
