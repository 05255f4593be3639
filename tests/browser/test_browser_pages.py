"""Every page with real data: what all of them keep, in light and dark, on a narrow screen and without scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.browser.conftest import Looking
from tests.conftest import wait_until
from tests.support import serving
from tests.support.storefront import Storefront

Look = Callable[..., Any]
Shop = tuple[Storefront, str]
RULES = Path(__file__).with_name("rules.js").read_text(encoding="utf-8")
STILL = {"reduced_motion": "reduce"}  # or colors would be read while they change
NARROW, WIDE = {"width": 375, "height": 700}, {"width": 1280, "height": 900}
ELSEWHERE = {"docs": "/v1/docs", "problem": "/nothing/here", "sign-in": "/sign-in", "filtered": "/jobs?status=dead"}
MAY_BE_EMPTY = {"running", "lost", "acts", "steps", "outcome", "breaker"}
KEYED = ("jobs", "limits", "audit")  # whose rows j and k move through


def breaches(page: Any) -> Iterator[str]:
    """Yield what is wrong with an open page."""
    page.evaluate(RULES)
    yield from page.evaluate("breaches()")
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        yield from (f"faint in {scheme}: {each}" for each in page.evaluate("faint()"))
    page.set_viewport_size(NARROW)
    if (wider := page.evaluate("overflow()")) > 0:
        yield f"{wider} px wider than a narrow screen"
    page.set_viewport_size(WIDE)


def unserved(page: Any) -> Iterator[str]:
    """Yield the parts of an open page that follow changes, and that the service does not return alone."""
    yield from page.evaluate(
        """async () => {
            const missing = [];
            for (const { id } of document.querySelectorAll("[data-live]")) {
                const url = new URL(location.href);
                url.searchParams.set("fragment", id);
                const response = await fetch(url);
                if (!response.ok || !(await response.text()).includes(`id="${id}"`)) missing.push(`not served: ${id}`);
            }
            return missing;
        }"""
    )


def test_every_page_keeps_the_rules(storefront: Shop, visit: Look) -> None:
    shop, _ = storefront
    page = visit(serving.token(shop.hf, None), viewport=WIDE, **STILL)
    found: dict[str, list[str]] = {}
    for name, path in (shop.paths | ELSEWHERE).items():
        assert page.goto(path).status == (404 if name == "problem" else 200), name
        if wrong := [*breaches(page), *(unserved(page) if name != "problem" else ())]:
            found[name] = wrong
    assert found == {}


def test_every_page_can_be_read_without_scripts(storefront: Shop, visit: Look) -> None:
    shop, _ = storefront
    page = visit(serving.token(shop.hf, None), java_script_enabled=False)
    for name, path in shop.paths.items():
        page.goto(path)
        assert page.locator("h1").is_visible(), name
        empty = page.locator("main [data-live]").evaluate_all(
            "(parts) => parts.filter((each) => !each.innerText.trim()).map((each) => each.id)"
        )
        assert set(empty) <= MAY_BE_EMPTY, name


def test_forms_act_without_scripts(storefront: Shop, visit: Look) -> None:
    shop, _ = storefront
    page = visit(serving.token(shop.hf, None), java_script_enabled=False)
    page.goto("/jobs")
    page.select_option("select[name=status]", "dead")
    page.click("form.filter button.main")
    page.wait_for_url("**/jobs?status=dead*")
    assert set(page.locator("tbody .state").all_inner_texts()) == {"dead"}
    page.goto(shop.paths["limit"])
    page.fill("input[name=concurrency]", "7")
    page.click("form.numbers button.main")
    assert "→ 7" in page.inner_text("[role=status]")
    page.goto("/tenants")
    page.click("tr[data-id=delta] button.link")
    page.fill("form:popover-open input[name=reason]", "unpaid")
    page.click("form:popover-open button.main")
    page.click("tr[data-id=delta] button:has-text('Resume')")
    assert "Resumed delta." in page.inner_text("[role=status]")


def test_nothing_jumps_while_a_page_follows_changes(storefront: Shop, visit: Look) -> None:
    shop, _ = storefront
    page = visit(serving.token(shop.hf, None), viewport=WIDE)
    page.add_init_script(SHIFTS)
    for path, part in (("/", "#tiles"), ("/tenants", "#tenants")):
        page.goto(path)
        before = page.inner_text(part)
        shop.enqueue("orders.remind", [{"order": n} for n in range(8)], delay=7200)
        page.wait_for_function(CHANGED, arg=[part, before])
        assert page.evaluate("shift") < 0.1, path


def test_rows_stay_while_the_viewer_points_at_them(storefront: Shop, visit: Look) -> None:
    shop, _ = storefront
    page = visit(serving.token(shop.hf, None), viewport=WIDE)
    page.add_init_script(SHIFTS)
    page.goto("/jobs")
    page.hover("#jobs tbody tr")
    before = page.inner_text("#jobs tbody tr:first-child")
    with page.expect_response(lambda response: "fragment=" in response.url):  # the header follows the same changes
        (new, *_) = shop.enqueue("orders.remind", [{"order": 1}] * 8, delay=7200)
    assert page.inner_text("#jobs tbody tr:first-child") == before and page.evaluate("shift") < 0.1
    page.mouse.move(1, 1)
    page.wait_for_selector(f"tr[data-id='{new}']")


CHANGED = "([part, before]) => document.querySelector(part).innerText !== before"
SHIFTS = """
window.shift = 0;
new PerformanceObserver((list) => list.getEntries().forEach((entry) => (window.shift += entry.value)))
    .observe({ type: "layout-shift", buffered: true });
