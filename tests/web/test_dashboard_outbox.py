"""The pages of the outbox."""

from __future__ import annotations

from uuid import uuid4

from holdfast import Holdfast
from tests.support import serving
from tests.support.looking import browser, words
from tests.support.serving import (
    Sql,
    shop_fixture,  # noqa: F401 - a fixture
)

HOSTILE = "<script>alert(1)</script>"


def emit(shop: Holdfast, key: str, tenant: str | None = None) -> str:
    return shop.outbox.emit(None, "email", {"text": HOSTILE}, key=key, tenant=tenant).id


def kill(sql: Sql) -> None:
    """Let all waiting messages end with their attempts used up."""
    error = '{"type": "SMTPError", "message": "<i>mailbox full</i>"}'
    sql("select fail(c.id, c.token, %s::jsonb, p_outcome => 'dead') from claim('w', '{outbox}', 100) c", [error])


async def test_messages_are_listed_and_filtered(shop: Holdfast) -> None:
    emit(shop, f"invoice-{HOSTILE}")
    emit(shop, "reminder")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/outbox")
        assert HOSTILE not in page and f"invoice-{HOSTILE} email" in words(page) and "pending 0 of 10" in words(page)
        page = words(await viewer.get("/outbox?key=reminder&status=pending"))
        assert "reminder email" in page and "invoice" not in page
        assert "There are no messages that match." in words(await viewer.get("/outbox?status=dead"))
        await viewer.get("/outbox?status=nothing", 422)


async def test_the_list_goes_on_with_a_cursor(shop: Holdfast) -> None:
    for key in ("first", "second", "third"):
        emit(shop, key)
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get("/outbox?channel=email&limit=2")
        assert "third" in words(page) and "first" not in words(page)
        older = page.partition('" rel="next"')[0].rpartition('href="')[2].replace("&amp;", "&")
        assert "first" in words(await viewer.get(older))


async def test_a_dead_message_shows_its_error_and_is_retried(shop: Holdfast, sql: Sql) -> None:
    id_ = emit(shop, "invoice-1")
    kill(sql)
    async with browser(shop, serving.token(shop, None)) as viewer:
        assert "SMTPError: <i>mailbox full</i>" in words(await viewer.get("/outbox"))
        page = await viewer.get(f"/outbox/{id_}")
        assert "<i>mailbox" not in page and "<i>mailbox full</i>" in words(page) and HOSTILE in words(page)
        page = words(await viewer.act(f"/outbox/{id_}/retry", reason="the mailbox has room"))
        assert "It is delivered again" in page and "pending" in page
        (entry,) = shop.actions.list(kind="retry")
        assert (entry.by, entry.reason) == ("of None", "the mailbox has room")
        again = await viewer.post(f"/outbox/{id_}/retry")
        assert again.status_code == 409 and "is pending" in words(again.text)


async def test_a_tenant_sees_and_retries_its_own_messages_only(shop: Holdfast, sql: Sql) -> None:
    mine, other = emit(shop, "mine", "acme"), emit(shop, "theirs", "others")
    kill(sql)
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        page = words(await tenant.get("/outbox"))
        assert "mine" in page and "theirs" not in page
        await tenant.get(f"/outbox/{other}", 404)
        await tenant.get(f"/outbox/{uuid4()}", 404)
        assert (await tenant.post(f"/outbox/{other}/retry")).status_code == 404
        await tenant.act(f"/outbox/{mine}/retry")


async def test_who_may_only_look_cannot_retry(shop: Holdfast, sql: Sql) -> None:
    id_ = emit(shop, "mine")
    kill(sql)
    async with browser(shop, serving.token(shop, None, ["jobs:read"])) as viewer:
        assert "Retry" not in words(await viewer.get("/outbox"))
        assert (await viewer.post(f"/outbox/{id_}/retry")).status_code == 403
        viewer.csrf = "x"
        assert (await viewer.post(f"/outbox/{id_}/retry")).status_code == 403
    assert not shop.actions.list(kind="retry")
