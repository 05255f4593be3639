"""The site of the documentation in a browser: nothing from elsewhere, no error, readable on a phone and in the dark."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.browser.conftest import looking
from tests.conftest import ROOT

pytest.importorskip("mkdocs", reason="NO MKDOCS: pip install mkdocs-material")
NARROW, WIDE = {"width": 375, "height": 700}, {"width": 1280, "height": 900}
PAGES = (
    "index.html",
    "guides/dashboard.html",
    "compared.html",
    "job-life.html",
    "start/index.html",
    "coming-from/celery.html",
    "recipes/retry-after.html",
    "reference/settings.html",
    "decisions/020-the-ring-is-a-table.html",
)
# What a reader would have to scroll sideways for, or could not see at all.
TROUBLE = """() => [
    ...(document.documentElement.scrollWidth > innerWidth ? [`wide: ${document.documentElement.scrollWidth}`] : []),
    ...[...document.images].filter((it) => it.complete && !it.naturalWidth).map((it) => `no picture: ${it.src}`),
    ...[...document.querySelectorAll("article p, article li, article h1, article h2")]
        .filter((it) => it.getBoundingClientRect().right > innerWidth + 1 && !it.closest("pre, table"))
        .map((it) => `beyond the edge: ${it.textContent.slice(0, 40)}`),
]"""
SHADE = """([least, most]) => {
    const [red] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g);
    return least <= red && red <= most ? [] : [`a background of ${getComputedStyle(document.body).backgroundColor}`];
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the site without a line for each request."""

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site's address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("scheme", "size", "pages", "shades"), [("light", NARROW, PAGES, [200, 255]), ("dark", WIDE, PAGES[:4], [0, 60])]
)
def test_pages_load_nothing_from_elsewhere_and_fit_the_screen(
    chromium: Any, address: str, scheme: str, size: dict[str, int], pages: tuple[str, ...], shades: list[int]
) -> None:
    found: dict[str, list[str]] = {}
    with looking(chromium, address) as look:
        page = look(viewport=size, color_scheme=scheme)
        for name in pages:
            assert page.goto(f"/{name}").status == 200, name
            if trouble := page.evaluate(TROUBLE) + page.evaluate(SHADE, shades):
                found[name] = trouble
    assert found == {}


def test_the_search_finds_a_page(chromium: Any, address: str) -> None:
    with looking(chromium, address) as look:
        page = look(viewport=WIDE)
        page.goto("/index.html")
        page.keyboard.press("/")
        page.keyboard.type("fair shares")
        page.wait_for_selector(".md-search-result a[href*='limits.html']")


def test_the_build_fails_on_a_broken_link_and_on_a_foreign_host(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import docs_site
    finally:
        sys.path.remove(str(ROOT / "tools"))
    (tmp_path / "a.html").write_text(
        '<a href="gone.html">x</a><a href="#gone">x</a><script src="https://cdn.example/x.js"></script>'
        '<img src="gone.png"><p>\n- not a list</p>'
    )
    with pytest.raises(Exception, match="the site is broken") as error:
        docs_site.on_post_build(SimpleNamespace(site_dir=str(tmp_path)))
    for wrong in ("gone.html", "#gone", "cdn.example", "gone.png", "not a list"):
        assert wrong in str(error.value)