"""
HIDE = """(hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_page_in_the_background_asks_for_nothing(storefront: Shop, visit: Look) -> None:
    shop, _ = storefront
    token, asked = serving.token(shop.hf, None), []
    hidden, visible = visit(token), visit(token)
    for page in (hidden, visible):
        page.goto("/queues")
    hidden.evaluate(HIDE, True)
    hidden.on("request", lambda request: asked.append(request.url))
    before = visible.inner_text("tr[data-id=mail]")
    shop.enqueue("orders.remind", [{"order": 1}] * 5, delay=7200)
    visible.wait_for_function(CHANGED, arg=["tr[data-id=mail]", before])
    assert asked == []
    hidden.evaluate(HIDE, False)
    wait_until(lambda: hidden.evaluate("1") and any("fragment=" in each for each in asked))


BAD = """
<html><body>
<div class="outside">outside</div><header></header>
<style>:focus { outline: none } .faint { color: #999 }
@media (prefers-color-scheme: dark) { body { background: #222; color: #333 } }</style>
<main>
<h1>One</h1><h1>Two</h1><h3>Three</h3><nav></nav>
<input name="a"><button></button><a href="/"></a>
<table><tr><th></th></tr></table><table><tr><td>1</td></tr></table>
<p id="twice" class="faint">faint</p><p id="twice">once more</p><label for="nowhere">x</label><svg></svg>
<input aria-label="b" placeholder="pale"><div style="width: 2000px">wide</div>
</main><main></main></body></html>
"""


def test_each_rule_finds_what_breaks_it(visit: Looking) -> None:
    page = visit(viewport=WIDE, **STILL)
    page.set_content(BAD)
    found = [*breaches(page)]
    broken = {each.partition(":")[0] for each in found}
    page.evaluate(RULES)
    assert broken >= {
        "an input without a label", "a button or link without a name", "not one h1", "a heading that skips a level",
        "a table header without a scope", "a table header without a name", "a table without headers", "not one main",
        "a nav without a name", "content outside of the landmarks", "an id twice", "a reference to nothing",
        "a picture without a name", "no language", "no title", "a focus that cannot be seen",
        "faint in light", "faint in dark",
    }  # fmt: skip
    assert any("wider than a narrow screen" in each for each in found)


def test_a_violation_an_error_and_a_foreign_host_are_noticed(visit: Looking, storefront: Shop) -> None:
    page = visit()
    policy = {"Content-Security-Policy": "default-src 'none'; script-src 'self'", "Content-Type": "text/html"}
    foreign = '<script>alert(1)</script><script src="/bad.js"></script><img src="http://other.invalid/x.png">'
    page.route("**/bad", lambda route: route.fulfill(body=foreign, headers=policy))
    page.route("**/bad.js", lambda route: route.fulfill(body="throw Error('broken')", content_type="text/javascript"))
    page.goto("/bad")
    wait_until(lambda: page.evaluate("1") and len(visit.wrong) >= 3)
    noticed = " ".join(visit.wrong)
    visit.wrong.clear()
    assert "CSP" in noticed and "broken" in noticed and "other.invalid" in noticed


def test_a_jump_is_noticed(visit: Looking) -> None:
    page = visit(viewport=WIDE)
    page.set_content("<main><p>text</p><p>more</p></main>")
    page.evaluate(SHIFTS)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('afterbegin', '<div style=\"height: 500px\">new</div>')"
    )
    page.wait_for_function("shift > 0")


def test_rows_are_reached_by_keys(storefront: Shop, visit: Look) -> None:
    shop, _ = storefront
    page = visit(serving.token(shop.hf, None))
    for name in KEYED:
        page.goto(shop.paths[name])
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url(lambda url, path=shop.paths[name]: not url.endswith(path))


def test_a_worker_is_stopped_without_scrolling_sideways(storefront: Shop, visit: Look) -> None:
    shop, _ = storefront
    page = visit(serving.token(shop.hf, None))
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto("/workers")
    box = page.locator("#workers button[popovertarget]").first.bounding_box()
    assert box["x"] + box["width"] <= 1260, "within the panel"
