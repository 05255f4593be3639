"""A browser that looks at a served dashboard. A violation of the policy, an error or a foreign host fails a test.

An event loop runs in the process while there is a browser, so it ends with the module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import Holdfast
from tests.conftest import DATABASE, drop_database, make_database
from tests.support import browsing, serving
from tests.support.pace import slower
from tests.support.storefront import Storefront, opened

pytest.importorskip("playwright.sync_api", reason="NO PLAYWRIGHT: pip install playwright")
EXPECTED = ("status of 401", "status of 404")  # a refused sign-in, and the page of a problem
WATCH = """
addEventListener("securitypolicyviolation", (event) => console.error("CSP", event.violatedDirective, event.blockedURI));
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if browsing.chromium_path() is None:
        pytest.skip("NO CHROMIUM IS INSTALLED, so no page is looked at: apt-get install chromium")
    with browsing.chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def storefront(pg18: str, chromium: Any) -> Iterator[tuple[Storefront, str]]:
    """A shop at work on a database of its own, and the address of its dashboard."""
    dsn = make_database(pg18, name := f"{DATABASE}_shop")
    with opened(dsn) as shop, browsing.served(shop.hf) as base:
        yield shop, base
    drop_database(pg18, name)


@pytest.fixture
def site(dsn: str) -> Iterator[tuple[Holdfast, str]]:
    """An application with tasks, and the address of its dashboard."""
    with Holdfast(dsn) as hf:
        serving.with_tasks(hf)
        with browsing.served(hf) as base:
            yield hf, base


class Looking:
    """Opens pages of one address, each in a browser of its own, and notes in `wrong` what may not be."""

    def __init__(self, chromium: Any, base: str) -> None:
        self.wrong: list[str] = []
        self._chromium = chromium
        self._base = base
        self._contexts: list[Any] = []

    def __call__(self, token: str | None = None, **options: Any) -> Any:
        """Return a page, signed in with a token."""
        context = self._chromium.new_context(base_url=self._base, **options)
        self._contexts.append(context)
        context.set_default_timeout(10_000 * slower())
        if options.get("java_script_enabled", True):
            context.add_init_script(WATCH)
        page = context.new_page()
        page.on("console", self._on_message)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("request", self._on_request)
        if token is not None:
            browsing.sign_in(context, token)
        return page

    def _on_message(self, message: Any) -> None:
        if message.type == "error" and not any(each in message.text for each in EXPECTED):
            self.wrong.append(message.text)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self._base, "data:", "blob:")):
            self.wrong.append(request.url)

    def close(self) -> None:
        """Close the browsers."""
        for each in self._contexts:
            each.close()


@contextmanager
def looking(chromium: Any, base: str) -> Iterator[Looking]:
    """Yield a function that opens pages; fail at the end if something was wrong with one."""
    look = Looking(chromium, base)
    yield look
    look.close()
    assert look.wrong == []


@pytest.fixture
def look(chromium: Any, site: tuple[Holdfast, str]) -> Iterator[Callable[..., Any]]:
    """A function that opens a page of the site."""
    with looking(chromium, site[1]) as found:
        yield found


@pytest.fixture
def visit(chromium: Any, storefront: tuple[Storefront, str]) -> Iterator[Callable[..., Any]]:
    """A function that opens a page of the shop."""
    with looking(chromium, storefront[1]) as found:
        yield found
