"""The dashboard's door: who may look, sessions, forms, headers, files."""

from __future__ import annotations

import asyncio
import re

import pytest

from holdfast import Event, Holdfast
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings
from holdfast.web import app
from holdfast.web.dashboard import session as sessions
from holdfast.web.dashboard.app import LARGEST_FORM, OPEN_FORM
from holdfast.web.dashboard.static import FOLDER
from tests.support import program, serving
from tests.support.looking import browser, words
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture

LOOKS = ["jobs:read"]
KEY = b"k" * 32
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


async def test_without_a_session_every_page_leads_to_the_sign_in(shop: Holdfast) -> None:
    async with browser(shop) as anonymous:
        for path in ("/", "/queues"):
            response = await anonymous.http.get(path)
            assert response.status_code == 303 and response.headers["location"].startswith("/sign-in?next=")
        assert (await anonymous.http.get("/queues?fragment=queues")).status_code == 401
        assert (await anonymous.http.get("/live")).status_code == 401
        await anonymous.get("/sign-in")
        assert (await anonymous.post("/queues/pause", name="mail")).status_code == 401


async def test_a_token_is_exchanged_for_a_session_that_scripts_cannot_read(shop: Holdfast) -> None:
    token = serving.token(shop, None)
    async with browser(shop) as someone:
        await someone.get("/sign-in", next="/queues?x=1")
        response = await someone.post("/sign-in", token=f" {token} ", next="/queues?x=1")
        assert response.headers["location"] == "/queues?x=1"
        cookie = response.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Max-Age=43200"} <= set(cookie.split("; ")) and "Secure" not in cookie
        assert token not in cookie
        assert "Queues" in await someone.get("/queues")
        await someone.act("/sign-out")
        assert (await someone.http.get("/queues")).status_code == 303


async def test_the_session_cookie_is_secure_over_https(shop: Holdfast) -> None:
    async with browser(shop, base="https://service") as someone:
        await someone.get("/sign-in")
        response = await someone.post("/sign-in", token=serving.token(shop, None))
        assert "Secure" in response.headers["set-cookie"].split("; ")


async def test_a_session_ends_when_its_token_is_revoked(dsn: str) -> None:
    with Holdfast(dsn, token_cache=0) as hf:
        token, info = hf.tokens.create("ada", tenant=None, scopes=["admin"])
        async with browser(hf, token) as viewer:
            await viewer.get("/queues")
            hf.tokens.revoke(info.id)
            assert (await viewer.http.get("/queues")).status_code == 303
        await hf.aclose()


async def test_many_wrong_tokens_are_refused_and_lock_out_no_valid_one(shop: Holdfast) -> None:
    token = serving.token(shop, None)
    async with browser(shop) as someone:
        await someone.get("/sign-in")
        for wrong in ["hf_wrong"] * 9 + ["wrong"]:
            response = await someone.post("/sign-in", token=wrong)
            assert response.status_code == 401 and "unknown, expired or revoked" in response.text
        refused = await someone.post("/sign-in", token="hf_wrong")
        assert refused.status_code == 429 and refused.headers["retry-after"] == "60"
        assert (await someone.post("/sign-in", token=token)).status_code == 303


@pytest.mark.parametrize("path", ["//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nSet-Cookie: x=1"])
async def test_the_sign_in_leads_to_no_other_site(shop: Holdfast, path: str) -> None:
    async with browser(shop) as someone:
        await someone.get("/sign-in")
        response = await someone.post("/sign-in", token=serving.token(shop, None), next=path)
        assert response.headers["location"] == "/"


async def test_the_sign_in_and_the_theme_lead_to_paths_of_any_script(shop: Holdfast) -> None:
    async with browser(shop) as someone:
        await someone.get("/sign-in")
        for path, fields in (("/theme", {"theme": "dark"}), ("/sign-in", {"token": serving.token(shop, None)})):
            response = await someone.post(path, next="/jobs?task=\u65e5 x", **fields)
            assert response.headers["location"] == "/jobs?task=%E6%97%A5%20x"
        response = await someone.http.get("/sign-in?next=/%E6%97%A5")
        assert response.headers["location"] == "/%E6%97%A5"


