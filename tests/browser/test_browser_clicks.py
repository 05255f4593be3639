"""How many clicks it takes from a failing deployment to all of its failures retried."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from holdfast import Holdfast, Retry
from tests.conftest import wait_until
from tests.support import serving
from tests.support.storefront import working

FAILURES = 2000
MOST_CLICKS = 4


def deploy(hf: Holdfast, mended: threading.Event) -> Any:
    """Return a task that fails until it is mended."""

    @hf.task(name="shop.bill", retry=Retry.fixed(1, max_attempts=1))
    async def bill(order: int) -> None:
        if not mended.is_set():
            raise KeyError("vat_rate")

    return bill


def test_all_failures_of_an_error_are_retried_in_four_clicks(
    site: tuple[Holdfast, str], look: Callable[..., Any], dsn: str
) -> None:
    hf, _ = site
    mended = threading.Event()
    worker = Holdfast(dsn)
    deploy(worker, mended)
    deploy(hf, mended).enqueue_many([(number,) for number in range(FAILURES)])
    with working(worker, concurrency=100, queues=["default"]):
        wait_until(lambda: sum(each.dead for each in hf.dead.errors.list()) == FAILURES)
        page = look(serving.token(hf, None))
        page.add_init_script(
            "addEventListener('click', (event) => event.isTrusted && "
            "sessionStorage.setItem('clicks', 1 + Number(sessionStorage.getItem('clicks') ?? 0)))"
        )
        page.goto("/")
        mended.set()
        page.click("#failing tbody a")
        page.click("button:has-text('Retry all 2,000')")
        page.click("form:popover-open button.main")
        page.wait_for_selector("#action .state-done")
        assert "2,000 of 2,000 jobs changed" in page.inner_text("#action")
        wait_until(lambda: not hf.dead.count() and not any(each["ready"] for each in hf.queues.list()))
        assert int(page.evaluate("sessionStorage.getItem('clicks')")) <= MOST_CLICKS
    assert len(hf.jobs.list(status="succeeded", limit=FAILURES)) == FAILURES
