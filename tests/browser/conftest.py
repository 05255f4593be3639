"""A browser that looks at a served dashboard. A violation of the policy, an error or a foreign host fails a test."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from holdfast import Holdfast
from holdfast.web import app
from tests.conftest import wait_until
from tests.support import serving
from tests.support.pace import slower

playwright = pytest.importorskip("playwright.sync_api", reason="NO PLAYWRIGHT: pip install playwright")
OPTIONS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync "
    "--disable-component-update"
)
WATCH = """
addEventListener("securitypolicyviolation", (event) => console.error("CSP", event.violatedDirective, event.blockedURI));
"""


@pytest.fixture
def site(dsn: str) -> Iterator[tuple[Holdfast, str]]:
    """An application with tasks, and the address of its dashboard."""
    with Holdfast(dsn) as hf:
        serving.with_tasks(hf)
        server = uvicorn.Server(uvicorn.Config(app(hf), "127.0.0.1", 0, log_config=None, ws="none"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield hf, f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join(30)


@pytest.fixture
def chromium() -> Iterator[Any]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("NO CHROMIUM IS INSTALLED, so no page is looked at: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=OPTIONS.split())
        yield browser
        browser.close()


def _note(wrong: list[str], message: Any) -> None:
    """Note an error; a refused sign-in is one, too, and is expected."""
    if message.type == "error" and "status of 401" not in message.text:
        wrong.append(message.text)


@pytest.fixture
def look(chromium: Any, site: tuple[Holdfast, str]) -> Iterator[Callable[..., Any]]:
    """A function that opens a page in a browser of its own, signed in with a token."""
    wrong: list[str] = []
    contexts: list[Any] = []
    base = site[1]

    def opened(token: str | None = None, **options: Any) -> Any:
        context = chromium.new_context(base_url=base, **options)
        contexts.append(context)
        context.set_default_timeout(10_000 * slower())
        if options.get("java_script_enabled", True):
            context.add_init_script(WATCH)
        page = context.new_page()
        page.on("console", lambda message: _note(wrong, message))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda sent: None if sent.url.startswith((base, "data:")) else wrong.append(sent.url))
        if token is not None:
            page.goto("/sign-in")
            page.fill("input[name=token]", token)
            page.click("main button")
            page.wait_for_url(lambda url: "sign-in" not in url)
        return page

    yield opened
    for each in contexts:
        each.close()
    assert wrong == []