@pytest.mark.parametrize("path", ["/jobs", "/batches", "/outbox", "/audit", "/tokens", "/webhooks/{endpoint}"])
async def test_empty_parameters_of_any_name_are_left_out_of_a_lists_links(shop: Holdfast, path: str) -> None:
    endpoint = shop.webhooks.add("https://example.com/hook")
    for number in range(2):
        await shop.registry.tasks["shop.send"].aenqueue("ada")
        shop.outbox.emit(None, "email", {}, key=str(number))
        shop.webhooks.publish(None, Event("order.paid", {}))
        async with shop.batch("import") as batch:
            await shop.registry.tasks["shop.send"].using(batch=batch).aenqueue("ada")
    async with browser(shop, serving.token(shop, None)) as viewer:
        page = await viewer.get(path.format(endpoint=endpoint.id) + "?limit=1&path=&self=&cursor=&x=")
        (older,) = re.findall(r'<a href="([^"]+)" rel="next">', page)
        assert re.fullmatch(r"[^?]+\?limit=1&cursor=[^&]+", older.replace("&amp;", "&"))
        assert 'rel="next"' not in await viewer.get(path.format(endpoint=endpoint.id) + "?fragment=content")


@pytest.mark.parametrize(
    ("referer", "back"),
    [
        ("http://service/queues?x=1&y=%22", "/queues?x=1&amp;y=%22"),
        ("http://evil.example/queues", None),
        ("http://service//evil.example/", None),
        ("http://[service/", None),
        ("", None),
    ],
)
async def test_a_refused_form_leads_back_to_its_page(shop: Holdfast, referer: str, back: str | None) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        await viewer.get("/queues")
        viewer.http.headers["Referer"] = referer
        page = (await viewer.post("/queues/pause", name="mail", minutes="soon")).text
        assert re.findall(r'<a href="([^"]+)">Back to the form</a>', page) == ([back] if back else [])
        assert "Back to the form" not in await viewer.get("/jobs?colour=red", 422)


async def test_a_form_without_its_browsers_token_changes_nothing(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as mine, browser(shop, serving.token(shop, None)) as other:
        await mine.get("/queues")
        await other.get("/queues")
        for csrf in ("", "x", other.csrf):
            mine.csrf, own = csrf, mine.csrf
            assert (await mine.post("/queues/pause", name="mail")).status_code == 403
            mine.csrf = own
        foreign = {"Sec-Fetch-Site": "cross-site"}
        data = {"csrf": mine.csrf, "name": "mail"}
        assert (await mine.http.post("/queues/pause", data=data, headers=foreign)).status_code == 403
        assert not shop.limits.list(prefix="queue:")
        assert (await mine.http.get("/queues/pause")).status_code == 405, "no GET has effects"


async def test_a_form_is_bounded_and_more_narrowly_where_no_sign_in_is_needed(shop: Holdfast) -> None:
    """Forms are decoded on the event loop, before their CSRF token is known to be right."""
    async with browser(shop) as stranger:
        await stranger.get("/sign-in")
        for path in ("/theme", "/sign-in", "/sign-out"):
            response = await stranger.post(path, x="a" * OPEN_FORM)
            assert response.status_code == 413 and "65,536 bytes" in response.text, path
        await stranger.sign_in(serving.token(shop, None))
        assert (await stranger.post("/queues/pause", name="mail", x="a" * LARGEST_FORM)).status_code == 413
        await stranger.get("/queues")
        assert (await stranger.post("/queues/pause", name="mail", x="a" * OPEN_FORM)).status_code == 422


async def test_scopes_decide_what_a_viewer_may_open_and_do(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None, LOOKS)) as viewer:
        assert "Pause" not in words(await viewer.get("/queues"))
        response = await viewer.post("/queues/pause", name="mail")
        assert response.status_code == 403 and "lacks the scope operate" in response.text


