"""What jobs contain is text on every page, whatever it is, and moves nothing out of a narrow screen."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast import Holdfast, Limit, Retry
from tests.support import serving

Look = Callable[..., Any]
Site = tuple[Holdfast, str]
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe\x07 '\"&" + "w" * 80
QUEUE = HOSTILE.replace("/", "|").replace(",", ";")[:90]
WIDEST = """[...document.querySelectorAll("main *")].filter((each) => !each.closest(".scroll, nav, pre")
    && (each.getBoundingClientRect().right > innerWidth || each.scrollWidth > innerWidth))
    .map((each) => each.outerHTML.slice(0, 150)).slice(-3)"""
MEGABYTES = 10_000_000
PAGES = ["", "jobs", "dead", "queues", "tasks", "tenants", "limits", "workers", "usage", "audit", "batches"]


def with_hostile_jobs(hf: Holdfast) -> list[str]:
    """Put hostile text wherever text of others goes; return the paths of pages that show it alone."""

    options: Any = {"name": HOSTILE, "queue": QUEUE, "retry": Retry.fixed(1, max_attempts=1)}

    @hf.task(**options, limits=[Limit("x:{to}", concurrency=1)])
    async def broken(to: str) -> None:
        raise RuntimeError(HOSTILE)

    mine = broken.using(tenant=HOSTILE)
    failed = mine.enqueue(HOSTILE).id
    with ThreadPoolExecutor(1) as threads:  # playwright runs an event loop in this one
        threads.submit(hf.tick, queues=[QUEUE]).result()
    calls = hf.database.calls.workers
    hf.database.sync_pool.run(calls.upkeep("test", 60.0))  # folds the errors
    waiting = mine.enqueue(HOSTILE).id
    hf.database.sync_pool.run(calls.register(HOSTILE, HOSTILE, 1, HOSTILE, [HOSTILE], 1, []))
    hf.limits.pause(f"tenant:{HOSTILE}", by=HOSTILE, reason=HOSTILE)
    hf.limits.pause(f"x:{HOSTILE}", by=HOSTILE, reason=HOSTILE)
    with hf.batch(HOSTILE, tenant=HOSTILE):
        pass
    (group,) = hf.dead.errors.list()
    return [f"/jobs/{failed}", f"/jobs/{waiting}", f"/dead/{group.fingerprint}"]


def test_hostile_text_is_shown_as_text(site: Site, look: Look) -> None:
    hf, _ = site
    paths = with_hostile_jobs(hf)
    page = look(serving.token(hf, None), viewport={"width": 375, "height": 700})
    page.on("dialog", lambda dialog: (_ for _ in ()).throw(AssertionError(dialog.message)))
    for path in (*(f"/{each}" for each in PAGES), *paths):
        assert page.goto(path).status == 200, path
        assert page.locator("main script, main img").count() == 0, path
        content = page.content()
        assert "\u202e" not in content and "\x07" not in content, path
        assert path == "/usage" or "<script>alert(1)" in page.locator("main").inner_text(), path
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (path, page.evaluate(WIDEST))


def test_a_value_of_ten_megabytes_is_cut_and_cannot_be_edited(site: Site, look: Look, dsn: str) -> None:
    hf, _ = site
    with Holdfast(dsn, max_payload=2 * MEGABYTES) as large:
        id_ = serving.with_tasks(large).registry.tasks["shop.send"].enqueue("x" * MEGABYTES).id
    page = look(serving.token(hf, None))
    page.goto("/jobs")
    assert "long arguments" in page.inner_text("main")
    page.goto(f"/jobs/{id_}")
    assert len(page.content()) < 100_000
    assert "more characters" in page.inner_text("main")
    assert page.locator("#edit").count() == 0
