"""The dashboard in a browser: sign-in, live updates, keys, themes, no scripts, the world of a tenant."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast import Holdfast
from tests.support import serving

Look = Callable[..., Any]
Site = tuple[Holdfast, str]


def test_a_wrong_token_is_refused_and_a_valid_one_leads_to_the_page_that_was_asked_for(site: Site, look: Look) -> None:
    page = look()
    page.goto("/queues")
    page.fill("input[name=token]", "hf_wrong")
    with page.expect_response("**/sign-in") as refused:
        page.click("main button")
    assert refused.value.status == 401 and page.get_by_role("alert").is_visible()
    page.fill("input[name=token]", serving.token(site[0], None))
    page.click("main button")
    page.wait_for_url("**/queues")


def test_a_page_shows_what_changed_without_a_reload(site: Site, look: Look) -> None:
    hf, _ = site
    page = look(serving.token(hf, None))
    page.goto("/queues")
    page.evaluate("window.kept = true")
    hf.registry.tasks["shop.send"].enqueue("ada")
    page.wait_for_selector("tr[data-id=default]")
    assert page.evaluate("window.kept") is True, "it was not reloaded"


def test_the_header_goes_on_while_a_new_token_is_shown(site: Site, look: Look) -> None:
    page = look(serving.token(site[0], None))
    page.goto("/tokens")
    page.click("button[popovertarget=create]")
    page.fill("#create input[name=name]", "ci")
    page.fill("#create input[name=tenant]", "acme")
    page.check("#create input[value='jobs:read']")
    page.click("#create button.main")
    page.wait_for_selector("pre:has-text('hf_')")
    with page.expect_response(lambda each: "fragment=status" in each.url) as followed:
        site[0].registry.tasks["shop.send"].enqueue("ada")
    assert followed.value.status == 200 and page.locator("pre:has-text('hf_')").is_visible()


def test_a_page_of_a_job_follows_it(site: Site, look: Look) -> None:
    hf, _ = site
    id_ = hf.registry.tasks["shop.send"].enqueue("ada").id
    page = look(serving.token(hf, None))
    page.goto(f"/jobs/{id_}")
    assert page.locator("#why .state").inner_text() == "queued"
    with ThreadPoolExecutor(1) as threads:  # playwright runs an event loop in this one
        threads.submit(hf.tick).result()
    page.wait_for_selector("#why .state-succeeded")
    assert page.locator("#acts button").count() == 0


def test_a_page_of_a_job_shows_the_end_that_came_before_its_stream(site: Site, look: Look) -> None:
    hf, _ = site
    id_ = hf.registry.tasks["shop.send"].enqueue("ada").id
    page = look(serving.token(hf, None))
    with ThreadPoolExecutor(1) as threads:
        page.route("**/live?*", lambda route: (threads.submit(hf.tick).result(), route.continue_()))
        page.goto(f"/jobs/{id_}")
        page.wait_for_selector("#why .state-succeeded")
        page.wait_for_selector("#facts:has-text('1 of')")
        assert "attempt 1" in page.inner_text("#life") and page.locator("#acts button").count() == 0


def test_the_times_of_an_ended_job_go_on(site: Site, look: Look) -> None:
    hf, _ = site
    id_ = hf.registry.tasks["shop.send"].enqueue("ada").id
    with ThreadPoolExecutor(1) as threads:
        threads.submit(hf.tick).result()
    page = look(serving.token(hf, None))
    page.add_init_script("document.addEventListener('swapped', () => (document.body.dataset.swapped = ''))")
    page.clock.install()
    page.goto(f"/jobs/{id_}")
    page.wait_for_selector("body[data-swapped]")  # when the stream begins; then nothing changes
    page.clock.run_for(3_600_000)
    for part in ("#why .sentence", "#life li:last-child"):
        page.wait_for_selector(f"{part} time:has-text('1 h ago')")


def test_a_page_shows_what_changed_while_its_stream_was_cut(site: Site, look: Look) -> None:
    """Each stream of this test ends at once and says nothing."""
    hf, _ = site
    page = look(serving.token(hf, None))
    page.route(
        re.compile(r"/live(\?|$)"), lambda route: route.fulfill(body="retry: 100\n\n", content_type="text/event-stream")
    )
    page.goto("/jobs")
    id_ = hf.registry.tasks["shop.send"].enqueue("ada").id
    page.wait_for_selector(f"tr[data-id='{id_}']")


def test_keys_move_through_rows_and_pages(site: Site, look: Look) -> None:
    hf, _ = site
    for name in ("ada", "bob"):
        hf.registry.tasks["shop.send"].enqueue(name)
    page = look(serving.token(hf, None))
    page.goto("/jobs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    focused = page.evaluate("document.activeElement.dataset.id")
    assert focused == page.locator("tr[data-id]").first.get_attribute("data-id")
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") in ("status", "task")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/queues")


def test_a_queue_is_paused_in_two_clicks(site: Site, look: Look) -> None:
    hf, _ = site
    hf.registry.tasks["shop.send"].enqueue("ada")
    page = look(serving.token(hf, None))
    page.goto("/queues")
    page.click("tr[data-id=default] button.link")
    page.fill("form:popover-open input[name=reason]", "moving")
    page.click("form:popover-open button.main")
    page.wait_for_selector("tr[data-id=default] .state-paused")
    assert "moving" in page.locator("#queues").inner_text()


def test_the_theme_follows_the_system_and_can_be_chosen(site: Site, look: Look) -> None:
    def background(page: Any) -> Any:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    token = serving.token(site[0], None)
    light, dark = look(token, color_scheme="light"), look(token, color_scheme="dark")
    for page in (light, dark):
        page.goto("/queues")
    assert background(light) != background(dark)
    with light.expect_response("**/theme"):
        light.click("[data-theme-form] button")
    assert background(light) == background(dark)
    light.reload()
    assert background(light) == background(dark), "the choice is kept"


def test_the_api_reference_fits_a_narrow_screen_and_needs_no_scripts(site: Site, look: Look) -> None:
    page = look(viewport={"width": 375, "height": 700}, java_script_enabled=False)
    page.goto("/v1/docs")
    narrow = look(viewport={"width": 375, "height": 700})
    narrow.goto("/v1/docs#jobs_create")
    assert narrow.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert narrow.locator("#jobs_create pre").inner_text().startswith("curl localhost:8000/v1/jobs")
    page.click("a[href='#errors_retry']")
    assert page.locator("#errors_retry").is_visible()


def test_reading_and_acting_need_no_scripts(site: Site, look: Look) -> None:
    hf, _ = site
    id_ = hf.registry.tasks["shop.send"].enqueue("ada").id
    page = look(serving.token(hf, None), java_script_enabled=False)
    page.goto("/jobs")
    page.click("tr[data-id] a")
    page.click("button[popovertarget=cancel]")
    page.click("#cancel button.main")
    page.wait_for_selector("#why .state-canceled")
    assert hf.jobs.get(id_).status == "canceled"


def test_a_tenant_has_its_own_world(site: Site, look: Look) -> None:
    hf, _ = site
    send = hf.registry.tasks["shop.send"]
    mine, _other = send.using(tenant="acme").enqueue("ada").id, send.using(tenant="globex").enqueue("bob").id
    page = look(serving.token(hf, "acme"))
    page.goto("/")
    assert page.url.endswith("/jobs")
    assert [each.get_attribute("data-id") for each in page.locator("tr[data-id]").all()] == [mine]
    entries = page.locator("nav[aria-label=Pages] a").all_inner_texts()
    assert "Jobs" in entries and not {"Overview", "Queues", "Limits", "Workers"} & set(entries)


def test_a_worker_is_asked_to_drain_with_a_reason(site: Site, look: Look) -> None:
    hf, _ = site
    calls = hf.database.calls.workers
    hf.database.sync_pool.run(calls.register("mail-1", "host-a", 42, "1.2.3", ["mail"], 8, []))
    page = look(serving.token(hf, None))
    page.goto("/workers")
    page.locator("tr[data-id=mail-1]").get_by_role("button", name="Stop").click()
    form = page.locator("form[popover]:popover-open")
    form.locator("input[name=reason]").fill("host is replaced")
    form.get_by_role("button", name="Stop").click()
    page.wait_for_selector("tr[data-id=mail-1] .state-draining")
    (worker,) = hf.workers.list()
    assert (worker["stop_by"], worker["stop_reason"]) == ("of None", "host is replaced")