async def test_a_tenant_sees_no_page_of_all_tenants(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, "acme")) as tenant:
        page = words(await tenant.get("/queues", 403))
        assert "this is about all tenants" in page and "Queues" not in page
        assert (await tenant.http.get("/")).headers["location"] == "/jobs"


async def test_the_commands_of_the_sign_in_page_make_tokens_that_see_a_page(shop: Holdfast, dsn: str) -> None:
    async with browser(shop) as someone:
        commands = re.findall(r"holdfast (tokens create [^<\n]+)", await someone.get("/sign-in"))
    assert len(commands) == 2
    for each in commands:
        made = await asyncio.to_thread(program.holdfast, dsn, *each.split(), "--json")
        async with browser(shop, program.as_json(made)["token"]) as viewer:
            front = await viewer.http.get("/", follow_redirects=True)
            assert front.status_code == 200 and "Jobs" in words(front.text), each
            await viewer.get("/actions?kind=cancel&queue=default")


@pytest.mark.parametrize(
    ("tenant", "scopes", "first"),
    [
        (None, ["webhooks:read"], "/webhooks"),
        ("acme", ["webhooks:read", "webhooks:write"], "/webhooks"),
        ("acme", ["jobs:read", "webhooks:read"], "/jobs"),
    ],
)
async def test_the_front_page_leads_to_the_first_page_that_the_viewer_may_see(
    shop: Holdfast, tenant: str | None, scopes: list[str], first: str
) -> None:
    async with browser(shop, serving.token(shop, tenant, scopes)) as viewer:
        assert (await viewer.http.get("/")).headers["location"] == first
        await viewer.get(first)
        assert 'href="/"' in await viewer.get("/queues", 403)


async def test_a_token_that_may_see_no_page_is_told_what_it_lacks_without_a_link_to_the_same(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None, ["operate"])) as viewer:
        page = await viewer.get("/", 403)
        assert "lacks the scope jobs:read" in page and "front page" not in page and "Sign out" in page


