"""Debian's chromium, driven through playwright, and a served dashboard for it to look at."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from holdfast import Holdfast
from holdfast.web import app
from tests.conftest import wait_until

OPTIONS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync "
    "--disable-component-update"
)


@contextmanager
def served(hf: Holdfast) -> Iterator[str]:
    """Serve an application on loopback for the length of a block; yield its address."""
    server = uvicorn.Server(uvicorn.Config(app(hf), "127.0.0.1", 0, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


def chromium_path() -> str | None:
    """Return the program, or None on machines without it."""
    return shutil.which("chromium")


@contextmanager
def chromium() -> Iterator[Any]:
    """Run a browser for the length of a block. Until its end an event loop runs in this thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium_path(), args=OPTIONS.split())
        yield browser
        browser.close()


def sign_in(context: Any, token: str) -> None:
    """Exchange a token for a session, without a page, which would take a second."""
    form = context.request.get("/sign-in").text()
    csrf = form.partition('name="csrf" value="')[2].partition('"')[0]
    response = context.request.post("/sign-in", form={"csrf": csrf, "token": token}, max_redirects=0)
    assert response.status == 303, response.status
