"""Pages are run as they are written: the tutorial, recipes, coming from, troubleshooting."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support import django_site
from tests.support.pages import Page, blocks, free_port, settings

Sql = Callable[..., list[tuple[Any, ...]]]
DOCS = ROOT / "docs"
RECIPES = sorted((DOCS / "recipes").glob("*.md"))
RUN = [DOCS / "index.md", *RECIPES, *sorted((DOCS / "coming-from").glob("*.md"))]


@pytest.mark.parametrize("page", RUN, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_page_does_what_it_shows(page: Path, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings(dsn, tmp_path, monkeypatch)
    if page.stem == "django":
        django_site.set_up(dsn)  # once for each process, so other tests need theirs
    Page(page, tmp_path, dsn).run()


def test_the_tutorial_ends_in_a_deployed_application(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = {shown: free_port() for shown in ("8081", "8123")}
    settings(dsn, tmp_path, monkeypatch)
    Page(DOCS / "start" / "index.md", tmp_path, dsn, ports).run()


TROUBLE = """
from holdfast import Breaker, Holdfast, Limit, Retry

hf = Holdfast()


@hf.task(queue="mail")
async def send() -> None: ...


@hf.task(retry=Retry.none())
def fail() -> None:
    raise ValueError("wrong line")


@hf.task(queue="old")
def gone() -> None: ...


@hf.task(limits=[Limit("domain:{domain}", breaker=Breaker(after=1, pause=300))])
async def visit(domain: str) -> None:
    raise ConnectionError("refused")
"""
SHOWN = (
    "01a1f1e3-5169-7000-8000-763c681c5e11",
    "01a1f1e3-51b9-7000-8000-0b4fcc65a2f0",
    "01a1f1e3-9c51-7000-8000-44d1a6f08b12",
)


@pytest.fixture
def trouble(dsn: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Make what the page is about; return the page's ids and the real ones."""
    settings(dsn, tmp_path, monkeypatch)
    (tmp_path / "app.py").write_text(TROUBLE)
    app = importlib.import_module("app")
    app.hf.limits.pause("queue:mail", reason="provider is down", by="ann@laptop")
    failed, unknown, paused = app.fail.enqueue(), app.gone.enqueue(), app.send.enqueue()
    app.visit.enqueue("a.example")
    app.hf.registry.tasks.pop("app.gone")
    app.hf.tick(queues=["default", "old"])
    app.visit.enqueue("b.example")
    app.hf.tick()  # its claim counts what failed, and opens the breaker
    sql("select fold_errors()")  # as the leader does
    yield {SHOWN[0]: paused.id, SHOWN[1]: failed.id, SHOWN[2]: unknown.id}
    app.hf.close()
    sys.modules.pop("app")


def test_each_symptom_ends_in_a_command_that_runs(trouble: dict[str, str], dsn: str, tmp_path: Path) -> None:
    page = DOCS / "troubleshooting.md"
    assert all("```console" in each for each in page.read_text().split("\n## "))
    Page(page, tmp_path, dsn, trouble).run()


def test_there_are_twenty_recipes_and_each_runs_something() -> None:
    assert len(RECIPES) > 20  # and the index
    for page in RECIPES:
        assert page.stem == "index" or {block.kind for block in blocks(page)} >= {"python"}, page