async def test_every_response_has_the_policy_and_no_inline_code(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        for path in ("/", "/queues", "/nothing", "/queues?fragment=queues"):
            response = await viewer.http.get(path)
            assert response.headers["content-security-policy"] == POLICY
            assert response.headers["cache-control"] == "no-store"
            assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", response.text)
            assert all("src=" in each for each in re.findall(r"<script[^>]*>", response.text))


async def test_a_fragment_is_one_block_of_the_page(shop: Holdfast) -> None:
    async with browser(shop, serving.token(shop, None)) as viewer:
        part = await viewer.get("/queues?fragment=queues")
        assert part.startswith('<section class="panel" id="queues"') and "<html" not in part
        assert 'id="status"' in await viewer.get("/queues?fragment=status,nothing")


async def test_static_files_are_kept_for_ever_under_a_url_with_their_hash(shop: Holdfast) -> None:
    async with browser(shop) as anonymous:
        page = await anonymous.get("/sign-in")
        for path in re.findall(r'(?:href|src)="(/static/[^"]+)"', page):
            response = await anonymous.http.get(path)
            assert response.status_code == 200 and response.headers["cache-control"].endswith("immutable")
            assert len(response.headers.get_list("cache-control")) == 1
        old = await anonymous.http.get("/static/0000/main.js")
        assert old.status_code == 200 and old.headers["cache-control"] == "no-store"
        for name in ("../app.py", "..%2Fapp.py", "nothing.js"):
            assert (await anonymous.http.get(f"/static/0000/{name}")).status_code == 404


def test_the_static_files_are_small() -> None:
    files = {each: each.read_text() for each in FOLDER.iterdir()}
    assert sum(len(text.encode()) for text in files.values()) < 80_000
    lines = {
        kind: sum(text.count("\n") for each, text in files.items() if each.suffix == kind) for kind in (".js", ".css")
    }
    assert lines[".js"] < 600 and lines[".css"] < 500
    assert not [each for each, text in files.items() if re.search(r"@import|url\(|https?://(?!www.w3.org)", text)]


async def test_a_trusted_proxy_names_its_users_and_no_one_else_can(dsn: str) -> None:
    settings = {"dashboard_header": "X-Forwarded-User", "dashboard_proxies": "10.0.0.0/24, 10.1.0.7"}
    with Holdfast(dsn, **settings) as hf:
        user = {"X-Forwarded-User": "ada"}
        async with browser(hf, address="10.0.0.9") as proxied, browser(hf, address="192.0.2.1") as direct:
            assert (await proxied.http.get("/queues", headers=user)).status_code == 200
            assert (await proxied.http.get("/queues")).status_code == 303
            assert (await direct.http.get("/queues", headers=user)).status_code == 303
            assert (await proxied.http.get("/v1/jobs", headers=user)).status_code == 401, "the API takes tokens only"
        await hf.aclose()


@pytest.mark.parametrize(
    ("given", "why"),
    [({"dashboard_header": "X-User"}, "has no effect"), ({"dashboard_proxies": "10.0.0.x"}, "no address")],
)
def test_a_proxys_header_needs_the_proxies_addresses(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Settings(**given)


async def test_behind_a_proxy_with_tls_the_session_cookie_is_secure(dsn: str) -> None:
    with Holdfast(dsn, dashboard_proxies="10.0.0.9") as hf:
        for peer, secure in (("10.0.0.9", True), ("192.0.2.1", False)):
            async with browser(hf, address=peer) as someone:
                someone.http.headers["X-Forwarded-Proto"] = "https"
                cookie = (await someone.http.get("/sign-in")).headers["set-cookie"]
                assert ("Secure" in cookie.split("; ")) == secure
        await hf.aclose()


async def test_in_development_only_this_machine_by_its_own_name_needs_no_sign_in(shop: Holdfast) -> None:
    options = {"open_on_loopback": True}
    async with browser(shop, address="127.0.0.1", base="http://127.0.0.1:8000", **options) as local:
        await local.get("/queues")
    async with browser(shop, address="192.0.2.1", base="http://127.0.0.1:8000", **options) as remote:
        assert (await remote.http.get("/queues")).status_code == 303
    async with browser(shop, address="127.0.0.1", base="http://rebound.example:8000", **options) as rebound:
        assert (await rebound.http.get("/queues")).status_code == 303
    async with browser(shop, address="127.0.0.1", base="http://127.0.0.1:8000") as closed:
        assert (await closed.http.get("/queues")).status_code == 303


async def test_the_dashboard_can_be_switched_off(dsn: str) -> None:
    with Holdfast(dsn, dashboard=False) as hf:
        async with browser(hf) as anonymous:
            serving.problem(await anonymous.http.get("/sign-in"), 404, "not-found")
        await hf.aclose()


def test_a_changed_or_ended_session_is_none() -> None:
    session = sessions.begin(b"d" * 32, None)
    sealed = sessions.seal(KEY, session)
    assert sessions.unseal(KEY, sealed) == session
    assert sessions.unseal(b"o" * 32, sealed) is None
    for place in range(0, len(sealed), 7):
        other = "A" if sealed[place] != "A" else "B"
        assert sessions.unseal(KEY, sealed[:place] + other + sealed[place + 1 :]) is None
    for wrong in ("", "x", "é", sealed + "A", sealed[:-4]):
        assert sessions.unseal(KEY, wrong) is None
    assert sessions.unseal(KEY, sessions.seal(KEY, sessions.begin(b"d" * 32, -1))) is None


def test_a_session_ends_with_its_token() -> None:
    assert sessions.begin(b"d" * 32, 60).ends < sessions.begin(b"d" * 32, None).ends


def test_each_page_of_the_navigation_has_a_key_of_its_own(shop: Holdfast) -> None:
    dashboard = app(shop).dashboard
    assert dashboard is not None
    keys = [each.key for each in dashboard.sections if each.title]
    assert all(keys) and len(set(keys)) == len(keys)
